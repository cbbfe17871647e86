"""Files that the setting `slurmstack:containers` gives to nodes.

The importer is `agents/containers`; the container plugin is `spank/containers`.
"""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from agents.containers.reference import InRegistry, parse
from agents.containers.settings import Settings as Read
from agents.containers.settings import read
from components.settings import Settings
from components.slurmconf import config_files, container_files
from local.paths import ROOT
from tests.support.stack import alone

PLUGIN = ROOT / "spank/containers/plugin.c"


def stack(**containers: Any) -> Settings:
    return alone(lambda values: values.update(containers=containers))


def arguments(**containers: Any) -> list[str]:
    """Return the arguments of the container plugin in plugstack.conf."""
    text = config_files(stack(**containers))["plugstack.conf"]
    return [word for line in text.splitlines() if "/container.so " in line for word in line.split()]


def write(folder: Path, **containers: Any) -> Path:
    for name, text in container_files(stack(**containers).containers).items():
        (folder / name).write_text(text)
    return folder


def test_container_plugin_follows_the_jail_plugin_in_plugstack_conf() -> None:
    """Slurm calls SPANK plugins in the order of plugstack.conf."""
    text = config_files(stack())["plugstack.conf"]

    assert text.index("/chroot.so") < text.index("/container.so")


def test_container_plugin_knows_every_rendered_argument() -> None:
    known = {*re.findall(r'"(\w+)"', PLUGIN.read_text())}
    given = {word.partition("=")[0] for word in arguments(writable=False) if "=" in word}

    assert given <= known


def test_container_plugin_is_not_loaded_if_containers_are_disabled() -> None:
    assert not arguments(enabled=False)


def test_settings_change_the_defaults_of_the_container_plugin() -> None:
    changed = {"mount_home=no", "remap_root=yes", "entrypoint=yes", "writable=no"}

    assert not changed & {*arguments()}
    assert changed <= {
        *arguments(mount_home=False, remap_root=True, entrypoint=True, writable=False)
    }


def test_jobs_read_the_cache_that_the_importer_writes(tmp_path: Path) -> None:
    folder = write(tmp_path, cache="/local/%u")

    assert "cache=/local/%u" in arguments(cache="/local/%u")
    assert read(folder).cache == "/local/%u"


def test_sizes_for_the_importer_are_in_bytes(tmp_path: Path) -> None:
    found = read(write(tmp_path, cache_size="2GiB", image_size="1GiB", fresh_for=5))

    assert (found.cache_size, found.image_size, found.fresh_for) == (2 << 30, 1 << 30, 5)


def test_importer_and_settings_have_the_same_defaults(tmp_path: Path) -> None:
    assert read(write(tmp_path)) == Read(folder=tmp_path)


def test_importer_reads_the_allowed_image_patterns(tmp_path: Path) -> None:
    assert read(write(tmp_path, allowed=["nvcr.io/*"])).allowed == ("nvcr.io/*",)


def test_registries_conf_lists_mirrors(tmp_path: Path) -> None:
    registries = [
        {"name": "docker.io", "mirrors": ["mirror.lab/hub", "cache.lab:5000"], "insecure": True},
        {"name": "r.lab"},
    ]
    folder = write(tmp_path, registries=registries)

    found = tomllib.loads((folder / "registries.conf").read_text())

    first, second = found["registry"]
    assert (first["location"], first["insecure"]) == ("docker.io", True)
    assert [mirror["location"] for mirror in first["mirror"]] == [
        "mirror.lab/hub",
        "cache.lab:5000",
    ]
    assert all(mirror["insecure"] for mirror in first["mirror"])
    assert second == {"location": "r.lab", "insecure": False}


def test_mounts_and_variables_are_written_to_files(tmp_path: Path) -> None:
    folder = write(tmp_path, mounts=["/a:/b:ro", "/c"], environment={"B": "two words", "A": "1"})

    assert (folder / "mounts").read_text() == "/a:/b:ro,/c"
    assert (folder / "environment").read_text() == "A=1\nB=two words\n"


def test_images_are_pulled_from_the_mirrors_of_their_registry(tmp_path: Path) -> None:
    registries = [
        {"name": "docker.io", "mirrors": ["mirror.lab/hub", "other.lab:5000"]},
        {"name": "nvcr.io/nvidia", "mirrors": ["mirror.lab/gpu"]},
    ]
    settings = read(write(tmp_path, registries=registries))

    def places(text: str) -> list[str]:
        image = parse(text)
        assert isinstance(image, InRegistry)
        return [str(each) for each in settings.mirrors_of(image)]

    assert places("ubuntu:24.04") == [
        "mirror.lab/hub/library/ubuntu:24.04",
        "other.lab:5000/library/ubuntu:24.04",
    ]
    assert places("nvcr.io#nvidia/pytorch:1") == ["mirror.lab/gpu/pytorch:1"]
    assert places("nvcr.io#nvidia2/pytorch:1") == []


@pytest.mark.parametrize("name", ["mounts", "environment", "registries.conf"])
def test_files_without_content_are_not_rendered(name: str) -> None:
    files = container_files(stack().containers)

    assert name not in files
    assert json.loads(files["settings.json"])
