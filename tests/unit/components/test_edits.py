"""Each edit of the settings has exactly the expected effect on the resources of the stack."""

import copy
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.settings import Settings
from components.settings.slurm import Slurm
from engine.values import changed_paths
from local.paths import ROOT
from plans.notices import notices
from plans.reading import Preview
from tests.support.documents import preview, step
from tests.support.graph import Graph, record
from tests.support.stack import KEY, VALID, config
from tests.unit.components.documented import edits
from tests.unit.components.effects import Effect, effect

Values = dict[str, Any]
Change = Callable[[Values], object]

BIG, CPU = "nodeset-big-slurmd", "nodeset-cpu-slurmd"
TEMPLATE = "nodeset-cpu-template"
NODESETS = {BIG, CPU}
RECONCILER = "reconciler-nodesets"
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
            "ondemand",
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
"""Files of the project that the settings of some edits name."""


def effect_of(**names: Iterable[str]) -> Effect:
    """Return an effect. If nodes change, add the Job that checks the nodes after the deploy."""
    found = Effect(**{kind: frozenset(found) for kind, found in names.items()})
    to_nodes = RECONCILER in found.updated or NODESETS & (found.rolled | found.replaced)
    return replace(found, replaced=found.replaced | {AFTER_DEPLOY}) if to_nodes else found


def and_conf(effect: Effect) -> Effect:
    """Add a changed configuration of Slurm to an effect: a Job tests the configuration, and
    slurmctld loads it without a restart."""
    return replace(
        effect,
        updated=effect.updated | {"config-candidate", "controller-config"},
        replaced=effect.replaced | {"config-check", "controller-config-in-force", AFTER_DEPLOY},
    )


def both(one: Effect, other: Effect) -> Effect:
    """Return the effect of two edits together."""
    return replace(
        one,
        created=one.created | other.created,
        updated=one.updated | other.updated,
        rolled=one.rolled | other.rolled,
        replaced=one.replaced | other.replaced,
    )


NOTHING = effect_of()
CONF = and_conf(NOTHING)
SCRIPTS = effect_of(updated={"config-scripts"})
ISOLATION = effect_of(updated={"nodeset-big-isolation"})
CHECKED = effect_of(updated={"nodeset-big-isolation", "nodeset-cpu-isolation"})
CHECK_INTERVAL = both(CONF, effect_of(updated={RECONCILER}))
"""The definition of the reconciler also changes, because the reconciler reads the interval of the
health checks."""
DISK = {"disk": {"max_percent": 80}}
SUBMOUNT = effect_of(rolled={"login-sshd", EXPORTER, *NODESETS}, replaced={"jail-populate"})
ASSOCIATIONS = effect_of(updated={"accounts-wanted"}, replaced={"accounts-apply"})
ACCOUNTS = effect_of(
    updated={"users-accounts", "users-keys", "accounts-wanted"},
    replaced={"jail-homes", "accounts-apply"},
)
LOGIN = effect_of(updated={"login-config"})
USER_IMAGES = effect_of(updated={"user-images-config"})
MARIADB = effect_of(rolled={"database-mariadb"})
SLURMDBD = effect_of(updated={"accounting-config"}, rolled={"accounting-slurmdbd"})
DUMP = effect_of(updated={"backup-dump"})
JOBS = {
    *("accounts-apply", "config-check", "controller-config-in-force"),
    *("jail-homes", "jail-populate", AFTER_DEPLOY),
}
PROVIDERS = {"kubernetes"}
SERVER, MACHINES = "monitoring-server", "machines-exporter"
MONITORING = {
    *(SERVER, "monitoring-service", "monitoring-config", "monitoring-data"),
    "monitoring-alertmanager",
    *("monitoring-account", "monitoring-role", "monitoring-rights", MACHINES),
}
"""Resources of the bundled Prometheus and of node-exporter."""
GRAFANA = ("config", "password", "secret", "server", "service")
DASHBOARDS = {
    f"dashboard-{path.stem}" for path in (ROOT / "monitoring/dashboards/built").glob("*.json")
}
OPERATOR_OBJECTS = {
    *("monitoring-podmonitor-node", "monitoring-servicemonitor-reconciler"),
    *("monitoring-prometheusrule-slurmstack-recording", "monitoring-servicemonitor-slurm"),
    "monitoring-prometheusrule-slurmstack-slurm",
}
NEW_IMAGES = effect_of(
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
"""Resources that a deploy must never delete by accident: slurmctld's state, files of users, and
keys that clients trust."""
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
        "reconciler-busy-nodes",
        "ondemand-templates",
        "ondemand-templates-binding",
        RECONCILER,
    ),
    *RIGHTS,
    *("config-candidate", "config-scripts", "controller-config", *JOBS, *AFTER_THE_CONTROLLER),
    *POLICIES,
    *("nodeset-big-isolation", "nodeset-cpu-isolation"),
    *MONITORING,
}


def described(nodeset: str) -> Effect:
    """Return the effect of a changed definition of a dynamic nodeset. It includes the test of the
    configuration by slurmctld."""
    return effect_of(rolled={nodeset}, updated={RECONCILER}, replaced={"config-check"})


# --- Edits ---------------------------------------------------------------------------------------


def top(**fields: Any) -> Change:
    return lambda values: values.update(fields)


def long_check(**fields: Any) -> Change:
    return top(long_checks={"checks": [{"name": "cpu-memory", **fields}]})


LONG_CHECKS = frozenset(
    f"longchecks-{part}" for part in ("config", "cpu-memory", "desk", "service", "volume")
)


ON_DEMAND = {
    *("ondemand-account", "ondemand-agent", "ondemand-limits", "ondemand-limits-binding"),
    *("ondemand-nodesets", "ondemand-rights", "ondemand-role", "ondemand-service"),
    "ondemand-templates-cpu-binding",
}
"""Resources that exist if a nodeset has nodes on demand."""


def elastic(values: Values) -> None:
    cpu(on_demand={"price": 2})(values)


BRIDGE = {
    *("bridge-account", "bridge-agent", "bridge-cluster-rights", "bridge-cluster-role"),
    *("bridge-lab-rights", "bridge-lab-role", "bridge-limits", "bridge-limits-binding"),
    *("bridge-key-password", "bridge-key-secret"),
    *("bridge-pods", "bridge-pods-binding", "bridge-rights", "bridge-role", "bridge-service"),
    *("bridge-settings", "network-bridge", "bridge-seed", "bridge-certificate", "bridge-webhook"),
}
"""Resources that exist if Slurm schedules pods."""


def bridged(values: Values) -> None:
    cpu(shared_with_pods=True)(values)
    values["bridge"] = {"users": [{"namespace": "lab", "user": values["users"][0]["name"]}]}


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
    """Change the network settings of an existing cluster, because a local cluster cannot have
    Cilium."""
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


def backup_set(**fields: Any) -> Change:
    return top(backup={"password_secret": "sets", **fields})


SETS = {
    *("backup-store-config", "backup-store-volume", "backup-sets-take", "network-backup"),
}
RESTORED = effect_of(
    updated={"backup-sets-take"},
    rolled={"accounting-slurmdbd", "controller-slurmctld", "controller-placeholder-pod"},
    replaced={"accounts-apply", "jail-populate"},
)


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
LABELS = {"kind": "tree", "labels": ["zone"]}
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


