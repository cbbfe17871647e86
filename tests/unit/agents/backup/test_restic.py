"""The reason of a failed run of restic, and the command with which restic runs."""

import os
import subprocess
from pathlib import Path

import pytest

from agents.backup.restic import Done, Progress, Restic

STORE = {"RESTIC_REPOSITORY": "/store/test", "CLUSTER": "test"}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("Fatal: wrong password or no key found\n", "wrong password or no key found"),
        (
            'done\n{"message_type":"exit_error","code":1,"message":"Fatal: no such store"}',
            "no such store",
        ),
        ("subprocess env: Access denied\nFatal: unable to save", "Access denied"),
        (
            "Save(<data/1>) failed: write: no space left on device\nFatal: no space",
            "write: no space left on device",
        ),
        (
            "Load(<key/1>) returned error, retrying after 1s: connection refused\n",
            "connection refused",
        ),
        ("", "restic: exit code 7"),
    ],
)
def test_reason_of_a_failed_run(said: str, reason: str) -> None:
    assert Done(7, "", said).reason == reason


def test_credentials_are_in_no_argument(tmp_path: Path) -> None:
    files = {
        "backup_password/password": "open-sesame\n",
        "backup_s3/access_key": "some-key",
        "backup_s3/secret_key": "some-secret",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    restic = Restic(STORE, tmp_path)

    assert not {"open-sesame", "some-key", "some-secret"} & {*restic.command("init")}
    assert restic.environment()["RESTIC_PASSWORD"] == "open-sesame"
    assert restic.environment()["AWS_SECRET_ACCESS_KEY"] == "some-secret"


def test_store_without_a_password_says_so(tmp_path: Path) -> None:
    assert "--insecure-no-password" in Restic(STORE, tmp_path).command("init")


def test_restic_is_confined_to_its_root(tmp_path: Path) -> None:
    confined = Restic({**STORE, "ROOT": "/srv/root"}, tmp_path)

    assert confined.command("init")[:3] == ["chroot", "/srv/root", "restic"]


def test_sleeping_process_has_stalled_after_a_while() -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeping:
        now = [0.0]
        progress = Progress(sleeping.pid, lambda: now[0])
        assert not progress.has_stalled()
        now[0] = 3600

        assert progress.has_stalled()
        sleeping.kill()


def test_working_process_has_not_stalled() -> None:
    now = [0.0]
    progress = Progress(os.getpid(), lambda: now[0])
    with Path("/dev/zero").open("rb") as zeros:
        zeros.read(1 << 21)
    now[0] = 3600

    assert not progress.has_stalled()
