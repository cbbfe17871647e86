"""A preview in a terminal or a pipe."""

import io
from typing import Any

from rich.console import Console

from plans.reading import Preview
from plans.text import show
from tests.support.documents import CONFIG_MAP, STATEFUL_SET, preview, stateful_set, step

NODESET = {"slurmstack.dev/nodeset": "cpu"}
JOB = "kubernetes:batch/v1:Job"


def shown(found: Preview) -> list[str]:
    """Return the lines that a pipe gets."""
    out = io.StringIO()
    show(found, "lab", Console(file=out))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def file(text: str) -> dict[str, Any]:
    return {"data": {"slurm.conf": text}}


def test_preview_says_what_changes_and_what_users_notice() -> None:
    limits = {"cpu": "8"}
    found = preview(
        step("create", CONFIG_MAP, "exporter-new", None, {}),
        step("update", CONFIG_MAP, "config-candidate", file("a\nb\n"), file("a\nc\n")),
        step(
            "update",
            STATEFUL_SET,
            "nodeset-cpu-slurmd",
            stateful_set(NODESET, 2, limits),
            stateful_set(NODESET, 3, limits),
        ),
        step("replace", JOB, "config-check", {"spec": 1}, {"spec": 2}),
    )

    assert shown(found) == [
        " ~ ConfigMap config-candidate",
        '     data["slurm.conf"]:',
        "       - b",
        "       + c",
        " ~ StatefulSet nodeset-cpu-slurmd",
        "     spec.replicas: 2 => 3",
        " + ConfigMap exporter-new",
        "Kubernetes Jobs that run again: config-check",
        "What users and jobs notice:",
        "  Nodeset cpu grows from 2 to 3 nodes.",
        "  slurmctld and the nodes read the new configuration of Slurm; running jobs continue.",
        "Costs:",
        "                    before  after",
        "  Slurm nodes  cpu  2       3      8 CPUs",
        "lab: ~ 2 to update, + 1 to create, 7 unchanged",
    ]


def test_new_item_of_a_list_is_shown_by_its_name() -> None:
    old, new = ({"spec": {"env": [{"name": name} for name in names]}} for names in ("AC", "ABC"))

    lines = shown(preview(step("update", STATEFUL_SET, "exporter-agent", old, new)))

    assert '     spec.env[B]: + {"name": "B"}' in lines
    assert "spec.env" not in "".join(lines[2:])


def test_same_lines_of_two_resources_are_shown_once() -> None:
    before, after = file("a\nb\n"), file("a\nc\n")

    lines = shown(
        preview(
            step("update", CONFIG_MAP, "controller-config", before, after),
            step("update", CONFIG_MAP, "config-candidate", before, after),
        )
    )

    assert lines[:7] == [
        " ~ ConfigMap config-candidate",
        '     data["slurm.conf"]:',
        "       - b",
        "       + c",
        " ~ ConfigMap controller-config",
        '     data["slurm.conf"]:',
        "       the same lines as in config-candidate",
    ]


def test_nothing_to_change_is_one_line() -> None:
    assert shown(preview()) == ["lab: 7 unchanged"]


def test_cost_of_nodes_on_demand_is_shown_without_changes() -> None:
    line = f"nodes on demand: at most 400 an hour ({'long ' * 40}), at least 24.5"

    assert shown(preview(logged=(line,))) == ["Costs:", f"  {line}", "lab: 7 unchanged"]


def test_refusals_and_errors_are_listed() -> None:
    kept = step("delete", JOB, "kept", {"spec": 1}, protect=True)

    lines = shown(preview(kept, errors=("no way",)))

    assert "Job kept: would be deleted and is protected" in lines[lines.index("Refused:") + 1]
    assert lines[lines.index("Failed:") :] == ["Failed:", "  no way"]
