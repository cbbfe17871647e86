"""Tests of each single rule: what it accepts, what it reports, and how it treats unknown values."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from local.paths import ROOT
from policy.allowed import Allowed
from policy.catalogue import ABOUT, NAMES
from policy.rule import Level
from tests.policy.judge import MADE, UNKNOWN, Judgement, Props, Shown, judge

ALLOWED = Allowed(registries=("registry.lab/hpc",), host_paths=("/srv",))
POD = "kubernetes:core/v1:Pod"
SET = "kubernetes:apps/v1:StatefulSet"
PAGE = ROOT / "docs/policy.md"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
CONFIG = "kubernetes:core/v1:ConfigMap"
Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Case:
    """Resources that follow a rule; the first one violates it with the value `bad` at `path`."""

    rule: str
    path: Path
    bad: Any
    resources: tuple[Shown, ...]


def pod(container: Props, **spec: Any) -> Shown:
    return Shown(POD, "it", {"spec": {"containers": [{"name": "a", **container}], **spec}})


def one(type_: str, props: Props, protect: bool = False) -> Shown:
    return Shown(f"kubernetes:{type_}", "it", props, protect)


def set_with_data(**metadata: str) -> Shown:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    template = {"metadata": {"labels": {"app": "db"}}, "spec": {"volumes": volumes}}
    return Shown(
        SET, "it", {"metadata": {"name": "db", **metadata}, "spec": {"template": template}}
    )


RIGHTS = {"privileged": False, "capabilities": {"drop": ["ALL"], "add": ["SETUID"]}}
FIRST: Path = ("spec", "containers", 0)
REQUESTS = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
THERE = {"name": "data", "resourceVersion": "7"}
DIRECTIONS = ["Ingress", "Egress"]
CASES = [
    Case(
        "privileged",
        (*FIRST, "securityContext", "privileged"),
        True,
        (pod({"securityContext": RIGHTS}),),
    ),
    Case("host-namespaces", ("spec", "hostPID"), True, (pod({}, hostPID=False),)),
    Case(
        "host-paths",
        ("spec", "volumes", 0, "hostPath", "path"),
        "/srv/../etc",
        (pod({}, volumes=[{"name": "v", "hostPath": {"path": "/srv/models"}}]),),
    ),
    Case(
        "non-root",
        (*FIRST, "securityContext", "runAsUser"),
        0.0,
        (pod({"securityContext": {"runAsUser": 7.0, "runAsNonRoot": True}}),),
    ),
    Case(
        "added-containers",
        (*FIRST, "securityContext", "capabilities", "add"),
        ["NET_ADMIN"],
        (
            pod(
                {
                    "name": "site-tune",
                    "securityContext": {"runAsUser": 65534, "capabilities": {"drop": ["ALL"]}},
                }
            ),
        ),
    ),
    Case("requests", (*FIRST, "resources"), {}, (pod({"resources": REQUESTS}),)),
    Case(
        "limits",
        (*FIRST, "resources", "limits"),
        {},
        (pod({"resources": REQUESTS, "securityContext": RIGHTS}),),
    ),
    Case("images", (*FIRST, "image"), "a:1", (pod({"image": "registry.lab/hpc/a:0123456789ab"}),)),
    Case("charts", ("version",), "1.x", (one("helm.sh/v3:Release", {"version": "v1.2.3-rc.1"}),)),
    Case(
        "open-secrets",
        ("data", "key"),
        "-----BEGIN EC PRIVATE KEY-----",
        (one("core/v1:ConfigMap", {"data": {"key": "-----BEGIN PUBLIC KEY-----"}}),),
    ),
    Case(
        "load-balancers",
        ("spec", "loadBalancerSourceRanges", 0),
        "::/0",
        (
            one(
                "core/v1:Service",
                {"spec": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["192.0.2.0/24"]}},
            ),
        ),
    ),
    Case(
        "rbac",
        ("rules", 0, "resources", 0),
        "pods/*",
        (one("rbac.authorization.k8s.io/v1:Role", {"rules": [{"resources": ["pods"]}]}),),
    ),
    Case(
        "namespaces",
        ("metadata", "labels", "pod-security.kubernetes.io/enforce"),
        "none",
        (
            one(
                "core/v1:Namespace",
                {
                    "metadata": {
                        "labels": {
                            "pod-security.kubernetes.io/enforce": "restricted",
                            "pod-security.kubernetes.io/audit": "restricted",
                        }
                    }
                },
                protect=True,
            ),
        ),
    ),
    Case(
        "protected-data",
        ("spec", "volumeClaimTemplates"),
        [{}],
        (Shown(SET, "it", {"spec": {"volumeClaimTemplates": []}}),),
    ),
    Case(
        "made-secrets",
        ("data", "file"),
        "the password is never printed",
        (
            Shown(CONFIG, "it", {"data": {"file": "no secret"}}),
            Shown(MADE, "password", {"result": "never printed"}),
        ),
    ),
    Case(
        "network-policies",
        ("spec", "template", "metadata", "labels", "app"),
        "other",
        (
            set_with_data(),
            Shown(
                POLICY,
                "all",
                {
                    "spec": {
                        "podSelector": {"matchLabels": {"app": "db"}},
                        "policyTypes": DIRECTIONS,
                    }
                },
            ),
        ),
    ),
    Case(
        "replaced-data",
        ("metadata", "resourceVersion"),
        None,
        (set_with_data(resourceVersion="7"), Shown(CLAIM, "data", {"metadata": THERE})),
    ),
]


def put(case: Case, value: Any) -> tuple[Shown, ...]:
    """Return the case's resources with another value at `path`."""
    first, *others = case.resources
    props = copy.deepcopy(first.props)
    place: Any = props
    for part in case.path[:-1]:
        place = place[part]
    place[case.path[-1]] = value
    return (replace(first, props=props), *others)


