"""Files that the settings name are read before the stack creates anything."""

from pathlib import Path

import pytest

from components import cluster as clusters
from components.composition import SlurmArgs
from components.files import project_files
from components.settings import SettingsError
from components.stack import create
from tests.support.stack import FULL, VALID, settings


def test_all_files_of_the_settings_are_found() -> None:
    found = dict(project_files(settings(base=FULL)))

    assert found["directory.ca"] == FULL["directory"]["ca"]
    assert found["rest.jwks"] == FULL["rest"]["jwks"]
    assert {key.rpartition(".")[2] for key in found} <= {"ca", "file", "jwks", "tls_ca"}


def test_each_missing_file_is_reported_before_anything_exists(
    tmp_path: Path,
) -> None:
    user = {"name": "ada", "uid": 2000, "ssh_key_files": ["~/ada.pub"]}
    given = {**VALID, "users": [user], "slurm": {"prolog": {"file": "prolog.sh"}}}
    chosen = settings(base=given)

    with pytest.raises(SettingsError) as caught:
        create(SlurmArgs(chosen, tmp_path, clusters.make(chosen, "test"), {}))

    key, script = str(caught.value).splitlines()
    assert key.startswith("slurmstack:users[ada].ssh_key_files: ~/ada.pub: No such file")
    assert "~ is not expanded" in key
    assert script.startswith("slurmstack:slurm.prolog.file: prolog.sh: No such file")
