"""Credentials of registries come from the files of enroot, Docker and the site."""

import base64
import json
from pathlib import Path

import pytest

from agents.containers import credentials
from agents.containers.errors import ImageError
from agents.containers.reference import InRegistry, parse


def registry_image(text: str) -> InRegistry:
    parsed = parse(text)
    assert isinstance(parsed, InRegistry)
    return parsed


def enroot(home: Path, text: str) -> None:
    (home / ".config/enroot").mkdir(parents=True)
    (home / ".config/enroot/.credentials").write_text(text)


def docker(path: Path, registry: str, words: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    auth = base64.b64encode(words.encode()).decode()
    path.write_text(json.dumps({"auths": {registry: {"auth": auth}}}))


def find(home: Path, text: str, **environment: str) -> str | None:
    found = credentials.find(registry_image(text), home, home / "site.json", environment)
    return base64.b64decode(found).decode() if found else None


def test_registry_has_no_credentials_by_default(tmp_path: Path) -> None:
    assert find(tmp_path, "example.org#a") is None


def test_credentials_of_enroot_are_read(tmp_path: Path) -> None:
    enroot(
        tmp_path,
        "# comment\nmachine other.org login me password no\n"
        "machine example.org login me password my secret\n",
    )

    assert find(tmp_path, "example.org#a") == "me:my secret"


def test_user_in_the_reference_selects_the_login(tmp_path: Path) -> None:
    enroot(
        tmp_path,
        "machine example.org login one password 1\nmachine example.org login two password 2\n",
    )
    docker(tmp_path / ".docker/config.json", "example.org", "three:3")

    assert find(tmp_path, "two@example.org#a") == "two:2"
    assert find(tmp_path, "three@example.org#a") is None


def test_login_oauthtoken_is_not_expanded_as_a_variable(tmp_path: Path) -> None:
    enroot(tmp_path, "machine nvcr.io login $oauthtoken password key\n")

    assert find(tmp_path, "nvcr.io#nvidia/a") == "$oauthtoken:key"


@pytest.mark.parametrize("password", ["$TOKEN", "${TOKEN}", "$(printf %s from-a-command)"])
def test_variables_and_commands_in_passwords_are_expanded(
    tmp_path: Path, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "from-a-variable")
    enroot(tmp_path, f"machine example.org login me password {password}\n")

    assert find(tmp_path, "example.org#a") in ("me:from-a-variable", "me:from-a-command")


def test_failing_password_command_is_an_error(tmp_path: Path) -> None:
    enroot(tmp_path, "machine example.org login me password $(no-such-program)\n")

    with pytest.raises(ImageError, match="no-such-program"):
        find(tmp_path, "example.org#a")


def test_docker_credentials_of_the_user_override_those_of_the_site(tmp_path: Path) -> None:
    docker(tmp_path / "site.json", "example.org", "site:1")
    assert find(tmp_path, "example.org#a") == "site:1"

    docker(tmp_path / ".docker/config.json", "example.org", "user:2")
    assert find(tmp_path, "example.org#a") == "user:2"


def test_credentials_of_docker_hub_are_found_by_its_legacy_name(tmp_path: Path) -> None:
    docker(tmp_path / ".docker/config.json", "https://index.docker.io/v1/", "me:x")

    assert find(tmp_path, "ubuntu") == "me:x"


def test_variable_docker_config_selects_the_directory(tmp_path: Path) -> None:
    docker(tmp_path / "elsewhere/config.json", "example.org", "me:x")

    assert find(tmp_path, "example.org#a", DOCKER_CONFIG=str(tmp_path / "elsewhere")) == "me:x"


def test_credentials_file_with_invalid_json_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "site.json").write_text("{")

    with pytest.raises(ImageError, match=r"site\.json"):
        find(tmp_path, "example.org#a")


def test_authfile_is_private(tmp_path: Path) -> None:
    path = credentials.write(tmp_path, {"example.org": "words"})

    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text()) == {"auths": {"example.org": {"auth": "words"}}}
