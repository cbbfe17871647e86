"""Copies of Helm charts, for tests that hold values against them."""

import os
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

Values = dict[str, Any]


def files(name: str, version: str) -> Mapping[str, str]:
    """A chart's own files, by path below its folder; skips where there is no copy.

    CHARTS_DIR has the archives, as `helm pull` names them; else they are looked for where Helm
    keeps what it has fetched.
    """
    cache = os.environ.get("HELM_CACHE_HOME", "~/.cache/helm")
    folder = Path(os.environ.get("CHARTS_DIR", f"{cache}/repository")).expanduser()
    archive = folder / f"{name}-{version}.tgz"
    if not archive.is_file():
        pytest.skip(f"no copy of {archive.name}: set CHARTS_DIR to a folder with one")
    with tarfile.open(archive) as packed:
        return {
            member.name.partition("/")[2]: extracted.read().decode()
            for member in packed
            if member.name.endswith(("Chart.yaml", "values.yaml", "values.schema.json"))
            and (extracted := packed.extractfile(member))
        }


def defaults(found: Mapping[str, str]) -> Values:
    """The values that a chart and the charts in it have by themselves."""
    own: Values = yaml.safe_load(found["values.yaml"]) or {}
    for path in sorted(found):
        folder, _, file = path.rpartition("/")
        above, _, inner = folder.rpartition("/")
        if above == "charts" and file == "values.yaml":
            below: Values = yaml.safe_load(found[path]) or {}
            own[inner] = {**below, **(own.get(inner) or {})}
    return own
