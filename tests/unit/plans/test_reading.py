"""Previews of the `pulumi` command can be read; any other input is refused."""

import json
from typing import Any

import pytest

from engine.planning import Op
from plans.reading import PlanError, Preview, read, rolls_pods
from tests.support.documents import CLAIM, STATEFUL_SET, preview, step
from tests.support.previews import recorded


def summary(plan: Preview) -> set[tuple[str, str]]:
    return {(found.op.value, found.name) for found in plan.steps}


def test_preview_of_the_pulumi_command_can_be_read() -> None:
    plan = recorded("edited")

    assert summary(plan) == {
        ("replace", "pet"),
        ("replace", "first"),
        ("replace", "text"),
        ("create", "come"),
        ("delete", "gone"),
    }
    assert not plan.errors
    assert not recorded("same").steps
    assert recorded("same").unchanged > 0


def test_each_change_has_a_path_and_says_whether_it_replaces() -> None:
    by_name = {found.name: found for found in recorded("edited").steps}

    (length,) = by_name["pet"].changes
    assert (length.path, length.old, length.new, length.replaces) == ("length", "2", "3", True)
    (shown,) = by_name["text"].changes
    assert shown.path == "keepers.shown", "a preview must not show the change of the secret keeper"


def test_plan_has_an_error_for_each_changed_protected_resource() -> None:
    plan = recorded("protected")

    assert {found.name for found in plan.steps if found.protected} == {"kept", "kept-too"}
    assert any("kept: unable to replace" in line for line in plan.errors)
    assert all("\n" not in line for line in plan.errors)


def test_kubernetes_diffs_can_be_read() -> None:
    by_name = {found.name: found for found in recorded("kubernetes").steps}

    assert by_name["reconciler-cluster-role"].op is Op.UPDATE
    paths = {change.path for change in by_name["nodeset-cpu-slurmd"].changes}
    assert "spec.replicas" in paths
    assert all(
        (change.old or "[secret]", change.new or "[secret]") == ("[secret]", "[secret]")
        for change in by_name["jwt-secret"].changes
        if change.path.startswith(("stringData", "data"))
    )


def test_plan_lists_neither_components_nor_providers() -> None:
    component = step("create", "slurmstack:slurm:Slurm", "lab", new={})
    component["newState"]["custom"] = False
    provider = step("update", "pulumi:providers:kubernetes", "kubernetes", {}, {"context": "b"})

    assert not preview(component, provider).steps


def test_plan_lists_a_remote_component_with_unknown_children() -> None:
    component = step("create", "eks:index:ManagedNodeGroup", "group", new={"diskSize": 20})
    component["newState"]["custom"] = False
    within = "eks:index:ManagedNodeGroup$aws:eks/nodeGroup:NodeGroup"
    group = step("create", within, "group", new={"diskSize": 20})

    assert [one.type for one in preview(component).steps] == ["eks:index:ManagedNodeGroup"]
    assert [one.type for one in preview(component, group).steps] == ["aws:eks/nodeGroup:NodeGroup"]


def test_plan_lists_a_replacement_only_once() -> None:
    parts = [step(op, CLAIM, "a", {}, {}) for op in ("create-replacement", "delete-replaced")]

    assert summary(preview(step("replace", CLAIM, "a", {}, {}), *parts)) == {("replace", "a")}


def test_only_a_new_template_replaces_pods() -> None:
    def edit(**spec: object) -> bool:
        (found,) = preview(
            step("update", STATEFUL_SET, "a", {"spec": {"replicas": 1}}, {"spec": spec})
        ).steps
        return rolls_pods(found)

    assert not edit(replicas=2)
    assert edit(replicas=1, template={"spec": {}})


def test_same_value_in_another_notation_replaces_no_pods() -> None:
    """The `pulumi` command stores values in the notation of the Kubernetes API, and the program may
    use another notation."""

    def pods(replicas: int, memory: str, **variable: str) -> dict[str, Any]:
        requests = {"requests": {"memory": memory}}
        container = {"name": "one", "resources": requests, "env": [{"name": "A", **variable}]}
        return {"spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}}}

    before, after = pods(1, "1Gi"), pods(2, "1024Mi", value="")
    (found,) = preview(step("update", STATEFUL_SET, "a", before, after)).steps

    assert [change.path for change in found.changes] == ["spec.replicas"]
    assert not rolls_pods(found)


REFUSED = [
    ("", "is empty; expected the output of `pulumi preview --json`"),
    ("Created stack 'dev'", "is not JSON"),
    ("[]", "expected an object with `steps`"),
    (json.dumps({"steps": [{"op": "explode", "urn": "x"}]}), "steps[0].op: 'explode': expected"),
    (json.dumps({"steps": [{"op": "create", "urn": "x"}]}), "expected oldState or newState"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_invalid_preview_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(PlanError) as error:
        read(text, "preview.json")

    assert str(error.value).startswith("preview.json: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
