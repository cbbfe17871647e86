"""Tests that the program checks the files that the settings name, before the stack creates
anything."""

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
    more = {
        "slurm": {"prolog": {"file": "prolog.sh"}, "job_submit_lua": {"file": "submit.lua"}},
        "health": {"script": {"file": "health.sh"}},
        "monitoring": {"logs": {"endpoint": "https://logs.lab", "ca": "logs.pem"}},
        "accounting": {
            "external": {"host": "db.lab", "password_secret": "db", "tls_ca": "db.pem"},
            "backup": {
                "s3": {
                    "endpoint": "https://s3.lab",
                    "bucket": "dumps",
                    "secret": "s3",
                    "ca": "s3.pem",
                }
            },
        },
    }
    assert dict(project_files(settings(base={**VALID, **more}))) == {
        "slurm.prolog.file": "prolog.sh",
        "slurm.job_submit_lua.file": "submit.lua",
        "health.script.file": "health.sh",
        "monitoring.logs.ca": "logs.pem",
        "accounting.external.tls_ca": "db.pem",
        "accounting.backup.s3.ca": "s3.pem",
    }


def test_each_missing_file_is_reported_before_anything_exists(
    tmp_path: Path,
) -> None:
    slurm = {"prolog": {"file": "prolog.sh"}, "job_submit_lua": {"file": "submit.lua"}}
    user = {"name": "ada", "uid": 2000, "ssh_key_files": ["~/ada.pub"]}
    given = {**VALID, "users": [user], "slurm": slurm}
    chosen = settings(base=given)

    with pytest.raises(SettingsError) as caught:
        create(SlurmArgs(chosen, tmp_path, clusters.make(chosen, "test"), {}))

    key, script, lua = str(caught.value).splitlines()
    assert lua.startswith("slurmstack:slurm.job_submit_lua.file: submit.lua: No such file")
    assert key.startswith("slurmstack:users[ada].ssh_key_files: ~/ada.pub: No such file")
    assert "~ is not expanded" in key
    assert script.startswith("slurmstack:slurm.prolog.file: prolog.sh: No such file")
