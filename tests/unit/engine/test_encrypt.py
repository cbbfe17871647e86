"""`python -m engine encrypt` encrypts values for the stack file, without the `pulumi` command."""

import io
from pathlib import Path

import pytest

from engine.__main__ import main
from engine.config import read_stack_file
from engine.secrets import PassphraseCrypter


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    (tmp_path / "Pulumi.lab.yaml").write_text("config:\n  p:plain: x  # kept")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "correct")
    return tmp_path


def encrypt(project: Path, monkeypatch: pytest.MonkeyPatch, text: str, stack: str = "lab") -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    return main(["encrypt", "--stack", stack, "--cwd", str(project)])


def test_encrypted_value_is_decrypted_by_the_next_deploy(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert encrypt(project, monkeypatch, "first\n") == 0
    assert encrypt(project, monkeypatch, "second\nline\n") == 0
    first, second = capsys.readouterr().out.splitlines()

    file = project / "Pulumi.lab.yaml"
    lines = file.read_text().splitlines()
    added = [f"  p:first: {{{first}}}", f"  p:second: {{{second}}}"]
    file.write_text("\n".join([*lines[:2], *added, *lines[2:]]))
    stack = read_stack_file(file)
    assert stack.encryption_salt
    crypter = PassphraseCrypter.from_state("correct", stack.encryption_salt)
    texts, secret = stack.decrypted(crypter)
    assert texts == {"p:plain": "x", "p:first": "first", "p:second": "second\nline"}
    assert secret == ["p:first", "p:second"]
    assert "# kept" in file.read_text()


@pytest.mark.parametrize(
    ("text", "stack", "passphrase", "message"),
    [
        ("", "lab", "correct", "no text to encrypt; pass the text"),
        ("x", "other", "correct", "Pulumi.other.yaml does not exist; create this file"),
        ("x", "lab", "wrong", "incorrect passphrase"),
    ],
)
def test_unusable_input_is_refused_in_one_line(
    text: str,
    stack: str,
    passphrase: str,
    message: str,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    encrypt(project, monkeypatch, "x")
    capsys.readouterr()
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", passphrase)

    assert encrypt(project, monkeypatch, text, stack) == 1

    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""
    assert printed.err.count("\n") == 1
