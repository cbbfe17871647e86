"""What each edit of the settings does to the graph: the whole of it, and nothing else."""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from components.settings import Settings
from components.settings.slurm import Slurm
from engine.values import changed_paths
from local.paths import ROOT
from tests.support.graph import Graph, record
from tests.support.stack import KEY, VALID, config
from tests.unit.components.effects import Effect, effect

Values = dict[str, Any]
Change = Callable[[Values], object]

BIG, CPU = "nodeset-big-slurmd", "nodeset-cpu-slurmd"
NODESETS = {BIG, CPU}
ASKED_FOR = "reconciler-nodesets"
AFTER_DEPLOY = "reconciler-after-deploy"
RIGHTS = {
    *("reconciler-account", "reconciler-role", "reconciler-rights"),
    *("reconciler-cluster-role", "reconciler-cluster-rights"),
    *("reconciler-limits", "reconciler-limits-binding"),
}
REBOOTER = {
    *("rebooter-account", "rebooter-agent"),
    *("rebooter-cluster-role", "rebooter-cluster-rights"),
}
NODE_SSH = "node-ssh-secret"
EXPORTER = "exporter-agent"
POLICIES = {
    f"network-{name}"
    for name in (
        *("accounting", "accounting-backup", "accounts", "config", "config-check", "controller"),
        *(
            "database",
            "default",
            "exporter",
            "grafana",
            "login",
            "logs",
            "longcheck",
            "longchecks",
            "monitoring",
            "rebooter",
            "reconciler",
        ),
        *("rest", "worker"),
    )
}
FILES = {
    "keys.json": '{"keys": []}',
    "prolog.sh": "#!/bin/sh\nexit 0\n",
    "other.sh": "#!/bin/sh\nexit 1\n",
}
"""Files of the project that settings name."""


def does(**names: Iterable[str]) -> Effect:
    """An effect; whatever is done to nodes, they are looked at when it is over."""
    found = Effect(**{kind: frozenset(found) for kind, found in names.items()})
    to_nodes = ASKED_FOR in found.updated or NODESETS & (found.rolled | found.replaced)
    return replace(found, replaced=found.replaced | {AFTER_DEPLOY}) if to_nodes else found


def and_conf(effect: Effect) -> Effect:
    """The effect, and that Slurm's configuration is tried, and then read without a restart."""
    return replace(
        effect,
        updated=effect.updated | {"config-candidate", "controller-config"},
        replaced=effect.replaced | {"config-check", "controller-config-in-force", AFTER_DEPLOY},
    )


def both(one: Effect, other: Effect) -> Effect:
    """What two edits do together."""
    return replace(
        one,
        updated=one.updated | other.updated,
        rolled=one.rolled | other.rolled,
        replaced=one.replaced | other.replaced,
    )


NOTHING = does()
CONF = and_conf(NOTHING)
SCRIPTS = does(updated={"config-scripts"})
ISOLATION = does(updated={"nodeset-big-isolation"})
CHECKED = does(updated={"nodeset-big-isolation", "nodeset-cpu-isolation"})
LOOKED_AT = both(CONF, does(updated={ASKED_FOR}))
"""Who looks after nodes knows by when they are to have looked themselves."""
DISK = {"disk": {"max_percent": 80}}
SUBMOUNT = does(rolled={"login-sshd", EXPORTER, *NODESETS}, replaced={"jail-populate"})
ASSOCIATIONS = does(updated={"accounts-wanted"}, replaced={"accounts-apply"})
ACCOUNTS = does(
    updated={"users-accounts", "users-keys", "accounts-wanted"},
    replaced={"jail-homes", "accounts-apply"},
)
LOGIN = does(updated={"login-config"})
USER_IMAGES = does(updated={"user-images-config"})
MARIADB = does(rolled={"database-mariadb"})
SLURMDBD = does(updated={"accounting-config"}, rolled={"accounting-slurmdbd"})
DUMP = does(updated={"backup-dump"})
JOBS = {
    *("accounts-apply", "config-check", "controller-config-in-force"),
    *("jail-homes", "jail-populate", AFTER_DEPLOY),
}
SERVER, MACHINES = "monitoring-server", "machines-exporter"
WATCH = {
    *(SERVER, "monitoring-service", "monitoring-config", "monitoring-data"),
    *("monitoring-account", "monitoring-role", "monitoring-rights", MACHINES),
}
"""Prometheus with all that it has, and node exporters."""
GRAFANA = ("config", "password", "secret", "server", "service")
SHOWN = {f"dashboard-{path.stem}" for path in (ROOT / "monitoring/dashboards/built").glob("*.json")}
ASKED_OF_OPERATOR = {
    *("monitoring-podmonitor-node", "monitoring-servicemonitor-reconciler"),
    *("monitoring-prometheusrule-slurmstack-recording", "monitoring-servicemonitor-slurm"),
    "monitoring-prometheusrule-slurmstack-slurm",
}
NEW_IMAGES = does(
    rolled={
        *("controller-slurmctld", "controller-placeholder-pod", "login-sshd", *NODESETS),
        *("rest-slurmrestd", "reconciler-agent", "accounting-slurmdbd", "database-mariadb"),
        *(EXPORTER, SERVER),
    },
    updated={"backup-dump", MACHINES},
    replaced=JOBS,
)
AFTER_THE_CONTROLLER = {
    *("controller-config-in-force", "controller-service", "login-service", "login-sshd"),
    "accounts-apply",
    *("controller-placeholder-pod", "controller-placeholder-priority"),
    *(EXPORTER, "exporter-service"),
    *("reconciler-agent", "reconciler-service", AFTER_DEPLOY),
    *("rest-service", "rest-slurmrestd", *NODESETS),
}
DATA = {
    *("controller-slurmctld", "controller-state", "jail-claim", "database-data"),
    "backup-volume",
    *("database-mariadb", "database-password", "database-secret"),
    *("auth-password", "auth-secret", "jwt-password", "jwt-secret"),
    *("login-host-key-seed", "login-host-key", "node-ssh-seed", NODE_SSH),
}
"""What a cluster cannot lose: its state, its users' files, and what others trust it by."""
SEEDS = {
    *("auth-password", "jwt-password", "login-host-key-seed", "node-ssh-seed"),
    "database-password",
}
EVERYTHING_IN_THE_NAMESPACE = {
    *(DATA - SEEDS),
    *("accounting-config", "accounting-service", "accounting-slurmdbd", "database-service"),
    *("accounts-wanted", "backup-config", "backup-dump"),
    *(
        "namespace",
        "hosts",
        "jail-origin",
        "users-accounts",
        "users-keys",
        "user-images-config",
        "login-config",
        "reconciler-memory",
        ASKED_FOR,
    ),
    *RIGHTS,
    *("config-candidate", "config-scripts", "controller-config", *JOBS, *AFTER_THE_CONTROLLER),
    *POLICIES,
    *("nodeset-big-isolation", "nodeset-cpu-isolation"),
    *WATCH,
}


