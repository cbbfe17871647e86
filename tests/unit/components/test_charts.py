"""Tests of the Helm charts that are installed before Slurm: they define all values that the program
sets."""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import yaml

from components.settings import from_config
from tests.support.clouds import EKS, NEBIUS, Change, Values, both, machines, nodeset, top
from tests.support.graph import record_cluster
from tests.support.stack import config
from tests.unit.components import charts

AMD = {"type": "v520", "count": 4, "resource": "amd.com/gpu"}
SLICED = {"type": "h100", "count": 8, "mig": {"1g.10gb": 56}}
Case = tuple[str, Values, Change]
CASES: dict[str, Case] = {
    "gpu-operator": ("gpu-operator", NEBIUS, top()),
    "gpu-operator, MIG slices": ("gpu-operator", NEBIUS, nodeset("gpu", gpus=SLICED)),
    "gpu-operator, an existing driver": ("gpu-operator", EKS, top()),
    "network-operator": ("network-operator", NEBIUS, top()),
    "csi-mounted-fs-path": ("csi-mounted-fs-path", NEBIUS, top()),
    "aws-efa-k8s-device-plugin": ("aws-efa-k8s-device-plugin", EKS, top()),
    "amd-gpu": (
        "amd-gpu",
        EKS,
        both(nodeset("gpu", gpus=AMD, cpus=60), machines("gpu", type="g4ad.16xlarge", efa=None)),
    ),
}
"""For each case: a chart, a stack, and the edit that makes the stack install the chart. Tests of
Cilium's chart are in test_cilium.py."""
each = pytest.mark.parametrize("case", CASES)


def releases(base: Values, edit: Change) -> dict[str, Values]:
    """Return the inputs of all Helm releases by chart."""
    kind = base["cluster"]["kind"]
    pytest.importorskip(f"pulumi_{kind}", reason=f"pip install '.[{kind}]'")
    values = deepcopy(base)
    edit(values)
    settings = from_config(config(base=values))

    found = record_cluster(settings).of_type("kubernetes:helm.sh/v3:Release")
    return {release.inputs["name"]: release.inputs for release in found}


def unknown(known: Any, given: Any, text: str, path: str = "") -> Iterator[str]:
    """Yield names in `given` that a chart's defaults do not have, and values whose type differs
    from the default's type.

    If a default is empty, any value is accepted. A name that occurs only in a comment of the chart
    is also accepted.
    """
    if isinstance(known, dict) and known and isinstance(given, dict):
        for key, value in given.items():
            where = f"{path}.{key}".lstrip(".")
            if key in known:
                yield from unknown(known[key], value, text, where)
            elif not re.search(rf"^ *# ?{re.escape(key)}:", text, re.MULTILINE):
                yield f"{where}: is not known"
    elif known not in (None, {}, []) and shape(known) != shape(given):
        yield f"{path}: {given!r}: expected a value such as {known!r}"


def shape(value: Any) -> type:
    return next(kind for kind in (bool, int, str, list, dict) if isinstance(value, kind))


def test_cases_cover_every_chart_that_a_cloud_cluster_installs() -> None:
    installed = {name for _, base, edit in CASES.values() for name in releases(base, edit)}

    assert installed == {name for name, _, _ in CASES.values()}


@each
def test_chart_defines_the_name_and_type_of_each_value(case: str) -> None:
    name, base, edit = CASES[case]
    asked = releases(base, edit)[name]
    found = charts.files(name, asked["version"])

    assert yaml.safe_load(found["Chart.yaml"])["version"] == asked["version"]
    text = "\n".join(content for path, content in found.items() if path.endswith("values.yaml"))
    assert list(unknown(charts.defaults(found), asked["values"], text)) == []


@each
def test_values_match_the_schema_of_the_chart(case: str) -> None:
    name, base, edit = CASES[case]
    asked = releases(base, edit)[name]
    found = charts.files(name, asked["version"])
    if "values.schema.json" not in found:
        pytest.skip(f"{name} {asked['version']} has no schema")
    jsonschema = pytest.importorskip("jsonschema")

    jsonschema.Draft7Validator(json.loads(found["values.schema.json"])).validate(asked["values"])


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"driver": {"enable": True}}, ["driver.enable: is not known"]),
        ({"driver": {"enabled": "no"}}, ["driver.enabled: 'no': expected a value such as True"]),
        ({"driver": []}, ["driver: []: expected a value such as {'enabled': True}"]),
        ({"driver": {"config": {"name": "a"}}, "tolerations": [{"operator": "Exists"}]}, []),
    ],
)
def test_comparison_reports_values_that_the_chart_does_not_define(
    given: Values, problem: list[str]
) -> None:
    text = "driver:\n  enabled: true\n  # config:\n  #   name: ''\ntolerations: []\n"

    assert list(unknown(yaml.safe_load(text), given, text)) == problem
