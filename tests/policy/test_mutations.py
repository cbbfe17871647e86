"""Each test adds one mistake to a stack. Only the policies that forbid this mistake report it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from policy.allowed import Allowed
from policy.catalogue import NAMES
from tests.policy.judge import SECRET, Props, Shown, Stack, edited, judge
from tests.policy.stacks import StackOf

Change = Callable[[Stack], Stack]

LASTING = (
    *("accounting-slurmdbd", "controller-slurmctld", "database-mariadb", "exporter-agent"),
    *("login-sshd", "monitoring-server", "nodeset-cpu-slurmd", "reconciler-agent"),
    "rest-slurmrestd",
)
ENDING = (
    *("accounts-apply", "backup-dump", "config-check", "controller-config-in-force"),
    *("jail-homes", "jail-populate", "reconciler-after-deploy"),
)
SLURMD, MUNGE, GUARD = "slurmd", "munge", "guard"
OTHER_KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaA==\n-----END OPENSSH PRIVATE KEY-----\n"


@dataclass(frozen=True)
class Mistake:
    sentence: str
    change: Change
    policies: frozenset[str]
    at: tuple[str, ...]
    """Names of the resources that violate the policies."""
    stack: str = "dev"


# --- Mistakes ------------------------------------------------------------------------------------


def edit(name: str, how: Callable[[Props], object], **fields: Any) -> Change:
    return lambda stack: edited(stack, name, how, **fields)


def as_it_is(props: Props) -> None:
    return None


def spec_of_pods(props: Props) -> Props:
    spec = props["spec"]
    maker = spec["jobTemplate"]["spec"] if "jobTemplate" in spec else spec
    pods: Props = maker["template"]["spec"]
    return pods


def pods(name: str, **values: Any) -> Change:
    return edit(name, lambda props: spec_of_pods(props).update(values))


def volume(name: str, **source: Any) -> Change:
    def add(props: Props) -> None:
        spec_of_pods(props).setdefault("volumes", []).append({"name": "more", **source})

    return edit(name, add)


def container(name: str, one: str, how: Callable[[Props], object]) -> Change:
    def change(props: Props) -> None:
        spec = spec_of_pods(props)
        both = [*spec.get("initContainers", []), *spec["containers"]]
        (found,) = [found for found in both if found["name"] == one]
        how(found)

    return edit(name, change)


def security(name: str, one: str, **values: Any) -> Change:
    return container(name, one, lambda found: found["securityContext"].update(values))


def image(name: str, one: str, reference: str) -> Change:
    return container(name, one, lambda found: found.update(image=reference))


def copied(name: str, one: str, copy: str) -> Change:
    """Add a copy of an init container under another name."""

    def add(props: Props) -> None:
        containers = spec_of_pods(props)["initContainers"]
        (found,) = [found for found in containers if found["name"] == one]
        containers.append({**found, "name": copy})

    return edit(name, add)


def variable(name: str, one: str, key: str, value: str) -> Change:
    entry = {"name": key, "value": value}
    return container(name, one, lambda found: found.setdefault("env", []).append(entry))


def entry(name: str, key: str, value: str) -> Change:
    return edit(name, lambda props: props["data"].update({key: value}))


def spec(name: str, **values: Any) -> Change:
    return edit(name, lambda props: props["spec"].update(values))


def rule(name: str, **values: Any) -> Change:
    return edit(name, lambda props: props["rules"][0].update(values))


def pod_security(**levels: str) -> Change:
    labels = {f"pod-security.kubernetes.io/{key}": level for key, level in levels.items()}
    return edit("namespace", lambda props: props["metadata"].update(labels=labels))


def with_(type_: str, name: str, props: Props, protect: bool = False) -> Change:
    return lambda stack: (*stack, Shown(f"kubernetes:{type_}", name, props, protect))


def chart(**props: Any) -> Change:
    return with_("helm.sh/v3:Release", "cilium", {"chart": "cilium", **props})


def without(type_: str) -> Change:
    return lambda stack: tuple(one for one in stack if not one.type.endswith(f":{type_}"))


def labelled(name: str, labels: dict[str, str]) -> Change:
    def change(props: Props) -> None:
        props["spec"]["template"]["metadata"]["labels"] = labels

    return edit(name, change)


def deployed(stack: Stack) -> Stack:
    """Return the stack as it is after its creation: each object then has a resourceVersion."""
    for one in stack:
        if "metadata" in one.props:
            stack = edited(stack, one.name, lambda p: p["metadata"].update(resourceVersion="7"))
    return stack


def replaced(name: str) -> Change:
    """Return a change after which the stack is like a preview that replaces this resource.

    Such a preview shows the replacement without a resourceVersion: Kubernetes sets it only later.
    """
    return lambda stack: edited(
        deployed(stack), name, lambda props: props["metadata"].pop("resourceVersion")
    )


def all_policies_judge(direction: str) -> Change:
    def change(stack: Stack) -> Stack:
        for one in stack:
            if one.type.endswith(":NetworkPolicy"):
                stack = edited(stack, one.name, lambda p: p["spec"].update(policyTypes=[direction]))
        return stack

    return change


def mistake(sentence: str, change: Change, policies: str, *at: str, stack: str = "dev") -> Mistake:
    return Mistake(sentence, change, frozenset(policies.split()), at, stack)


DIGEST = "sha256:" + "0" * 64
CLUSTER_ROLE = "rbac.authorization.k8s.io/v1:ClusterRoleBinding"
MISTAKES = [
    # --- Rights
    mistake(
        "slurmd is privileged",
        security("nodeset-cpu-slurmd", SLURMD, privileged=True),
        "privileged",
        "nodeset-cpu-slurmd",
    ),
    mistake(
        "a sidecar is privileged",
        security("login-sshd", MUNGE, privileged=True),
        "privileged",
        "login-sshd",
    ),
    mistake(
        "a CronJob's container is privileged",
        security("backup-dump", "backup", privileged=True),
        "privileged",
        "backup-dump",
    ),
    mistake(
        "a daemon has every capability",
        security("rest-slurmrestd", "slurmrestd", capabilities={"drop": ["ALL"], "add": ["ALL"]}),
        "privileged limits",
        "rest-slurmrestd",
    ),
    mistake(
        "a daemon keeps the container runtime's default capabilities",
        security("controller-slurmctld", "slurmctld", capabilities={"drop": ["NET_RAW"]}),
        "privileged",
        "controller-slurmctld",
    ),
    mistake(
        "a container has no security context",
        container("exporter-agent", "exporter", lambda found: found.pop("securityContext")),
        "privileged non-root",
        "exporter-agent",
    ),
    mistake(
        "the controller uses its node's network",
        pods("controller-slurmctld", hostNetwork=True),
        "host-namespaces",
        "controller-slurmctld",
    ),
    mistake(
        "nodes see their machine's processes",
        pods("nodeset-cpu-slurmd", hostPID=True),
        "host-namespaces",
        "nodeset-cpu-slurmd",
    ),
    mistake(
        "a Job shares its machine's memory segments",
        pods("jail-homes", hostIPC=True),
        "host-namespaces",
        "jail-homes",
    ),
    mistake(
        "the runtime's socket is mounted",
        volume("login-sshd", hostPath={"path": "/run/containerd/containerd.sock"}),
        "host-paths",
        "login-sshd",
    ),
    mistake(
        "a dump is written to the machine's disk",
        volume("backup-dump", hostPath={"path": "/var/backups"}),
        "host-paths",
        "backup-dump",
    ),
    mistake(
        "a volume is a folder on the machines",
        with_(
            "core/v1:PersistentVolume",
            "volume",
            {"spec": {"hostPath": {"path": "/srv"}}},
            protect=True,
        ),
        "host-paths",
        "volume",
    ),
    mistake(
        "slurmctld runs as root",
        security("controller-slurmctld", "slurmctld", runAsUser=0.0, runAsNonRoot=False),
        "non-root",
        "controller-slurmctld",
    ),
    mistake(
        "the accounts' Job runs as root",
        security("accounts-apply", "accounts", runAsUser=0.0),
        "non-root",
        "accounts-apply",
    ),
    mistake(
        "the exporter runs as the user of its image",
        security("exporter-agent", "exporter", runAsUser=None, runAsNonRoot=None),
        "non-root",
        "exporter-agent",
    ),
    mistake(
        "a container of the site has the guard's rights",
        copied("nodeset-cpu-slurmd", GUARD, "site-tune"),
        "added-containers",
        "nodeset-cpu-slurmd",
    ),
    # --- Resources
    mistake(
        "the database has no requests",
        container("database-mariadb", "mariadb", lambda found: found.pop("resources")),
        "requests",
        "database-mariadb",
    ),
    mistake(
        "Prometheus has no memory request",
        container(
            "monitoring-server",
            "prometheus",
            lambda found: found["resources"]["requests"].pop("memory"),
        ),
        "requests",
        "monitoring-server",
    ),
    mistake(
        "a sidecar has no requests",
        container("accounting-slurmdbd", MUNGE, lambda found: found.pop("resources")),
        "requests",
        "accounting-slurmdbd",
    ),
    mistake(
        "jobs have no memory limit",
        container(
            "nodeset-cpu-slurmd", SLURMD, lambda found: found["resources"]["limits"].pop("memory")
        ),
        "limits",
        "nodeset-cpu-slurmd",
    ),
    mistake(
        "a memory volume has no limit",
        volume("rest-slurmrestd", emptyDir={"medium": "Memory"}),
        "limits",
        "rest-slurmrestd",
    ),
    # --- Origin of images and charts
    mistake(
        "an image has the tag latest",
        image("controller-slurmctld", "slurmctld", "slurmstack/controller:latest"),
        "images",
        "controller-slurmctld",
    ),
    mistake(
        "an image has no tag",
        image("backup-dump", "backup", "slurmstack/backup"),
        "images",
        "backup-dump",
    ),
    mistake(
        "an image with a digest is from another registry",
        image("login-sshd", "sshd", f"docker.io/sshd/sshd@{DIGEST}"),
        "images",
        "login-sshd",
    ),
    mistake(
        "another registry's name starts with the name of the stack's registry",
        image("login-sshd", "sshd", f"registry.example.org/hpc-evil/slurmstack/login@{DIGEST}"),
        "images",
        "login-sshd",
        stack="gpu",
    ),
    mistake(
        "an init container's image has a version tag",
        image("nodeset-h100-slurmd", GUARD, "registry.example.org/hpc/slurmstack/guard:1.2.3"),
        "images",
        "nodeset-h100-slurmd",
        stack="gpu",
    ),
    mistake("a chart has no version", chart(), "charts", "cilium"),
    mistake("a chart has a range of versions", chart(version=">=1.16"), "charts", "cilium"),
    # --- Secrets
    mistake(
        "a password is in the environment",
        variable("accounting-slurmdbd", "slurmdbd", "STORAGE_PASSWORD", "hunter2"),
        "open-secrets",
        "accounting-slurmdbd",
    ),
    mistake(
        "the name of an environment variable contains TOKEN",
        variable("reconciler-agent", "reconciler", "REST_TOKEN", "x"),
        "open-secrets",
        "reconciler-agent",
    ),
    mistake(
        "a private key is in a ConfigMap",
        entry("login-config", "host_key", OTHER_KEY),
        "open-secrets",
        "login-config",
    ),
    mistake(
        "a password is in a URL in the arguments",
        container(
            "backup-dump", "backup", lambda f: f.update(args=["s3:https://me:hunter2@s3.lab/dumps"])
        ),
        "open-secrets",
        "backup-dump",
    ),
    mistake(
        "a generated password is in a ConfigMap",
        entry("accounting-config", "slurmdbd.conf", f"StoragePass={SECRET}\n"),
        "made-secrets",
        "accounting-config",
    ),
    mistake(
        "a ConfigMap depends on a secret that is unknown in previews",
        edit("login-config", as_it_is, sources={"data": ("login-host-key-seed",)}),
        "made-secrets",
        "login-config",
    ),
    mistake(
        "a key is in an annotation",
        edit("rest-service", lambda p: p["metadata"].update(annotations={"jwt": SECRET})),
        "made-secrets",
        "rest-service",
    ),
    # --- Access
    mistake(
        "logins are open to the internet",
        edit("login-service", lambda props: props["spec"].pop("loadBalancerSourceRanges")),
        "load-balancers",
        "login-service",
        stack="gpu",
    ),
    mistake(
        "a range opens logins to the internet",
        spec("login-service", loadBalancerSourceRanges=["192.0.2.0/24", "0.0.0.0/0"]),
        "load-balancers",
        "login-service",
        stack="gpu",
    ),
    mistake(
        "two ranges together open logins to the internet",
        spec("login-service", loadBalancerSourceRanges=["0.0.0.0/1", "128.0.0.0/1"]),
        "load-balancers",
        "login-service",
        stack="gpu",
    ),
    mistake(
        "Slurm's REST API is behind a load balancer",
        spec("rest-service", type="LoadBalancer"),
        "load-balancers",
        "rest-service",
    ),
    mistake(
        "the database has an external address",
        spec("database-service", externalIPs=["192.0.2.1"]),
        "load-balancers",
        "database-service",
    ),
    mistake(
        "a role has all verbs", rule("reconciler-role", verbs=["*"]), "rbac", "reconciler-role"
    ),
    mistake(
        "a cluster role has all resources",
        rule("reconciler-cluster-role", resources=["*"]),
        "rbac",
        "reconciler-cluster-role",
    ),
    mistake(
        "a role may escalate its rights",
        rule("monitoring-role", verbs=["get", "escalate"]),
        "rbac",
        "monitoring-role",
    ),
    mistake(
        "the reconciler is cluster-admin",
        edit("reconciler-cluster-rights", lambda p: p["roleRef"].update(name="cluster-admin")),
        "rbac",
        "reconciler-cluster-rights",
    ),
    mistake(
        "the namespace has no pod security labels",
        edit("namespace", lambda props: props["metadata"].pop("labels")),
        "namespaces",
        "namespace",
    ),
    mistake(
        "privileged pods cause no audit entry",
        pod_security(enforce="privileged", audit="privileged"),
        "namespaces",
        "namespace",
    ),
    mistake(
        "pods lack a label that NetworkPolicies select",
        labelled("rest-slurmrestd", {"slurmstack.dev/component": "rest"}),
        "network-policies",
        "rest-slurmrestd",
    ),
    mistake(
        "there are no NetworkPolicies",
        without("NetworkPolicy"),
        "network-policies",
        *(*LASTING, *ENDING),
    ),
    mistake(
        "no NetworkPolicy covers egress",
        all_policies_judge("Ingress"),
        "network-policies",
        *(*LASTING, *ENDING),
    ),
    mistake(
        "a workload is in a namespace without policies",
        edit("exporter-agent", lambda props: props["metadata"].update(namespace="default")),
        "network-policies",
        "exporter-agent",
    ),
    # --- Data
    mistake(
        "the jail is not protected",
        edit("jail-claim", as_it_is, protect=False),
        "protected-data",
        "jail-claim",
        stack="gpu",
    ),
    mistake(
        "the controller's state is not protected",
        edit("controller-state", as_it_is, protect=False),
        "protected-data",
        "controller-state",
        stack="gpu",
    ),
    mistake(
        "the namespace is not protected",
        edit("namespace", as_it_is, protect=False),
        "protected-data",
        "namespace",
        stack="gpu",
    ),
    mistake(
        "the cloud's file system is not protected",
        lambda stack: (*stack, Shown("aws:efs/fileSystem:FileSystem", "files", {})),
        "protected-data",
        "files",
        stack="gpu",
    ),
    mistake(
        "the database has volumeClaimTemplates",
        spec("database-mariadb", volumeClaimTemplates=[{"metadata": {"name": "data"}}]),
        "protected-data",
        "database-mariadb",
        stack="gpu",
    ),
    mistake(
        "the database is replaced",
        replaced("database-mariadb"),
        "replaced-data",
        "database-mariadb",
    ),
    mistake(
        "the controller is replaced",
        replaced("controller-slurmctld"),
        "replaced-data",
        "controller-slurmctld",
        stack="gpu",
    ),
    mistake(
        "the resource of an exception does not exist",
        lambda stack: tuple(one for one in stack if one.name != "machines-exporter"),
        "idle-exceptions",
        "",
    ),
]


@pytest.mark.parametrize("one", MISTAKES, ids=[one.sentence for one in MISTAKES])
def test_policies_report_each_mistake(stack_of: StackOf, one: Mistake) -> None:
    stack, allowed = stack_of(one.stack)
    mistaken = one.change(stack)
    same = set(map(id, stack))
    judgement = judge(mistaken, allowed, of=[r.name for r in mistaken if id(r) not in same])

    assert judgement.broken == {(policy, at) for policy in one.policies for at in one.at}
    assert judgement.unknown == frozenset()


FINE: dict[str, Change] = {
    "the stack is deployed": deployed,
    "a new nodeset mounts the jail that other nodesets already mount": replaced(
        "nodeset-cpu-slurmd"
    ),
    "an init container runs as root in slurmd's pod": security(
        "nodeset-cpu-slurmd", GUARD, runAsUser=0.0
    ),
    "the environment names a password file": variable(
        "accounting-slurmdbd", "slurmdbd", "STORAGE_PASSWORD_FILE", "/etc/slurmdbd/password"
    ),
    "an image has a digest": image(
        "rest-slurmrestd", "slurmrestd", f"slurmstack/rest:{'0' * 12}@{DIGEST}"
    ),
    "a chart has a version": chart(version="1.16.3"),
}


@pytest.mark.parametrize("change", FINE.values(), ids=FINE)
def test_allowed_change_is_not_reported_as_a_violation(stack_of: StackOf, change: Change) -> None:
    stack, allowed = stack_of("dev")
    allowed_now = change(stack)
    same = set(map(id, stack))
    judgement = judge(allowed_now, allowed, of=[r.name for r in allowed_now if id(r) not in same])

    assert judgement.broken == frozenset()


def test_mistakes_cover_every_policy() -> None:
    assert len(MISTAKES) >= 40
    assert {policy for one in MISTAKES for policy in one.policies} == set(NAMES)


def test_exception_for_all_resources_allows_all_resources(stack_of: StackOf) -> None:
    stack, allowed = stack_of("dev")
    everything = {"*": "a test"}
    free = Allowed(
        registries=allowed.registries,
        exceptions=dict.fromkeys(("rbac", "privileged"), everything),
    )
    worse = rule("reconciler-role", verbs=["*"])(stack)
    worse = security("rest-slurmrestd", "slurmrestd", privileged=True)(worse)
    names = ["reconciler-role", "rest-slurmrestd"]

    assert {at for _, at in judge(worse, allowed, of=names).broken} == set(names)
    assert not {at for _, at in judge(worse, free, of=names).broken} & set(names)