def described(nodeset: str) -> Effect:
    """A dynamic nodeset says something else of its nodes; slurmctld is asked whether it may."""
    return does(rolled={nodeset}, updated={ASKED_FOR}, replaced={"config-check"})


# --- Edits ---------------------------------------------------------------------------------------


def top(**fields: Any) -> Change:
    return lambda values: values.update(fields)


def long_check(**fields: Any) -> Change:
    return top(long_checks={"checks": [{"name": "cpu-memory", **fields}]})


LONG_CHECKS = frozenset(
    f"longchecks-{part}" for part in ("config", "cpu-memory", "desk", "service", "volume")
)


def cpu(**fields: Any) -> Change:
    return lambda values: values["nodesets"][0].update(fields)


def big(**fields: Any) -> Change:
    return lambda values: values["nodesets"][1].update(fields)


def submount(**fields: Any) -> Change:
    return top(jail={"volumes": [{"name": "data", "path": "/data", "claim": "data", **fields}]})


def accounting(**fields: Any) -> Change:
    return top(accounting=fields)


def database(**fields: Any) -> Change:
    return accounting(database=fields)


def external(**fields: Any) -> Change:
    return accounting(external={"host": "db.lab", "password_secret": "slurmdbd", **fields})


def backup(**fields: Any) -> Change:
    return accounting(backup=fields)


def exporter(**fields: Any) -> Change:
    return top(monitoring={"exporter": fields})


def logs(**fields: Any) -> Change:
    return top(monitoring={"logs": {"endpoint": "http://collector.lab:4318", **fields}})


def elsewhere(**fields: Any) -> Change:
    """On a cluster that may have Cilium."""
    return top(cluster={"kind": "existing", "kubeconfig": "lab.yaml"}, network=fields)


CILIUM_POLICIES = {name.replace("network-", "network-cilium-", 1) for name in POLICIES}
AGENT = "logs-agent"
LOGS = {AGENT, "logs-account", "logs-role", "logs-rights", "logs-service"}
SCRAPED = ("exporter", "logs", "longchecks", "reconciler")


def snapshots(**fields: Any) -> Change:
    return top(snapshots=fields)


SNAPSHOTS = {
    *("snapshots-account", "snapshots-role", "snapshots-rights"),
    *("snapshots-check", "snapshots-take", "network-snapshots"),
}


def slurm(**fields: Any) -> Change:
    return top(slurm=fields)


def extra(file: str, *lines: str) -> Change:
    return slurm(extra={file: list(lines)})


def researcher(**fields: Any) -> Change:
    return lambda values: values["users"][0].update(fields)


def login(**fields: Any) -> Change:
    return lambda values: values["login"].update(fields)


def partition(name: str = "main", **fields: Any) -> Values:
    return {"name": name, "nodesets": ["cpu"], **fields}


def partitions(*given: Values) -> Change:
    return top(partitions=list(given))


def existing(service: str = "LoadBalancer", **fields: Any) -> Change:
    return top(
        cluster={"kind": "existing", "kubeconfig": "/kubeconfig", **fields},
        login={"service": service},
    )


NEW = {"name": "new", "replicas": 1, "cpus": 8, "memory": "64GiB"}
H100 = {"type": "h100", "count": 8}
GROUP = {"name": "lab", "gid": 3000, "members": ["researcher", "student"]}
NFS: Values = {"server": "nfs.example.org", "path": "/jail"}
SERVED: Values = {"server": {"machines": ["10.0.0.0/16"]}}
CSI: Values = {"driver": "csi.example.org", "handle": "jail"}
TAINT = {"key": "gpu", "effect": "NoSchedule"}
AFFINITY: Values = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
TREE = {"kind": "tree", "switches": [{"name": "s", "nodesets": ["big"]}]}
BUCKET = {"endpoint": "https://s3.lab", "bucket": "dumps", "secret": "s3"}
DIRECTORY = {"uris": ["ldaps://ldap.example.org"], "base": "dc=example,dc=org"}
TRUE = {"text": "#!/bin/sh\nexit 0\n"}
FALSE = {"text": "#!/bin/sh\nexit 1\n"}
LUA = {
    "text": "function slurm_job_submit() return slurm.SUCCESS end\n"
    "function slurm_job_modify() return slurm.SUCCESS end\n"
}
SCRATCH = {"name": "more", "path": "/more", "empty": {}}
STATIC = big(kind="static")
UNPROTECTED = top(protect_data=False)


def as_it_is(_values: Values) -> None:
    return None


@dataclass(frozen=True)
class Edit:
    """One row: what is edited, and all that this does."""

    sentence: str
    change: Change
    expected: Effect
    given: Change = as_it_is
    """What the settings said before, beyond the valid ones."""
    moves_data: bool = False
    """Says by itself that the data is to be elsewhere."""

    def before(self) -> Values:
        values = copy.deepcopy(VALID)
        self.given(values)
        return values

    def after(self) -> Values:
        values = self.before()
        self.change(values)
        return values


