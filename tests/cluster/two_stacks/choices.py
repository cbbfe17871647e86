"""Settings of the second stack that differ from the dev stack."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.support.cluster import Cluster, write_test_stack
from tests.support.commands import execute

OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.79.2"
"""Go module with the definitions of the Prometheus Operator's kinds. The API server validates
objects against these definitions."""
KINDS = ("podmonitors", "prometheusrules", "servicemonitors")
FOUND_BY = {"release": "kube-prometheus-stack"}
SecondOn = Callable[[int], Cluster]
"""A function that deploys the second stack. Its argument is the number of Kubernetes nodes."""


def write_second_stack() -> Cluster:
    """Write the stack file without deploying it."""
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
    """Return the definitions of the operator's kinds that the stack uses."""
    module = json.loads(execute(["go", "mod", "download", "-json", OPERATOR], timeout=300).stdout)
    folder = Path(module["Dir"]) / "example/prometheus-operator-crd"
    return [folder / f"monitoring.coreos.com_{kind}.yaml" for kind in KINDS]
