"""Names, labels, ports, paths and ids of the cluster, each defined once."""

import hashlib
from collections.abc import Mapping
from typing import Final

from agents import labels

PROJECT: Final = labels.PROJECT

# --- Kubernetes ---------------------------------------------------------------------------------

DOMAIN: Final = labels.DOMAIN
LABEL_COMPONENT: Final = labels.COMPONENT
LABEL_NODESET: Final = labels.NODESET
ON_DEMAND_LABELS: Final[Mapping[str, str]] = {labels.ON_DEMAND: "yes"}
"""Labels of the pods of nodes on demand, and of their templates."""
ANNOTATION_CHECKSUM: Final = f"{DOMAIN}/config-checksum"
ANNOTATION_REPORT: Final = labels.REPORT
ANNOTATION_NODES: Final = f"{DOMAIN}/nodes"
"""Annotation on the pod template of a nodeset on demand: the maximum number of its nodes that run
at once."""
ANNOTATION_COST: Final = f"{DOMAIN}/cost"
"""Annotation with the highest and the lowest cost of all nodes on demand for an hour. It is on the
ConfigMap of the agent that starts these nodes."""
COST_LOGGED: Final = "nodes on demand: "
"""First words of a line that the program logs in a preview. After them comes the value of
`ANNOTATION_COST`."""
ANNOTATION_ROLL: Final = labels.ROLL
TAINT_UNHEALTHY: Final = labels.UNHEALTHY
CONDITION_UNHEALTHY: Final = labels.CONDITION_UNHEALTHY
ANNOTATION_REBOOT: Final = labels.REBOOT
GATE_MACHINE: Final = labels.MACHINE
TAINT_PODS: Final = labels.BRIDGE
SHARED_LABELS: Final[Mapping[str, str]] = {f"{DOMAIN}/shared-with-pods": "yes"}
"""Labels of the pods of nodes whose machines also run pods that Slurm schedules."""

ACCOUNTING: Final = "accounting"
ACCOUNTS: Final = "accounts"
BACKUP: Final = "backup"
"""Pods that make sets of backups."""
BRIDGE: Final = "bridge"
"""Agent with which Slurm schedules pods."""
CONTROLLER: Final = "controller"
EXPORTER: Final = "exporter"
GUARD: Final = "guard"
"""Init container that sets the packet filter of users' pods."""
DATABASE: Final = "database"
DUMPS: Final = "accounting-backup"
"""Pods that dump the accounting database."""
PLACEHOLDER: Final = "placeholder"
REST: Final = "rest"
WORKER: Final = labels.WORKER
CONFIG: Final = "config"
CONFIG_CHECK: Final = "config-check"
CONFIG_IN_FORCE: Final = "config-in-force"
ON_DEMAND: Final = "ondemand"
"""Agent that starts and stops nodes on demand."""
RECONCILER: Final = "reconciler"
AFTER_DEPLOY: Final = f"{RECONCILER}-after-deploy"
"""Job that checks nodes at the end of a deploy."""
REBOOTER: Final = labels.REBOOTER
CONTROLLER_HOST: Final = f"{CONTROLLER}-0"
JAIL_JOBS: Final = "jail"
"""Pods of the Jobs that fill the jail."""
LONG_CHECKS: Final = "longchecks"
"""Pod for queries about the results of long checks. The pods that run the checks start on the same
Kubernetes node."""
LONG_CHECK: Final = "longcheck"
"""Component of the pods that run a long check. The name of each check's CronJob also begins with
this text."""
LOGIN: Final = "login"
MONITORING: Final = "monitoring"
"""Pod of Prometheus and Alertmanager."""
NODE_EXPORTER: Final = labels.NODE_EXPORTER
GRAFANA: Final = "grafana"
LOGS: Final = labels.LOGS
SNAPSHOTS: Final = "snapshots"
"""Pods that make VolumeSnapshots."""
HOSTS: Final = "hosts"
"""Headless Service. The host names of all Slurm pods are in its DNS domain."""
CLUSTER_DOMAIN: Final = "cluster.local"
"""Default domain of a Kubernetes cluster."""
AWS_CNI: Final = "aws-cni"
"""CNI network of Amazon's network plugin, which every EKS cluster has."""
GPU_NAMESPACE: Final = "gpu-operator"
"""Namespace of NVIDIA's GPU operator and DCGM exporter, if the stack installs them."""

