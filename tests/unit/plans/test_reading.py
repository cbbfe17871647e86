"""What the command prints is understood, and what it does not print is refused."""

import json

import pytest

from engine.planning import Op
from plans.reading import PlanError, Preview, read, rolls_pods
from tests.support.previews import recorded
from tests.unit.plans.documents import CLAIM, STATEFUL_SET, preview, step


def told(seen: Preview) -> set[tuple[str, str]]:
    return {(found.op.value, found.name) for found in seen.steps}


def test_the_commands_own_preview_is_read_step_by_step() -> None:
    seen = recorded("edited")

    assert told(seen) == {
        ("replace", "pet"),
        ("replace", "first"),
        ("replace", "text"),
        ("create", "come"),
        ("delete", "gone"),
    }
    assert not seen.errors
    assert not recorded("same").steps
    assert recorded("same").unchanged > 0


def test_a_change_is_told_at_its_own_path_with_what_it_forces() -> None:
    by_name = {found.name: found for found in recorded("edited").steps}

    (length,) = by_name["pet"].changes
    assert (length.path, length.old, length.new, length.replaces) == ("length", "2", "3", True)
    (shown,) = by_name["text"].changes
    assert shown.path == "keepers.shown", "of the hidden one nobody can say that it changes"


def test_what_is_protected_and_touched_is_an_error_of_the_command_too() -> None:
    seen = recorded("protected")

    assert {found.name for found in seen.steps if found.protected} == {"kept", "kept-too"}
    assert any("kept: unable to replace" in line for line in seen.errors)
    assert all("\n" not in line for line in seen.errors)


def test_kubernetes_own_diffs_are_read_too() -> None:
    by_name = {found.name: found for found in recorded("kubernetes").steps}

    assert by_name["reconciler-cluster-role"].op is Op.UPDATE
    paths = {change.path for change in by_name["nodeset-cpu-slurmd"].changes}
    assert "spec.replicas" in paths
    assert all(
        (change.old or "[secret]", change.new or "[secret]") == ("[secret]", "[secret]")
        for change in by_name["jwt-secret"].changes
        if change.path.startswith(("stringData", "data"))
    )


def test_components_and_providers_are_no_resources() -> None:
    component = step("create", "slurmstack:slurm:Slurm", "lab", new={})
    component["newState"]["custom"] = False
    provider = step("update", "pulumi:providers:kubernetes", "kubernetes", {}, {"context": "b"})

    assert not preview(component, provider).steps


def test_a_component_of_another_process_stands_for_what_only_that_process_knows() -> None:
    component = step("create", "eks:index:ManagedNodeGroup", "group", new={"diskSize": 20})
    component["newState"]["custom"] = False
    within = "eks:index:ManagedNodeGroup$aws:eks/nodeGroup:NodeGroup"
    group = step("create", within, "group", new={"diskSize": 20})

    assert [one.type for one in preview(component).steps] == ["eks:index:ManagedNodeGroup"]
    assert [one.type for one in preview(component, group).steps] == ["aws:eks/nodeGroup:NodeGroup"]


def test_parts_of_a_replacement_are_not_told_beside_it() -> None:
    parts = [step(op, CLAIM, "a", {}, {}) for op in ("create-replacement", "delete-replaced")]

    assert told(preview(step("replace", CLAIM, "a", {}, {}), *parts)) == {("replace", "a")}


def test_only_a_new_template_replaces_pods() -> None:
    def edit(**spec: object) -> bool:
        (found,) = preview(
            step("update", STATEFUL_SET, "a", {"spec": {"replicas": 1}}, {"spec": spec})
        ).steps
        return rolls_pods(found)

    assert not edit(replicas=2)
    assert edit(replicas=1, template={"spec": {}})


REFUSED = [
    ("", "is empty; expected the output of `pulumi preview --json`"),
    ("Created stack 'dev'", "is not JSON"),
    ("[]", "expected an object with `steps`"),
    (json.dumps({"steps": [{"op": "explode", "urn": "x"}]}), "steps[0].op: 'explode': expected"),
    (json.dumps({"steps": [{"op": "create", "urn": "x"}]}), "expected oldState or newState"),
]


@pytest.mark.parametrize(("text", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_what_is_no_preview_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(PlanError) as error:
        read(text, "preview.json")

    assert str(error.value).startswith("preview.json: ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)
