"""Tokens have the format that slurmctld accepts, and have not expired."""

import base64
import json
from pathlib import Path

import pytest

from agents.slurm import from_file, from_key, make_token
from agents.slurm.__main__ import main
from agents.slurm.tokens import LIFETIME


def claims(token: str) -> dict[str, object]:
    part = token.split(".")[1]
    decoded: dict[str, object] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return decoded


def test_token_contains_its_user_and_validity_period() -> None:
    token = make_token(b"key", "researcher", 60, now=1000.7)
    assert claims(token) == {"sun": "researcher", "iat": 1000, "exp": 1060}


def test_signature_of_a_token_equals_that_of_openssl() -> None:
    # Computed with `openssl dgst -sha256 -hmac key` over the first two parts.
    assert make_token(b"key", "slurm", 60, now=0).split(".") == [
        "eyJhbGciOiAiSFMyNTYiLCAidHlwIjogIkpXVCJ9",
        "eyJzdW4iOiAic2x1cm0iLCAiaWF0IjogMCwgImV4cCI6IDYwfQ",
        "21oiMNyqQPh7B7ILQ9GK4neC_ejhV5Ccd16aLDcTmxk",
    ]


def test_token_is_reused_until_shortly_before_it_expires(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"one")
    now = 1000.0
    token = from_key(key, "slurm", clock=lambda: now)

    first = token()
    now += LIFETIME / 2
    assert token() == first
    now += LIFETIME / 2 - 1
    assert claims(token())["exp"] == now + LIFETIME


def test_new_token_is_signed_with_the_changed_key(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"one")
    now = 1000.0
    token = from_key(key, "slurm", clock=lambda: now)
    token()

    key.write_bytes(b"two")
    now += LIFETIME
    assert token() == make_token(b"two", "slurm", LIFETIME, now)


def test_token_file_is_read_on_every_use(tmp_path: Path) -> None:
    file = tmp_path / "token"
    token = from_file(file)
    for content in ("a.b.c\n", "d.e.f\n"):
        file.write_text(content)
        assert token() == content.strip()


def test_token_command_prints_a_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"key")
    assert main(["token", "--user", "slurm", "--lifetime", "60", "--key", str(key)]) == 0
    printed = claims(capsys.readouterr().out.strip())
    assert printed["sun"] == "slurm"
    assert isinstance(printed["exp"], int)
    assert isinstance(printed["iat"], int)
    assert printed["exp"] - printed["iat"] == 60


def test_error_names_a_missing_key_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "--user", "slurm", "--key", "/nowhere/key"]) == 1
    assert "/nowhere/key: cannot read this file: No such file" in capsys.readouterr().err
