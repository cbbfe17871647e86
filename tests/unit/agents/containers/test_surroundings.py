"""Variables, working directory and entrypoint are read from images of several formats."""

import json
from pathlib import Path
from typing import Any

import pytest

from agents.containers.errors import ImageError
from agents.containers.surroundings import Surroundings, of_config, of_files


def test_configuration_of_an_oci_image_is_read() -> None:
    config = {
        "config": {
            "Env": ["PATH=/bin", "EMPTY=", "LINES=a\nb"],
            "WorkingDir": "/data",
            "Entrypoint": ["/run.sh", "--", "with space"],
            "Cmd": ["ignored"],
        }
    }

    assert of_config(config) == Surroundings(
        variables=("PATH=/bin", "EMPTY=", "LINES=a\nb"),
        directory="/data",
        entrypoint=("/run.sh", "--", "with space"),
    )


@pytest.mark.parametrize(
    "config",
    [
        *({}, {"config": None}, {"config": {}}),
        {"config": {"Env": None, "WorkingDir": "", "Entrypoint": None}},
        {"config": {"Env": "PATH=x", "WorkingDir": "relative", "Entrypoint": "sh"}},
        {
            "config": {
                "Env": [1, "no value", "=x", "A\0B=c"],
                "WorkingDir": 5,
                "Entrypoint": [["a"]],
            }
        },
    ],
)
def test_values_of_a_wrong_type_are_skipped(config: dict[str, Any]) -> None:
    assert of_config(config) == Surroundings()


@pytest.mark.parametrize(
    "config",
    [{"Env": ["A=\ud800"]}, {"WorkingDir": "/\ud800"}, {"Entrypoint": ["\ud800"]}],
)
def test_text_that_is_not_valid_unicode_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ImageError, match=r"contains '.*\\ud800', which is not valid Unicode"):
        of_config({"config": config})


@pytest.mark.parametrize("config", [[], {"config": []}, {"config": "x"}])
def test_configuration_of_a_wrong_type_is_skipped(config: Any) -> None:
    assert of_config(config) == Surroundings()


def test_environment_and_rc_files_of_an_enroot_image_are_read(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/environment").write_text("# comment\nPATH=/opt/bin\n\nA=b c\n")
    (tmp_path / "etc/rc").write_text('mkdir -p "/work dir"\ncd "/work dir" || exit 1\nexec "$@"\n')

    assert of_files(tmp_path) == Surroundings(
        variables=("PATH=/opt/bin", "A=b c"),
        directory="/work dir",
        entrypoint=("/bin/sh", "/etc/rc"),
    )


def test_metadata_of_charliecloud_is_read(tmp_path: Path) -> None:
    (tmp_path / "ch").mkdir()
    metadata = {"cwd": "/work", "env": {"COLOUR": "blue"}, "labels": {}}
    (tmp_path / "ch/metadata.json").write_text(json.dumps(metadata))
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/environment").write_text("A=b\n")

    assert of_files(tmp_path) == Surroundings(("COLOUR=blue", "A=b"), directory="/work")


@pytest.mark.parametrize("text", ["{", "[]", '{"cwd": "/work"}', '{"env": ["A=b"]}'])
def test_invalid_metadata_of_charliecloud_is_skipped(tmp_path: Path, text: str) -> None:
    (tmp_path / "ch").mkdir()
    (tmp_path / "ch/metadata.json").write_text(text)

    assert of_files(tmp_path) == Surroundings()


def test_plain_directory_defines_no_environment_and_no_entrypoint(tmp_path: Path) -> None:
    assert of_files(tmp_path) == Surroundings()


def test_links_in_the_image_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("PASSWORD=x\n")
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/environment").symlink_to(secret)

    assert of_files(root) == Surroundings()


def test_files_for_the_program_start_container_are_written(tmp_path: Path) -> None:
    Surroundings(("A=b", "C=d e"), "/x", ("run", "-a")).write(tmp_path)

    assert (tmp_path / "environment").read_bytes() == b"A=b\0C=d e\0"
    assert (tmp_path / "entrypoint").read_bytes() == b"run\0-a\0"
    assert (tmp_path / "directory").read_text() == "/x"
