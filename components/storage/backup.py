"""Sets of backups: queue, accounting, jail and the jail's volumes, and restores of sets."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.settings import Backup as BackupSettings
from components.settings import Submount
from components.site import MountedJail, Site
from components.storage import store
from components.storage.jail import ANY_OWNER
from components.storage.store import Restore

_DEADLINE = 24 * 3600
"""Time limit in seconds for one set. It is long, because the first backup copies the whole jail."""
_ROOT = f"{c.PROGRAMS}/root"
"""Folder to which restic is confined while it reads or writes users' files (images/backup)."""
_READS_ALL = "DAC_READ_SEARCH"
_CONFINES = "SYS_CHROOT"
_WRITES_ALL = (*ANY_OWNER, "MKNOD", "SETFCAP")
"""Capabilities that root needs to restore any file: owners, devices and capabilities of files."""
_STATE = f"state={c.CONTROLLER_SPOOL}"
"""Part of a set with slurmctld's state."""


@dataclass(frozen=True)
class BackupStoreArgs:
    site: Site
    settings: BackupSettings
    files: Mapping[str, str]
    """Files for backups and restores, by name."""
    environment: Mapping[str, str]
    protect: bool


class BackupStore(pulumi.ComponentResource):
    """The volume or the bucket for sets of backups, with the files that its clients need."""

    args: BackupStoreArgs
    volumes: Sequence[pods.Spec]
    """Volumes of a pod that uses the store."""

    def __init__(
        self, name: str, args: BackupStoreArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("backupstore", "BackupStore"), name, None, opts)
        config = pods.config_map(
            f"{name}-config",
            c.BACKUP_CONFIG,
            args.site.namespace,
            args.files,
            pulumi.ResourceOptions(parent=self),
        )
        self.args = args
        self.volumes = [
            pods.config_volume("backup-config", config.metadata.name),
            pods.disk_volume("backup-tmp"),
            pods.disk_volume("backup-confined-tmp"),
            pods.memory_volume("backup-run", "4Mi"),
            pods.memory_volume("backup-confined", "4Mi"),
            *store.volumes(args.settings, args.settings.password_secret, self._claim(name, args)),
        ]
        self.register_outputs({})

    def _claim(self, name: str, args: BackupStoreArgs) -> pulumi.Input[str]:
        """Return the name of the stack's own volume. Create it if the backups go there."""
        settings = args.settings
        if not settings.is_own():
            return c.BACKUP_CLAIM
        claimed: pulumi.Output[str] = pods.claim(
            f"{name}-volume",
            c.BACKUP_CLAIM,
            args.site.namespace,
            pods.Volume("ReadWriteOnce", settings.size, settings.storage_class),
            pulumi.ResourceOptions(parent=self, protect=args.protect),
        ).metadata.name
        return claimed

    def container(
        self,
        name: str,
        command: Sequence[str],
        mounts: Sequence[pods.Spec],
        *capabilities: str,
        root: str = "",
    ) -> pods.Spec:
        """Return a container that runs a command of `agents.backup` as root.

        `root` is the folder to which restic is confined, if it reads or writes users' files. Users
        may replace a directory by a symbolic link meanwhile, so no file below `root` is secret.
        """
        args = self.args
        security = pods.security(*capabilities, user=0)["securityContext"]
        return {
            "name": name,
            **pods.image("backup", args.site.images),
            "args": list(command),
            "env": [
                *pods.environment(dict(sorted(args.environment.items()))),
                # Let restic use only the CPUs of its limit.
                {"name": "GOMAXPROCS", "value": str(math.ceil(args.settings.cpus))},
                *([{"name": "ROOT", "value": root}] if root else []),
                # The Job's name is the id of the set.
                pods.field("SET", "metadata.labels['batch.kubernetes.io/job-name']"),
            ],
            "securityContext": {**security, "readOnlyRootFilesystem": True},
            "resources": {
                "requests": {"cpu": "50m", "memory": "128Mi"},
                "limits": {
                    "cpu": f"{args.settings.cpus:g}",
                    "memory": f"{args.settings.memory}Mi",
                },
            },
            # If the container fails, Kubernetes copies the last lines of its log to the pod's
            # status.
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": [
                pods.mount("backup-config", c.ACCOUNTING_ETC, read_only=True),
                pods.mount("backup-tmp", "/tmp"),
                *([pods.mount("backup-confined-tmp", f"{root}/tmp")] if root else []),
                pods.mount("backup-confined" if root else "backup-run", f"{root}{c.BACKUP_RUN}"),
                *store.mounts(args.settings, args.settings.password_secret, root),
                *mounts,
            ],
        }

    def restores_state(self) -> Restore:
        """Return the container that restores the queue before slurmctld starts."""
        if not self.args.settings.restore:
            return Restore()
        mounts = [pods.mount("state", c.CONTROLLER_SPOOL)]
        container = self.container("restore", ["restore-files", _STATE], mounts, *ANY_OWNER)
        return Restore([container], self.volumes)

    def restores_accounting(self, password_secret: pulumi.Input[str]) -> Restore:
        """Return the container that loads the dump of the set before slurmdbd starts."""
        if not self.args.settings.restore:
            return Restore()
        return Restore(
            [self.container("restore", ["restore-database"], _DATABASE)],
            [*self.volumes, pods.secret_volume("backup-database", password_secret)],
        )

    def restores_jail(self, volumes: Sequence[Submount]) -> Restore:
        """Return the container that restores the jail before the Job that fills the jail.

        The pod must have the jail's volumes.
        """
        if not self.args.settings.restore:
            return Restore()
        kept = _kept(volumes)
        command = ["restore-files", *_folders(kept)]
        mounts = _confined(MountedJail("", kept).mounts(), read_only=False)
        container = self.container("restore", command, mounts, *_WRITES_ALL, _CONFINES, root=_ROOT)
        return Restore([container], self.volumes)


