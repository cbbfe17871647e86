"""The engine can decrypt secrets that Pulumi encrypted, but only with the right passphrase."""

from pathlib import Path

import pytest

from engine.errors import EngineError, WrongPassphrase
from engine.secrets import PassphraseCrypter, passphrase_from_environment, seal, unseal
from engine.values import SECRET, SIGNATURE, UNKNOWN, Properties, Secret

# Written by `pulumi` 3.272 for the passphrase below.
PASSPHRASE = "correct-horse"
SALT = "v1:tZN21vQBb0Y=:v1:7DfjF8Pd1l4wvmre:yYu+eb3h5iuFc01HpTxvJ7/X5g7Ixw=="
TOKEN = "v1:PT+pwY53uFGkbX89:cghbS+D6rB04YQ2WqvhtmoTXpT/R6bnu9uj33g=="
OUTPUT = {
    SIGNATURE: SECRET,
    "ciphertext": "v1:x1GpYGntFjLvvYtv:n0g/dE+L8Hl24NGDbR+CE08fDial/zXgtIv/e/858MRwoY1QBwi/G"
    "+x3v4+EK8zjVeY86g+Xm+x60KHToME=",
}


@pytest.fixture(scope="module")
def derived() -> PassphraseCrypter:
    """Derive the key only once, because derivation is slow by design."""
    return PassphraseCrypter.from_state(PASSPHRASE, SALT)


@pytest.fixture
def crypter(derived: PassphraseCrypter) -> PassphraseCrypter:
    derived._ciphertexts.clear()
    return derived


def test_value_that_pulumi_encrypted_can_be_read(crypter: PassphraseCrypter) -> None:
    assert crypter.decrypt(TOKEN) == "hunter2 & co"


def test_state_that_pulumi_wrote_can_be_read(crypter: PassphraseCrypter) -> None:
    assert unseal({"base64": OUTPUT, "length": 32}, crypter) == {
        "base64": Secret("FdEY628BIXn5l0Z/M27Ed075j4ssKuw+/5C1QaTQEyI="),
        "length": 32,
    }


def test_salt_of_the_stack_is_kept_unchanged(crypter: PassphraseCrypter) -> None:
    assert crypter.state == SALT


def test_wrong_passphrase_is_reported_in_one_line() -> None:
    with pytest.raises(WrongPassphrase, match="PULUMI_CONFIG_PASSPHRASE") as error:
        PassphraseCrypter.from_state("wrong", SALT)
    assert "\n" not in str(error.value)


def test_secret_can_be_read_with_passphrase_and_new_salt() -> None:
    new = PassphraseCrypter.new("tr0ub4dor")
    sealed = new.encrypt("hush")
    again = PassphraseCrypter.from_state("tr0ub4dor", new.state)
    assert again.decrypt(sealed) == "hush"


def test_each_new_salt_is_unique() -> None:
    key = bytes(32)
    states = {PassphraseCrypter(key, bytes(8)).state for _ in range(2)}
    assert len(states) == 2


def test_unchanged_secret_keeps_its_ciphertext(crypter: PassphraseCrypter) -> None:
    stored = {"base64": OUTPUT, "other": [{"deep": 1}]}
    assert seal(unseal(stored, crypter), crypter) == stored


def test_order_of_keys_does_not_change_the_ciphertext(
    crypter: PassphraseCrypter,
) -> None:
    one, other = Secret({"a": "hush", "b": "hush hush"}), Secret({"b": "hush hush", "a": "hush"})

    assert seal(one, crypter) == seal(other, crypter)


def test_nested_values_of_a_secret_are_encrypted(crypter: PassphraseCrypter) -> None:
    properties: Properties = {"a": Secret({"b": [Secret("hush"), 1]}), "c": None}
    sealed = seal(properties, crypter)
    assert "hush" not in str(sealed)
    assert unseal(sealed, crypter) == {"a": Secret({"b": ["hush", 1]}), "c": None}


def test_state_exported_with_plaintext_secrets_can_be_read(crypter: PassphraseCrypter) -> None:
    assert unseal({SIGNATURE: SECRET, "plaintext": '"hush"'}, crypter) == Secret("hush")


def test_unknown_value_is_never_stored(crypter: PassphraseCrypter) -> None:
    with pytest.raises(ValueError, match="unknown"):
        seal({"a": UNKNOWN}, crypter)


@pytest.mark.parametrize(
    "damaged",
    ["", "v2:a:b", "v1:PT+pwY53uFGkbX89", "v1:!:!", "v1:AAAA:AAAA", TOKEN[:-8] + "AAAAAA=="],
)
def test_damaged_secret_is_refused_in_one_line(crypter: PassphraseCrypter, damaged: str) -> None:
    with pytest.raises(EngineError) as error:
        crypter.decrypt(damaged)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("state", ["", "v1:abc", "v2:YWJj:v1:a:b"])
def test_invalid_salt_is_refused(state: str) -> None:
    with pytest.raises(EngineError, match="encryptionsalt"):
        PassphraseCrypter.from_state(PASSPHRASE, state)


def test_passphrase_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE", raising=False)
    file = tmp_path / "passphrase"
    file.write_text("from a file\n")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE_FILE", str(file))
    assert passphrase_from_environment() == "from a file"
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "")
    assert passphrase_from_environment() == ""


def test_error_for_a_missing_passphrase_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE", raising=False)
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE_FILE", "/does/not/exist")
    with pytest.raises(EngineError, match="/does/not/exist"):
        passphrase_from_environment()
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE_FILE")
    with pytest.raises(EngineError, match="set PULUMI_CONFIG_PASSPHRASE"):
        passphrase_from_environment()
