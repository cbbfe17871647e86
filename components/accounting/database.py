"""The stack's own MariaDB for accounting."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s
import pulumi_random as random

from components import conventions as c
from components import pods
from components.outputs import once_known
from components.settings import BundledDatabase
from components.site import Site

_LOCK_WAIT = 900
"""Seconds that a transaction waits for a lock. Slurm recommends this value (source: Slurm's
documentation, accounting.html)."""
_PACKET = 64
"""Maximum size in MiB of a message to MariaDB. The limit is high, because slurmdbd sends a whole
job script in one message."""


@dataclass(frozen=True)
class DatabaseArgs:
    site: Site
    settings: BundledDatabase
    protect: bool


class Database(pulumi.ComponentResource):
    """MariaDB on a volume, its Service, and the password of slurmdbd's database user.

    The password exists only in Pulumi's encrypted state and in one Kubernetes Secret.
    """

    password_secret: pulumi.Output[str]
    """Name of the Secret. Its entry `password` contains the password. Pulumi knows this output only
    after the database is ready."""

    def __init__(
        self, name: str, args: DatabaseArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("database", "Database"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        password = random.RandomPassword(f"{name}-password", length=48, special=False, opts=child)
        secret = pods.secret(
            f"{name}-secret",
            c.DATABASE_SECRET,
            args.site.namespace,
            {"password": password.result},
            child,
        )
        data = pods.claim(
            f"{name}-data",
            c.DATABASE_CLAIM,
            args.site.namespace,
            pods.Volume("ReadWriteOnce", args.settings.size, args.settings.storage_class),
            pulumi.ResourceOptions(parent=self, protect=args.protect),
        )
        password_file = pods.secret_volume("password", secret.metadata.name)
        mounted = [
            pods.mounted(pods.claim_volume("data", data.metadata.name), c.DATABASE_DATA),
            pods.mounted(pods.memory_volume("run", "4Mi"), c.DATABASE_RUN),
            pods.mounted(password_file, c.DATABASE_PASSWORD, read_only=True),
        ]
        mariadb = k8s.apps.v1.StatefulSet(
            f"{name}-mariadb",
            metadata={"name": c.DATABASE, "namespace": args.site.namespace},
            spec=pods.workload(
                c.DATABASE,
                {
                    **args.site.pod(c.DATABASE),
                    **pods.owned_by(c.MYSQL_ID),
                    # Give MariaDB time for its shutdown, in which it writes changed pages from
                    # memory to disk.
                    "terminationGracePeriodSeconds": 120,
                    "containers": [_mariadb(args, mounted)],
                    "volumes": pods.volumes(mounted),
                },
                replicas=1,
                serviceName=c.DATABASE,
            ),
            opts=child,
        )
        port = pods.service_port("mariadb", c.MARIADB_PORT)
        service = pods.service(
            f"{name}-service", c.DATABASE, args.site.namespace, mariadb, port, child
        )
        self.password_secret = once_known(secret.metadata.name, service.metadata.name)
        self.register_outputs({"passwordSecret": self.password_secret})


def _mariadb(args: DatabaseArgs, mounted: Sequence[pods.Mounted]) -> pods.Spec:
    pool = args.settings.buffer_pool
    options = {
        "port": c.MARIADB_PORT,
        "innodb-buffer-pool-size": f"{pool}M",
        # Make the log file a quarter of the buffer pool, as Slurm's documentation recommends.
        "innodb-log-file-size": f"{max(pool // 4, 64)}M",
        "innodb-lock-wait-timeout": _LOCK_WAIT,
        "max-allowed-packet": f"{_PACKET}M",
        # Turn off the performance schema: it uses more memory than the rest of MariaDB, and nothing
        # reads it.
        "performance-schema": "OFF",
    }
    return {
        "name": "mariadb",
        **pods.image("database", args.site.images),
        "args": [f"--{option}={value}" for option, value in options.items()],
        "env": [
            {"name": "DATABASE", "value": args.settings.name},
            {"name": "DATABASE_USER", "value": args.settings.user},
        ],
        **pods.security(user=c.MYSQL_ID),
        **args.site.requests(c.DATABASE, "50m", f"{pool + 128}Mi"),
        "ports": [{"name": "mariadb", "containerPort": c.MARIADB_PORT}],
        **pods.probes(
            pods.command(
                *("mariadb", "--no-defaults", f"--socket={c.DATABASE_RUN}/mysqld.sock"),
                "--execute=SELECT 1",
            )
        ),
        "volumeMounts": pods.mounts(mounted),
    }
