"""Healthy nodes, pods and machines, for tests that break one of them."""

from collections.abc import Iterable
from typing import Any

from agents.drains import Evidence
from agents.reconciler.observed import Condition, Machine, Observed, Pod, Update
from agents.reconciler.wanted import Roll, Wanted
from agents.slurm import Node
from tests.support.slurmnodes import NOW, node

CONF = "CPUs=2 RealMemory=1000 Gres=gpu:h100:8"
READY = {"Ready": Condition("True")}


def evidence(at: int, failed: Iterable[str] = (), unknown: Iterable[str] = ()) -> str:
    return str(Evidence(at, tuple(failed), tuple(unknown)))


def pod(name: str, **fields: Any) -> Pod:
    return Pod(
        **{
            "name": name,
            "uid": f"{name}-uid",
            "machine": name.replace("cpu", "machine"),
            "is_worker": True,
            "is_ready": True,
            "started": NOW - 10_000,
            "conf": CONF,
            "created": NOW - 10_000,
            "revision": "new",
            **fields,
        }
    )


def machine(name: str, **fields: Any) -> Machine:
    return Machine(
        **{
            "name": name,
            "uid": f"{name}-uid",
            "version": "1",
            "created": NOW - 100_000,
            "boot": f"{name}-boot",
            "provider": f"cloud://{name}",
            "conditions": READY,
            **fields,
        }
    )


def wanted(replicas: int = 3, **fields: Any) -> Wanted:
    nodeset = {"replicas": replicas, "cpus": 2, "memory": 1000, "gpus": 8, "conf": CONF}
    return Wanted.model_validate(
        {
            "nodesets": {"cpu": nodeset},
            "evidence": None,
            "interval": 60,
            "share": 1.0,
            "maintenance": ["lab.example/maintenance"],
            "conditions": {"DiskPressure": "disk-pressure"},
            "hardware": ["gpu-xid"],
            "ladder": ["recheck", "restart", "restart"],
            "ladders": {},
            "back_off": 300,
            "replace": [],
            "replace_age": 3600,
            "remember": 86_400,
            "rollout": 0,
            **fields,
        }
    )


def observed(
    *changed: Node | Pod | Machine, replicas: int = 3, without: str = "", configured: float = 0.0
) -> Observed:
    """Return healthy nodes, each on its own machine.

    Each object in `changed` takes the place of the healthy object with its name. `without` names
    an object to leave out, such as `pod cpu-1`.
    """
    names = [f"cpu-{ordinal}" for ordinal in range(replicas)]
    records = {name: node(name) for name in names}
    pods = {name: pod(name) for name in names}
    machines = {one.machine: machine(one.machine) for one in pods.values()}
    for one in changed:
        place: Any = {Node: records, Pod: pods, Machine: machines}[type(one)]
        place[one.name] = one
    kind, _, name = without.partition(" ")
    {"record": records, "pod": pods, "machine": machines, "": {"": None}}[kind].pop(name)  # type: ignore[attr-defined]
    return Observed(records, pods, machines, configured, {"cpu": update()})


def update(share: float = 0.2, *, in_maintenance: bool = False) -> Update:
    return Update("new", Roll(share=share, in_maintenance=in_maintenance))
