"""The resources of every stack follow every policy, except for the exceptions that the stack
names."""

import json
import re
from pathlib import Path

import pytest
import yaml

from components.settings import from_config
from local import new_stack
from local.paths import ROOT
from policy.allowed import Allowed, matches, read
from policy.catalogue import NAMES
from tests.policy.judge import Findings, Stack, judge, shown, stack_config
from tests.policy.stacks import STACKS, StackOf
from tests.support.clouds import CLOUDS
from tests.support.clouds import METAL as METAL_OF_GPUS
from tests.support.graph import record
from tests.support.stack import KEY, config


@pytest.mark.parametrize("name", STACKS)
def test_stack_follows_all_policies_except_where_it_names_exceptions(
    stack_of: StackOf, name: str
) -> None:
    stack, allowed = stack_of(name)
    judgement = judge(stack, allowed)

    assert judgement.broken == frozenset()
    assert judgement.unknown == frozenset()
    assert len(stack) > 100, "the recording must contain the whole program"


def test_jail_server_needs_exactly_the_exceptions_in_its_documentation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = stack_config(ROOT / "Pulumi.cpu.yaml")
    config["slurmstack:jail"] = '{"server": {"machines": ["10.0.0.0/16"]}}'
    page = (ROOT / "docs/jail.md").read_text()
    (block,) = re.findall(r"```yaml\n(slurmstack:policy:.*?)```", page, re.DOTALL)
    named = yaml.safe_load(block)["slurmstack:policy"]["exceptions"]
    stack = shown(record(monkeypatch, config))

    judgement = judge(stack, read(config, "slurmstack", NAMES))

    assert judgement.broken == {(rule, name) for rule, names in named.items() for name in names}


@pytest.mark.parametrize("rights", [{"user": 0}, {"capabilities": ["NET_ADMIN"]}])
def test_policies_apply_to_the_pod_fields_of_a_nodeset(
    monkeypatch: pytest.MonkeyPatch, rights: dict[str, object]
) -> None:
    config = stack_config(ROOT / "Pulumi.cpu.yaml")
    (nodeset,) = json.loads(config["slurmstack:nodesets"])
    tune = {"name": "tune", "image": "elsewhere.example.org/tune:1", "command": ["/tune"], **rights}
    nodeset["pod"] = {"init_containers": [tune], "environment": {"LICENCE_TOKEN": "abc"}}
    config["slurmstack:nodesets"] = json.dumps([nodeset])

    judgement = judge(shown(record(monkeypatch, config)), read(config, "slurmstack", NAMES))

    rules = ("added-containers", "images", "open-secrets")
    assert judgement.broken == {(rule, "nodeset-cpu-slurmd") for rule in rules}


@pytest.mark.parametrize("name", STACKS)
def test_every_exception_of_a_stack_is_needed(stack_of: StackOf, name: str) -> None:
    stack, allowed = stack_of(name)

    assert allowed.exceptions
    assert not idle(stack, allowed)


def idle(stack: Stack, allowed: Allowed) -> list[str]:
    """Return the exceptions for resources that do not violate the rule."""
    types = {one.name: one.type for one in stack}
    broken = judge(stack, allowed.model_copy(update={"exceptions": {}})).broken
    return [
        f"{rule}: {pattern}"
        for rule, resources in allowed.exceptions.items()
        for pattern in resources
        if not any(r == rule and matches(pattern, types[n], n) for r, n in broken)
    ]


ANYWHERE = (
    "nodesets.0={name: cpu, replicas: 2, cpus: 2, memory: 1GiB}",
    "users.0={name: ada, uid: 2000, ssh_key_files: [.local/dev/id_ed25519.pub]}",
)
ELSEWHERE = (
    *("cluster.kind=existing", "cluster.context=lab", "registry=registry.example.org/hpc"),
    *("jail.storage_class=shared", "login.source_ranges=[192.0.2.0/24]"),
)
LOCAL = ("cluster.kind=local", "cluster.nodes=2", "login={service: NodePort, node_port: 32222}")
CLOUD = (
    *("registry=registry.example.org/hpc", "login.limits.memory=8GiB"),
    "login.source_ranges=[192.0.2.0/24]",
)
DIRECTORY = "directory={uris: ['ldaps://ldap.lab'], base: 'dc=lab', user_filter: '(uid=*)'}"
NEBIUS = """cluster={kind: nebius, project: project-e00lab, api_from: [192.0.2.0/24],
    machines: {cpu: {platform: cpu-d3, preset: 4vcpu-16gb}}}"""
