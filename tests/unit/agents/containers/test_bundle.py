"""Read the configuration of OCI bundles for `srun --container`."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from agents.containers import bundle
from agents.containers.errors import ImageError


def make(path: Path, **config: Any) -> Path:
    (path / "rootfs").mkdir(parents=True)
    given = {"ociVersion": "1.0.2", "root": {"path": "rootfs"}} | config
    (path / "config.json").write_text(json.dumps(given))
    return path


def mounts(path: Path, *each: dict[str, Any]) -> list[str]:
    return bundle.read(make(path, mounts=each)).mounts.split(",")


def test_root_and_environment_and_working_directory_are_read(tmp_path: Path) -> None:
    process = {"env": ["A=1", "nonsense", "B=two words"], "cwd": "/data", "args": ["sh"]}

    found = bundle.read(make(tmp_path / "bundle", process=process))

    assert found.root == tmp_path / "bundle/rootfs"
    assert found.surroundings.variables == ("A=1", "B=two words")
    assert found.surroundings.directory == "/data"
    assert not found.read_only


def test_root_may_be_read_only_and_outside_the_bundle(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    root = {"path": str(elsewhere), "readonly": True}

    found = bundle.read(make(tmp_path / "bundle", root=root))

    assert found.root == elsewhere
    assert found.read_only


def test_bind_and_tmpfs_mounts_are_kept(tmp_path: Path) -> None:
    found = mounts(
        tmp_path / "bundle",
        {"destination": "/data", "source": "/srv/data", "options": ["rbind", "ro", "rprivate"]},
        {"destination": "/own", "source": "files", "type": "bind", "options": ["bind"]},
        {
            "destination": "/scratch",
            "source": "tmpfs",
            "type": "tmpfs",
            "options": ["nosuid", "size=64k"],
        },
    )

    assert found == [
        "/srv/data:/data:ro",
        f"{tmp_path}/bundle/files:/own:bind",
        "tmpfs:/scratch:nosuid+size=64k",
    ]


@pytest.mark.parametrize(
    "mount",
    [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
        {"destination": "/dev/pts", "type": "devpts", "options": ["gid=5"]},
        {"destination": "/sys/fs/cgroup", "type": "cgroup"},
        {"destination": "/run/queue", "type": "mqueue"},
        {"destination": "//proc/../proc", "type": "bind", "source": "/tmp"},
        {"destination": "/./sys//", "type": "bind", "source": "/tmp"},
        "nonsense",
    ],
)
def test_system_mounts_of_the_bundle_are_ignored(tmp_path: Path, mount: Any) -> None:
    assert mounts(tmp_path / "bundle", mount) == [""]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"root": {}}, "root.path: None: expected a directory"),
        ({"root": {"path": "missing"}}, "root.path: 'missing': expected a directory"),
        (
            {"mounts": [{"destination": "/a:b", "source": "/c", "options": ["bind"]}]},
            "mounts: '/a:b': a path of a mount cannot contain ':', ',' or a null character",
        ),
        (
            {"mounts": [{"destination": "/a", "source": "/c,d", "options": ["bind"]}]},
            "c,d': a path of a mount cannot contain ':', ',' or a null character",
        ),
    ],
)
def test_error_names_the_invalid_value_of_the_configuration(
    tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(ImageError, match=message):
        bundle.read(make(tmp_path / "bundle", **config))


def test_missing_configuration_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="expected an OCI bundle"):
        bundle.read(tmp_path)


def test_configuration_that_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    """A FIFO would block the step until a process writes to it."""
    os.mkfifo(tmp_path / "config.json")

    with pytest.raises(ImageError, match="expected a file"):
        bundle.read(tmp_path)


def test_configuration_that_is_not_json_is_an_error(tmp_path: Path) -> None:
    (make(tmp_path / "bundle") / "config.json").write_text("{")

    with pytest.raises(ImageError, match="expected JSON"):
        bundle.read(tmp_path / "bundle")


@pytest.mark.parametrize(
    "config",
    [
        {"process": {"env": ["A=\ud800"]}},
        {"process": {"cwd": "/\ud800"}},
        {"mounts": [{"destination": "/\ud800", "source": "/x", "type": "bind"}]},
    ],
)
def test_text_that_is_not_valid_unicode_is_refused(tmp_path: Path, config: dict[str, Any]) -> None:
    path = make(tmp_path / "bundle", **config)

    with pytest.raises(
        ImageError, match=f"{path}/config.json: the image's configuration contains '"
    ):
        bundle.read(path)
