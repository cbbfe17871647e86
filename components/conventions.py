"""Names, labels, ports, paths and ids: each fact of the cluster defined once."""

import hashlib
from collections.abc import Mapping
from typing import Final

PROJECT: Final = "slurmstack"

# --- Kubernetes ---------------------------------------------------------------------------------

DOMAIN: Final = "slurmstack.dev"
LABEL_COMPONENT: Final = f"{DOMAIN}/component"
LABEL_NODESET: Final = f"{DOMAIN}/nodeset"
ANNOTATION_CHECKSUM: Final = f"{DOMAIN}/config-checksum"
ANNOTATION_REPORT: Final = f"{DOMAIN}/report"
"""What the look at nodes after a deploy has found, on its Job."""
TAINT_UNHEALTHY: Final = f"{DOMAIN}/unhealthy"
"""On Kubernetes nodes whose hardware is at fault."""
CONDITION_UNHEALTHY: Final = "SlurmNodeUnhealthy"
"""Type of the condition beside that taint."""
ANNOTATION_REBOOT: Final = f"{DOMAIN}/reboot"
"""On Kubernetes nodes that are to reboot."""

ACCOUNTING: Final = "accounting"
ACCOUNTS: Final = "accounts"
BACKUP: Final = "accounting-backup"
CONTROLLER: Final = "controller"
EXPORTER: Final = "exporter"
DATABASE: Final = "database"
PLACEHOLDER: Final = "placeholder"
REST: Final = "rest"
WORKER: Final = "worker"
CONFIG: Final = "config"
CONFIG_CHECK: Final = "config-check"
CONFIG_IN_FORCE: Final = "config-in-force"
RECONCILER: Final = "reconciler"
AFTER_DEPLOY: Final = f"{RECONCILER}-after-deploy"
"""The Job that looks at nodes once a deploy is over."""
REBOOTER: Final = "rebooter"
CONTROLLER_HOST: Final = f"{CONTROLLER}-0"
LONG_CHECKS: Final = "longchecks"
"""The pod by which people look at long checks, and where those that run are."""
LONG_CHECK: Final = "longcheck"
"""What runs one, and the first part of its CronJob's name."""
LOGIN: Final = "login"
MONITORING: Final = "monitoring"
"""The pod of Prometheus and Alertmanager."""
MACHINES: Final = "machines"
"""Node exporters, one on each Kubernetes node."""
GRAFANA: Final = "grafana"
LOGS: Final = "logs"
"""What sends the daemons' lines to a collector."""
SNAPSHOTS: Final = "snapshots"
"""What makes VolumeSnapshots."""
HOSTS: Final = "hosts"
"""Headless Service below which every pod of Slurm is known by its host name."""
CLUSTER_DOMAIN: Final = "cluster.local"
"""Domain of a Kubernetes cluster that was given no other."""
AWS_CNI: Final = "aws-cni"
"""What Amazon's network plugin calls its network, which every EKS cluster has."""
GPU_NAMESPACE: Final = "gpu-operator"
"""Where NVIDIA's GPU operator is put, with DCGM exporter, by stacks that install it."""

ACCOUNTING_CONFIG: Final = "accounting"
ACCOUNTS_CONFIG: Final = "accounts"
BACKUP_CLAIM: Final = "accounting-backup"
BACKUP_CONFIG: Final = "accounting-backup"
AUTH_SECRET: Final = "auth-key"
ARCHIVE_CLAIM: Final = "accounting-archive"
DATABASE_CLAIM: Final = "database"
DATABASE_SECRET: Final = "database-password"
GRAFANA_CONFIG: Final = "grafana"
GRAFANA_SECRET: Final = "grafana-admin"
JWT_SECRET: Final = "jwt-key"
LOGS_CONFIG: Final = "logs"
MONITORING_CLAIM: Final = "monitoring"
MONITORING_CONFIG: Final = "monitoring"
NODESETS_CONFIG: Final = "nodesets"
MEMORY_CONFIG: Final = "reconciler-memory"
"""What the reconciler remembers of repairs."""
LONG_CHECKS_CLAIM: Final = "longchecks"
LONG_CHECKS_CONFIG: Final = "longchecks"
HOST_KEY_SECRET: Final = "login-host-key"
USER_IMAGES_CONFIG: Final = "user-images"
NODE_SSH_SECRET: Final = "node-ssh"
SLURM_CONFIG: Final = "slurm-config"
"""What slurmctld reads."""
SLURM_CONFIG_CANDIDATE: Final = "slurm-config-candidate"
"""What it is to read once it has been seen to start on it."""
SCRIPTS_CONFIG: Final = "scripts"
USERS_CONFIG: Final = "users"
AUTHORIZED_KEYS_CONFIG: Final = "authorized-keys"
LOGIN_CONFIG: Final = "login"
DIRECTORY_CONFIG: Final = "directory"
JAIL_CLAIM: Final = "jail"
JAIL_SERVER: Final = "jail-server"
"""The NFS server that the jail may be on, with all that it has."""
JAIL_ORIGIN: Final = "jail-origin"
"""First part of the name of a ConfigMap that tells what volume the jail is on."""
STATE_CLAIM: Final = "controller-state"