def all_static(values: Values) -> None:
    for nodeset in values["nodesets"]:
        nodeset["kind"] = "static"


def labelled(values: Values) -> None:
    all_static(values)
    values["slurm"] = {"topology": LABELS}


UNPROTECTED = top(protect_data=False)


def as_it_is(_values: Values) -> None:
    return None


@dataclass(frozen=True)
class Edit:
    """One row: an edit and its complete effect."""

    sentence: str
    change: Change
    expected: Effect
    given: Change = as_it_is
    """Change of the settings before the edit. With this change, the settings are the state from
    which the edit starts."""
    moves_data: bool = False
    """Whether the edit moves data on purpose."""

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
    # --- Nodesets: number of nodes
    Edit("a nodeset grows", cpu(replicas=3), effect_of(updated={CPU, RECONCILER})),
    Edit("a nodeset shrinks", cpu(replicas=1), effect_of(updated={CPU, RECONCILER})),
    Edit(
        "a nodeset gets nodes on demand",
        elastic,
        and_conf(effect_of(deleted={CPU}, created={TEMPLATE, *ON_DEMAND}, updated={RECONCILER})),
    ),
    Edit(
        "a nodeset has more nodes on demand",
        cpu(replicas=9),
        and_conf(effect_of(updated={TEMPLATE, RECONCILER, "ondemand-nodesets"})),
        given=elastic,
    ),
    Edit(
        "idle nodes go to sleep sooner",
        cpu(on_demand={"price": 2, "idle": 60}),
        effect_of(updated={"ondemand-nodesets"}),
        given=elastic,
    ),
    Edit(
        "the costs of nodes on demand are limited",
        top(on_demand={"ceiling": 100}),
        effect_of(updated={"ondemand-nodesets"}),
        given=elastic,
    ),
    Edit(
        "Slurm schedules pods, beside the jobs of a nodeset",
        bridged,
        and_conf(
            effect_of(
                created=BRIDGE,
                updated={RECONCILER, "monitoring-config"},
                rolled={CPU, "monitoring-server"},
            )
        ),
    ),
    Edit(
        "pods use another partition",
        lambda values: values["bridge"].update(partition="main"),
        effect_of(updated={"bridge-settings"}),
        given=bridged,
    ),
    Edit(
        "Slurm schedules all pods of a namespace",
        lambda values: values["bridge"].update(namespaces=["lab"]),
        effect_of(updated={"bridge-settings", "bridge-webhook"}),
        given=bridged,
    ),
    Edit("a nodeset has no nodes", cpu(replicas=0), effect_of(updated={CPU, RECONCILER})),
    Edit(
        "the cluster grows past slurmctld's maximum of nodes",
        cpu(replicas=1000),
        and_conf(effect_of(updated={CPU, RECONCILER})),
    ),
    Edit(
        "a static nodeset grows",
        big(replicas=4),
        and_conf(effect_of(updated={BIG, RECONCILER})),
        given=STATIC,
    ),
    Edit(
        "a nodeset is added",
        lambda values: values["nodesets"].append(NEW),
        and_conf(
            effect_of(
                created={"nodeset-new-slurmd", "nodeset-new-isolation"},
                updated={RECONCILER, NODE_SSH},
            )
        ),
    ),
    Edit(
        "a nodeset is removed",
        lambda values: values["nodesets"].pop(),
        and_conf(effect_of(deleted={BIG, "nodeset-big-isolation"}, updated={RECONCILER, NODE_SSH})),
    ),
    Edit(
        "a nodeset gets another name",
        big(name="huge"),
        and_conf(
            effect_of(
                deleted={BIG, "nodeset-big-isolation"},
                created={"nodeset-huge-slurmd", "nodeset-huge-isolation"},
                updated={RECONCILER, NODE_SSH},
            )
        ),
    ),
    Edit("nodesets are listed in another order", lambda v: v["nodesets"].reverse(), NOTHING),
    # --- Nodesets: nodes
    Edit("nodes get more CPUs", big(cpus=16), described(BIG)),
    Edit(
        "nodes with the least memory per CPU get more CPUs, which lowers the default",
        cpu(cpus=4),
        and_conf(described(CPU)),
    ),
    Edit("nodes get more memory", big(memory="128GiB"), described(BIG)),
    Edit("nodes declare their sockets", big(sockets=2), described(BIG)),
    Edit("nodes get GPUs", big(gpus=H100), both(and_conf(described(BIG)), ISOLATION)),
    Edit(
        "nodes get fewer GPUs",
        big(gpus={**H100, "count": 4}),
        both(and_conf(described(BIG)), ISOLATION),
        given=big(gpus=H100),
    ),
    Edit(
        "GPUs are divided into shards",
        big(gpus={**H100, "shards": 4}),
        both(and_conf(described(BIG)), ISOLATION),
        given=big(gpus=H100),
    ),
    Edit("nodes get a feature", big(features=["fast", "avx512"]), described(BIG)),
    Edit(
        "features are listed in another order",
        big(features=["avx512", "fast"]),
        NOTHING,
        given=big(features=["fast", "avx512"]),
    ),
    Edit("nodes get a weight", big(weight=10), described(BIG)),
    Edit("nodes get an additional parameter", big(parameters={"TmpDisk": 1000}), described(BIG)),
    Edit("a nodeset becomes static", STATIC, and_conf(described(BIG))),
    Edit("a static nodeset gets a weight", big(weight=10), CONF, given=STATIC),
    Edit("a static nodeset gets a feature", big(features=["avx512"]), CONF, given=STATIC),
    Edit(
        "a static nodeset's nodes get more CPUs",
        big(cpus=16),
        and_conf(effect_of(rolled={BIG}, updated={RECONCILER})),
        given=STATIC,
    ),
    # --- Nodesets: pods
    Edit("pods reserve fewer CPUs", big(cpu_request=0.5), effect_of(rolled={BIG})),
    Edit("pods get exclusive CPUs", big(exclusive_cpus=True), effect_of(rolled={BIG})),
    Edit(
        "pods get a limit on their ephemeral storage",
        big(ephemeral_storage="9GiB"),
        effect_of(rolled={BIG}),
    ),
    Edit("pods get devices", big(pod={"resources": {"rdma/hca": 1}}), effect_of(rolled={BIG})),
    Edit("pods get variables", big(pod={"environment": {"A": "b"}}), effect_of(rolled={BIG})),
    Edit(
        "processes may open more files", big(limits={"open_files": 65536}), effect_of(rolled={BIG})
    ),
    Edit("pods get a node selector", big(node_selector={"pool": "big"}), effect_of(rolled={BIG})),
    Edit("pods tolerate a taint", big(tolerations=[TAINT]), effect_of(rolled={BIG})),
    Edit(
        "nodes keep their machines",
        big(keep_machine=True),
        effect_of(rolled={BIG}, updated={RECONCILER, "reconciler-role"}),
        given=STATIC,
    ),
    Edit("pods have an affinity", big(affinity=AFFINITY), effect_of(rolled={BIG})),
    Edit("pods get a priority", big(priority_class="high"), effect_of(rolled={BIG})),
    Edit("pods get an additional volume", big(volumes=[SCRATCH]), effect_of(rolled={BIG})),
    Edit("jobs see all devices", big(isolation={"private_devices": False}), ISOLATION),
    Edit("jobs get a limit on their /tmp", big(isolation={"tmp": "1GiB"}), ISOLATION),
    Edit("jobs may have more steps at once", big(isolation={"steps": 500}), ISOLATION),
    Edit("jobs write to an overlay", big(isolation={"overlay": True}), ISOLATION),
    Edit(
        "folders shared by jobs are listed in another order",
        big(isolation={"overlay": True, "shared": ["/opt", "/home"]}),
        NOTHING,
        given=big(isolation={"overlay": True, "shared": ["/home", "/opt"]}),
    ),
    Edit("updates replace fewer nodes at once", big(roll={"share": 0.1}), effect_of(updated={BIG})),
    Edit("nodes get a longer drain grace", big(drain_grace=7200), effect_of(rolled={BIG})),
    # --- The reconciler
    Edit(
        "the reconciler checks nodes more often",
        top(reconciler={"interval": 15}),
        effect_of(updated={RECONCILER}),
    ),
    Edit(
        "patterns of faults are listed in another order",
        top(reconciler={"hardware": ["gpu-xid", "gpu-ecc"], "maintenance": ["b", "a"]}),
        NOTHING,
        given=top(reconciler={"hardware": ["gpu-ecc", "gpu-xid"], "maintenance": ["a", "b"]}),
    ),
    Edit(
        "a fault requires a reboot",
        top(reconciler={"ladders": {"gpu-xid": ["recheck", "reboot"]}}),
        effect_of(updated={RECONCILER, "reconciler-limits"}, created=REBOOTER),
    ),
    Edit(
        "a ladder includes the step replace",
        top(reconciler={"ladder": ["recheck", "replace"]}),
        effect_of(updated={RECONCILER, "reconciler-cluster-role", "reconciler-limits"}),
    ),
    Edit(
        "the command that replaces machines requires a Secret",
        top(reconciler={"replace": ["replace-it"], "replace_secret": "cloud"}),
        effect_of(rolled={"reconciler-agent"}, replaced={AFTER_DEPLOY}),
        given=top(reconciler={"replace": ["replace-it"]}),
    ),
    Edit(
        "the command that replaces machines connects to another server",
        top(reconciler={"replace": ["it"], "replace_servers": ["https://new.lab"]}),
        effect_of(updated={"network-reconciler"}),
        given=top(reconciler={"replace": ["it"], "replace_servers": ["http://old.lab"]}),
    ),
    Edit(
        "a command replaces machines",
        top(reconciler={"ladder": ["recheck", "replace"], "replace": ["replace-it"]}),
        effect_of(updated={RECONCILER}),
    ),
    Edit(
        "nodes get more time to start after a deploy",
        top(reconciler={"rollout": 1800}),
        effect_of(updated={RECONCILER}),
    ),
    # --- Partitions
    Edit("a partition replaces the default partition", partitions(partition(default=True)), CONF),
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
        "a partition accepts no new jobs",
        partitions(partition(state="drain")),
        CONF,
        given=partitions(partition()),
    ),
    Edit(
        "a partition gets another nodeset",
        partitions(partition(nodesets=["cpu", "big"])),
        CONF,
        given=partitions(partition()),
    ),
    Edit(
        "a partition's nodesets are listed in another order",
        partitions(partition(nodesets=["big", "cpu"])),
        NOTHING,
        given=partitions(partition(nodesets=["cpu", "big"])),
    ),
    Edit(
        "partitions are listed in another order, which sinfo shows",
        partitions(partition("long"), partition()),
        CONF,
        given=partitions(partition(), partition("long")),
    ),
    # --- Slurm
    Edit("backfill gets a limit", slurm(scheduler={"parameters": {"bf_max_time": 120}}), CONF),
    Edit("the scheduler gets another type", slurm(scheduler={"type": "builtin"}), CONF),
    Edit("slurmd gets a longer timeout", slurm(timeouts={"slurmd": 600}), CONF),
    Edit("partitions preempt jobs", slurm(preemption={"type": "partition_prio"}), CONF),
    Edit(
        "jobs get multifactor priorities", slurm(priority={"type": "multifactor", "age": 1}), CONF
    ),
    Edit("the maximum of jobs grows", slurm(max_jobs=100_000), CONF),
    Edit(
        "slurmctld gets a parameter",
        slurm(slurmctld_parameters={"idle_on_node_suspend": True}),
        CONF,
    ),
    Edit("a prolog is added", slurm(prolog=TRUE), CONF),
    Edit("a prolog changes", slurm(prolog=FALSE), CONF, given=slurm(prolog=TRUE)),
    Edit(
        "a prolog comes from another file",
        slurm(prolog={"file": "other.sh"}),
        CONF,
        given=slurm(prolog={"file": "prolog.sh"}),
    ),
    Edit("an epilog is added", slurm(epilog=TRUE), CONF),
    Edit("a task prolog is added", slurm(task_prolog=TRUE), and_conf(SCRIPTS)),
    Edit(
        "a task prolog changes",
        slurm(task_prolog=FALSE),
        SCRIPTS,
        given=slurm(task_prolog=TRUE),
    ),
    Edit("a task epilog is added", slurm(task_epilog=TRUE), and_conf(SCRIPTS)),
    Edit(
        "health checks are disabled", top(health={"enabled": False}), both(CHECK_INTERVAL, CHECKED)
    ),
    Edit("health checks run less often", top(health={"interval": 600}), CHECK_INTERVAL),
    Edit("health checks include a script", top(health={"script": TRUE}), SCRIPTS),
    Edit(
        "a script of the site replaces health checks",
        top(health={"enabled": False, "script": TRUE}),
        both(both(CHECK_INTERVAL, SCRIPTS), CHECKED),
    ),
    Edit("a check gets another limit", top(health={"checks": DISK}), CHECKED),
    Edit("a check gets another limit on a nodeset", big(checks=DISK), ISOLATION),
    Edit("a check is disabled on a nodeset", big(checks={"munge": False}), ISOLATION),
    Edit(
        "a nodeset gets checks before and after jobs",
        big(checks={"infiniband-link": {}}),
        both(CONF, ISOLATION),
    ),
    Edit("a job submit plugin is added", slurm(job_submit_lua=LUA), CONF),
    Edit("nodes have a topology", slurm(topology=TREE), CONF, given=STATIC),
    Edit(
        "labels define the topology",
        slurm(topology=LABELS),
        replace(
            both(CONF, effect_of(updated={RECONCILER, "reconciler-role"})),
            created=frozenset({"controller-topology"}),
            rolled=frozenset({"controller-slurmctld"}),
        ),
        given=all_static,
    ),
    Edit(
        "the topology gets another level",
        slurm(topology={**LABELS, "labels": ["zone", "rack"]}),
        effect_of(updated={RECONCILER}),
        given=labelled,
    ),
    Edit("jobs propagate limits", slurm(propagated_limits=["NOFILE"]), CONF),
    Edit("jobs are no longer confined", slurm(cgroups="disabled"), CONF),
    Edit("nodes must confine jobs", slurm(cgroups="required"), CHECKED),
    Edit(
        "users see only their own jobs",
        slurm(private_data=["jobs"]),
        and_conf(replace(SLURMDBD, rolled=SLURMDBD.rolled | {EXPORTER})),
    ),
    Edit("users see only their own usage", slurm(private_data=["usage"]), and_conf(SLURMDBD)),
    Edit("slurm.conf gets a line", extra("slurm.conf", "SlurmctldDebug=debug"), CONF),
    Edit("a line in slurm.conf replaces a default", extra("slurm.conf", "KillWait=5"), CONF),
    Edit("cgroup.conf gets a line", extra("cgroup.conf", "ConstrainCores=yes"), CONF),
    Edit("Slurm gets an additional file", extra("mpi.conf", "PMIxTimeout=60"), CONF),
    # --- Users
    Edit(
        "a user is added",
        lambda values: values["users"].append({"name": "guest", "uid": 2500}),
        ACCOUNTS,
    ),
    Edit("a user is removed", lambda values: values["users"].pop(), ACCOUNTS),
    Edit(
        "a user gets another key",
        researcher(ssh_keys=[f"{KEY}2"]),
        effect_of(updated={"users-keys"}),
    ),
    Edit(
        "a user gets another shell",
        researcher(shell="/bin/dash"),  # noqa: S604  # no subprocess
        effect_of(updated={"users-accounts"}, replaced={"jail-homes"}),
    ),
    Edit("users are listed in another order", lambda v: v["users"].reverse(), NOTHING),
    Edit("a group is added", top(groups=[GROUP]), effect_of(updated={"users-accounts"})),
    Edit(
        "a group loses a member",
        top(groups=[{**GROUP, "members": ["student"]}]),
        effect_of(updated={"users-accounts"}),
        given=top(groups=[GROUP]),
    ),
    Edit(
        "a group is removed",
        top(groups=[]),
        effect_of(updated={"users-accounts"}),
        given=top(groups=[GROUP]),
    ),
    # --- A directory
    Edit(
        "users come from a directory",
        top(directory=DIRECTORY),
        and_conf(
            effect_of(
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
        "the directory gets another server and filter",
        top(directory={**DIRECTORY, "uris": ["ldaps://other.example.org"], "user_filter": "(a=b)"}),
        effect_of(updated={"directory-config"}),
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
    Edit("users share cached image layers", top(containers={"site_cache": "/images"}), USER_IMAGES),
    Edit("containers are read-only by default", top(containers={"writable": False}), CONF),
    Edit("jobs cannot run images", top(containers={"enabled": False}), CONF),
    Edit(
        "users without registry credentials use those of the site",
        top(containers={"credentials_secret": "registries"}),
        effect_of(rolled={"login-sshd", *NODESETS}),
    ),
    Edit("the jail grows", top(jail={"size": "200GiB"}), effect_of(updated={"jail-claim"})),
    Edit(
        "the jail is filled again",
        top(jail={"refresh": 1}),
        both(effect_of(replaced={"jail-populate"}), CHECKED),
    ),
    Edit(
        "the jail gets its previous system files back",
        top(jail={"refresh": 1}),
        both(effect_of(replaced={"jail-populate"}), CHECKED),
        given=top(jail={"refresh": 2}),
    ),
    Edit("the jail gets an additional volume", submount(), SUBMOUNT),
    Edit("the jail loses an additional volume", top(jail={}), SUBMOUNT, given=submount()),
    Edit(
        "an additional volume of the jail gets another claim",
        submount(claim="other"),
        replace(SUBMOUNT, replaced=frozenset({AFTER_DEPLOY})),
        given=submount(),
    ),
    Edit(
        "login nodes lose an additional volume",
        submount(login=False),
        effect_of(rolled={"login-sshd"}),
        given=submount(),
    ),
    Edit(
        "the jail gets a volume on nodes, but not on login nodes",
        submount(login=False),
        effect_of(rolled=NODESETS | {EXPORTER}, replaced={"jail-populate"}),
    ),
    Edit(
        "homes get their own volume",
        submount(path="/home"),
        replace(SUBMOUNT, replaced=SUBMOUNT.replaced | {"jail-homes"}),
    ),
    Edit(
        "jobs that write to an overlay get a shared volume",
        submount(),
        replace(SUBMOUNT, updated=ISOLATION.updated),
        given=big(isolation={"overlay": True}),
    ),
    Edit(
        "the controller's volume grows",
        top(controller={"state_size": "20GiB"}),
        effect_of(updated={"controller-state"}),
    ),
    Edit(
        "the jail gets another storage class",
        top(jail={"storage_class": "fast"}),
        effect_of(refused={"jail-claim"}),
        moves_data=True,
    ),
    Edit(
        "the unprotected jail gets another storage class",
        top(jail={"storage_class": "fast"}),
        effect_of(
            replaced={"jail-claim", "jail-homes", "jail-populate"}
            | {"login-service", "login-sshd", EXPORTER, "exporter-service", *NODESETS}
        ),
        given=UNPROTECTED,
        moves_data=True,
    ),
    *(
        Edit(
            f"the jail becomes {what}",
            top(jail=jail),
            effect_of(refused={refused}),
            moves_data=True,
            given=given,
        )
        for what, jail, refused, given in (
            ("an NFS export", {"nfs": NFS}, "jail-origin", as_it_is),
            ("a CSI volume", {"csi": CSI}, "jail-origin", as_it_is),
            ("a folder of the nodes", {"host_path": "/srv/jail"}, "jail-origin", as_it_is),
            ("an existing claim", {"claim": "other"}, "jail-origin", as_it_is),
            ("a volume on the NFS server of the stack", SERVED, "jail-origin", as_it_is),
            ("a claim of the stack instead of its NFS server", {}, "jail-origin", top(jail=SERVED)),
            (
                *("a volume of another class on the NFS server of the stack",),
                {"server": {**SERVED["server"], "storage_class": "fast"}},
                *("jail-server-volume", top(jail=SERVED)),
            ),
            (
                *("another folder of an external NFS server", {"nfs": {**NFS, "path": "/other"}}),
                *("jail-volume", top(jail={"nfs": NFS})),
            ),
            ("another claim", {"claim": "third"}, "jail-origin", top(jail={"claim": "other"})),
            ("a claim of the stack", {}, "jail-origin", top(jail={"claim": "other"})),
        )
    ),
    Edit(
        "the unprotected jail becomes an existing claim",
        top(jail={"claim": "other"}),
        effect_of(
            replaced={"jail-origin", "jail-homes", "jail-populate"},
            deleted={"jail-claim"},
            rolled={"login-sshd", EXPORTER, *NODESETS},
        ),
        given=UNPROTECTED,
        moves_data=True,
    ),
    Edit(
        "an NFS jail gets other mount options",
        top(jail={"nfs": {**NFS, "options": ["nfsvers=4.2"]}}),
        effect_of(updated={"jail-volume"}),
        given=top(jail={"nfs": NFS}),
    ),
    Edit(
        "the jail on the NFS server of the stack grows",
        top(jail={**SERVED, "size": "200GiB"}),
        effect_of(updated={"jail-server-volume"}),
        given=top(jail=SERVED),
    ),
    Edit(
        "the NFS server accepts more addresses of machines",
        top(jail={"server": {"machines": ["10.0.0.0/16", "10.7.0.0/16"]}}),
        effect_of(
            updated={"jail-server-config", "network-jail-server"},
            rolled={"jail-server-ganesha"},
        ),
        given=top(jail=SERVED),
    ),
    Edit(
        "an NFS jail gets a larger size",
        top(jail={"nfs": NFS, "size": "200GiB"}),
        effect_of(updated={"jail-volume", "jail-claim"}),
        given=top(jail={"nfs": NFS}),
    ),
    Edit(
        "the controller's volume gets another storage class",
        top(controller={"storage_class": "fast"}),
        effect_of(refused={"controller-state"}),
        moves_data=True,
    ),
    Edit(
        "the controller's unprotected volume gets another storage class",
        top(controller={"storage_class": "fast"}),
        effect_of(replaced={"controller-state", "controller-slurmctld", *AFTER_THE_CONTROLLER}),
        given=UNPROTECTED,
        moves_data=True,
    ),
    Edit(
        "a standby controller is added",
        top(controller={"standby": True}),
        effect_of(refused={"controller-state"}),
        moves_data=True,
    ),
    Edit("data is no longer protected", UNPROTECTED, NOTHING),
    # --- Keys and tokens
    Edit(
        "the munge key is rotated",
        top(auth={"rotations": ["2026-12-01T03:00:00Z"]}),
        effect_of(created={"auth-password-1796094000"}, updated={"auth-secret"}),
    ),
    Edit(
        "a past rotation is removed",
        top(auth={"rotations": ["2026-12-01T03:00:00Z"]}),
        effect_of(deleted={"auth-password-1764558000"}, updated={"auth-secret"}),
        given=top(auth={"rotations": ["2025-12-01T03:00:00Z", "2026-12-01T03:00:00Z"]}),
    ),
    Edit("tokens expire earlier", top(rest={"token_lifetime": "12:00:00"}), CONF),
    Edit(
        "tokens of another issuer are accepted", top(rest={"jwks": "keys.json"}), and_conf(SLURMDBD)
    ),
    Edit(
        "tokens of another issuer have another user claim",
        top(rest={"jwks": "keys.json", "user_claim": "sub"}),
        and_conf(SLURMDBD),
        given=top(rest={"jwks": "keys.json"}),
    ),
    # --- Accounting
    Edit("the database gets more memory", database(buffer_pool="8GiB"), MARIADB),
    Edit(
        "the database's volume grows",
        database(size="40GiB"),
        effect_of(updated={"database-data"}),
    ),
    Edit(
        "the database's volume gets another storage class",
        database(storage_class="fast"),
        effect_of(refused={"database-data"}),
        moves_data=True,
    ),
    Edit("slurmdbd removes old jobs", accounting(purge={"jobs": "24months"}), SLURMDBD),
    Edit(
        "removed jobs are archived",
        accounting(purge={"jobs": "24months"}, archive={}),
        replace(SLURMDBD, created=frozenset({"accounting-archive"})),
        given=accounting(purge={"jobs": "24months"}),
    ),
    Edit("tasks are sampled more often", accounting(gather_interval=10), CONF),
    Edit("energy is measured", accounting(energy="rapl"), CONF),
    Edit("job scripts are stored", accounting(store_scripts=True, store_environments=True), CONF),
    Edit(
        "an external database uses another port",
        external(port=3307),
        replace(
            SLURMDBD,
            updated=SLURMDBD.updated
            | {"network-accounting", "network-accounting-backup", "backup-config"},
        ),
        given=external(),
    ),
    Edit(
        "accounting is disabled",
        accounting(enabled=False),
        and_conf(
            effect_of(
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
        "accounts are listed in another order",
        accounting(accounts=[{"name": "lab"}, {"name": "hall"}]),
        NOTHING,
        given=accounting(accounts=[{"name": "hall"}, {"name": "lab"}]),
    ),
    Edit("another account becomes the default", accounting(default_account="lab"), ASSOCIATIONS),
    Edit("a QOS is added", accounting(qos=[{"name": "high", "priority": 5}]), ASSOCIATIONS),
    Edit("a user becomes operator", accounting(operators=["student"]), ASSOCIATIONS),
    Edit("a user becomes administrator", accounting(administrators=["student"]), ASSOCIATIONS),
    Edit(
        "an account may be removed together with its jobs",
        accounting(remove_with_jobs=["account lab"]),
        ASSOCIATIONS,
    ),
    Edit("limits are no longer enforced", accounting(enforce=["associations"]), CONF),
    # --- Dumps of the database
    Edit("dumps are made at another hour", backup(schedule="0 1 * * *"), DUMP),
    Edit("more dumps are kept", backup(keep={"daily": 30}), DUMP),
    Edit("dumps are encrypted", backup(password_secret="dumps"), DUMP),
    Edit("the volume of dumps grows", backup(size="40GiB"), effect_of(updated={"backup-volume"})),
    Edit(
        "the volume of dumps gets another storage class",
        backup(storage_class="slow"),
        effect_of(refused={"backup-volume"}),
        moves_data=True,
    ),
    Edit(
        "dumps go to a bucket, and their volume is no longer needed",
        backup(s3=BUCKET),
        effect_of(refused={"backup-volume"}, updated={"backup-dump", "network-accounting-backup"}),
    ),
    Edit(
        "the bucket uses another port",
        backup(s3={**BUCKET, "endpoint": "https://s3.lab:9000"}),
        effect_of(updated={"backup-dump", "network-accounting-backup"}),
        given=backup(s3=BUCKET),
    ),
    Edit(
        "a dump is restored from the volume",
        backup(restore="latest"),
        effect_of(
            updated={"backup-dump"}, rolled={"accounting-slurmdbd"}, replaced={"accounts-apply"}
        ),
    ),
    Edit(
        "a dump is restored from the bucket",
        backup(s3=BUCKET, restore="1f2e3d4c"),
        effect_of(
            updated={"backup-dump", "network-accounting"},
            rolled={"accounting-slurmdbd"},
            replaced={"accounts-apply"},
        ),
        given=backup(s3=BUCKET),
    ),
    Edit(
        "a dump has been restored",
        backup(),
        effect_of(
            updated={"backup-dump"}, rolled={"accounting-slurmdbd"}, replaced={"accounts-apply"}
        ),
        given=backup(restore="latest"),
    ),
    Edit("dumps are disabled", backup(enabled=False), effect_of(refused={"backup-volume"})),
    # --- Login and REST
    Edit(
        "slurmrestd gets more pods",
        top(rest={"replicas": 3}),
        effect_of(updated={"rest-slurmrestd"}),
    ),
    Edit(
        "the login node uses another port",
        top(login={"service": "NodePort", "node_port": 32223}),
        effect_of(updated={"login-service"}),
    ),
    Edit(
        "the login node gets another type of Service",
        top(login={"service": "ClusterIP"}),
        effect_of(updated={"login-service", "login-config"}),
        given=existing(),
    ),
    Edit(
        "clients are limited to some networks",
        login(source_ranges=["192.0.2.0/24"]),
        effect_of(updated={"login-service"}),
        given=existing(),
    ),
    Edit("more login nodes are added", login(replicas=3), effect_of(updated={"login-sshd"})),
    Edit(
        "sessions get a longer drain grace",
        login(drain_grace=600),
        effect_of(rolled={"login-sshd"}),
    ),
    Edit("SSH keys in home directories are disabled", login(home_keys=False), LOGIN),
    Edit("SSH to nodes is disabled", login(ssh_to_nodes=False), effect_of(updated={NODE_SSH})),
    Edit("port forwarding is disabled", login(forwarding={"tcp": False}), LOGIN),
    Edit("agent forwarding is disabled", login(forwarding={"agent": False}), LOGIN),
    Edit("X11 forwarding is disabled", login(forwarding={"x11": False}), LOGIN),
    Edit("users get a limit on login nodes", login(limits={"processes": 200}), LOGIN),
    Edit(
        "users get another limit on login nodes",
        login(limits={"cpus": 2, "memory": "4GiB"}),
        LOGIN,
        given=login(limits={"cpus": 1, "memory": "4GiB"}),
    ),
    Edit("the message of the day gets a text", login(motd={"text": "Welcome."}), LOGIN),
    Edit("the message of the day omits the state", login(motd={"state": False}), LOGIN),
    # --- Long checks
    Edit(
        "a memory check is added",
        long_check(),
        and_conf(
            both(
                replace(ASSOCIATIONS, created=LONG_CHECKS),
                # Prometheus gets a scrape job for long checks.
                effect_of(rolled={SERVER}, updated={"monitoring-config"}),
            )
        ),
    ),
    Edit(
        "the memory check gets another schedule",
        long_check(schedule="0 4 * * *"),
        effect_of(updated={"longchecks-cpu-memory"}),
        given=long_check(),
    ),
    Edit(
        "the memory check gets a threshold",
        long_check(threshold=10_000),
        effect_of(updated={"longchecks-config"}),
        given=long_check(),
    ),
    Edit(
        "the memory check covers more nodes",
        cpu(replicas=7),
        effect_of(updated={"longchecks-config", CPU, RECONCILER}),
        given=long_check(),
    ),
    Edit(
        "the memory check is removed, which would delete its results",
        top(long_checks={}),
        and_conf(
            both(
                replace(ASSOCIATIONS, refused=frozenset({"longchecks-volume"})),
                effect_of(rolled={SERVER}, updated={"monitoring-config"}),
            )
        ),
        given=long_check(),
    ),
    # --- Network
    Edit(
        "network policies are disabled",
        top(network={"policies": False}),
        effect_of(deleted=POLICIES),
    ),
    Edit(
        "the guard is disabled",
        top(network={"guard": False}),
        effect_of(rolled={"login-sshd", *NODESETS}),
    ),
    Edit(
        "users reach fewer addresses",
        top(network={"refuse": ["10.0.0.0/16"]}),
        effect_of(rolled={"login-sshd", *NODESETS}, updated={"network-login", "network-worker"}),
    ),
    Edit(
        "Cilium's policies replace Kubernetes' own",
        elsewhere(policies="cilium"),
        effect_of(created=CILIUM_POLICIES, deleted=POLICIES),
        given=elsewhere(),
    ),
    Edit(
        "both kinds of network policies are created",
        elsewhere(policies="both"),
        effect_of(created=CILIUM_POLICIES),
        given=elsewhere(policies=True),
    ),
    Edit(
        "users reach only some DNS names",
        elsewhere(policies="cilium", names=["pypi.org"]),
        effect_of(updated={"network-cilium-login", "network-cilium-worker"}),
        given=elsewhere(policies="cilium"),
    ),
    Edit(
        "users reach fewer addresses through Cilium's policies",
        elsewhere(policies="cilium", refuse=["10.0.0.0/16"]),
        effect_of(
            rolled={"login-sshd", *NODESETS},
            updated={"network-cilium-login", "network-cilium-worker"},
        ),
        given=elsewhere(policies="cilium"),
    ),
    Edit(
        "Cilium becomes the network plugin",
        elsewhere(cilium={}),
        effect_of(created={"cilium-release"}),
        given=elsewhere(),
    ),
    Edit(
        "Cilium gets a newer version",
        elsewhere(cilium={"version": "1.19.7"}),
        effect_of(updated={"cilium-release"}),
        given=elsewhere(cilium={}),
    ),
    Edit(
        "Hubble's relay is enabled",
        elsewhere(cilium={"hubble": {"relay": True}}),
        effect_of(updated={"cilium-release"}),
        given=elsewhere(cilium={}),
    ),
    Edit(
        "Cilium is removed",
        elsewhere(),
        effect_of(deleted={"cilium-release"}),
        given=elsewhere(cilium={}),
    ),
    # --- Metrics
    Edit(
        "the exporter reads Slurm more often",
        exporter(interval=15),
        effect_of(rolled={EXPORTER, SERVER}, updated={"monitoring-config"}),
    ),
    Edit("more users have separate metrics", exporter(top=100), effect_of(rolled={EXPORTER})),
    Edit("the nodes of jobs are not exported", exporter(jobs=0), effect_of(rolled={EXPORTER})),
    Edit(
        "monitoring is disabled, which would delete protected metrics",
        top(monitoring={"kind": "none", "exporter": {"enabled": False}}),
        effect_of(refused={"monitoring-data"}),
        moves_data=True,
    ),
    Edit(
        "monitoring is disabled, which deletes unprotected metrics",
        top(monitoring={"kind": "none", "exporter": {"enabled": False}}),
        effect_of(deleted={EXPORTER, "exporter-service"} | MONITORING),
        given=UNPROTECTED,
        moves_data=True,
    ),
    Edit(
        "metrics are stored longer",
        top(monitoring={"bundled": {"retention": 90}}),
        effect_of(rolled={SERVER}),
    ),
    Edit(
        "alerts go to a webhook",
        top(monitoring={"bundled": {"webhook": "https://hooks.example.org/hpc"}}),
        effect_of(rolled={SERVER}, updated={"monitoring-alertmanager", "network-monitoring"}),
    ),
    Edit(
        "Grafana is enabled",
        top(monitoring={"bundled": {"grafana": {"enabled": True}}}),
        effect_of(created={f"grafana-{part}" for part in GRAFANA} | DASHBOARDS),
    ),
    Edit(
        "an operator replaces Prometheus, which would delete protected metrics",
        top(monitoring={"kind": "operator"}),
        effect_of(created=OPERATOR_OBJECTS | DASHBOARDS, refused={"monitoring-data"}),
        moves_data=True,
    ),
    Edit(
        "an operator replaces Prometheus, which deletes unprotected metrics",
        top(monitoring={"kind": "operator"}),
        effect_of(created=OPERATOR_OBJECTS | DASHBOARDS, deleted=MONITORING - {MACHINES}),
        given=UNPROTECTED,
        moves_data=True,
    ),
    Edit(
        "a Prometheus of another namespace scrapes metrics",
        top(monitoring={"scrape_from": ["observability"]}),
        effect_of(updated={f"network-{name}" for name in SCRAPED}),
    ),
    # --- Logs
    Edit(
        "logs are sent to a collector",
        logs(),
        effect_of(
            created=LOGS,
            rolled={SERVER},
            updated={"monitoring-config", "network-logs"},
        ),
    ),
    Edit("fewer logs are sent", logs(level="error"), effect_of(rolled={AGENT}), given=logs()),
    Edit(
        "logs are sent to another collector",
        logs(endpoint="https://loki.example.org/otlp"),
        effect_of(rolled={AGENT}, updated={"network-logs"}),
        given=logs(),
    ),
    Edit(
        "the collector requires headers",
        logs(headers_secret="loki"),
        effect_of(rolled={AGENT}),
        given=logs(),
    ),
    Edit(
        "logs are no longer sent",
        top(monitoring={}),
        effect_of(
            deleted=LOGS,
            rolled={SERVER},
            updated={"monitoring-config", "network-logs"},
        ),
        given=logs(),
    ),
    # --- Snapshots
    Edit(
        "snapshots are enabled",
        snapshots(jail="fast"),
        effect_of(created=SNAPSHOTS),
    ),
    Edit(
        "snapshots include the controller's state",
        snapshots(jail="fast", state="fast"),
        effect_of(updated={"snapshots-take"}, replaced={"snapshots-check"}),
        given=snapshots(jail="fast"),
    ),
    Edit(
        "snapshots get another schedule",
        snapshots(jail="fast", schedule="0 * * * *"),
        effect_of(updated={"snapshots-take"}),
        given=snapshots(jail="fast"),
    ),
    Edit(
        "snapshots are disabled",
        lambda values: values.pop("snapshots"),
        effect_of(deleted=SNAPSHOTS),
        given=snapshots(jail="fast"),
    ),
    # --- Sets of backups
    Edit("sets of backups are made", backup_set(), effect_of(created=SETS)),
    Edit(
        "sets are made at another hour",
        backup_set(schedule="0 1 * * *"),
        effect_of(updated={"backup-sets-take"}),
        given=backup_set(),
    ),
    Edit(
        "a set is restored from a bucket",
        backup_set(s3=BUCKET, restore="latest"),
        both(
            RESTORED,
            effect_of(
                created={"network-jail"}, updated={"network-accounting", "network-controller"}
            ),
        ),
        given=backup_set(s3=BUCKET),
    ),
    Edit(
        "a set has been restored",
        backup_set(),
        RESTORED,
        given=backup_set(restore="latest"),
    ),
    Edit(
        "sets are no longer made, but their volume stays",
        lambda values: values.pop("backup"),
        effect_of(refused={"backup-store-volume"}),
        given=backup_set(),
    ),
    # --- The whole stack
    Edit(
        "a rule of the policy pack gets an exception",
        top(policy={"exceptions": {"non-root": {"login-sshd": "sshd becomes its users"}}}),
        NOTHING,
    ),
    Edit("images come from a registry", top(registry="registry.example.org"), NEW_IMAGES),
    Edit("the registry requires credentials", top(pull_secrets=["registry"]), NEW_IMAGES),
    Edit(
        "slurmctld gets a node selector and a memory request",
        top(placement={"controller": {"node_selector": {"pool": "system"}, "memory": "4GiB"}}),
        effect_of(rolled={"controller-slurmctld", "controller-placeholder-pod"}),
    ),
    Edit(
        "the reconciler tolerates a taint",
        top(placement={"reconciler": {"tolerations": [{"key": "system"}]}}),
        effect_of(rolled={"reconciler-agent"}, replaced={AFTER_DEPLOY}),
    ),
    Edit(
        "the stack gets a Secret",
        top(secrets={"oncall": {"key": "a"}}),
        effect_of(created={"secret-oncall"}),
    ),
    Edit(
        "a credential in a Secret changes",
        top(secrets={"oncall": {"key": "b"}}),
        effect_of(updated={"secret-oncall"}),
        given=top(secrets={"oncall": {"key": "a"}}),
    ),
    Edit("GPU operators are enabled without GPUs", top(operators={"install": True}), NOTHING),
    Edit("the local cluster gets a node", lambda v: v["cluster"].update(nodes=3), NOTHING),
    Edit(
        "the kubeconfig has another context",
        existing(context="other"),
        effect_of(updated={"kubernetes"}),
        given=existing(),
    ),
    Edit(
        "the cluster's DNS has another domain",
        existing(domain="k8s.example.org"),
        and_conf(
            effect_of(
                rolled={
                    *("controller-slurmctld", "login-sshd", "rest-slurmrestd", EXPORTER),
                    *NODESETS,
                },
                replaced={"accounts-apply"},
            )
        ),
        given=existing(),
    ),
    # slurmctld refuses another cluster name; a test in tests/cluster checks this.
    Edit(
        "the cluster gets another name",
        top(cluster_name="other"),
        both(
            and_conf(replace(SLURMDBD, updated=SLURMDBD.updated | DUMP.updated)),
            both(ASSOCIATIONS, effect_of(rolled={SERVER}, updated={"monitoring-config"})),
        ),
    ),
    Edit(
        "the namespace gets another name",
        top(namespace="other"),
        effect_of(refused={"namespace"}),
        moves_data=True,
    ),
    Edit(
        "the unprotected namespace gets another name",
        top(namespace="other"),
        effect_of(replaced=EVERYTHING_IN_THE_NAMESPACE | {"controller-slurmctld"}),
        given=UNPROTECTED,
        moves_data=True,
    ),
]


# --- Test of the table ---------------------------------------------------------------------------


GraphOf = Callable[[Values], Graph]


@pytest.fixture
def graph_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GraphOf:
    """Return a function that records the program's resources for given settings."""
    (tmp_path / "__main__.py").symlink_to(ROOT / "__main__.py")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return lambda values: record(monkeypatch, config(base=values), tmp_path)


NAMED: Mapping[str, Callable[[Effect], object]] = {
    "The nodes of nodeset big are replaced": lambda of: BIG in of.rolled,
    "The nodes of nodeset cpu are replaced": lambda of: CPU in of.rolled,
    "All nodes of nodeset cpu are replaced": lambda of: CPU in of.replaced,
    "Nodeset cpu is removed": lambda of: {CPU, TEMPLATE} & of.deleted,
    "Nodeset new is added": lambda of: "nodeset-new-slurmd" in of.created,
    "Login nodes are replaced one by one": lambda of: "login-sshd" in of.rolled,
    "All login nodes are replaced at the same time": lambda of: "login-sshd" in of.replaced,
    "slurmctld restarts": lambda of: (
        "controller-slurmctld" in of.rolled | of.replaced and "controller-state" not in of.replaced
    ),
    "slurmctld and the nodes read": lambda of: "config-candidate" in of.updated,
    "Accounting restarts": lambda of: (
        {"accounting-slurmdbd", "database-mariadb"} & (of.rolled | of.replaced)
    ),
    "Accounts, limits or QOS change": lambda of: "accounts-wanted" in of.updated,
    "Users or groups change": lambda of: "users-accounts" in of.updated,
    "SSH keys of users change": lambda of: "users-keys" in of.updated,
    "Login nodes read new settings": lambda of: "login-config" in of.updated,
    "The address or port of the login nodes may change": lambda of: (
        "login-service" in of.updated | of.replaced | of.deleted
    ),
    "slurmrestd restarts or ends": lambda of: (
        "rest-slurmrestd" in of.rolled | of.replaced | of.deleted
    ),
    "Nodes use the new scripts": lambda of: "config-scripts" in of.updated,
    # The settings of checks on nodes also change, because they contain the jail's generation.
    "The jail's system files change": lambda of: (
        "jail-populate" in of.replaced and CHECKED.updated <= of.updated
    ),
    "The namespace is deleted": lambda of: "namespace" in of.replaced,
    "slurmctld's volume is deleted": lambda of: "controller-state" in of.replaced | of.deleted,
    "The jail's volume is deleted": lambda of: "jail-claim" in of.replaced | of.deleted,
}
"""First words of sentences that a preview shows, each with a function that returns whether an
effect must have this sentence."""
NOTICED: Mapping[str, str] = {
    "nodes get more CPUs": "at most 20 % of them (or one node) at the same time. A node",
    "jobs may have more steps at once": "runs at most 500 steps of one job (before: 256)",
    "health checks are disabled": "nodes of nodeset cpu no longer run the stack's health checks",
    "the jail is filled again": "The jail's system files change (jail.refresh: 0 to 1);",
    "the jail gets an additional volume": "The jail gets mount points: /data.",
    "the jail loses an additional volume": "mount volumes at these paths in the jail: /data.",
    "sessions get a longer drain grace": "waits at most 30 s (the old login.drain_grace)",
    "a user gets another share": "user student account lab fairshare from none to 5.",
    "users come from a directory": "Network policies allow additional connections.",
    "users reach fewer addresses": "Users' programs can no longer reach: 10.0.0.0/16.",
    "users reach fewer addresses through Cilium's policies": (
        "Users' programs can no longer reach: 10.0.0.0/16."
    ),
    "both kinds of network policies are created": (
        "Network policies are added: connections that they do"
    ),
    # The network policies stay the same: Prometheus may already connect to port 443, for
    # Kubernetes' API.
    "alerts go to a webhook": "Users and running jobs notice nothing.",
    "snapshots are disabled": "Users and running jobs notice nothing.",
}
"""Parts of the preview's sentences about some edits."""


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.sentence)
def test_edit_has_exactly_the_expected_effect(graph_of: GraphOf, edit: Edit) -> None:
    before, after = graph_of(edit.before()), graph_of(edit.after())

    assert effect(before, after) == edit.expected
    texts = notices(previewed(before, after, edit.expected))
    assert [text for text in texts if text.startswith("The preview cannot say")] == []
    assert NOTICED.get(edit.sentence, "") in "\n".join(texts)
    for start, is_true in NAMED.items():
        assert any(text.startswith(start) for text in texts) == bool(is_true(edit.expected)), start


def previewed(before: Graph, after: Graph, expected: Effect) -> Preview:
    """Return the preview of an edit."""
    ops = {
        "create": expected.created,
        "delete": expected.deleted,
        "update": (expected.updated | expected.rolled) - PROVIDERS,
        "replace": expected.replaced,
    }
    olds, news = ({one.name: one for one in graph.resources} for graph in (before, after))
    return preview(
        *(
            step(
                op,
                (olds.get(name) or news[name]).type,
                name,
                olds[name].inputs if name in olds else None,
                news[name].inputs if name in news else None,
            )
            for op, names in ops.items()
            for name in sorted(names)
        )
    )


# --- Facts about all rows -------------------------------------------------------------------------


def touched(edit: Edit) -> tuple[tuple[str | int, ...], ...]:
    """Return the paths of the settings that the edit changes."""
    return changed_paths(edit.before(), edit.after())


def test_edits_cover_every_section_of_the_settings() -> None:
    sections = {path[0] for edit in EDITS for path in touched(edit)}

    assert sections == set(Settings.model_fields)


QUIET = re.compile(
    r"nothing restarts|nothing else happens|no pod is replaced|replaces no pod", re.IGNORECASE
)
ROLLED = re.compile(r"pods (of [^,]*)?are replaced(?! if)|login nodes are replaced")
"""Phrases in docs/settings.md. QUIET matches texts about edits that replace no pods of users.
ROLLED matches texts about edits that replace such pods."""


def documented(path: tuple[str | int, ...]) -> str:
    """Return what docs/settings.md says about an edit of a setting, in the most specific row."""
    place = ".".join("[]" if isinstance(part, int) else part for part in path)
    place = place.replace(".[]", "[]")
    rows = {
        key: text
        for key, text in edits().items()
        if re.match(rf"{re.escape(key)}(?![a-z_])", place)
    }
    return rows[max(rows, key=len)] if rows else ""


def test_documentation_and_graph_agree_on_replaced_pods() -> None:
    """If the documentation of an edit has both phrases, the test skips the edit: other settings
    then decide what happens."""
    compared = {QUIET: 0, ROLLED: 0}
    for edit in EDITS:
        texts = [documented(path) for path in touched(edit)]
        replaced = edit.expected.rolled | edit.expected.replaced
        for phrase, other in ((QUIET, ROLLED), (ROLLED, QUIET)):
            if texts and all(phrase.search(text) and not other.search(text) for text in texts):
                compared[phrase] += 1
                found = replaced & {*NODESETS, "login-sshd"} if phrase is QUIET else replaced
                assert bool(found) is (phrase is ROLLED), edit.sentence
    assert min(compared.values()) > 10, "the phrases no longer occur in the table"


def test_expected_sentences_of_previews_belong_to_edits() -> None:
    assert NOTICED.keys() <= {edit.sentence for edit in EDITS}


def test_edits_that_do_not_move_data_never_delete_it(graph_of: GraphOf) -> None:
    assert {resource.name for resource in graph_of(VALID).resources} >= DATA
    for edit in EDITS:
        if not edit.moves_data:
            assert not DATA & (edit.expected.deleted | edit.expected.replaced), edit.sentence


@pytest.mark.parametrize(
    "edit", [edit for edit in EDITS if edit.moves_data], ids=lambda edit: edit.sentence
)
def test_edit_that_moves_protected_data_changes_no_existing_resource(
    graph_of: GraphOf, edit: Edit
) -> None:
    protected = replace(edit, given=as_it_is if edit.given is UNPROTECTED else edit.given)

    done = effect(graph_of(protected.before()), graph_of(protected.after()))

    stays = effect_of(refused=done.refused, created=done.created)
    assert done == stays, "existing resources stay unchanged"
    assert done.refused


def test_error_about_protected_data_names_the_edited_setting() -> None:
    """The file protected.yaml names the settings for this error. They must be settings that the
    edits of this table change."""
    known = yaml.safe_load((ROOT / "protected.yaml").read_text())
    for edit in EDITS:
        paths = [".".join(map(str, path)) for path in touched(edit)]
        for name in edit.expected.refused:
            assert any(
                key == path or key.startswith(f"{path}.") or path.startswith(f"{key}.")
                for key in known[name]
                for path in paths
            ), f"{edit.sentence}: {name}"


def test_edits_of_slurm_settings_restart_no_pod_of_users() -> None:
    own = [edit for edit in EDITS if {path[0] for path in touched(edit)} & {"slurm", "partitions"}]

    settings = {key for edit in own for key in edit.after().get("slurm", ())}
    assert settings == set(Slurm.model_fields), "each setting must have a row"
    for edit in own:
        done = edit.expected
        # Ignore restarts of slurmctld, slurmdbd and the exporter, which do not disturb users.
        rolled = done.rolled - SLURMDBD.rolled - {EXPORTER, "controller-slurmctld"}
        created = done.created - {"controller-topology"}
        assert not rolled | created | done.deleted, edit.sentence
        assert done.replaced <= CONF.replaced, f"{edit.sentence}: only Jobs may be replaced"


@pytest.mark.parametrize("replicas", [0, 1, 3, 400])
@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_resize_changes_one_statefulset_and_restarts_no_pod(
    graph_of: GraphOf, kind: str, replicas: int
) -> None:
    edit = Edit("", cpu(replicas=replicas), NOTHING, given=cpu(kind=kind))
    resized = effect_of(updated={CPU, RECONCILER})

    done = effect(graph_of(edit.before()), graph_of(edit.after()))

    assert done == (and_conf(resized) if kind == "static" else resized)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_number_of_resources_does_not_grow_with_nodes(graph_of: GraphOf, kind: str) -> None:
    def count(replicas: int) -> int:
        edit = Edit("", cpu(replicas=replicas, kind=kind), NOTHING)
        return len(graph_of(edit.after()).resources)

    assert count(1) == count(1000)