_DATABASE = [pods.mount("backup-database", c.DATABASE_PASSWORD, read_only=True)]


def _kept(volumes: Sequence[Submount]) -> list[Submount]:
    """Return the volumes of the jail with the stack's own data, which all nodes share."""
    return [one for one in volumes if (one.claim or one.nfs) and not one.read_only]


def _folders(volumes: Sequence[Submount]) -> list[str]:
    """Return the parts of a set with users' files. The jail comes last: it completes the set."""
    others = [f"{one.name}={c.JAIL_VOLUMES}/jail-{one.name}" for one in volumes]
    return [*sorted(others), f"jail={c.JAIL}"]


def _confined(mounts: Sequence[pods.Spec], *, read_only: bool) -> list[pods.Spec]:
    """Mount volumes of users below the folder to which restic is confined."""
    return [
        pods.mount(one["name"], f"{_ROOT}{one['mountPath']}", read_only=read_only) for one in mounts
    ]


@dataclass(frozen=True)
class BackupArgs:
    store: BackupStore
    jail: MountedJail
    password_secret: pulumi.Input[str] | None
    """Secret with the password of the database's user; None without accounting."""
    standby: bool


class Backup(pulumi.ComponentResource):
    """A CronJob that makes a set: first the queue, then the accounting, then the jail.

    The queue comes first, because its jobs refer to records of the accounting: these must be in a
    dump that is made later. While the settings name a set to restore, the CronJob is suspended.
    Otherwise, it could back up a cluster that is only restored in part.
    """

    def __init__(
        self, name: str, args: BackupArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("backup", "Sets"), name, None, opts)
        site, settings = args.store.args.site, args.store.args.settings
        k8s.batch.v1.CronJob(
            f"{name}-take",
            metadata={"name": c.BACKUP, "namespace": site.namespace},
            spec={
                **pods.scheduled(
                    settings.schedule,
                    {
                        "backoffLimit": 2,
                        "activeDeadlineSeconds": _DEADLINE,
                        "template": pods.template(c.BACKUP, _pod(args)),
                    },
                ),
                "suspend": settings.restore is not None,
            },
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})


def _pod(args: BackupArgs) -> pods.Spec:
    made, kept = args.store, _kept(args.jail.submounts)
    state = pods.mount("state", c.CONTROLLER_SPOOL, read_only=True)
    jail = MountedJail(args.jail.claim, kept)
    # Only one machine can mount the volume with slurmctld's state, unless two controllers share it.
    where = {} if args.standby else pods.beside(c.CONTROLLER)
    secret = args.password_secret
    database = [pods.secret_volume("backup-database", secret)] if secret else []
    files = made.container(
        "jail",
        ["set-files", *_folders(kept)],
        _confined(jail.mounts(), read_only=True),
        _READS_ALL,
        _CONFINES,
        root=_ROOT,
    )
    return {
        # On the controller's Kubernetes node, the pod needs the controller's tolerations.
        **made.args.site.pod(c.CONTROLLER if where else c.BACKUP),
        **where,
        "restartPolicy": "Never",
        "initContainers": [
            made.container("state", ["set-files", _STATE], [state], _READS_ALL),
            *([made.container("accounting", ["set-database"], _DATABASE)] if secret else []),
        ],
        "containers": [files],
        "volumes": [
            *made.volumes,
            *database,
            pods.claim_volume("state", c.STATE_CLAIM, read_only=True),
            *jail.volumes(),
        ],
    }
