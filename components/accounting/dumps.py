"""Dumps of the accounting database. A CronJob creates dumps, and slurmdbd's pod can load a dump."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.settings import Dumps as DumpsSettings
from components.site import Site
from components.storage import store
from components.storage.store import Restore

_DEADLINE = 6 * 3600
"""Time limit in seconds for one dump."""


@dataclass(frozen=True)
class DumpsArgs:
    site: Site
    settings: DumpsSettings
    files: Mapping[str, str]
    """Files for dumps and restores, by name."""
    environment: Mapping[str, str]
    password_secret: pulumi.Input[str]
    """Secret with the password of the database's user, in the entry `password`."""
    protect: bool


class Dumps(pulumi.ComponentResource):
    """A CronJob that dumps the database, and a restore if the settings name a dump."""

    restore: Restore

    def __init__(
        self, name: str, args: DumpsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("backup", "Backup"), name, None, opts)
        config = pods.config_map(
            f"{name}-config",
            c.DUMPS_CONFIG,
            args.site.namespace,
            args.files,
            pulumi.ResourceOptions(parent=self),
        )
        volumes = [
            pods.config_volume("backup-config", config.metadata.name),
            pods.secret_volume("backup-database", args.password_secret),
            pods.memory_volume("backup-run", "4Mi"),
            pods.disk_volume("backup-tmp"),
            *store.volumes(args.settings, args.settings.password_secret, self._claim(name, args)),
        ]
        k8s.batch.v1.CronJob(
            f"{name}-dump",
            metadata={"name": c.DUMPS, "namespace": args.site.namespace},
            spec=pods.scheduled(args.settings.schedule, _job(args, volumes)),
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.restore = Restore()
        if args.settings.restore:
            self.restore = Restore([_container("restore", args)], volumes)
        self.register_outputs({})

    def _claim(self, name: str, args: DumpsArgs) -> pulumi.Input[str]:
        """Return the name of the stack's own volume. Create it if the dumps go there."""
        settings = args.settings
        if not settings.is_own():
            return c.DUMPS_CLAIM
        claimed: pulumi.Output[str] = pods.claim(
            f"{name}-volume",
            c.DUMPS_CLAIM,
            args.site.namespace,
            pods.Volume("ReadWriteOnce", settings.size, settings.storage_class),
            pulumi.ResourceOptions(parent=self, protect=args.protect),
        ).metadata.name
        return claimed


def _job(args: DumpsArgs, volumes: Sequence[pods.Spec]) -> pods.Spec:
    # During a restore from the volume, run on the Kubernetes node of slurmdbd's pod. That pod
    # mounts the same volume, which may be ReadWriteOnce.
    where = pods.beside(c.ACCOUNTING) if args.settings.restore and not args.settings.s3 else {}
    return {
        "backoffLimit": 2,
        "activeDeadlineSeconds": _DEADLINE,
        "template": pods.template(
            c.DUMPS,
            {
                **args.site.pod(c.DUMPS),
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


def _container(program: str, args: DumpsArgs) -> pods.Spec:
    settings = args.settings
    security = pods.security(user=c.SLURM_ID)["securityContext"]
    return {
        "name": program,
        **pods.image("backup", args.site.images),
        "args": [program],
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
            *store.mounts(settings, settings.password_secret),
        ],
    }