ACCOUNTING_CONFIG: Final = "accounting"
ACCOUNTS_CONFIG: Final = "accounts"
BACKUP_CLAIM: Final = "backup"
BACKUP_CONFIG: Final = "backup"
AUTH_SECRET: Final = "auth-key"
ARCHIVE_CLAIM: Final = "accounting-archive"
BRIDGE_CONFIG: Final = "bridge"
BRIDGE_CERTIFICATE_SECRET: Final = "bridge-certificate"
BRIDGE_KEY_SECRET: Final = "bridge-key"
DATABASE_CLAIM: Final = "database"
DUMPS_CLAIM: Final = "accounting-backup"
DUMPS_CONFIG: Final = "accounting-backup"
DATABASE_SECRET: Final = "database-password"
GRAFANA_CONFIG: Final = "grafana"
GRAFANA_SECRET: Final = "grafana-admin"
JWT_SECRET: Final = "jwt-key"
LOGS_CONFIG: Final = "logs"
MONITORING_CLAIM: Final = "monitoring"
MONITORING_CONFIG: Final = "monitoring"
NODESETS_CONFIG: Final = "nodesets"
ON_DEMAND_CONFIG: Final = "nodes-on-demand"
MEMORY_CONFIG: Final = "reconciler-memory"
"""ConfigMap in which the reconciler records repairs."""
BUSY_NODES: Final = "busy-nodes"
"""PodDisruptionBudget of the reconciler: Kubernetes does not evict pods of nodes with jobs."""
LONG_CHECKS_CLAIM: Final = "longchecks"
LONG_CHECKS_CONFIG: Final = "longchecks"
HOST_KEY_SECRET: Final = "login-host-key"
ALERTMANAGER_SECRET: Final = "alertmanager-config"
USER_IMAGES_CONFIG: Final = "user-images"
NODE_SSH_SECRET: Final = "node-ssh"
SYSTEM_ACCOUNTS: Final = frozenset(
    {
        # Users and groups of Debian's package base-passwd.
        *("root", "daemon", "bin", "sys", "adm", "tty", "disk", "lp", "mail", "news", "uucp"),
        *("man", "proxy", "kmem", "dialout", "fax", "voice", "cdrom", "floppy", "tape", "sudo"),
        *("audio", "dip", "www-data", "backup", "operator", "list", "irc", "src", "shadow"),
        *("utmp", "video", "sasl", "plugdev", "staff", "games", "users", "nogroup", "sync"),
        *("nobody", "_apt"),
        # Users and groups that other packages in the images add.
        *("munge", "slurm", "sshd", "ssh", "_ssh", "messagebus", "sssd", "iperf3", "rdma"),
        *("systemd-journal", "systemd-network"),
    }
)
"""Users and groups of the images. They take precedence over the same names in the settings."""
OWN_SECRETS: Final = frozenset(
    {
        ALERTMANAGER_SECRET,
        AUTH_SECRET,
        BRIDGE_CERTIFICATE_SECRET,
        BRIDGE_KEY_SECRET,
        DATABASE_SECRET,
        GRAFANA_SECRET,
        HOST_KEY_SECRET,
        JWT_SECRET,
        NODE_SSH_SECRET,
    }
)
"""Secrets with credentials that the stack generates or renders."""
SLURM_CONFIG: Final = "slurm-config"
"""ConfigMap that slurmctld reads."""
SLURM_CONFIG_CANDIDATE: Final = "slurm-config-candidate"
"""ConfigMap with a configuration that slurmctld uses only after a successful test."""
TOPOLOGY_CONFIG: Final = "slurm-topology"
"""ConfigMap in which the reconciler writes topology.conf, if labels define the topology."""
SCRIPTS_CONFIG: Final = "scripts"
USERS_CONFIG: Final = "users"
AUTHORIZED_KEYS_CONFIG: Final = "authorized-keys"
LOGIN_CONFIG: Final = "login"
DIRECTORY_CONFIG: Final = "directory"
JAIL_CLAIM: Final = "jail"
JAIL_SERVER: Final = "jail-server"
"""NFS server for the jail, and the objects that belong to it."""
JAIL_ORIGIN: Final = "jail-origin"
"""Prefix of the name of a ConfigMap that identifies the jail's volume."""
STATE_CLAIM: Final = "controller-state"

