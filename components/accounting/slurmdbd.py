"""slurmdbd, which keeps the records of jobs that `sacct` shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.identity.auth import Conf, daemon_security
from components.settings import Archive
from components.site import Site
from components.storage.store import Restore

_ANSWERS = ("sacctmgr", "--noheader", "--parsable2", "show", "cluster", "format=cluster")
"""Probe: this command succeeds only if slurmdbd and the database work."""


@dataclass(frozen=True)
class AccountingArgs:
    site: Site
    jwt_secret: pulumi.Input[str]
    files: pulumi.Input[Mapping[str, str]]
    """slurmdbd's configuration files by name."""
    password_secret: pulumi.Input[str]
    """Secret with the password of the database's user, in the entry `password`."""
    address: str
    """DNS name of slurmdbd."""
    archive: Archive | None
    protect: bool
    restore: Restore
    """Containers and volumes that load a dump before slurmdbd starts."""


class Accounting(pulumi.ComponentResource):
    """slurmdbd and its Service. slurmdbd is ready once it can query the database."""

    alias: pulumi.Output[pods.Spec]
    """Line of /etc/hosts for the Service. Pulumi knows this output only after slurmdbd is ready."""

    def __init__(
        self, name: str, args: AccountingArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("accounting", "Accounting"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        config = pods.config_map(
            f"{name}-config", c.ACCOUNTING_CONFIG, args.site.namespace, args.files, child
        )
        archive = pods.disk_volume("archive")
        if args.archive:
            claim = pods.claim(
                f"{name}-archive",
                c.ARCHIVE_CLAIM,
                args.site.namespace,
                pods.Volume("ReadWriteOnce", args.archive.size, args.archive.storage_class),
                pulumi.ResourceOptions(parent=self, protect=args.protect),
            )
            archive = pods.claim_volume("archive", claim.metadata.name)
        slurmdbd = k8s.apps.v1.Deployment(
            f"{name}-slurmdbd",
            metadata={"name": c.ACCOUNTING, "namespace": args.site.namespace},
            spec=pods.workload(
                c.ACCOUNTING,
                _pod(args, config.metadata.name, archive),
                # Restart slurmdbd if a file changes, because slurmdbd reads most keys only at its
                # start. During the restart, slurmctld keeps the accounting records in a queue.
                {c.ANNOTATION_CHECKSUM: pulumi.Output.from_input(args.files).apply(c.checksum)},
                # Never run two slurmdbd daemons: both would add up the usage of each hour in the
                # database.
                **pods.ALONE,
            ),
            opts=child,
        )
        port = pods.service_port("slurmdbd", c.SLURMDBD_PORT)
        service = pods.service(
            f"{name}-service", c.ACCOUNTING, args.site.namespace, slurmdbd, port, child
        )
        self.alias = service.spec.cluster_ip.apply(lambda ip: pods.alias(ip, args.address))
        self.register_outputs({"alias": self.alias})


def _pod(args: AccountingArgs, config: pulumi.Input[str], archive: pods.Spec) -> pods.Spec:
    conf = Conf(mount=pods.mount("config", c.SLURM_ETC, read_only=True))
    mounted = [
        pods.mounted(pods.config_volume("config", config), c.ACCOUNTING_ETC, read_only=True),
        pods.mounted(
            pods.secret_volume("password", args.password_secret),
            c.DATABASE_PASSWORD,
            read_only=True,
        ),
        pods.mounted(pods.memory_volume("run", "4Mi"), c.DBD_RUN),
        pods.mounted(pods.secret_volume("jwt", args.jwt_secret), c.JWT_KEY_DIR, read_only=True),
    ]
    return {
        **args.site.pod(c.ACCOUNTING),
        **daemon_security(args.site.auth),
        "initContainers": [
            *args.site.sidecars(conf),
            *args.restore.containers,
        ],
        "containers": [_slurmdbd(args, mounted)],
        "volumes": [*args.site.volumes(), archive, *args.restore.volumes, *pods.volumes(mounted)],
    }


def _slurmdbd(args: AccountingArgs, mounted: Sequence[pods.Mounted]) -> pods.Spec:
    return {
        "name": "slurmdbd",
        **pods.image("accounting", args.site.images),
        **pods.security(user=c.SLURM_ID),
        **args.site.requests(c.ACCOUNTING, "20m", "64Mi"),
        # If slurmdbd does not start, Kubernetes copies the end of its log, which gives the reason,
        # to the pod's status.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "env": [
            # Only Slurm's clients in this pod read slurm.conf. slurmdbd reads slurmdbd.conf in the
            # same folder.
            {"name": "SLURM_CONF", "value": f"{c.DBD_RUN}/slurm.conf"},
            *args.site.auth.daemon_environment(),
        ],
        "ports": [{"name": "slurmdbd", "containerPort": c.SLURMDBD_PORT}],
        **pods.probes(pods.command(*_ANSWERS)),
        "volumeMounts": [
            *args.site.daemon_mounts(),
            pods.mount("archive", c.DBD_ARCHIVE),
            *pods.mounts(mounted),
        ],
    }