EDITS = [
    Edit("nothing is edited", as_it_is, NOTHING),
    # --- Nodesets: how many
    Edit("a nodeset grows", cpu(replicas=3), does(updated={CPU, ASKED_FOR})),
    Edit("a nodeset shrinks", cpu(replicas=1), does(updated={CPU, ASKED_FOR})),
    Edit("a nodeset has no nodes for now", cpu(replicas=0), does(updated={CPU, ASKED_FOR})),
    Edit(
        "the cluster grows past the room that slurmctld has for nodes",
        cpu(replicas=1000),
        and_conf(does(updated={CPU, ASKED_FOR})),
    ),
    Edit(
        "a static nodeset grows",
        big(replicas=4),
        and_conf(does(updated={BIG, ASKED_FOR})),
        given=STATIC,
    ),
    Edit(
        "a nodeset is added",
        lambda values: values["nodesets"].append(NEW),
        and_conf(
            does(
                created={"nodeset-new-slurmd", "nodeset-new-isolation"},
                updated={ASKED_FOR, NODE_SSH},
            )
        ),
    ),
    Edit(
        "a nodeset is removed",
        lambda values: values["nodesets"].pop(),
        and_conf(does(deleted={BIG, "nodeset-big-isolation"}, updated={ASKED_FOR, NODE_SSH})),
    ),
    Edit(
        "a nodeset gets another name",
        big(name="huge"),
        and_conf(
            does(
                deleted={BIG, "nodeset-big-isolation"},
                created={"nodeset-huge-slurmd", "nodeset-huge-isolation"},
                updated={ASKED_FOR, NODE_SSH},
            )
        ),
    ),
    Edit("nodesets stand in another order", lambda v: v["nodesets"].reverse(), NOTHING),
    # --- Nodesets: what their nodes are
    Edit("nodes get more CPUs", big(cpus=16), described(BIG)),
    Edit(
        "the leanest nodes get more CPUs, and jobs by default less memory for each",
        cpu(cpus=4),
        and_conf(described(CPU)),
    ),
    Edit("nodes get more memory", big(memory="128GiB"), described(BIG)),
    Edit("nodes are told their sockets", big(sockets=2), described(BIG)),
    Edit("nodes get GPUs", big(gpus=H100), both(and_conf(described(BIG)), ISOLATION)),
    Edit(
        "nodes get fewer GPUs",
        big(gpus={**H100, "count": 4}),
        both(and_conf(described(BIG)), ISOLATION),
        given=big(gpus=H100),
    ),
    Edit(
        "GPUs are shared",
        big(gpus={**H100, "shards": 4}),
        both(and_conf(described(BIG)), ISOLATION),
        given=big(gpus=H100),
    ),
    Edit("nodes get a feature", big(features=["fast", "avx512"]), described(BIG)),
    Edit(
        "features stand in another order",
        big(features=["avx512", "fast"]),
        NOTHING,
        given=big(features=["fast", "avx512"]),
    ),
    Edit("nodes get a weight", big(weight=10), described(BIG)),
    Edit("nodes get a further parameter", big(parameters={"TmpDisk": 1000}), described(BIG)),
    Edit("a nodeset becomes static", STATIC, and_conf(described(BIG))),
    Edit("a static nodeset gets a weight", big(weight=10), CONF, given=STATIC),
    Edit("a static nodeset gets a feature", big(features=["avx512"]), CONF, given=STATIC),
    Edit(
        "a static nodeset's nodes get more CPUs",
        big(cpus=16),
        and_conf(does(rolled={BIG}, updated={ASKED_FOR})),
        given=STATIC,
    ),
    # --- Nodesets: what their pods are
    Edit("pods reserve fewer CPUs", big(cpu_request=0.5), does(rolled={BIG})),
    Edit("pods get a bound on their disk", big(ephemeral_storage="9GiB"), does(rolled={BIG})),
    Edit("pods get devices", big(pod={"resources": {"rdma/hca": 1}}), does(rolled={BIG})),
    Edit("pods get variables", big(pod={"environment": {"A": "b"}}), does(rolled={BIG})),
    Edit("processes may open more files", big(limits={"open_files": 65536}), does(rolled={BIG})),
    Edit("pods are to run elsewhere", big(node_selector={"pool": "big"}), does(rolled={BIG})),
    Edit("pods bear a taint", big(tolerations=[TAINT]), does(rolled={BIG})),
    Edit("pods have an affinity", big(affinity=AFFINITY), does(rolled={BIG})),
    Edit("pods get a priority", big(priority_class="high"), does(rolled={BIG})),
    Edit("pods get a further volume", big(volumes=[SCRATCH]), does(rolled={BIG})),
    Edit("jobs see all devices", big(isolation={"private_devices": False}), ISOLATION),
    Edit("jobs get a bound on their /tmp", big(isolation={"tmp": "1GiB"}), ISOLATION),
    Edit("jobs may have more steps at once", big(isolation={"steps": 500}), ISOLATION),
    Edit("jobs write to a layer of their own", big(isolation={"overlay": True}), ISOLATION),
    Edit(
        "folders that jobs share stand in another order",
        big(isolation={"overlay": True, "shared": ["/opt", "/home"]}),
        NOTHING,
        given=big(isolation={"overlay": True, "shared": ["/home", "/opt"]}),
    ),
    Edit("nodes get longer to leave", big(drain_grace=7200), does(rolled={BIG})),
    # --- The reconciler
    Edit(
        "nodes are looked at more often",
        top(reconciler={"interval": 15}),
        does(updated={ASKED_FOR}),
    ),
    Edit(
        "patterns of faults stand in another order",
        top(reconciler={"hardware": ["gpu-xid", "gpu-ecc"], "maintenance": ["b", "a"]}),
        NOTHING,
        given=top(reconciler={"hardware": ["gpu-ecc", "gpu-xid"], "maintenance": ["a", "b"]}),
    ),
    Edit(
        "a fault is to be rebooted for",
        top(reconciler={"ladders": {"gpu-xid": ["recheck", "reboot"]}}),
        does(updated={ASKED_FOR, "reconciler-limits"}, created=REBOOTER),
    ),
    Edit(
        "machines are to be replaced",
        top(reconciler={"ladder": ["recheck", "replace"]}),
        does(updated={ASKED_FOR, "reconciler-cluster-role", "reconciler-limits"}),
    ),
    Edit(
        "machines are to be replaced by a command",
        top(reconciler={"ladder": ["recheck", "replace"], "replace": ["replace-it"]}),
        does(updated={ASKED_FOR}),
    ),
    Edit(
        "nodes get longer to come up after a deploy",
        top(reconciler={"rollout": 1800}),
        does(updated={ASKED_FOR}),
    ),
    # --- Partitions
    Edit("a partition is named", partitions(partition(default=True)), CONF),
    Edit(
        "a partition is added",
        partitions(partition(), partition("long")),
        CONF,
        given=partitions(partition()),
    ),
    Edit(
        "a partition is removed",
        partitions(partition()),
        CONF,
        given=partitions(partition(), partition("long")),
    ),
    Edit(
        "a partition gets a limit",
        partitions(partition(max_time="1-00:00:00")),
        CONF,
        given=partitions(partition()),
    ),
    Edit(
        "a partition is closed",
        partitions(partition(state="drain")),
        CONF,
        given=partitions(partition()),
    ),
    Edit(
        "a partition is served by another nodeset too",
        partitions(partition(nodesets=["cpu", "big"])),
        CONF,
        given=partitions(partition()),
    ),
    Edit(
        "a partition's nodesets stand in another order",
        partitions(partition(nodesets=["big", "cpu"])),
        NOTHING,
        given=partitions(partition(nodesets=["cpu", "big"])),
    ),
    Edit(
        "partitions stand in another order, in which sinfo shows them",
        partitions(partition("long"), partition()),
        CONF,
        given=partitions(partition(), partition("long")),
    ),
    # --- Slurm
    Edit("the scheduler is tuned", slurm(scheduler={"parameters": {"bf_max_time": 120}}), CONF),
    Edit("the scheduler is another", slurm(scheduler={"type": "builtin"}), CONF),
    Edit("a daemon may be silent for longer", slurm(timeouts={"slurmd": 600}), CONF),
    Edit("jobs make way for others", slurm(preemption={"type": "partition_prio"}), CONF),
    Edit("the queue has an order", slurm(priority={"type": "multifactor", "age": 1}), CONF),
    Edit("there is room for more jobs", slurm(max_jobs=100_000), CONF),
    Edit(
        "slurmctld gets a parameter",
        slurm(slurmctld_parameters={"idle_on_node_suspend": True}),
        CONF,
    ),
    Edit("a prolog is added", slurm(prolog=TRUE), CONF),
    Edit("a prolog says something else", slurm(prolog=FALSE), CONF, given=slurm(prolog=TRUE)),
    Edit(
        "a prolog is in another file",
        slurm(prolog={"file": "other.sh"}),
        CONF,
        given=slurm(prolog={"file": "prolog.sh"}),
    ),
    Edit("an epilog is added", slurm(epilog=TRUE), CONF),
    Edit("a task prolog is added", slurm(task_prolog=TRUE), and_conf(SCRIPTS)),
    Edit(
        "a task prolog says something else",
        slurm(task_prolog=FALSE),
        SCRIPTS,
        given=slurm(task_prolog=TRUE),
    ),
    Edit("a task epilog is added", slurm(task_epilog=TRUE), and_conf(SCRIPTS)),
    Edit("nodes are not looked after", top(health={"enabled": False}), both(LOOKED_AT, CHECKED)),
    Edit("nodes are looked after less often", top(health={"interval": 600}), LOOKED_AT),
    Edit("nodes are looked after by a script as well", top(health={"script": TRUE}), SCRIPTS),
    Edit(
        "nodes are looked after by a script alone",
        top(health={"enabled": False, "script": TRUE}),
        both(both(LOOKED_AT, SCRIPTS), CHECKED),
    ),
    Edit("a check knows another limit", top(health={"checks": DISK}), CHECKED),
    Edit("a check knows another limit on a nodeset", big(checks=DISK), ISOLATION),
    Edit("a check is off on a nodeset", big(checks={"munge": False}), ISOLATION),
    Edit(
        "a nodeset has checks around jobs",
        big(checks={"infiniband-link": {}}),
        both(CONF, ISOLATION),
    ),
    Edit("jobs are looked at when they are submitted", slurm(job_submit_lua=LUA), CONF),
    Edit("nodes have a topology", slurm(topology=TREE), CONF, given=STATIC),
    Edit("jobs take limits along", slurm(propagated_limits=["NOFILE"]), CONF),
    Edit("jobs are not confined any more", slurm(cgroups="disabled"), CONF),
    Edit("nodes must confine jobs", slurm(cgroups="required"), CHECKED),
    Edit(
        "users are told of their own jobs only",
        slurm(private_data=["jobs"]),
        and_conf(replace(SLURMDBD, rolled=SLURMDBD.rolled | {EXPORTER})),
    ),
    Edit("users are told of their own use only", slurm(private_data=["usage"]), and_conf(SLURMDBD)),
    Edit("slurm.conf gets a line", extra("slurm.conf", "SlurmctldDebug=debug"), CONF),
    Edit("slurm.conf gets a line instead of ours", extra("slurm.conf", "KillWait=5"), CONF),
    Edit("cgroup.conf gets a line", extra("cgroup.conf", "ConstrainCores=yes"), CONF),
    Edit("a file is added for Slurm", extra("mpi.conf", "PMIxTimeout=60"), CONF),
    # --- Users
    Edit(
        "a user is added",
        lambda values: values["users"].append({"name": "guest", "uid": 2500}),
        ACCOUNTS,
    ),
    Edit("a user is removed", lambda values: values["users"].pop(), ACCOUNTS),
    Edit("a user gets another key", researcher(ssh_keys=[f"{KEY}2"]), does(updated={"users-keys"})),
    Edit(
        "a user gets another shell",
        researcher(shell="/bin/dash"),  # noqa: S604  # no subprocess
        does(updated={"users-accounts"}, replaced={"jail-homes"}),
    ),
    Edit("users stand in another order", lambda v: v["users"].reverse(), NOTHING),
    Edit("a group is added", top(groups=[GROUP]), does(updated={"users-accounts"})),
    Edit(
        "a group loses a member",
        top(groups=[{**GROUP, "members": ["student"]}]),
        does(updated={"users-accounts"}),
        given=top(groups=[GROUP]),
    ),
    Edit(
        "a group is removed",
        top(groups=[]),
        does(updated={"users-accounts"}),
        given=top(groups=[GROUP]),
    ),
    # --- A directory
    Edit(
        "people of a directory are users",
        top(directory=DIRECTORY),
        and_conf(
            does(
                created={"directory-config"},
                updated={f"network-{name}" for name in ("accounting", "controller", "login")}
                | {"network-accounts", "network-exporter", "network-rest", "network-worker"},
                replaced={"accounts-apply"},
                rolled={
                    *("controller-slurmctld", "controller-placeholder-pod", "login-sshd"),
                    *("rest-slurmrestd", "accounting-slurmdbd", EXPORTER, *NODESETS),
                },
            )
        ),
    ),
    Edit(
        "the directory is asked otherwise",
        top(directory={**DIRECTORY, "uris": ["ldaps://other.example.org"], "user_filter": "(a=b)"}),
        does(updated={"directory-config"}),
        given=top(directory=DIRECTORY),
    ),
    # --- Volumes
    Edit(
        "users may run images of one registry",
        top(containers={"allowed": ["r.lab/*"]}),
        USER_IMAGES,
    ),
    Edit(
        "image caches move to the disks of nodes",
        top(containers={"cache": "/local/%u"}),
        both(CONF, USER_IMAGES),
    ),
    Edit("users share layers", top(containers={"site_cache": "/images"}), USER_IMAGES),
    Edit("containers are read-only by default", top(containers={"writable": False}), CONF),
    Edit("jobs cannot run images", top(containers={"enabled": False}), CONF),
    Edit(
        "users without credentials get the site's",
        top(containers={"credentials_secret": "registries"}),
        does(rolled={"login-sshd", *NODESETS}),
    ),
    Edit("the jail grows", top(jail={"size": "200GiB"}), does(updated={"jail-claim"})),
    Edit(
        "the jail is filled again",
        top(jail={"refresh": 1}),
        both(does(replaced={"jail-populate"}), CHECKED),
    ),
    Edit(
        "the jail gets its system files from before back",
        top(jail={"refresh": 1}),
        both(does(replaced={"jail-populate"}), CHECKED),
        given=top(jail={"refresh": 2}),
    ),
    Edit("the jail gets a further volume", submount(), SUBMOUNT),
    Edit("the jail loses a further volume", top(jail={}), SUBMOUNT, given=submount()),
    Edit(
        "a further volume of the jail is another one",
        submount(claim="other"),
        replace(SUBMOUNT, replaced=frozenset({AFTER_DEPLOY})),
        given=submount(),
    ),
    Edit(
        "login nodes are to do without a further volume",
        submount(login=False),
        does(rolled={"login-sshd"}),
        given=submount(),
    ),
    Edit(
        "nodes get a further volume in the jail that login nodes do without",
        submount(login=False),
        does(rolled=NODESETS | {EXPORTER}, replaced={"jail-populate"}),
    ),
    Edit(
        "homes are to be on a volume of their own",
        submount(path="/home"),
        replace(SUBMOUNT, replaced=SUBMOUNT.replaced | {"jail-homes"}),
    ),
    Edit(
        "jobs that write to a layer of their own get a volume to share",
        submount(),
        replace(SUBMOUNT, updated=ISOLATION.updated),
        given=big(isolation={"overlay": True}),
    ),
    Edit(
        "the controller's volume grows",
        top(controller={"state_size": "20GiB"}),
        does(updated={"controller-state"}),
    ),
    Edit(
        "the jail is to be of another storage class",
        top(jail={"storage_class": "fast"}),
        does(refused={"jail-claim"}),
        moves_data=True,
    ),
    Edit(
        "the jail, unprotected, is to be of another storage class",
        top(jail={"storage_class": "fast"}),
        does(
            replaced={"jail-claim", "jail-homes", "jail-populate"}
            | {"login-service", "login-sshd", EXPORTER, "exporter-service", *NODESETS}
        ),
        given=UNPROTECTED,
        moves_data=True,
    ),
    *(
        Edit(
            f"the jail is to be {what}",
            top(jail=jail),
            does(refused={refused}),
            moves_data=True,
            given=given,
        )
        for what, jail, refused, given in (
            ("on an NFS server", {"nfs": NFS}, "jail-origin", as_it_is),
            ("a volume of a driver's", {"csi": CSI}, "jail-origin", as_it_is),
            ("in a folder of the nodes", {"host_path": "/srv/jail"}, "jail-origin", as_it_is),
            ("somebody else's claim", {"claim": "other"}, "jail-origin", as_it_is),
            ("on a server of ours", SERVED, "jail-origin", as_it_is),
            ("of a class, and no longer on a server", {}, "jail-origin", top(jail=SERVED)),
            (
                *("on a server with another class behind it",),
                {"server": {**SERVED["server"], "storage_class": "fast"}},
                *("jail-server-volume", top(jail=SERVED)),
            ),
            (
                *("another folder of the server", {"nfs": {**NFS, "path": "/other"}}),
                *("jail-volume", top(jail={"nfs": NFS})),
            ),
            ("another claim", {"claim": "third"}, "jail-origin", top(jail={"claim": "other"})),
            ("a claim of ours", {}, "jail-origin", top(jail={"claim": "other"})),
        )
    ),
    Edit(
        "the jail, unprotected, is to be somebody else's claim",
        top(jail={"claim": "other"}),
        does(
            replaced={"jail-origin", "jail-homes", "jail-populate"},
            deleted={"jail-claim"},
            rolled={"login-sshd", EXPORTER, *NODESETS},
        ),
        given=UNPROTECTED,
        moves_data=True,
    ),
    Edit(
        "an NFS jail is mounted otherwise",
        top(jail={"nfs": {**NFS, "options": ["nfsvers=4.2"]}}),
        does(updated={"jail-volume"}),
        given=top(jail={"nfs": NFS}),
    ),
    Edit(
        "the jail on a server of ours grows",
        top(jail={**SERVED, "size": "200GiB"}),
        does(updated={"jail-server-volume"}),
        given=top(jail=SERVED),
    ),
    Edit(
        "there are machines with other addresses",
        top(jail={"server": {"machines": ["10.0.0.0/16", "10.7.0.0/16"]}}),
        does(
            updated={"jail-server-config", "network-jail-server"},
            rolled={"jail-server-ganesha"},
        ),
        given=top(jail=SERVED),
    ),
    Edit(
        "an NFS jail is said to be larger",
        top(jail={"nfs": NFS, "size": "200GiB"}),
        does(updated={"jail-volume", "jail-claim"}),
        given=top(jail={"nfs": NFS}),
    ),
    Edit(
        "the controller's volume is to be of another storage class",
        top(controller={"storage_class": "fast"}),
        does(refused={"controller-state"}),
        moves_data=True,
    ),
    Edit(
        "the controller's volume, unprotected, is to be of another storage class",
        top(controller={"storage_class": "fast"}),
        does(replaced={"controller-state", "controller-slurmctld", *AFTER_THE_CONTROLLER}),
        given=UNPROTECTED,
        moves_data=True,
    ),
    Edit(
        "a second controller is to wait",
        top(controller={"standby": True}),
        does(refused={"controller-state"}),
        moves_data=True,
    ),
    Edit("data is not protected any more", UNPROTECTED, NOTHING),
    # --- Keys and tokens
    Edit(
        "the munge key is rotated",
        top(auth={"rotations": ["2026-12-01T03:00:00Z"]}),
        does(created={"auth-password-1796094000"}, updated={"auth-secret"}),
    ),
    Edit(
        "a rotation that has passed is removed",
        top(auth={"rotations": ["2026-12-01T03:00:00Z"]}),
        does(deleted={"auth-password-1764558000"}, updated={"auth-secret"}),
        given=top(auth={"rotations": ["2025-12-01T03:00:00Z", "2026-12-01T03:00:00Z"]}),
    ),
    Edit("tokens are good for less long", top(rest={"token_lifetime": "12:00:00"}), CONF),
    Edit("another's tokens are taken", top(rest={"jwks": "keys.json"}), and_conf(SLURMDBD)),
    Edit(
        "another's tokens name the user otherwise",
        top(rest={"jwks": "keys.json", "user_claim": "sub"}),
        and_conf(SLURMDBD),
        given=top(rest={"jwks": "keys.json"}),
    ),
    # --- Accounting
    Edit("the database gets more memory", database(buffer_pool="8GiB"), MARIADB),
    Edit(
        "the database's volume is to grow",
        database(size="40GiB"),
        does(updated={"database-data"}),
    ),
    Edit(
        "the database's volume is to be of another class",
        database(storage_class="fast"),
        does(refused={"database-data"}),
        moves_data=True,
    ),
    Edit("old jobs are removed", accounting(purge={"jobs": "24months"}), SLURMDBD),
    Edit(
        "removed jobs are kept elsewhere",
        accounting(purge={"jobs": "24months"}, archive={}),
        replace(SLURMDBD, created=frozenset({"accounting-archive"})),
        given=accounting(purge={"jobs": "24months"}),
    ),
    Edit("tasks are looked at more often", accounting(gather_interval=10), CONF),
    Edit("energy is measured", accounting(energy="rapl"), CONF),
    Edit("scripts are kept", accounting(store_scripts=True, store_environments=True), CONF),
    Edit(
        "somebody else's database is at another port",
        external(port=3307),
        replace(
            SLURMDBD,
            updated=SLURMDBD.updated
            | {"network-accounting", "network-accounting-backup", "backup-config"},
        ),
        given=external(),
    ),
    Edit(
        "nothing is to be on record any more",
        accounting(enabled=False),
        and_conf(
            does(
                rolled={
                    *("controller-slurmctld", "login-sshd", "rest-slurmrestd", *NODESETS),
                },
                refused={"backup-volume", "database-data"},
            )
        ),
    ),
    # --- Accounts
    Edit("an account is added", accounting(accounts=[{"name": "lab"}]), ASSOCIATIONS),
    Edit(
        "a user gets another share",
        accounting(accounts=[{"name": "lab", "users": [{"name": "student", "fairshare": 5}]}]),
        ASSOCIATIONS,
        given=accounting(accounts=[{"name": "lab", "users": [{"name": "student"}]}]),
    ),
    Edit(
        "accounts stand in another order",
        accounting(accounts=[{"name": "lab"}, {"name": "hall"}]),
        NOTHING,
        given=accounting(accounts=[{"name": "hall"}, {"name": "lab"}]),
    ),
    Edit("users go to another account", accounting(default_account="lab"), ASSOCIATIONS),
    Edit("a QOS is added", accounting(qos=[{"name": "high", "priority": 5}]), ASSOCIATIONS),
    Edit("somebody becomes operator", accounting(operators=["student"]), ASSOCIATIONS),
    Edit("somebody becomes administrator", accounting(administrators=["student"]), ASSOCIATIONS),
    Edit(
        "an account may go with its jobs",
        accounting(remove_with_jobs=["account lab"]),
        ASSOCIATIONS,
    ),
    Edit("limits hold no more", accounting(enforce=["associations"]), CONF),
    # --- Dumps of it
    Edit("dumps are made at another hour", backup(schedule="0 1 * * *"), DUMP),
    Edit("more dumps are kept", backup(keep={"daily": 30}), DUMP),
    Edit("dumps are encrypted", backup(password_secret="dumps"), DUMP),
    Edit("the volume of dumps grows", backup(size="40GiB"), does(updated={"backup-volume"})),
    Edit(
        "the volume of dumps is to be of another class",
        backup(storage_class="slow"),
        does(refused={"backup-volume"}),
        moves_data=True,
    ),
    Edit(
        "dumps go to a bucket, and those on the volume are to go",
        backup(s3=BUCKET),
        does(refused={"backup-volume"}, updated={"backup-dump", "network-accounting-backup"}),
    ),
    Edit(
        "the bucket is at another port",
        backup(s3={**BUCKET, "endpoint": "https://s3.lab:9000"}),
        does(updated={"backup-dump", "network-accounting-backup"}),
        given=backup(s3=BUCKET),
    ),
    Edit(
        "a dump is to be loaded from the volume",
        backup(restore="latest"),
        does(updated={"backup-dump"}, rolled={"accounting-slurmdbd"}),
    ),
    Edit(
        "a dump is to be loaded from the bucket",
        backup(s3=BUCKET, restore="1f2e3d4c"),
        does(updated={"backup-dump", "network-accounting"}, rolled={"accounting-slurmdbd"}),
        given=backup(s3=BUCKET),
    ),
    Edit(
        "no dumps are to be made any more", backup(enabled=False), does(refused={"backup-volume"})
    ),
    # --- Ways in
    Edit("slurmrestd gets more pods", top(rest={"replicas": 3}), does(updated={"rest-slurmrestd"})),
    Edit(
        "the login node is at another port",
        top(login={"service": "NodePort", "node_port": 32223}),
        does(updated={"login-service"}),
    ),
    Edit(
        "the login node is reached otherwise",
        top(login={"service": "ClusterIP"}),
        does(updated={"login-service", "login-config"}),
        given=existing(),
    ),
    Edit(
        "clients may come from some networks only",
        login(source_ranges=["192.0.2.0/24"]),
        does(updated={"login-service"}),
        given=existing(),
    ),
    Edit("there are more login nodes", login(replicas=3), does(updated={"login-sshd"})),
    Edit("sessions get longer to end", login(drain_grace=600), does(rolled={"login-sshd"})),
    Edit("no key in a home logs in", login(home_keys=False), LOGIN),
    Edit("no ssh leads to a node", login(ssh_to_nodes=False), does(updated={NODE_SSH})),
    Edit("no port is forwarded", login(forwarding={"tcp": False}), LOGIN),
    Edit("no agent is forwarded", login(forwarding={"agent": False}), LOGIN),
    Edit("no window is forwarded", login(forwarding={"x11": False}), LOGIN),
    Edit("users get a limit on login nodes", login(limits={"processes": 200}), LOGIN),
    Edit(
        "users get another limit on login nodes",
        login(limits={"cpus": 2, "memory": "4GiB"}),
        LOGIN,
        given=login(limits={"cpus": 1, "memory": "4GiB"}),
    ),
    Edit("users are told something", login(motd={"text": "Welcome."}), LOGIN),
    Edit("users are not told the state", login(motd={"state": False}), LOGIN),
    # --- Long checks
    Edit(
        "memory is to be measured every night",
        long_check(),
        and_conf(
            both(
                replace(ASSOCIATIONS, created=LONG_CHECKS),
                # They are to be scraped.
                does(rolled={SERVER}, updated={"monitoring-config"}),
            )
        ),
    ),
    Edit(
        "memory is to be measured at another time",
        long_check(schedule="0 4 * * *"),
        does(updated={"longchecks-cpu-memory"}),
        given=long_check(),
    ),
    Edit(
        "memory is to be faster",
        long_check(threshold=10_000),
        does(updated={"longchecks-config"}),
        given=long_check(),
    ),
    Edit(
        "memory is to be measured on more nodes",
        cpu(replicas=7),
        does(updated={"longchecks-config", CPU, ASKED_FOR}),
        given=long_check(),
    ),
    Edit(
        "memory is to be measured no more, and the series would go",
        top(long_checks={}),
        and_conf(
            both(
                replace(ASSOCIATIONS, refused=frozenset({"longchecks-volume"})),
                does(rolled={SERVER}, updated={"monitoring-config"}),
            )
        ),
        given=long_check(),
    ),
    # --- Who may talk to whom
    Edit("there are to be no policies", top(network={"policies": False}), does(deleted=POLICIES)),
    Edit(
        "users are not to be guarded",
        top(network={"guard": False}),
        does(rolled={"login-sshd", *NODESETS}),
    ),
    Edit(
        "users are to reach fewer addresses",
        top(network={"refuse": ["10.0.0.0/16"]}),
        does(rolled={"login-sshd", *NODESETS}, updated={"network-login", "network-worker"}),
    ),
    Edit(
        "Cilium's policies are to take the place of Kubernetes' own",
        elsewhere(policies="cilium"),
        does(created=CILIUM_POLICIES, deleted=POLICIES),
        given=elsewhere(),
    ),
    Edit(
        "both kinds of policies are to count",
        elsewhere(policies="both"),
        does(created=CILIUM_POLICIES),
        given=elsewhere(policies=True),
    ),
    Edit(
        "users are to reach some names alone",
        elsewhere(policies="cilium", names=["pypi.org"]),
        does(updated={"network-cilium-login", "network-cilium-worker"}),
        given=elsewhere(policies="cilium"),
    ),
    Edit(
        "users are to reach fewer addresses, as Cilium judges",
        elsewhere(policies="cilium", refuse=["10.0.0.0/16"]),
        does(
            rolled={"login-sshd", *NODESETS},
            updated={"network-cilium-login", "network-cilium-worker"},
        ),
        given=elsewhere(policies="cilium"),
    ),
    Edit(
        "Cilium is to be the cluster's network",
        elsewhere(cilium={}),
        does(created={"cilium-release"}),
        given=elsewhere(),
    ),
    Edit(
        "Cilium is to be a newer one",
        elsewhere(cilium={"version": "1.19.7"}),
        does(updated={"cilium-release"}),
        given=elsewhere(cilium={}),
    ),
    Edit(
        "what Cilium saw is to be asked in one place",
        elsewhere(cilium={"hubble": {"relay": True}}),
        does(updated={"cilium-release"}),
        given=elsewhere(cilium={}),
    ),
    Edit(
        "the cluster's network is to be left alone",
        elsewhere(),
        does(deleted={"cilium-release"}),
        given=elsewhere(cilium={}),
    ),
    # --- Metrics
    Edit(
        "Slurm is read more often",
        exporter(interval=15),
        does(rolled={EXPORTER, SERVER}, updated={"monitoring-config"}),
    ),
    Edit("more users have series of their own", exporter(top=100), does(rolled={EXPORTER})),
    Edit("no job is to be shown on its nodes", exporter(jobs=0), does(rolled={EXPORTER})),
    Edit(
        "there are to be no metrics, and those on record would go",
        top(monitoring={"kind": "none", "exporter": {"enabled": False}}),
        does(refused={"monitoring-data"}),
        moves_data=True,
    ),
    Edit(
        "there are to be no metrics, and those on record may go",
        top(monitoring={"kind": "none", "exporter": {"enabled": False}}),
        does(deleted={EXPORTER, "exporter-service"} | WATCH),
        given=UNPROTECTED,
        moves_data=True,
    ),
    Edit(
        "metrics are to be kept for longer",
        top(monitoring={"bundled": {"retention": 90}}),
        does(rolled={SERVER}),
    ),
    Edit(
        "alerts are to be told to somebody",
        top(monitoring={"bundled": {"webhook": "https://hooks.example.org/hpc"}}),
        does(rolled={SERVER}, updated={"monitoring-config", "network-monitoring"}),
    ),
    Edit(
        "there is to be a Grafana",
        top(monitoring={"bundled": {"grafana": {"enabled": True}}}),
        does(created={f"grafana-{part}" for part in GRAFANA} | SHOWN),
    ),
    Edit(
        "a Prometheus Operator is to scrape, and what is on record would go",
        top(monitoring={"kind": "operator"}),
        does(created=ASKED_OF_OPERATOR | SHOWN, refused={"monitoring-data"}),
        moves_data=True,
    ),
    Edit(
        "a Prometheus Operator is to scrape, and what is on record may go",
        top(monitoring={"kind": "operator"}),
        does(created=ASKED_OF_OPERATOR | SHOWN, deleted=WATCH - {MACHINES}),
        given=UNPROTECTED,
        moves_data=True,
    ),
    Edit(
        "a Prometheus of another namespace is to scrape",
        top(monitoring={"scrape_from": ["observability"]}),
        does(updated={f"network-{name}" for name in SCRAPED}),
    ),
    # --- Logs
    Edit(
        "lines are to be sent to a collector",
        logs(),
        does(
            created=LOGS,
            rolled={SERVER},
            updated={"monitoring-config", "network-logs"},
        ),
    ),
    Edit("fewer lines are to be sent", logs(level="error"), does(rolled={AGENT}), given=logs()),
    Edit(
        "lines are to be sent elsewhere",
        logs(endpoint="https://loki.example.org/otlp"),
        does(rolled={AGENT}, updated={"network-logs"}),
        given=logs(),
    ),
    Edit(
        "the receiver wants to know who sends",
        logs(headers_secret="loki"),
        does(rolled={AGENT}),
        given=logs(),
    ),
    Edit(
        "lines are to stay where they are",
        top(monitoring={}),
        does(
            deleted=LOGS,
            rolled={SERVER},
            updated={"monitoring-config", "network-logs"},
        ),
        given=logs(),
    ),
    # --- Snapshots
    Edit(
        "snapshots are to be made",
        snapshots(jail="fast"),
        does(created=SNAPSHOTS),
    ),
    Edit(
        "snapshots are to be made of the controller's state as well",
        snapshots(jail="fast", state="fast"),
        does(updated={"snapshots-take"}, replaced={"snapshots-check"}),
        given=snapshots(jail="fast"),
    ),
    Edit(
        "snapshots are to be made at another time",
        snapshots(jail="fast", schedule="0 * * * *"),
        does(updated={"snapshots-take"}),
        given=snapshots(jail="fast"),
    ),
    Edit(
        "no more snapshots are to be made",
        lambda values: values.pop("snapshots"),
        does(deleted=SNAPSHOTS),
        given=snapshots(jail="fast"),
    ),
    # --- The whole
    Edit(
        "a rule of the policy pack does not hold somewhere",
        top(policy={"exceptions": {"non-root": {"login-sshd": "sshd becomes its users"}}}),
        NOTHING,
    ),
    Edit("images come from a registry", top(registry="registry.example.org"), NEW_IMAGES),
    Edit("the registry wants credentials", top(pull_secrets=["registry"]), NEW_IMAGES),
    Edit("operators are wanted where there are no GPUs", top(operators={"install": True}), NOTHING),
    Edit("the local cluster gets a node", lambda v: v["cluster"].update(nodes=3), NOTHING),
    Edit(
        "the cluster is named otherwise in the kubeconfig",
        existing(context="other"),
        does(updated={"kubernetes"}),
        given=existing(),
    ),
    Edit(
        "the cluster's DNS has another domain",
        existing(domain="k8s.example.org"),
        and_conf(
            does(
                rolled={
                    *("controller-slurmctld", "login-sshd", "rest-slurmrestd", EXPORTER),
                    *NODESETS,
                },
                replaced={"accounts-apply"},
            )
        ),
        given=existing(),
    ),
    # That slurmctld refuses it is another test's business (tests/cluster).
    Edit(
        "the cluster gets another name",
        top(cluster_name="other"),
        both(
            and_conf(replace(SLURMDBD, updated=SLURMDBD.updated | DUMP.updated)),
            both(ASSOCIATIONS, does(rolled={SERVER}, updated={"monitoring-config"})),
        ),
    ),
    Edit(
        "the namespace is to be another",
        top(namespace="other"),
        does(refused={"namespace"}),
        moves_data=True,
    ),
    Edit(
        "the namespace, unprotected, is to be another",
        top(namespace="other"),
        does(replaced=EVERYTHING_IN_THE_NAMESPACE | {"controller-slurmctld"}),
        given=UNPROTECTED,
        moves_data=True,
    ),
]


