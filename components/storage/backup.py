"""Dumps of the accounting database. A CronJob creates dumps, and slurmdbd's pod can load a dump."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.settings import Backup as BackupSettings
from components.site import Site

_DEADLINE = 6 * 3600
"""Time limit in seconds for one dump."""


@dataclass(frozen=True)
class BackupArgs:
    site: Site
    settings: BackupSettings
    files: Mapping[str, str]
    """Files for dumps and restores, by name."""
    environment: Mapping[str, str]
    password_secret: pulumi.Input[str]
    """Secret with the password of the database's user, in the entry `password`."""
    protect: bool


@dataclass(frozen=True)
class Restore:
    """Containers and volumes that load a dump before slurmdbd starts."""

    containers: Sequence[pods.Spec] = ()
    volumes: Sequence[pods.Spec] = ()


class Backup(pulumi.ComponentResource):
    """A CronJob that dumps the database, and a restore if the settings name a dump."""

    restore: Restore

    def __init__(
        self, name: str, args: BackupArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("backup", "Backup"), name, None, opts)
        config = pods.config_map(
            f"{name}-config",
            c.BACKUP_CONFIG,
            args.site.namespace,
            args.files,
            pulumi.ResourceOptions(parent=self),
        )
        volumes = [
            pods.config_volume("backup-config", config.metadata.name),
            pods.secret_volume("backup-database", args.password_secret),
            pods.memory_volume("backup-run", "4Mi"),
            pods.disk_volume("backup-tmp"),
            *self._store(name, args),
        ]
        k8s.batch.v1.CronJob(
            f"{name}-dump",
            metadata={"name": c.BACKUP, "namespace": args.site.namespace},
            spec=pods.scheduled(args.settings.schedule, _job(args, volumes)),
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.restore = Restore()
        if args.settings.restore:
            self.restore = Restore([_container("restore", args)], volumes)
        self.register_outputs({})

    def _store(self, name: str, args: BackupArgs) -> list[pods.Spec]:
        """Return the volumes with the dumps and with the credentials."""
        settings = args.settings
        secrets = {
            "backup-s3": settings.s3 and settings.s3.secret,
            "backup-password": settings.password_secret,
        }
        found = [pods.secret_volume(key, secret) for key, secret in secrets.items() if secret]
        if settings.s3:
            return found
        if settings.nfs:
            nfs = {"server": settings.nfs.server, "path": settings.nfs.path}
            return [*found, {"name": "backup", "nfs": nfs}]
        claim: pulumi.Input[str] | None = settings.claim
        if claim is None:
            claim = pods.claim(
                f"{name}-volume",
                c.BACKUP_CLAIM,
                args.site.namespace,
                pods.Volume("ReadWriteOnce", settings.size, settings.storage_class),
                pulumi.ResourceOptions(parent=self, protect=args.protect),
            ).metadata.name
        return [*found, pods.claim_volume("backup", claim)]


def _job(args: BackupArgs, volumes: Sequence[pods.Spec]) -> pods.Spec:
    # During a restore from the volume, run on the Kubernetes node of slurmdbd's pod. That pod
    # mounts the same volume, which may be ReadWriteOnce.
    where = pods.beside(c.ACCOUNTING) if args.settings.restore and not args.settings.s3 else {}
    return {
        "backoffLimit": 2,
        "activeDeadlineSeconds": _DEADLINE,
        "template": pods.template(
            c.BACKUP,
            {
                **args.site.pod(c.BACKUP),
                **where,
                # Let the files belong to the group of slurmdbd's pod, so that this pod can load the
                # dumps.
                **pods.owned_by(c.SLURM_ID),
                "restartPolicy": "Never",
                "containers": [_container("backup", args)],
                "volumes": list(volumes),
            },
        ),
    }


def _container(program: str, args: BackupArgs) -> pods.Spec:
    settings = args.settings
    security = pods.security(user=c.SLURM_ID)["securityContext"]
    return {
        "name": program,
        **pods.image("backup", args.site.images),
        "command": [f"{c.PROGRAMS}/{program}"],
        "env": pods.environment(dict(sorted(args.environment.items()))),
        "securityContext": {**security, "readOnlyRootFilesystem": True},
        **pods.requests("50m", "128Mi"),
        # If the container fails, Kubernetes copies the last lines of its log to the pod's status.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            pods.mount("backup-config", c.ACCOUNTING_ETC, read_only=True),
            pods.mount("backup-database", c.DATABASE_PASSWORD, read_only=True),
            pods.mount("backup-run", c.BACKUP_RUN),
            pods.mount("backup-tmp", "/tmp"),
            *([] if settings.s3 else [pods.mount("backup", c.BACKUP_DATA)]),
            *([pods.mount("backup-s3", c.BACKUP_KEYS, read_only=True)] if settings.s3 else []),
            *(
                [pods.mount("backup-password", c.BACKUP_PASSWORD, read_only=True)]
                if settings.password_secret
                else []
            ),
        ],
    }
