"""The store of backups, as volumes and mounts of pods."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from components import conventions as c
from components import pods
from components.settings import Store


@dataclass(frozen=True)
class Restore:
    """Containers and volumes that restore data before a daemon starts."""

    containers: Sequence[pods.Spec] = ()
    volumes: Sequence[pods.Spec] = ()


def volumes(store: Store, password_secret: str | None, claim: pulumi.Input[str]) -> list[pods.Spec]:
    """Return the volumes with the backups and with the credentials.

    `claim` is the claim of the stack's own volume.
    """
    secrets = {"backup-s3": store.s3 and store.s3.secret, "backup-password": password_secret}
    found = [pods.secret_volume(name, secret) for name, secret in secrets.items() if secret]
    if store.s3:
        return found
    if store.nfs:
        nfs = {"server": store.nfs.server, "path": store.nfs.path}
        return [*found, {"name": "backup", "nfs": nfs}]
    return [*found, pods.claim_volume("backup", store.claim or claim)]


def mounts(store: Store, password_secret: str | None, root: str = "") -> list[pods.Spec]:
    """Return the mounts of these volumes. `root` is the folder to which restic is confined."""
    credentials = {
        "backup-s3": (store.s3, c.BACKUP_KEYS),
        "backup-password": (password_secret, c.BACKUP_PASSWORD),
    }
    return [
        *([] if store.s3 else [pods.mount("backup", f"{root}{c.BACKUP_DATA}")]),
        *(
            pods.mount(name, path, read_only=True)
            for name, (given, path) in credentials.items()
            if given
        ),
    ]