# --- The table -----------------------------------------------------------------------------------


GraphOf = Callable[[Values], Graph]


@pytest.fixture
def graph_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GraphOf:
    """What the program asks for by some settings."""
    (tmp_path / "__main__.py").symlink_to(ROOT / "__main__.py")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return lambda values: record(monkeypatch, config(base=values), tmp_path)


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.sentence)
def test_an_edit_does_this_and_nothing_else(graph_of: GraphOf, edit: Edit) -> None:
    assert effect(graph_of(edit.before()), graph_of(edit.after())) == edit.expected


# --- What is true of all of them, since each does what its row expects ---------------------------


def touched(edit: Edit) -> tuple[tuple[str | int, ...], ...]:
    """Paths of the settings that the edit touches."""
    return changed_paths(edit.before(), edit.after())


def test_the_table_has_something_to_say_of_every_setting() -> None:
    sections = {path[0] for edit in EDITS for path in touched(edit)}

    assert sections == set(Settings.model_fields)


def test_no_edit_takes_a_cluster_its_data_unless_it_says_so(graph_of: GraphOf) -> None:
    assert {resource.name for resource in graph_of(VALID).resources} >= DATA
    for edit in EDITS:
        if not edit.moves_data:
            assert not DATA & (edit.expected.deleted | edit.expected.replaced), edit.sentence


