"""This engine reads a stack file as the `pulumi` command does."""

from pathlib import Path

import pytest

from engine.config import read_stack_file
from engine.errors import EngineError
from stackfile import Ciphertext, parse_config


class Reversing:
    """A crypter that only reverses the text."""

    def decrypt(self, ciphertext: str) -> str:
        if ciphertext == "damaged":
            raise EngineError("cannot be decrypted")
        return ciphertext[::-1]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "Pulumi.dev.yaml"


# For each YAML spelling: the text that `pulumi` 3.272 passes to the program.
SPELLINGS = [
    ("yes", "yes"),
    ("off", "off"),
    ("true", "true"),
    ("1:30:00", "1:30:00"),
    ("0o17", "15"),
    ("089", "89"),
    ("0x10", "16"),
    ("1_000", "1000"),
    ("1.50", "1.5"),
    ("1e3", "1000"),
    ("1000000.0", "1000000"),
    ("1.5e-7", "1.5e-7"),
    (".5", "0.5"),
    ("12345678901234567890", "12345678901234567890"),
    ('"007"', "007"),
    ("~", ""),
    ("{b: [1, ~, 12:30:00], a: 2.0}", '{"a":2,"b":[1,null,"12:30:00"]}'),
]


@pytest.mark.parametrize(("spelling", "expected"), SPELLINGS, ids=[s for s, _ in SPELLINGS])
def test_program_gets_plain_values_in_the_form_that_pulumi_uses(
    file: Path, spelling: str, expected: str
) -> None:
    file.write_text(f"config:\n  p:key: {spelling}\n")
    assert read_stack_file(file).decrypted(None) == ({"p:key": expected}, [])


def test_secure_values_are_decrypted_at_any_nesting_depth(file: Path) -> None:
    file.write_text(
        "encryptionsalt: salt\n"
        "config:\n"
        "  p:token: {secure: nekot}\n"
        "  p:object: {list: [{secure: peed}], plain: 1}\n"
        "  p:plain: x\n"
    )
    stack = read_stack_file(file)
    assert stack.encryption_salt == "salt"
    assert stack.has_secrets
    assert stack.config["p:token"] == Ciphertext("nekot")
    texts, secret = stack.decrypted(Reversing())
    assert texts == {
        "p:token": "token",
        "p:object": '{"list":["deep"],"plain":1}',
        "p:plain": "x",
    }
    assert secret == ["p:object", "p:token"]


def test_mapping_with_a_second_key_besides_secure_is_not_a_secret(file: Path) -> None:
    file.write_text("config: {'p:a': {secure: x, other: y}}")
    assert not read_stack_file(file).has_secrets


def test_stack_without_a_file_has_no_config(file: Path) -> None:
    stack = read_stack_file(file)
    assert stack.config == {}
    assert stack.encryption_salt is None


def test_empty_stack_file_has_no_config(file: Path) -> None:
    file.write_text("# nothing yet\n")
    assert read_stack_file(file).config == {}


def test_old_form_of_a_config_key_is_accepted(file: Path) -> None:
    file.write_text("config: {'p:config:name': x}")
    assert read_stack_file(file).config == {"p:name": "x"}


def test_key_without_namespace_belongs_to_the_project() -> None:
    assert parse_config({"a": 1, "q:b": 2}, "p") == {"p:a": 1, "q:b": 2}


REFUSED = [
    ("config: {name: x}", "config: name: expected a key of the form"),
    ("config: [1]", "config: expected a mapping"),
    (
        "[]",
        (
            "expected a mapping at the top level of the file; put the settings"
            " under the key 'config'"
        ),
    ),
    ("conifg: {}", "conifg: unknown key"),
    ("config: {'a:b': [", "invalid YAML: line 1"),
    ("config: {'a:b': !!binary aGk=}", "a:b: unsupported type bytes"),
    ("config: {'a:b': 1e400}", "a:b: inf: expected a finite number"),
    ("config: {'a:b': 1, 'a:b': 2}", "duplicate key 'a:b'; keep one"),
    (
        "config: {'a:b': 1, 'a:config:b': 2}",
        ("a:config:b: the file has the key 'a:b' twice, in two spellings"),
    ),
    ("secretsprovider: awskms://x", "secretsprovider: 'awskms://x'"),
    ("environment: [base]", "environment"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[t for t, _ in REFUSED])
def test_error_about_the_stack_file_names_file_and_key(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(EngineError) as error:
        read_stack_file(file)
    assert str(file) in str(error.value)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_error_about_a_missing_passphrase_names_the_encrypted_key(file: Path) -> None:
    file.write_text("config: {'p:a': {secure: x}}")
    with pytest.raises(EngineError, match="p:a: is encrypted"):
        read_stack_file(file).decrypted(None)


def test_error_about_failed_decryption_names_the_encrypted_key(file: Path) -> None:
    file.write_text("config: {'p:a': {secure: damaged}}")
    with pytest.raises(EngineError, match="p:a: cannot be decrypted"):
        read_stack_file(file).decrypted(Reversing())
