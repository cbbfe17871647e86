"""The engine deploys only resources that policy packs allow. The tests run real policy packs."""

import json
import textwrap
from pathlib import Path

import pytest

from engine.__main__ import main
from engine.policies import Level
from engine.project import find_pack
from local.paths import ROOT
from tests.unit.engine.programs.sandbox import PREAMBLE, Sandbox

OBJECT = """
class Object(pulumi.CustomResource):
    def __init__(self, kind, name, opts=None, **inputs):
        super().__init__(f"kubernetes:{kind}", name, inputs, opts)


"""
PRIVILEGED = """
first = Thing("first")
bad = Object("core/v1:Pod", "bad", Options(depends_on=[first]), spec={"containers": [
    {"name": "root", "image": "sandbox/a:0123456789ab", "securityContext": {"privileged": True}},
]})
Thing("after", Options(depends_on=[bad]))
"""
LEVELS = """
thing = Thing("thing")
Object("core/v1:Namespace", "namespace", Options(protect=True), metadata={"labels": {
    "pod-security.kubernetes.io/enforce": thing.self,
    "pod-security.kubernetes.io/audit": "baseline",
}})
"""
SMALL_PACK = """
from pulumi_policy import *


def value(args, report):
    if args.props.get("value") == args.get_config()["word"]:
        report("take another")
    if args.props.get("value") == "doubtful":
        raise RuntimeError("I cannot tell")


def age(args, report):
    assert args.opts.protect == (args.name == "kept")
    assert args.provider is None or args.provider.resource_type == "pulumi:providers:test"
    if args.props.get("value") == args.get_config()["word"]:
        report("take a new one")


def ready(args, report):
    things = [one for one in args.resources if one.resource_type == "test:index:Thing"]
    for one in things:
        if one.props.get("value") == "alone" and not one.dependencies:
            report("give it company", one.urn)
    if len(things) > 2:
        report("too many")


word = PolicyConfigSchema({"word": {"type": "string", "default": "forbidden"}})
PolicyPack(
    "small",
    [
        ResourceValidationPolicy("value", "No value is forbidden", value, config_schema=word),
        ResourceValidationPolicy("age", "No value is old", age, config_schema=word),
        StackValidationPolicy("company", "Nothing is alone", ready),
    ],
    EnforcementLevel.MANDATORY,
    {"age": {"enforcementLevel": EnforcementLevel.ADVISORY, "word": "old"}},
)
"""


def pack(root: Path, program: str) -> Path:
    folder = root / "pack"
    folder.mkdir()
    (folder / "PulumiPolicy.yaml").write_text("runtime: python\nversion: 1.2.3\n")
    (folder / "__main__.py").write_text(textwrap.dedent(program))
    return folder


@pytest.fixture
def judged(sandbox: Sandbox) -> Sandbox:
    """Return a project with the policy pack of this repository."""
    sandbox.packs = (find_pack(ROOT / "policy"),)
    return sandbox


@pytest.fixture
def small(sandbox: Sandbox) -> Sandbox:
    """Return a project with a pack that has a policy of each kind."""
    sandbox.packs = (find_pack(pack(sandbox.root, SMALL_PACK)),)
    return sandbox


# --- The policy pack of this repository ----------------------------------------------------------


def test_preview_reports_all_violations_and_fails(judged: Sandbox) -> None:
    judged.write(PRIVILEGED, PREAMBLE + OBJECT)
    outcome = judged.preview()

    assert outcome.code == 1
    assert {(v.policy, v.level, v.urn.split("::")[-1]) for v in outcome.violations} == {
        (policy, Level.MANDATORY, "bad")
        for policy in ("privileged", "non-root", "requests", "network-policies")
    }
    (message,) = (v.message for v in outcome.violations if v.policy == "non-root")
    assert message.startswith("No container runs as root, unless its daemon requires it\n")
    assert "container root runs as the user of its image" in message
    assert ("create", "after") in outcome.steps, "the pack must also judge the remaining resources"
    assert judged.world.things == {}


def test_update_stops_before_the_create_of_a_forbidden_resource(judged: Sandbox) -> None:
    judged.write(PRIVILEGED, PREAMBLE + OBJECT)
    outcome = judged.up()

    assert outcome.code == 1
    assert judged.world.drain() == ["create first"]
    assert outcome.record.failures == {
        "bad": "violates the mandatory policies non-root, privileged, requests; this run reports"
        " each violation: correct the resource in the program or in the stack file"
    }
    assert set(judged.stored) >= {"first"}
    assert "bad" not in judged.stored


def test_up_command_previews_before_it_creates_resources(
    judged: Sandbox, capfd: pytest.CaptureFixture[str]
) -> None:
    judged.write(PRIVILEGED, PREAMBLE + OBJECT)
    project = ("--stack", "dev", "--cwd", str(judged.root))
    code = main(["up", "--yes", "--json", *project, "--policy-pack", str(ROOT / "policy")])

    assert code == 1
    assert judged.world.things == {}
    document = json.loads(capfd.readouterr().out)
    assert document["preview"]
    assert document["result"] == "failed"
    (verdict,) = document["policies"]
    assert verdict["name"] == "slurmstack"
    assert "privileged" in {one["policy"] for one in verdict["violations"]}

    judged.write("Thing('good')")
    code = main(["up", "--yes", "--json", *project, "--policy-pack", str(ROOT / "policy")])

    assert code == 0
    document = json.loads(capfd.readouterr().out)
    assert not document["preview"]
    assert judged.world.drain() == ["create good"]