@pytest.mark.parametrize(
    "edit", [edit for edit in EDITS if edit.moves_data], ids=lambda edit: edit.sentence
)
def test_data_that_is_to_move_stays_where_it_is_protected(graph_of: GraphOf, edit: Edit) -> None:
    protected = replace(edit, given=as_it_is if edit.given is UNPROTECTED else edit.given)

    done = effect(graph_of(protected.before()), graph_of(protected.after()))

    stays = does(refused=done.refused, created=done.created)
    assert done == stays, "what is there stays as it is"
    assert done.refused


def test_no_edit_of_slurms_own_settings_replaces_a_pod() -> None:
    own = [edit for edit in EDITS if {path[0] for path in touched(edit)} & {"slurm", "partitions"}]

    settings = {key for edit in own for key in edit.after().get("slurm", ())}
    assert settings == set(Slurm.model_fields), "there is a row for each"
    for edit in own:
        done = edit.expected
        # slurmdbd and the exporter are not in anybody's way while they start again.
        rolled = done.rolled - SLURMDBD.rolled - {EXPORTER}
        assert not rolled | done.created | done.deleted, edit.sentence
        assert done.replaced <= CONF.replaced, f"{edit.sentence}: Jobs alone"


@pytest.mark.parametrize("replicas", [0, 1, 3, 400])
@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_a_resize_touches_one_statefulset(graph_of: GraphOf, kind: str, replicas: int) -> None:
    edit = Edit("", cpu(replicas=replicas), NOTHING, given=cpu(kind=kind))
    resized = does(updated={CPU, ASKED_FOR})

    done = effect(graph_of(edit.before()), graph_of(edit.after()))

    assert done == (and_conf(resized) if kind == "static" else resized)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_a_thousand_nodes_are_as_many_resources_as_one(graph_of: GraphOf, kind: str) -> None:
    def count(replicas: int) -> int:
        edit = Edit("", cpu(replicas=replicas, kind=kind), NOTHING)
        return len(graph_of(edit.after()).resources)

    assert count(1) == count(1000)
