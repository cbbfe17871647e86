"""The cluster's users: one source for login nodes, workers and controller."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pulumi

from components import conventions as c
from components import pods
from components.settings import Group, SettingsError, User, parse_ssh_key


def passwd(users: Sequence[User]) -> str:
    """Render passwd(5). `*` means that no password is valid."""
    return "".join(
        f"{user.name}:*:{user.uid}:{user.uid}:{user.name}:/home/{user.name}:{user.shell}\n"
        for user in _sorted(users)
    )


def group(users: Sequence[User], groups: Sequence[Group] = ()) -> str:
    """Render group(5) with each user's own group, and the shared groups."""
    own = [(user.uid, f"{user.name}:*:{user.uid}:\n") for user in users]
    shared = [
        (one.gid, f"{one.name}:*:{one.gid}:{','.join(sorted(one.members))}\n") for one in groups
    ]
    return "".join(line for _, line in sorted(own + shared))


def authorized_keys(user: User, root: Path) -> str:
    """Return the user's keys, including those in files below `root`, one per line.

    Raises `SettingsError` if a file is missing or has no public key.
    """
    from_files = [_read_key(user, root / name, name) for name in user.ssh_key_files]
    return "".join(f"{key}\n" for key in (*user.ssh_keys, *from_files))


def _read_key(user: User, path: Path, name: str) -> str:
    key = f"{c.PROJECT}:users[{user.name}].ssh_key_files"
    try:
        return parse_ssh_key(path.read_text())
    except OSError as error:
        remedy = "create the file and make it readable; for the dev stack, `make up` creates it"
        if name.startswith("~"):
            remedy = "~ is not expanded: write a path relative to the project, or an absolute path"
        raise SettingsError(f"{key}: {name}: {error.strerror}; {remedy}") from None
    except ValueError as error:
        raise SettingsError(f"{key}: {name}: {error}") from None


def _sorted(users: Sequence[User]) -> list[User]:
    return sorted(users, key=lambda user: user.uid)


@dataclass(frozen=True)
class UsersArgs:
    namespace: pulumi.Input[str]
    users: tuple[User, ...]
    root: Path
    """Folder of the project. The paths `ssh_key_files` in the settings are relative to this
    folder."""
    groups: tuple[Group, ...] = ()


class Users(pulumi.ComponentResource):
    """ConfigMaps with the users and with their public keys.

    Pods mount the ConfigMaps as folders. Therefore, running pods see changes within the kubelet's
    sync period (about a minute).
    """

    accounts: pulumi.Output[str]
    """Name of the ConfigMap with `passwd` and `group`."""
    keys: pulumi.Output[str]
    """Name of the ConfigMap with each user's public keys, by user name."""

    def __init__(
        self, name: str, args: UsersArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("users", "Users"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        accounts = pods.config_map(
            f"{name}-accounts",
            c.USERS_CONFIG,
            args.namespace,
            {"passwd": passwd(args.users), "group": group(args.users, args.groups)},
            child,
        )
        keys = pods.config_map(
            f"{name}-keys",
            c.AUTHORIZED_KEYS_CONFIG,
            args.namespace,
            {user.name: authorized_keys(user, args.root) for user in _sorted(args.users)},
            child,
        )
        self.accounts = accounts.metadata.name
        self.keys = keys.metadata.name
        self.register_outputs({"accounts": self.accounts, "keys": self.keys})
