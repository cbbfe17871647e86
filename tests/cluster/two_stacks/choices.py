"""The settings of the second stack, which the dev stack does not have."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.support.cluster import Cluster, write_test_stack
from tests.support.commands import execute

OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.79.2"
"""Go module with the Prometheus Operator's own kinds, by which the API server judges objects."""
KINDS = ("podmonitors", "prometheusrules", "servicemonitors")
FOUND_BY = {"release": "kube-prometheus-stack"}
SecondOn = Callable[[int], Cluster]
"""Brings the second stack up on so many Kubernetes nodes."""


def write_second_stack() -> Cluster:
    """Write the stack file anew; nothing is deployed."""
    return write_test_stack(
        "other",
        controller={"state_size": "1GiB"},
        auth={"type": "slurm"},
        monitoring={
            "kind": "operator",
            "operator": {"labels": FOUND_BY},
            "exporter": {"interval": 5},
        },
    )


def operator_kinds() -> list[Path]:
    """Return the definitions of the kinds that the stack makes objects of."""
    module = json.loads(execute(["go", "mod", "download", "-json", OPERATOR], timeout=300).stdout)
    folder = Path(module["Dir"]) / "example/prometheus-operator-crd"
    return [folder / f"monitoring.coreos.com_{kind}.yaml" for kind in KINDS]
