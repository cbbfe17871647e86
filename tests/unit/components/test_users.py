"""Users have the same name, id and SSH keys in all pods."""

from pathlib import Path

import pytest

from components.identity.users import authorized_keys, group, passwd
from components.settings import SettingsError, User
from tests.support.stack import KEY, settings


def test_passwd_lists_users_by_id_without_passwords() -> None:
    entries = [line.split(":") for line in passwd(settings().users).splitlines()]

    assert [(e[0], e[1], e[2], e[5], e[6]) for e in entries] == [
        ("student", "*", "1500", "/home/student", "/bin/bash"),
        ("researcher", "*", "2000", "/home/researcher", "/bin/bash"),
    ]


def test_each_user_has_a_group_with_the_same_id() -> None:
    assert group(settings().users) == "student:*:1500:\nresearcher:*:2000:\n"


def test_ssh_keys_come_from_the_settings_and_from_files(tmp_path: Path) -> None:
    (tmp_path / "id.pub").write_text(KEY.replace("test", "file") + "\n")
    user = User(name="u", uid=2000, ssh_keys=(KEY,), ssh_key_files=("id.pub",))

    assert authorized_keys(user, tmp_path).splitlines() == [KEY, KEY.replace("test", "file")]


@pytest.mark.parametrize("content", [None, "no key\n"])
def test_error_names_an_unusable_key_file(tmp_path: Path, content: str | None) -> None:
    if content:
        (tmp_path / "id.pub").write_text(content)
    user = User(name="u", uid=2000, ssh_key_files=("id.pub",))

    with pytest.raises(SettingsError, match=r"users\[u\]\.ssh_key_files: id\.pub: "):
        authorized_keys(user, tmp_path)