RESERVED_NAMES: Final = frozenset(
    {
        ACCOUNTING,
        BRIDGE,
        CONTROLLER,
        EXPORTER,
        DATABASE,
        PLACEHOLDER,
        LOGIN,
        HOSTS,
        JAIL_SERVER,
        REST,
        ON_DEMAND,
        RECONCILER,
        REBOOTER,
        LONG_CHECKS,
        MONITORING,
        NODE_EXPORTER,
        GRAFANA,
        LOGS,
    }
)
"""Names of the stack's own workloads; no nodeset may have such a name."""

MAX_REPLICAS: Final = 10_000
"""Maximum number of nodes in a nodeset."""

# --- Ports --------------------------------------------------------------------------------------

SLURMCTLD_PORT: Final = 6817
SLURMD_PORT: Final = 6818
SLURMDBD_PORT: Final = 6819
REST_PORT: Final = 6820
EXPORTER_PORT: Final = 9341
NODE_EXPORTER_PORT: Final = 9342
"""Port of node-exporter. It is a port of the machine itself, so it is not the usual 9100, which
another node-exporter may already use."""
RECONCILER_PORT: Final = 9343
LONG_CHECKS_PORT: Final = 9344
LOGS_PORT: Final = 9348
ON_DEMAND_PORT: Final = 9349
BRIDGE_PORT: Final = 9350
BRIDGE_METRICS_PORT: Final = 9351
BRIDGE_WEBHOOK_PORT: Final = 9352
SCRAPED: Final[Mapping[str, int]] = {
    BRIDGE: BRIDGE_METRICS_PORT,
    EXPORTER: EXPORTER_PORT,
    LOGS: LOGS_PORT,
    LONG_CHECKS: LONG_CHECKS_PORT,
    RECONCILER: RECONCILER_PORT,
}
"""Metrics port of each component that has metrics."""
METRICS: Final = "metrics"
"""Name of the metrics port; DCGM exporter's port has the same name."""
PROMETHEUS_PORT: Final = 9345
ALERTMANAGER_PORT: Final = 9346
GRAFANA_PORT: Final = 9347
MARIADB_PORT: Final = 3306
NFS_PORT: Final = 2049
"""The only port of NFSv4 (RFC 8881, section 2.9.3)."""
LUSTRE_PORTS: Final = ((988, 988), (1018, 1023))
"""Ranges of Lustre's ports (FSx for Lustre, security groups)."""
SSH_PORT: Final = 22
SSHD_PORT: Final = 2222
"""Port of sshd inside the login pod; its Service listens on `SSH_PORT`."""

# --- Users --------------------------------------------------------------------------------------

SLURM_ID: Final = 64030
"""User and group id of `slurm` in Debian."""
MUNGE_ID: Final = 64031
"""User and group id of `munge` in every image."""
REST_ID: Final = 64032
"""User and group id of `slurmrestd` in its image."""
MYSQL_ID: Final = 64033
"""User and group id of `mysql` in the image of MariaDB."""
CHECKS_ID: Final = 64034
"""User and group id of `CHECKS_USER` in every image except those of databases."""
EXPORTER_ID: Final = 64035
"""User and group id of the exporter; no image has a name for this id."""
MONITORING_ID: Final = 64036
"""User and group id of Prometheus, Alertmanager and Grafana; no image has a name for this id."""
DAEMON_IDS: Final = range(SLURM_ID, MONITORING_ID + 1)
"""Ids that no user may have, in the settings or in an LDAP directory."""
CHECKS_USER: Final = "slurmstack-checks"
"""User of long checks' jobs; the only user in the group and the account of the same name."""
CHECKS_PARTITION: Final = "slurmstack-checks"
"""Hidden partition of long checks' jobs."""
NOBODY_ID: Final = 65534
"""User and group id of `nobody` in Debian."""
USER_IDS: Final = range(1000, 60000)
"""Debian's range of user ids (`adduser.conf`: FIRST_UID, LAST_UID)."""

