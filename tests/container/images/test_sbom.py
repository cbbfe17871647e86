"""The bill of materials of a real image."""

import json
from pathlib import Path
from typing import Any

import pytest

from images import sbom, tags
from local import host


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("sbom")
    file = sbom.write(host.engine(print), tags.reference("guard"), folder)
    assert file == folder / f"guard-{tags.tag('guard')}.cdx.json"
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_bill_of_materials_lists_packages_of_image_and_parents(bill: dict[str, Any]) -> None:
    versions = {one["name"]: one["version"] for one in bill["components"]}

    assert {"nftables", "slurm-wlm-basic-plugins", "libc6"} <= versions.keys()
    assert all(versions.values())


def test_packages_have_package_urls_for_scanners(bill: dict[str, Any]) -> None:
    binaries = [one for one in bill["components"] if one["name"] == "nftables"]

    assert any(one["purl"].startswith("pkg:deb/debian/nftables@") for one in binaries)


def test_bill_of_materials_depends_only_on_the_image(bill: dict[str, Any], tmp_path: Path) -> None:
    again = sbom.write(host.engine(print), tags.reference("guard"), tmp_path)

    assert json.loads(again.read_text()) == bill