EKS = """cluster={kind: eks, region: eu-central-1, zones: [eu-central-1a, eu-central-1b],
    api_from: [192.0.2.0/24], machines: {cpu: {type: m7i.xlarge}}}"""
METAL = f"""cluster={{kind: metal, control_planes: [head], machines: [
    {{name: head, address: 192.0.2.10, host_key: {KEY}}},
    {{name: cpu-a, address: 192.0.2.11, host_key: {KEY}, nodeset: cpu}},
    {{name: cpu-b, address: 192.0.2.12, host_key: {KEY}, nodeset: cpu}}]}}"""
NEW: dict[str, tuple[tuple[str, ...], Findings]] = {
    "new-local": (LOCAL, frozenset()),
    "new-unprotected": ((*LOCAL, "protect_data=false"), frozenset()),
    "new-limited": ((*ELSEWHERE, "login.limits.memory=8GiB"), frozenset()),
    # Expect this violation: the author of the stack can fix it, so the new stack names no exception
    # for it.
    "new-unlimited": (ELSEWHERE, frozenset({("limits", "login-sshd")})),
    "new-unmonitored": ((*LOCAL, "monitoring.kind=none"), frozenset()),
    "new-directory": ((*LOCAL, DIRECTORY), frozenset()),
    "new-directory-without-accounting": (
        (*LOCAL, DIRECTORY, "accounting.enabled=false", "controller.standby=true"),
        frozenset(),
    ),
    "new-nebius": ((*CLOUD, NEBIUS), frozenset()),
    "new-nebius-csi": ((*CLOUD, NEBIUS, "jail.storage_class=shared"), frozenset()),
    "new-nebius-grafana": (
        (*CLOUD, NEBIUS, "monitoring.bundled.grafana.enabled=true"),
        frozenset(),
    ),
    "new-eks": ((*CLOUD, EKS, "jail.size=1200GiB"), frozenset()),
    "new-metal": ((*CLOUD, METAL, "jail.storage_class=shared"), frozenset()),
}


@pytest.mark.parametrize("name", NEW)
def test_new_stack_names_the_exceptions_that_it_needs(
    project: Path, stack_of: StackOf, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    options, broken = NEW[name]
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    monkeypatch.setenv("PULUMI_CONFIG", '{"metal:ssh_key": "of the operator"}')
    words = [word for option in (*ANYWHERE, *options) for word in ("--set", option)]

    assert new_stack.main([name, *words], project) == 0

    stack, allowed = stack_of(name)
    assert judge(stack, allowed).broken == broken
    assert not idle(stack, allowed)


GROUNDS = {**CLOUDS, "metal": METAL_OF_GPUS}


@pytest.mark.parametrize("kind", GROUNDS)
def test_gpu_machines_need_only_the_exceptions_of_a_new_stack(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    values = {
        **GROUNDS[kind],
        "login": {"source_ranges": ["192.0.2.0/24"], "limits": {"memory": "8GiB"}},
        "operators": {"install": True},
    }
    given = config(base=values)
    allowed = new_stack.allowed(from_config(given))
    monkeypatch.setenv("PULUMI_CONFIG", '{"metal:ssh_key": "of the operator"}')
    stack = shown(record(monkeypatch, given))
    needed = config(base={**values, "policy": allowed})

    judgement = judge(stack, read(needed, "slurmstack", NAMES))

    assert judgement.broken == frozenset()
    assert judgement.unknown == frozenset()
    assert "gpu-operator" in {one.props.get("chart") for one in stack}
