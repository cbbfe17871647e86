"""Base stacks on clouds, for tests of the requests to cloud providers."""

from collections.abc import Callable
from typing import Any

from tests.support.stack import KEY, VALID

Values = dict[str, Any]
Change = Callable[[Values], object]

_H100 = {"type": "h100", "count": 8}
_STACK: Values = {
    **VALID,
    "registry": "registry.example.org/hpc",
    "jail": {"size": "2400GiB"},
    "login": {"service": "LoadBalancer"},
    "nodesets": [
        {"name": "gpu", "replicas": 2, "cpus": 120, "memory": "1400GiB", "gpus": _H100},
        {"name": "cpu", "replicas": 4, "cpus": 12, "memory": "48GiB", "drain_grace": 60},
    ],
}
NEBIUS: Values = {
    **_STACK,
    "nodesets": [{**_STACK["nodesets"][0], "features": ["infiniband"]}, _STACK["nodesets"][1]],
    "cluster": {
        "kind": "nebius",
        "project": "project-e00lab",
        "api_from": ["192.0.2.0/24"],
        "machines": {
            "gpu": {
                "platform": "gpu-h100-sxm",
                "preset": "8gpu-128vcpu-1600gb",
                "fabric": "fabric-6",
            },
            "cpu": {"platform": "cpu-d3", "preset": "16vcpu-64gb"},
        },
    },
}
EKS: Values = {
    **_STACK,
    "cluster": {
        "kind": "eks",
        "region": "eu-central-1",
        "zones": ["eu-central-1a", "eu-central-1b"],
        "api_from": ["192.0.2.0/24"],
        "machines": {
            "gpu": {"type": "p5.48xlarge", "efa": 32},
            "cpu": {"type": "m7i.4xlarge"},
        },
    },
}
CLOUDS = {"nebius": NEBIUS, "eks": EKS}
_MACHINES: dict[str, Values] = {
    "head": {},
    "gpu-a": {"nodeset": "gpu", "user": "ubuntu", "port": 2222},
    "gpu-b": {"nodeset": "gpu"},
    **{f"cpu-{letter}": {"nodeset": "cpu"} for letter in "abcd"},
    "spare": {},
}
METAL: Values = {
    **_STACK,
    "cluster": {
        "kind": "metal",
        "control_planes": ["head"],
        "machines": [
            {"name": name, "address": f"192.0.2.{10 + place}", "host_key": KEY, **more}
            for place, (name, more) in enumerate(_MACHINES.items())
        ],
    },
}
"""A stack on existing machines. The secret `metal:ssh_key` is the machines' private SSH key."""


def nodeset(name: str, **fields: Any) -> Change:
    """Edit one nodeset."""

    def edit(values: Values) -> None:
        (found,) = [given for given in values["nodesets"] if given["name"] == name]
        found.update(fields)

    return edit


def machines(name: str, **fields: Any) -> Change:
    """Edit the machines of one nodeset."""
    return lambda values: values["cluster"]["machines"][name].update(fields)


def machine(name: str, **fields: Any) -> Change:
    """Edit one existing machine."""

    def edit(values: Values) -> None:
        (found,) = [given for given in values["cluster"]["machines"] if given["name"] == name]
        found.update(fields)

    return edit


def without_machine(name: str) -> Change:
    """Remove one existing machine from the list."""

    def edit(values: Values) -> None:
        machines = values["cluster"]["machines"]
        machines[:] = [given for given in machines if given["name"] != name]

    return edit


def cluster(**fields: Any) -> Change:
    """Edit the cluster."""
    return lambda values: values["cluster"].update(fields)


def top(**fields: Any) -> Change:
    """Replace top-level keys."""
    return lambda values: values.update(fields)


def both(*changes: Change) -> Change:
    """Combine several edits."""

    def edit(values: Values) -> None:
        for change in changes:
            change(values)

    return edit