def test_update_judges_values_that_are_unknown_in_the_preview(judged: Sandbox) -> None:
    judged.write(LEVELS, PREAMBLE + OBJECT)
    preview = judged.preview()

    assert preview.code == 0, preview.errors
    assert {(v.policy, v.level) for v in preview.violations} == {
        ("namespaces", Level.ADVISORY),
        ("open-secrets", Level.ADVISORY),
    }
    assert all("can't be known during preview" in v.message for v in preview.violations)

    assert judged.up().record.failures == {
        "namespace": "violates the mandatory policies namespaces; this run reports each violation:"
        " correct the resource in the program or in the stack file"
    }
    assert judged.world.drain() == ["create thing"]


def test_stack_config_sets_exceptions_and_an_unknown_policy_name_fails(
    judged: Sandbox,
) -> None:
    judged.write(PRIVILEGED, PREAMBLE + OBJECT)
    rules = ("privileged", "non-root", "requests", "network-policies")
    reasons = "".join(f"      {rule}: {{bad: it is a test}}\n" for rule in rules)
    config = "config:\n  sandbox:policy:\n    exceptions:\n"
    judged.config(config + reasons)
    assert judged.up().code == 0

    judged.config(config + "      privilegd: {bad: it is a test}\n")
    outcome = judged.up("Thing('other')")
    assert outcome.code == 1
    assert any("did not start" in error for error in outcome.errors)
    assert any("'privilegd': expected one of" in text for _, text in outcome.record.messages)
    assert "other" not in str(judged.world.things)


# --- Other policy packs --------------------------------------------------------------------------


def test_advisory_violations_are_reported_but_do_not_fail(small: Sandbox) -> None:
    outcome = small.up('Thing("a", value="old")\nThing("kept", Options(protect=True))')

    assert outcome.code == 0, outcome.errors
    assert sorted(small.world.drain()) == ["create a", "create kept"]
    assert [(v.policy, v.level, v.message) for v in outcome.violations] == [
        ("age", Level.ADVISORY, "No value is old\ntake a new one")
    ]
    assert outcome.record.result is not None
    (verdict,) = outcome.record.result.verdicts
    assert (verdict.name, verdict.version) == ("small", "1.2.3")


def test_policy_uses_the_config_that_its_pack_sets(small: Sandbox) -> None:
    outcome = small.preview('Thing("a", value="forbidden")\nThing("b", value="old")')

    assert {(v.policy, v.level, v.urn.split("::")[-1]) for v in outcome.violations} == {
        ("value", Level.MANDATORY, "a"),
        ("age", Level.ADVISORY, "b"),
    }
    assert outcome.code == 1


def test_stack_policies_run_after_all_resources_are_registered(small: Sandbox) -> None:
    program = 'Thing("a", value="alone")\nThing("b")\nThing("c")'
    preview = small.preview(program)

    assert preview.code == 1
    assert preview.errors == [
        (
            "the stack violates the mandatory policies company; this run reports each violation:"
            " correct the program or the stack file"
        )
    ]
    assert {v.urn.split("::")[-1] for v in preview.violations} == {"a", "sandbox-dev"}
    assert small.world.things == {}

    # Without a preview, the violation is found only at the end of an update, as in Pulumi's engine.
    assert small.up().code == 1
    assert len(small.world.things) == 3


def test_error_in_a_policy_stops_the_deployment(small: Sandbox) -> None:
    for outcome in (small.preview('Thing("a", value="doubtful")'), small.up()):
        assert outcome.code == 1
        assert "policy pack small: evaluation failed" in outcome.errors[0]
        assert "I cannot tell" in outcome.errors[0]
    assert small.world.things == {}


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import pulumi_policy\nraise ValueError('no rules')", "did not start"),
        ("import os\nos._exit(0)", "did not start"),
        (
            """
            from pulumi_policy import *

            mend = ResourceValidationPolicy("mend", "Mends", remediate=lambda args: args.props)
            PolicyPack("menders", [mend], EnforcementLevel.REMEDIATE)
            """,
            "mend: this engine does not support the enforcement level `remediate`",
        ),
    ],
)
def test_unusable_policy_pack_stops_the_deployment(
    sandbox: Sandbox, program: str, reason: str
) -> None:
    sandbox.packs = (find_pack(pack(sandbox.root, program)),)
    outcome = sandbox.up('Thing("a")')

    assert outcome.code == 1
    assert reason in outcome.errors[0]
    assert sandbox.world.things == {}


def test_folder_without_a_policy_pack_is_refused(
    sandbox: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(
        ["preview", "--stack", "dev", "--cwd", str(sandbox.root), "--policy-pack", "/nowhere"]
    )

    assert code == 1
    assert "/nowhere/PulumiPolicy.yaml: cannot be read" in capsys.readouterr().err
