"""Tests of the settings that add devices, containers and limits to the pods of a nodeset."""

from typing import Any

import pytest

from tests.support.clouds import CLOUDS
from tests.support.graph import record, templates
from tests.support.stack import VALID, config

AUTOSCALERS = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}


def worker(
    monkeypatch: pytest.MonkeyPatch, base: dict[str, Any] = VALID, **fields: Any
) -> dict[str, Any]:
    """Add fields to the settings of the first nodeset, and return the template of its pods."""

    def add(values: dict[str, Any]) -> None:
        values["nodesets"][0].update(fields)

    graph = record(monkeypatch, config(add, base))
    name = base["nodesets"][0]["name"]
    return templates(graph)[f"nodeset-{name}-slurmd"]


def slurmd(pods: dict[str, Any]) -> dict[str, Any]:
    (found,) = (one for one in pods["spec"]["containers"] if one["name"] == "slurmd")
    return found  # type: ignore[no-any-return]


def variables(container: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in container["env"]}


def added(container: dict[str, Any]) -> list[str]:
    capabilities: list[str] = container["securityContext"]["capabilities"].get("add", [])
    return capabilities


def test_slurmd_gets_devices_huge_pages_and_variables_of_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pods = worker(
        monkeypatch,
        pod={
            "image": "registry.example.org/worker@sha256:0",
            "resources": {"rdma/hca": 2},
            "hugepages": {"hugepages-2Mi": "4GiB"},
            "environment": {"NCCL_DEBUG": "INFO"},
            "annotations": {"k8s.v1.cni.cncf.io/networks": "ib0"},
        },
    )

    found = slurmd(pods)
    assert found["image"] == "registry.example.org/worker@sha256:0"
    for kind in ("requests", "limits"):
        wanted = {"rdma/hca": "2", "hugepages-2Mi": "4096Mi"}
        assert wanted.items() <= found["resources"][kind].items()
    assert variables(found)["NCCL_DEBUG"] == "INFO"
    networks = {"k8s.v1.cni.cncf.io/networks": "ib0"}
    assert pods["metadata"]["annotations"] == {**AUTOSCALERS, **networks}


@pytest.mark.parametrize(("annotation", "value"), AUTOSCALERS.items())
def test_autoscalers_evict_nodes_only_if_the_settings_permit_it(
    annotation: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert worker(monkeypatch)["metadata"]["annotations"][annotation] == value

    permitted = worker(monkeypatch, pod={"annotations": {annotation: "other"}})
    assert permitted["metadata"]["annotations"][annotation] == "other"


def test_custom_init_container_runs_directly_after_the_guard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tune = {"name": "tune", "image": "registry.example.org/tune:1", "command": ["/tune", "-x"]}

    pods = worker(monkeypatch, pod={"init_containers": [tune]})

    names = [one["name"] for one in pods["spec"]["initContainers"]]
    assert names[:2] == ["guard", "site-tune"]
    found = pods["spec"]["initContainers"][1]
    assert (found["image"], found["command"]) == (tune["image"], tune["command"])
    assert found["securityContext"]["runAsNonRoot"]
    assert not added(found)


def amounts(container: dict[str, Any], kind: str) -> dict[str, str]:
    given = container.get("resources", {}).get(kind, {})
    return {name: given[name] for name in ("cpu", "memory") if name in given}


def is_guaranteed(pods: dict[str, Any]) -> bool:
    """Return whether Kubernetes would give these pods the QoS class 'Guaranteed'."""
    containers = [*pods["spec"]["containers"], *pods["spec"]["initContainers"]]
    return all(
        amounts(container, "requests") == amounts(container, "limits")
        and len(amounts(container, "limits")) == 2
        for container in containers
    )


@pytest.mark.parametrize("auth", ["munge", "slurm"])
def test_pods_with_exclusive_cpus_are_guaranteed(
    monkeypatch: pytest.MonkeyPatch, auth: str
) -> None:
    base = {**VALID, "auth": {"type": auth}}
    script = {"name": "tune", "image": "busybox", "command": ["true"]}
    pod = {"init_containers": [script]}

    assert not is_guaranteed(worker(monkeypatch, base, pod=pod))

    pods = worker(monkeypatch, base, exclusive_cpus=True, pod=pod)
    assert is_guaranteed(pods)
    # slurmd must request whole CPUs, because the kubelet gives exclusive CPUs only to such
    # containers.
    assert amounts(slurmd(pods), "requests")["cpu"] == str(base["nodesets"][0]["cpus"])


@pytest.mark.parametrize(
    ("fields", "limits", "raised"),
    [
        ({}, None, False),
        ({"limits": {"core": "1GiB", "open_files": 65536}}, "c=1048576 n=65536", False),
        ({"limits": {"open_files": 2000000}}, "n=2000000", True),
        ({"limits": {"core": "none", "locked_memory": "none"}}, "c=0 l=0", False),
        ({"limits": {"core": "unlimited", "locked_memory": "8GiB"}}, "c=unlimited l=8388608", True),
        ({"pod": {"resources": {"rdma/hca": 1}}}, "l=unlimited", True),
        ({"pod": {"resources": {"vpc.amazonaws.com/efa": 1}}}, "l=unlimited", True),
        ({"pod": {"resources": {"smarter-devices/fuse": 1}}}, None, False),
    ],
)
def test_slurmd_gets_sys_resource_only_to_raise_limits(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], limits: str | None, raised: bool
) -> None:
    found = slurmd(worker(monkeypatch, **fields))

    assert variables(found).get("LIMITS") == limits
    assert ("SYS_RESOURCE" in added(found)) is raised


def test_nodes_with_rdma_may_lock_memory_without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    found = slurmd(worker(monkeypatch, CLOUDS["nebius"]))

    assert "rdma/hca" in found["resources"]["limits"]
    assert variables(found)["LIMITS"] == "l=unlimited"