RESERVED_NAMES: Final = frozenset(
    {
        ACCOUNTING,
        CONTROLLER,
        EXPORTER,
        DATABASE,
        PLACEHOLDER,
        LOGIN,
        HOSTS,
        JAIL_SERVER,
        REST,
        RECONCILER,
        REBOOTER,
        LONG_CHECKS,
        MONITORING,
        MACHINES,
        GRAFANA,
        LOGS,
    }
)
"""Names of the other workloads: a nodeset called so would collide with them."""

MAX_REPLICAS: Final = 10_000
"""Most nodes of one nodeset."""

# --- Ports --------------------------------------------------------------------------------------

SLURMCTLD_PORT: Final = 6817
SLURMD_PORT: Final = 6818
SLURMDBD_PORT: Final = 6819
REST_PORT: Final = 6820
EXPORTER_PORT: Final = 9341
NODE_EXPORTER_PORT: Final = 9342
"""Of the machine itself, where 9100 may be somebody else's node exporter."""
RECONCILER_PORT: Final = 9343
LONG_CHECKS_PORT: Final = 9344
LOGS_PORT: Final = 9348
SCRAPED: Final[Mapping[str, int]] = {
    EXPORTER: EXPORTER_PORT,
    LOGS: LOGS_PORT,
    LONG_CHECKS: LONG_CHECKS_PORT,
    RECONCILER: RECONCILER_PORT,
}
"""The port of metrics of each component that has any."""
METRICS: Final = "metrics"
"""What that port is called; DCGM exporter calls its own so as well."""
PROMETHEUS_PORT: Final = 9345
ALERTMANAGER_PORT: Final = 9346
GRAFANA_PORT: Final = 9347
MARIADB_PORT: Final = 3306
NFS_PORT: Final = 2049
"""NFSv4 has no other (RFC 8881, section 2.9.3)."""
LUSTRE_PORTS: Final = ((988, 988), (1018, 1023))
"""Ranges of Lustre's ports (FSx for Lustre, security groups)."""
SSH_PORT: Final = 22
SSHD_PORT: Final = 2222
"""Where sshd listens inside the login pod; its Service answers on `SSH_PORT`."""

# --- Users --------------------------------------------------------------------------------------

SLURM_ID: Final = 64030
"""User and group id of `slurm`: the number that Debian gives it."""
MUNGE_ID: Final = 64031
"""User and group id of `munge` in every image of this project."""
REST_ID: Final = 64032
"""User and group id of `slurmrestd` in its image."""
MYSQL_ID: Final = 64033
"""User and group id of `mysql` in the database's image."""
CHECKS_ID: Final = 64034
"""User and group id of `CHECKS_USER` in every image but those of databases."""
EXPORTER_ID: Final = 64035
"""User and group id of the exporter, which no image has a name for."""
MONITORING_ID: Final = 64036
"""User and group id of Prometheus, Alertmanager and Grafana, which no image has a name for."""
DAEMON_IDS: Final = range(SLURM_ID, MONITORING_ID + 1)
"""Ids that no user may have, wherever users come from."""
CHECKS_USER: Final = "slurmstack-checks"
"""Whose the jobs of long checks are: a user, the group and the account of that one alone."""
CHECKS_PARTITION: Final = "slurmstack-checks"
"""The hidden partition that they are in."""
NOBODY_ID: Final = 65534
"""User and group id of `nobody`: the number that Debian gives it."""
USER_IDS: Final = range(1000, 60000)
"""Debian's range for people (`adduser.conf`: FIRST_UID, LAST_UID)."""

# --- Paths inside the containers ----------------------------------------------------------------

