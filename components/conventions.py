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

CONTROLLER: Final = "controller"
PLACEHOLDER: Final = "placeholder"
REST: Final = "rest"
RECONCILER: Final = "reconciler"
CONTROLLER_HOST: Final = f"{CONTROLLER}-0"
LOGIN: Final = "login"
HOSTS: Final = "hosts"
"""Headless Service below which every pod of Slurm is known by its host name."""
CLUSTER_DOMAIN: Final = "cluster.local"
"""Domain of a Kubernetes cluster that was given no other."""

AUTH_SECRET: Final = "auth-key"
JWT_SECRET: Final = "jwt-key"
NODESETS_CONFIG: Final = "nodesets"
HOST_KEY_SECRET: Final = "login-host-key"
SLURM_CONFIG: Final = "slurm-config"
"""What slurmctld reads."""
SLURM_CONFIG_CANDIDATE: Final = "slurm-config-candidate"
"""What it is to read once it has been seen to start on it."""
SCRIPTS_CONFIG: Final = "scripts"
USERS_CONFIG: Final = "users"
AUTHORIZED_KEYS_CONFIG: Final = "authorized-keys"
JAIL_CLAIM: Final = "jail"
STATE_CLAIM: Final = "controller-state"

RESERVED_NAMES: Final = frozenset(
    {CONTROLLER, PLACEHOLDER, LOGIN, HOSTS, REST, RECONCILER, "accounting", "monitoring"}
)
"""Names of the other workloads: a nodeset called so would collide with them."""

MAX_REPLICAS: Final = 10_000
"""Most nodes of one nodeset."""

# --- Ports --------------------------------------------------------------------------------------

SLURMCTLD_PORT: Final = 6817
SLURMD_PORT: Final = 6818
REST_PORT: Final = 6820
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
USER_IDS: Final = range(1000, 60000)
"""Debian's range for people (`adduser.conf`: FIRST_UID, LAST_UID)."""

# --- Paths inside the containers ----------------------------------------------------------------

JAIL: Final = "/mnt/jail"
"""Where login and worker pods mount the shared root."""
SLURM_ETC: Final = "/etc/slurm"
SLURM_CANDIDATE: Final = "/etc/slurmstack/candidate"
SLURM_RUN: Final = "/run/slurm"
"""Where sackd keeps the configuration that it fetched; clients look here by themselves."""
MUNGE_RUN: Final = "/run/munge"
"""Where everybody but munged itself finds the socket's directory: munge's own default."""
AUTH_SECRET_DIR: Final = "/etc/auth-secret"
"""Where munged or sackd finds the keys, each under the moment from which it counts."""
AUTH_KEYS: Final = "/run/slurm-keys"
"""Volume of sackd, slurmctld and slurmd with the file that they have their keys from."""
MUNGE_OWN: Final = "/run/munged"
"""munged's volume: the key's copy in `key`, and `socket`, which the others mount."""
MUNGE_SOCKET: Final = f"{MUNGE_OWN}/socket/munge.socket.2"
EXTRAUSERS: Final = "/var/lib/extrausers"
"""Where libnss-extrausers reads passwd and group."""
AUTHORIZED_KEYS: Final = "/etc/slurmstack/authorized_keys"
HOST_KEY: Final = "/etc/slurmstack/host_key"
NODESETS: Final = "/etc/slurmstack/nodesets"
"""A file for each nodeset, which says how many nodes it is to have."""
CONTROLLER_SPOOL: Final = "/var/spool/slurmctld"
WORKER_SPOOL: Final = "/var/spool/slurmd"
WORKER_SCRATCH: Final = "/var/spool/slurmstack"
"""Node-local disk below which each job's private /tmp and /var/tmp are made."""
SPANK_DIR: Final = "/usr/lib/slurmstack"
SPANK_PLUGIN: Final = f"{SPANK_DIR}/chroot.so"
SLURM_PLUGIN_DIR: Final = "/usr/lib/x86_64-linux-gnu/slurm-wlm"
"""Debian's plugin directory on amd64, the one architecture that the images are built for."""
ABSENT_PROGRAM: Final = f"{SPANK_DIR}/absent"
"""What slurmctld runs at its start to mark static nodes that never registered as down."""
SCRIPTS: Final = f"{SPANK_DIR}/scripts"
"""Where workers mount the scripts that slurmd and tasks run: below what jobs see as well."""
JWT_KEY_DIR: Final = "/etc/slurmstack/jwt"
JWT_KEY: Final = f"{JWT_KEY_DIR}/jwt_hs256.key"
"""Key that slurmctld signs and checks tokens with."""
WORKER_VOLUMES: Final = frozenset(
    {
        "auth-keys",
        "auth-secret",
        "jail",
        "munge",
        "scratch",
        "scripts",
        "shm",
        "slurm-run",
        "spool",
        "users",
    }
)
"""Names of the volumes that every worker has: a further one called so would collide with them."""
WORKER_PATHS: Final = (
    *(JAIL, SLURM_ETC, SLURM_RUN, MUNGE_RUN, AUTH_KEYS, EXTRAUSERS, WORKER_SPOOL, WORKER_SCRATCH),
    *(SPANK_DIR, SLURM_PLUGIN_DIR, "/dev", "/proc", "/sys"),
)
"""Paths of a worker that nothing else may be mounted at, below (the jail's excepted) or above."""


CONFIG_REFUSED: Final = 3
"""Exit code of the check of a configuration that must not come into force."""


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


def conf_server(address: str) -> str:
    """Where daemons and clients fetch Slurm's configuration, as `--conf-server` takes it."""
    return f"{address}:{SLURMCTLD_PORT}"


def hosts_domain(namespace: str, cluster_domain: str) -> str:
    """DNS domain in which the controller, the login node and every worker have their names."""
    return f"{HOSTS}.{namespace}.svc.{cluster_domain}"


def node_names(nodeset: str, replicas: int) -> tuple[str, ...]:
    """Slurm node names of a nodeset, which are its pods' names: `cpu-0`, `cpu-1`, …"""
    return tuple(f"{nodeset}-{ordinal}" for ordinal in range(replicas))
