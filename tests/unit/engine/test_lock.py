"""Only one update of a stack runs at a time."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from engine.errors import EngineError
from engine.lock import locked


def hold(directory: Path, **content: Any) -> Path:
    directory.mkdir(exist_ok=True)
    file = directory / "other.json"
    fields = {
        "pid": os.getpid(),
        "username": "researcher",
        "hostname": socket.gethostname(),
        "timestamp": "2026-01-02T03:04:05Z",
    }
    file.write_text(json.dumps({**fields, **content}))
    return file


def test_lock_names_its_owner_and_is_released_at_the_end(tmp_path: Path) -> None:
    with locked(tmp_path / "locks") as file:
        content = json.loads(file.read_text())
        assert content["pid"] == os.getpid()
        assert content["hostname"] == socket.gethostname()
        assert {"username", "timestamp"} <= content.keys()
    assert not file.exists()


def test_failed_update_releases_the_lock(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path) as file:
        raise ZeroDivisionError
    assert not file.exists()


def test_error_of_a_second_update_names_lock_owner_and_remedy(tmp_path: Path) -> None:
    file = hold(tmp_path)
    with pytest.raises(EngineError) as caught, locked(tmp_path):
        pass
    message = str(caught.value)
    assert f"researcher@{socket.gethostname()} (process {os.getpid()})" in message
    assert "since 2026-01-02T03:04:05Z; wait until this update has ended" in message
    assert f"delete {file}" in message
    assert list(tmp_path.iterdir()) == [file], "the refused update must leave no lock"


def test_lock_of_an_ended_process_is_taken_over(tmp_path: Path) -> None:
    file = hold(tmp_path, pid=2**22 + 1)
    with locked(tmp_path):
        assert not file.exists()


def test_lock_of_a_process_on_another_machine_is_respected(tmp_path: Path) -> None:
    hold(tmp_path, pid=2**22 + 1, hostname="elsewhere")
    with pytest.raises(EngineError, match="elsewhere"), locked(tmp_path):
        pass


def test_error_names_an_unreadable_lock_file(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{}")
    expected = r"bad\.json: the lock file cannot be read"
    with pytest.raises(EngineError, match=expected), locked(tmp_path):
        pass