# --- Paths inside the containers ----------------------------------------------------------------

JAIL: Final = "/mnt/jail"
"""Mount point of the shared root in login and worker pods."""
JAIL_SHELLS: Final = frozenset(
    f"{usr}/{program}"
    for usr in ("", "/usr")
    for program in ("bin/bash", "bin/dash", "bin/false", "bin/rbash", "bin/sh", "sbin/nologin")
)
"""Paths of the login shells in the jail's image (images/jail), and of programs that refuse logins.
In Debian, /bin and /sbin are links to the folders in /usr."""
JAIL_MARKER: Final = f"{JAIL}/var/lib/slurmstack/jail-refresh"
"""File in the jail with the generation of the system files. It exists once these files exist."""
JAIL_VOLUMES: Final = "/mnt/volumes"
"""Folder in pods with a mount point for each additional volume of the jail. The mount point has the
volume's name."""
LOGIN_TMP: Final = f"{JAIL_VOLUMES}/tmp"
"""Folder on a login node that users see as /tmp in the jail."""
JAIL_SERVED: Final = "/srv/jail"
"""Mount point of the volume in the NFS server's pod. Its folder `files` is the jail. In its folder
`recovery`, the server records its clients."""
JAIL_SERVER_ETC: Final = "/etc/slurmstack/jail-server"
"""Folder of the jail server's configuration, `ganesha.conf`."""
CHECKS_LOGS: Final = "/var/log/slurmstack-checks"
"""Folder in the jail for the output of long checks. Only the jobs of long checks can open the
folder."""
LONG_CHECKS_ETC: Final = "/etc/slurmstack/longchecks"
"""Folder with the wanted checks for agents/longchecks."""
LONG_CHECKS_FILE: Final = "wanted.json"
LONG_CHECKS_DATA: Final = "/var/lib/slurmstack/longchecks"
"""Mount point of the volume with the time series of long checks."""
SLURM_ETC: Final = "/etc/slurm"
SLURM_CANDIDATE: Final = "/etc/slurmstack/candidate"
SLURM_RUN: Final = "/run/slurm"
"""Folder with the configuration that the daemon sackd fetched. By default, Slurm's clients look for
their configuration here."""
MUNGE_RUN: Final = "/run/munge"
"""Folder of munge's socket in all containers except the container of munged. By default, munge's
clients look for the socket here."""
ACCOUNTING_ETC: Final = "/etc/slurmstack/accounting"
"""Mount point of slurmdbd's configuration, without the password."""
ACCOUNTS_WANTED: Final = "/etc/slurmstack/accounts"
"""Folder with the wanted accounts for agents/accounts."""
ACCOUNTS_FILE: Final = "wanted.json"
DATABASE_PASSWORD: Final = "/etc/slurmstack/database_password"
"""Folder with the file `password`: the database's password, for the database and slurmdbd."""
BACKUP_DATA: Final = "/var/lib/slurmstack/backup"
"""Mount point of the volume for backups."""
BACKUP_KEYS: Final = "/etc/slurmstack/backup_s3"
"""Mount point of the credentials of an S3-compatible store."""
BACKUP_PASSWORD: Final = "/etc/slurmstack/backup_password"
"""Folder with the file `password`: the password that encrypts backups."""
BACKUP_RUN: Final = "/run/backup"
"""Volume in memory for files that mariadb and restic read."""
DATABASE_DATA: Final = "/var/lib/mysql"
DATABASE_RUN: Final = "/run/mysqld"
DBD_ARCHIVE: Final = "/var/spool/slurmdbd"
"""Folder for the archive of records that slurmdbd removes."""
DBD_RUN: Final = "/run/slurmdbd"
"""slurmdbd's volume in memory, with its configuration including the password."""
AUTH_SECRET_DIR: Final = "/etc/auth-secret"
"""Folder with the keys for munged or sackd. The name of each file is the time at which the key in
it takes effect."""
AUTH_KEYS: Final = "/run/slurm-keys"
"""Mount point of the volume with the key file for sackd, slurmctld and slurmd."""
MUNGE_OWN: Final = "/run/munged"
"""Volume of munged. The file `key` is munged's copy of the key. Other containers mount the folder
`socket`."""
MUNGE_SOCKET: Final = f"{MUNGE_OWN}/socket/munge.socket.2"
EXTRAUSERS: Final = "/var/lib/extrausers"
"""Folder where libnss-extrausers reads passwd and group."""
DIRECTORY: Final = "/etc/slurmstack/directory"
"""Mount point of sssd's configuration, without the password."""
DIRECTORY_PASSWORD: Final = "/etc/slurmstack/directory_password"
DIRECTORY_OWN: Final = "/run/sss"
"""sssd's volume: the configuration that sssd reads, and `pipes`, which other containers mount."""
DIRECTORY_PIPES: Final = "/var/lib/sss/pipes"
"""Folder where libnss-sss finds sssd's sockets."""
AUTHORIZED_KEYS: Final = "/etc/slurmstack/authorized_keys"
HOST_KEY: Final = "/etc/slurmstack/host_key"
NODESETS: Final = "/etc/slurmstack/nodesets"
"""Folder with the wanted nodes for agents/reconciler."""
NODES_FILE: Final = "wanted.json"
CONTROLLER_SPOOL: Final = "/var/spool/slurmctld"
CONTROLLER_RUN: Final = "/run/slurmctld"
"""Mount point of a volume with slurmctld's configuration. The volume exists only if labels of
Kubernetes nodes define the topology."""
TOPOLOGY: Final = "/etc/slurmstack/topology"
"""Folder with the topology.conf that the reconciler writes if labels of Kubernetes nodes define the
topology."""
WORKER_SPOOL: Final = "/var/spool/slurmd"
BUNDLES: Final = f"{WORKER_SPOOL}/bundles"
"""Directory of slurmstepd's files for steps with --container (images/worker/preload.c)."""
WORKER_SCRATCH: Final = "/var/spool/slurmstack"
"""Node-local disk for the private /tmp and /var/tmp of each job."""
PROGRAMS: Final = "/usr/lib/slurmstack"
SPANK_PLUGIN: Final = f"{PROGRAMS}/chroot.so"
CONTAINER_PLUGIN: Final = f"{PROGRAMS}/container.so"
USER_IMAGES: Final = f"{PROGRAMS}/user-images"
"""Mount point of the site's settings for container images that users run."""
NODE_SETTINGS: Final = "/etc/slurmstack/isolation"
"""Mount point on workers, with the nodeset's checks and its options for the SPANK plugin."""
CONFINEMENT_REQUIRED: Final = "confinement-required"
"""Name of a file in `NODE_SETTINGS`. If the file exists, a node that cannot confine jobs to their
resources runs no jobs."""
NODE_OPTIONS: Final = "node.conf"
"""Name of the file in `NODE_SETTINGS` with the SPANK plugin's options."""
NODE_CHECKS: Final = "checks.json"
"""Name of the file in `NODE_SETTINGS` with the nodeset's checks."""
SLURM_PLUGIN_DIR: Final = "/usr/lib/x86_64-linux-gnu/slurm-wlm"
"""Debian's plugin directory on amd64, the only architecture of the images."""
PMIX_DIR: Final = "/usr/lib/x86_64-linux-gnu/pmix2"
"""Directory of PMIx in Debian."""
CHECKS: Final = f"{PROGRAMS}/checks"
"""Folder with the programs that slurmd runs to check a node: `interval`, `prolog`, `epilog`."""
ABSENT_PROGRAM: Final = f"{PROGRAMS}/absent"
"""Program that slurmctld runs after its start. The program finds static nodes that have never
registered, and sets their state to DOWN."""
POWER_PROGRAM: Final = f"{PROGRAMS}/power"
"""Program that slurmctld runs to start and to stop nodes on demand."""
FEATURE_ON_DEMAND: Final = "on-demand"
"""Slurm feature that all nodes on demand have."""
FEATURE_PODS: Final = "pods"
"""Slurm feature of all nodes whose machines also run pods that Slurm schedules."""
PODS_PARTITION: Final = "pods"
"""Partition of all nodes that run pods, if some run only pods. Only the bridge may submit jobs to
it (components/slurmconf/job_submit.lua.j2)."""
PODS_RUN: Final = "/run/slurmstack/pods"
"""Folder on workers with a file for each job that holds resources for pods. spank/chroot.c reads
it, and lets no user start programs in such a job."""
SCRIPTS: Final = f"{PROGRAMS}/scripts"
"""Mount point on workers, with the scripts that slurmd runs for nodes and tasks. Jobs also see this
path."""
LOGIN_SETTINGS: Final = f"{PROGRAMS}/login"
"""Folder with files from the settings, for login nodes and their users."""
NODE_SSH: Final = f"{PROGRAMS}/node-ssh"
"""Folder with ssh's files for logins to nodes. Users see it on login nodes and in jobs."""
BRIDGE_KEY_DIR: Final = "/etc/slurmstack/bridge"
BRIDGE_KEY: Final = f"{BRIDGE_KEY_DIR}/key"
"""Key with which nodes sign their questions to the bridge. agents/bridge/proof.py has this path."""
JWT_KEY_DIR: Final = "/etc/slurmstack/jwt"
JWT_KEY: Final = f"{JWT_KEY_DIR}/jwt_hs256.key"
"""Key that slurmctld uses to sign and verify tokens."""
WORKER_VOLUMES: Final = frozenset(
    {
        "auth-keys",
        "auth-secret",
        "bridge-key",
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
"""Names of volumes that every worker has. Volumes from the settings must have other names."""
WORKER_PATHS: Final = (
    *(JAIL, JAIL_VOLUMES, SLURM_ETC, SLURM_RUN, MUNGE_RUN, AUTH_KEYS, EXTRAUSERS, DIRECTORY_PIPES),
    *(BRIDGE_KEY_DIR, NODE_SETTINGS, WORKER_SPOOL, WORKER_SCRATCH),
    *(PROGRAMS, SLURM_PLUGIN_DIR, "/dev", "/proc", "/sys"),
)
"""Paths that a worker uses. Mounts from the settings must not be at, above or below these paths.
Mounts below the jail are allowed."""


CONFIG_REFUSED: Final = 3
"""Exit code of the Job that tests Slurm's configuration, if the configuration must not take
effect."""
ACCOUNTS_REFUSED: Final = 3
"""Exit code of agents/accounts if jobs use an object that the settings remove."""
SNAPSHOTS_REFUSED: Final = 3
"""Exit code of agents/snapshots if the cluster does not support VolumeSnapshots."""
JAIL_REFUSED: Final = 3
"""Exit code of a Job that prepares the jail, if a retry can succeed only after an operator has
acted."""


def checksum(files: Mapping[str, str]) -> str:
    """Return a digest of files.

    Pods have the digest as an annotation. So when the files change, Kubernetes replaces the pods.
    """
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{content}\0".encode())
    return digest.hexdigest()[:16]


def type_token(module: str, kind: str) -> str:
    """Return a component's Pulumi type, `slurmstack:<module>:<Class>`. If the type changes, the
    component needs an alias, or Pulumi would replace all its resources."""
    return f"{PROJECT}:{module}:{kind}"


def controller_address(namespace: str, cluster_domain: str) -> str:
    """Return the full DNS name of the controller's Service, which every Slurm command looks up."""
    return f"{CONTROLLER}.{namespace}.svc.{cluster_domain}"


def accounting_address(namespace: str, cluster_domain: str) -> str:
    """Return the full DNS name of slurmdbd's Service."""
    return f"{ACCOUNTING}.{namespace}.svc.{cluster_domain}"


def conf_server(address: str) -> str:
    """Return the source of Slurm's configuration, in the format of `--conf-server`."""
    return f"{address}:{SLURMCTLD_PORT}"


def hosts_domain(namespace: str, cluster_domain: str) -> str:
    """Return the DNS domain with the host names of controllers, login nodes and workers."""
    return f"{HOSTS}.{namespace}.svc.{cluster_domain}"


def node_names(nodeset: str, replicas: int) -> tuple[str, ...]:
    """Return a nodeset's Slurm node names, which are its pods' names: `cpu-0`, `cpu-1`, …"""
    return tuple(f"{nodeset}-{ordinal}" for ordinal in range(replicas))