JAIL: Final = "/mnt/jail"
"""Where login and worker pods mount the shared root."""
JAIL_MARKER: Final = f"{JAIL}/var/lib/slurmstack/jail-refresh"
"""File in it that holds its generation, once it has one."""
JAIL_VOLUMES: Final = "/mnt/volumes"
"""Where pods mount volumes that users find in the jail, each at its name."""
LOGIN_TMP: Final = f"{JAIL_VOLUMES}/tmp"
"""What a login node shows as /tmp in the jail."""
JAIL_SERVED: Final = "/srv/jail"
"""Where the jail's server mounts its volume: `files` is the jail, `recovery` who had it mounted."""
JAIL_SERVER_ETC: Final = "/etc/slurmstack/jail-server"
"""Where it finds its configuration, `ganesha.conf`."""
CHECKS_LOGS: Final = "/var/log/slurmstack-checks"
"""Folder of the jail for the output of long checks' jobs, which those of nobody else may enter."""
LONG_CHECKS_ETC: Final = "/etc/slurmstack/longchecks"
"""Where agents/longchecks finds what the settings want."""
LONG_CHECKS_FILE: Final = "wanted.json"
LONG_CHECKS_DATA: Final = "/var/lib/slurmstack/longchecks"
"""Where the volume with their time series is mounted."""
SLURM_ETC: Final = "/etc/slurm"
SLURM_CANDIDATE: Final = "/etc/slurmstack/candidate"
SLURM_RUN: Final = "/run/slurm"
"""Where sackd keeps the configuration that it fetched; clients look here by themselves."""
MUNGE_RUN: Final = "/run/munge"
"""Where everybody but munged itself finds the socket's directory: munge's own default."""
ACCOUNTING_ETC: Final = "/etc/slurmstack/accounting"
"""Where slurmdbd's configuration is mounted, but for the password."""
ACCOUNTS_WANTED: Final = "/etc/slurmstack/accounts"
"""Where agents/accounts finds what the settings want."""
ACCOUNTS_FILE: Final = "wanted.json"
DATABASE_PASSWORD: Final = "/etc/slurmstack/database_password"
"""Where the database and slurmdbd find its password, in a file `password`."""
BACKUP_DATA: Final = "/var/lib/slurmstack/backup"
"""Where the volume of dumps is mounted."""
BACKUP_KEYS: Final = "/etc/slurmstack/backup_s3"
"""Where the credentials of an S3-compatible store are mounted."""
BACKUP_PASSWORD: Final = "/etc/slurmstack/backup_password"
"""Where the password is mounted that dumps are encrypted by, in a file `password`."""
BACKUP_RUN: Final = "/run/backup"
"""Volume in memory of who dumps and restores: credentials as their programs read them."""
DATABASE_DATA: Final = "/var/lib/mysql"
DATABASE_RUN: Final = "/run/mysqld"
DBD_ARCHIVE: Final = "/var/spool/slurmdbd"
"""Where slurmdbd puts the records that it removes."""
DBD_RUN: Final = "/run/slurmdbd"
"""slurmdbd's volume in memory: its configuration as it reads it, password included."""
AUTH_SECRET_DIR: Final = "/etc/auth-secret"
"""Where munged or sackd finds the keys, each under the moment from which it counts."""
AUTH_KEYS: Final = "/run/slurm-keys"
"""Volume of sackd, slurmctld and slurmd with the file that they have their keys from."""
MUNGE_OWN: Final = "/run/munged"
"""munged's volume: the key's copy in `key`, and `socket`, which the others mount."""
MUNGE_SOCKET: Final = f"{MUNGE_OWN}/socket/munge.socket.2"
EXTRAUSERS: Final = "/var/lib/extrausers"
"""Where libnss-extrausers reads passwd and group."""
DIRECTORY: Final = "/etc/slurmstack/directory"
"""Where sssd's configuration is mounted, but for the password."""
DIRECTORY_PASSWORD: Final = "/etc/slurmstack/directory_password"
DIRECTORY_OWN: Final = "/run/sss"
"""sssd's volume: its configuration as it reads it, and `pipes`, which the others mount."""
DIRECTORY_PIPES: Final = "/var/lib/sss/pipes"
"""Where libnss-sss looks for sssd."""
AUTHORIZED_KEYS: Final = "/etc/slurmstack/authorized_keys"
HOST_KEY: Final = "/etc/slurmstack/host_key"
NODESETS: Final = "/etc/slurmstack/nodesets"
"""Where agents/reconciler finds what the settings want of nodes."""
NODES_FILE: Final = "wanted.json"
CONTROLLER_SPOOL: Final = "/var/spool/slurmctld"
WORKER_SPOOL: Final = "/var/spool/slurmd"
WORKER_SCRATCH: Final = "/var/spool/slurmstack"
"""Node-local disk below which each job's private /tmp and /var/tmp are made."""
SPANK_DIR: Final = "/usr/lib/slurmstack"
SPANK_PLUGIN: Final = f"{SPANK_DIR}/chroot.so"
CONTAINER_PLUGIN: Final = f"{SPANK_DIR}/container.so"
USER_IMAGES: Final = f"{SPANK_DIR}/user-images"
"""Mount point of the site's settings for users' images."""
ISOLATION: Final = "/etc/slurmstack/isolation"
"""Where workers mount their nodeset's options of the plugin."""
CONFINEMENT_REQUIRED: Final = "confinement-required"
"""Where this file is there, a node that cannot confine jobs takes none."""
NODE_OPTIONS: Final = "node.conf"
"""Name of the file with them."""
NODE_CHECKS: Final = "checks.json"
"""Name of the file beside it with what the settings say of the nodeset's checks."""
SLURM_PLUGIN_DIR: Final = "/usr/lib/x86_64-linux-gnu/slurm-wlm"
"""Debian's plugin directory on amd64, the one architecture that the images are built for."""
PMIX_DIR: Final = "/usr/lib/x86_64-linux-gnu/pmix2"
"""Directory of PMIx in Debian."""
CHECKS: Final = f"{SPANK_DIR}/checks"
"""Folder of the programs by which slurmd has a node checked: `interval`, `prolog`, `epilog`."""
ABSENT_PROGRAM: Final = f"{SPANK_DIR}/absent"
"""What slurmctld runs at its start to mark static nodes that never registered as down."""
SCRIPTS: Final = f"{SPANK_DIR}/scripts"
"""Where workers mount the scripts that slurmd and tasks run: below what jobs see as well."""
LOGIN_SETTINGS: Final = f"{SPANK_DIR}/login"
"""Where login nodes, and the users on them, find what follows from the settings."""
NODE_SSH: Final = f"{SPANK_DIR}/node-ssh"
"""Where ssh finds the way into jobs on nodes: below what users see on login nodes and in jobs."""
JWT_KEY_DIR: Final = "/etc/slurmstack/jwt"
JWT_KEY: Final = f"{JWT_KEY_DIR}/jwt_hs256.key"
"""Key that slurmctld signs and checks tokens with."""
WORKER_VOLUMES: Final = frozenset(
    {
        "auth-keys",
        "auth-secret",
        "isolation",
        "jail",
        "munge",
        "node-ssh",
        "scratch",
        "scripts",
        "shm",
        "slurm-run",
        "spool",
        "sss",
        "sss-config",
        "sss-password",
        "user-images",
        "users",
    }
)
"""Names of the volumes that every worker has: a further one called so would collide with them."""
WORKER_PATHS: Final = (
    *(JAIL, JAIL_VOLUMES, SLURM_ETC, SLURM_RUN, MUNGE_RUN, AUTH_KEYS, EXTRAUSERS, DIRECTORY_PIPES),
    *(ISOLATION, WORKER_SPOOL, WORKER_SCRATCH),
    *(SPANK_DIR, SLURM_PLUGIN_DIR, "/dev", "/proc", "/sys"),
)
"""Paths of a worker that nothing else may be mounted at, below (the jail's excepted) or above."""


