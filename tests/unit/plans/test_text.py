"""A preview in a terminal or a pipe."""

import io
from collections.abc import Callable
from typing import Any

from rich.console import Console

from components.slurmconf import config_files
from plans.reading import Preview
from plans.text import show
from tests.support.documents import (
    CLAIM,
    CONFIG_MAP,
    STATEFUL_SET,
    claim,
    preview,
    stateful_set,
    step,
)
from tests.support.stack import settings

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


def test_checksum_in_slurm_conf_is_not_shown() -> None:
    def edited(name: str, edit: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        sides = ({"data": config_files(settings(change))} for change in (lambda _: None, edit))
        return step("update", CONFIG_MAP, name, *sides)

    prolog = {"prolog": {"text": "#!/bin/sh\n"}, "timeouts": {"kill_wait": 60}}
    lines = shown(preview(edited("config-candidate", lambda v: v.update(slurm=prolog))))
    (before, after) = (line.strip() for line in lines if "KillWait" in line)

    assert (before, after) == ("- KillWait=30", "+ KillWait=60")
    assert not any("SlurmctldParameters" in line for line in lines)

    parameters = {"slurmctld_parameters": {"idle_on_node_suspend": True}}
    lines = shown(preview(edited("config-candidate", lambda v: v.update(slurm=parameters))))
    assert "       - SlurmctldParameters=enable_configless" in lines
    assert "       + SlurmctldParameters=enable_configless,idle_on_node_suspend" in lines


def test_file_is_not_shown_if_only_its_checksum_changes() -> None:
    before, after = (
        {"data": {"slurm.conf": f"A=1\nB=c,slurmstack={mark}\n", "prolog": f"{mark}\n"}}
        for mark in ("0a", "0b")
    )

    lines = shown(preview(step("update", CONFIG_MAP, "config-candidate", before, after)))

    assert lines[1:4] == ["     data.prolog:", "       - 0a", "       + 0b"]
    assert not any("slurm.conf" in line for line in lines)


def test_many_resources_without_details_share_a_line() -> None:
    def deleted(number: int) -> list[str]:
        steps = (step("delete", CONFIG_MAP, f"c{index}", {}) for index in range(number))
        edited = step("update", CONFIG_MAP, "edited", file("a\n"), file("b\n"))
        return shown(preview(edited, step("delete", JOB, "job", {}), *steps))

    assert deleted(6)[:3] == [
        " - 6 ConfigMap resources: c0, c1, c2, c3, c4, c5",
        " - Job job",
        " ~ ConfigMap edited",
    ]
    assert deleted(5)[:2] == [" - ConfigMap c0", " - ConfigMap c1"]


def test_preview_without_changes_is_one_line() -> None:
    assert shown(preview()) == ["lab: 7 unchanged"]


def test_cost_of_nodes_on_demand_is_shown_without_changes() -> None:
    line = f"nodes on demand: at most 400 an hour ({'long ' * 40}), at least 24.5"

    assert shown(preview(logged=(line,))) == ["Costs:", f"  {line}", "lab: 7 unchanged"]


def test_single_line_is_repeated_for_each_resource() -> None:
    before, after = ({"spec": {"except": items}} for items in (["b"], ["a", "b"]))
    steps = (step("update", CONFIG_MAP, name, before, after) for name in ("one", "two"))

    assert shown(preview(*steps)).count("       + a") == 2


def test_refused_preview_says_nothing_about_users() -> None:
    lines = shown(preview(step("update", CLAIM, "jail-claim", claim("2Ti"), claim("1Ti"))))

    assert "Refused:" in lines
    assert "What users and jobs notice:" not in lines


def test_refusals_and_errors_are_listed_last() -> None:
    kept = step("delete", JOB, "kept", {"spec": 1}, protect=True)

    lines = shown(preview(kept, errors=("no way",)))

    assert lines[:2] == [" - Job kept", "What users and jobs notice:"]
    assert lines[-4] == "Refused:"
    assert "Job kept: would be deleted, but is protected" in lines[-3]
    assert lines[-2:] == ["Failed:", "  no way"]