def judged_by(rule: str, resources: Sequence[Shown]) -> Judgement:
    """Return the judgement of one rule."""
    judgement = judge(resources, ALLOWED)
    return Judgement(
        frozenset(found for found in judgement.broken if found[0] == rule),
        frozenset(found for found in judgement.unknown if found[0] == rule),
    )


def test_every_rule_has_a_test_case() -> None:
    # idle-exceptions needs no case: it reads only names, and no name is ever unknown.
    assert [case.rule for case in CASES] == [n for n in NAMES if n != "idle-exceptions"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_rule_accepts_valid_resources_and_reports_violations(case: Case) -> None:
    assert judged_by(case.rule, case.resources) == Judgement(frozenset(), frozenset())
    assert judged_by(case.rule, put(case, case.bad)) == Judgement(
        frozenset({(case.rule, "it")}), frozenset()
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_unknown_value_is_reported_as_unknown_and_not_as_violation(case: Case) -> None:
    judgement = judged_by(case.rule, put(case, UNKNOWN))

    assert judgement.broken == frozenset()
    assert {rule for rule, _ in judgement.unknown} == {case.rule}


def test_unknown_value_does_not_hide_another_violation() -> None:
    containers = [
        {"name": "first", "image": UNKNOWN},
        {"name": "second", "image": "a:1"},
    ]
    judgement = judged_by("images", (Shown(POD, "it", {"spec": {"containers": containers}}),))

    assert judgement.broken == {("images", "it")}
    assert judgement.unknown == {("images", "it")}


def test_unknown_text_does_not_hide_a_secret_in_another_resource() -> None:
    judgement = judged_by(
        "made-secrets",
        (
            Shown(CONFIG, "unknown", {"data": {"file": UNKNOWN}}),
            Shown(CONFIG, "open", {"data": {"file": "password=the second one"}}),
            Shown(MADE, "first", {"result": "the first one"}),
            Shown(MADE, "second", {"result": "the second one"}),
        ),
    )

    assert judgement.broken == {("made-secrets", "open")}
    assert judgement.unknown == {("made-secrets", "")}


def test_unknown_secrets_of_a_first_preview_are_not_reported() -> None:
    judgement = judged_by(
        "made-secrets",
        (
            Shown(MADE, "key", {"result": UNKNOWN}),
            Shown(CONFIG, "config", {"data": {"file": "text", "address": UNKNOWN}}),
        ),
    )

    assert (judgement.broken, judgement.unknown) == (frozenset(), frozenset())


def test_workload_with_unknown_values_is_not_reported_as_replaced() -> None:
    workload = set_with_data()
    workload.props["spec"]["template"]["metadata"]["annotations"] = {"checksum": UNKNOWN}
    judgement = judged_by("replaced-data", (workload, Shown(CLAIM, "data", {"metadata": THERE})))

    assert judgement.broken == frozenset()
    assert judgement.unknown == {("replaced-data", "")}


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ({"operator": "In", "values": ["db", "web"]}, True),
        ({"operator": "In", "values": ["web"]}, False),
        ({"operator": "NotIn", "values": ["web"]}, True),
        ({"operator": "NotIn", "values": ["db"]}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "DoesNotExist"}, False),
    ],
)
def test_match_expressions_work_as_in_kubernetes(expression: Props, holds: bool) -> None:
    selector = {"matchExpressions": [{"key": "app", **expression}]}
    policy = Shown(POLICY, "all", {"spec": {"podSelector": selector, "policyTypes": DIRECTIONS}})

    assert (not judged_by("network-policies", (set_with_data(), policy)).broken) is holds


@pytest.mark.parametrize(
    ("rules", "holds"),
    [
        ({"ingress": [{}], "egressDeny": [{"toCIDR": ["169.254.169.254/32"]}]}, True),
        ({"ingress": [{}]}, False),
        ({"egress": [{}]}, False),
    ],
)
def test_cilium_policy_covers_only_directions_with_rules(rules: Props, holds: bool) -> None:
    spec = {"endpointSelector": {"matchLabels": {"app": "db"}}, **rules}
    policy = Shown("kubernetes:cilium.io/v2:CiliumNetworkPolicy", "all", {"spec": spec})

    assert (not judged_by("network-policies", (set_with_data(), policy)).broken) is holds


def test_every_policy_states_its_demand_its_reason_and_a_remedy() -> None:
    for about in ABOUT:
        assert about.demand
        assert about.reason
        assert about.remedy
    assert {about.name for about in ABOUT if about.level is Level.ADVISORY} == {"idle-exceptions"}
    assert len(set(NAMES)) == len(NAMES)


def test_policy_page_lists_every_policy() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]

    assert rows == [
        f"| `{about.name}` | {about.demand} | {about.reason} | {about.remedy} |" for about in ABOUT
    ]