CONFIG_REFUSED: Final = 3
"""Exit code of the check of a configuration that must not come into force."""
ACCOUNTS_REFUSED: Final = 3
"""The same of agents/accounts, when jobs are on something that is to go."""
SNAPSHOTS_REFUSED: Final = 3
"""The same of agents/snapshots, where the cluster has no VolumeSnapshots."""
JAIL_REFUSED: Final = 3
"""The same of the Jobs of the jail, which would fail again as long as nobody does anything."""


def checksum(files: Mapping[str, str]) -> str:
    """Digest of what some files hold: a pod that carries it is another when they change."""
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{content}\0".encode())
    return digest.hexdigest()[:16]


def type_token(module: str, kind: str) -> str:
    """Pulumi type of a component, `slurmstack:<module>:<Class>`; never changed without an alias."""
    return f"{PROJECT}:{module}:{kind}"


def controller_address(namespace: str, cluster_domain: str) -> str:
    """Whole DNS name of the controller's Service: every command of Slurm's asks for it."""
    return f"{CONTROLLER}.{namespace}.svc.{cluster_domain}"


def accounting_address(namespace: str, cluster_domain: str) -> str:
    """Whole DNS name of slurmdbd's Service."""
    return f"{ACCOUNTING}.{namespace}.svc.{cluster_domain}"


def conf_server(address: str) -> str:
    """Where daemons and clients fetch Slurm's configuration, as `--conf-server` takes it."""
    return f"{address}:{SLURMCTLD_PORT}"


def hosts_domain(namespace: str, cluster_domain: str) -> str:
    """DNS domain in which the controller, the login node and every worker have their names."""
    return f"{HOSTS}.{namespace}.svc.{cluster_domain}"


def node_names(nodeset: str, replicas: int) -> tuple[str, ...]:
    """Slurm node names of a nodeset, which are its pods' names: `cpu-0`, `cpu-1`, …"""
    return tuple(f"{nodeset}-{ordinal}" for ordinal in range(replicas))
