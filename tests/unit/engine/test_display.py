"""The engine's output as text and as JSON."""

from __future__ import annotations

import io
import json

import pytest

from engine.changes import Change
from engine.display import Json, Plain, PreviewJson, Result, choose, summary
from engine.events import Severity, Step
from engine.planning import Op
from engine.policies import Level, Verdict, Violation
from engine.show import redacted, shown
from engine.state import StoredResource
from engine.values import UNKNOWN, UNKNOWN_STRING, Properties, Secret

URN = "urn:pulumi:dev::web::x:y:Z::a"


def result(
    counts: dict[Op, int] | None = None,
    *,
    succeeded: bool = True,
    cancelled: bool = False,
    preview: bool = False,
    failures: int = 0,
    outputs: Properties | None = None,
    before: Properties | None = None,
    verdicts: tuple[Verdict, ...] = (),
) -> Result:
    return Result(
        succeeded, cancelled, preview, counts or {}, failures, outputs, before, 1.25, verdicts
    )


def plain() -> tuple[Plain, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    return Plain(out, err), out, err


def test_values_are_shown_shortened_and_without_secrets() -> None:
    value: Properties = {"a": Secret("hush"), "b": [UNKNOWN, {"c": Secret(1)}], "d": None}
    assert redacted(value) == {"a": "[secret]", "b": ["[unknown]", {"c": "[secret]"}], "d": None}
    assert shown(Secret("hush")) == "[secret]"
    assert shown(UNKNOWN) == "[unknown]"
    assert len(shown("x" * 1000)) < 100


def test_summary_is_one_line() -> None:
    counts = {Op.CREATE: 3, Op.UPDATE: 1, Op.SAME: 38}
    assert summary(result(counts)) == "+ 3 created, ~ 1 updated, 38 unchanged"
    assert summary(result(counts, preview=True)) == ("+ 3 to create, ~ 1 to update, 38 unchanged")
    assert summary(result()) == "0 unchanged"
    assert summary(result({Op.REPLACE: 1, Op.DELETE: 2}, failures=1)) == (
        "+- 1 replaced, - 2 deleted, 1 failed"
    )


def test_preview_shows_the_changed_lines_of_a_file() -> None:
    display, out, _ = plain()
    diff = tuple(f"+ line {n}" for n in range(30))
    change = Change("data.conf", "old", "new", lines=diff)
    display.known(Step(URN, Op.UPDATE, changes=(change,)))
    lines = out.getvalue().splitlines()[1:]
    assert lines[0].strip() == "data.conf:"
    assert [line.strip() for line in lines[1:3]] == ["+ line 0", "+ line 1"]
    assert lines[-1].strip() == "… 10 more"


def test_preview_lists_only_resources_that_change() -> None:
    display, out, _ = plain()
    changes = (
        Change("spec.replicas", "1", "2"),
        Change("spec.selector", "{}", None, replaces=True),
        Change("data", None, "[secret]"),
    )
    display.known(Step(URN, Op.REPLACE, changes=changes))
    display.known(Step(URN, Op.SAME))
    assert out.getvalue().splitlines() == [
        "+- x:y:Z a replace",
        "       spec.replicas: 1 => 2",
        "       spec.selector: - {}  (forces replacement)",
        "       data: + [secret]",
    ]


def test_long_list_of_changes_is_truncated() -> None:
    display, out, _ = plain()
    many = tuple(Change(f"p{i}", "1", "2") for i in range(50))
    display.known(Step(URN, Op.UPDATE, changes=many))
    assert out.getvalue().splitlines()[-1].strip() == "… 30 more"


def test_repeated_or_empty_status_lines_are_not_shown() -> None:
    display, out, _ = plain()
    for line in ("waiting", "waiting", "", "waiting"):
        display.status(URN, line)
    assert out.getvalue().splitlines() == ["   x:y:Z a: waiting", "   x:y:Z a: waiting"]


def test_errors_go_to_standard_error() -> None:
    display, out, err = plain()
    display.failed(Step(URN, Op.CREATE), "no room")
    display.message(Severity.ERROR, "no such zone")
    display.message(Severity.WARNING, "careful", URN)
    assert err.getvalue().splitlines() == ["error: x:y:Z a: no room", "error: no such zone"]
    assert out.getvalue().splitlines() == ["warning: x:y:Z a: careful"]


def test_deployment_continues_after_standard_output_is_closed() -> None:
    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    Plain(Gone(), Gone()).started(Step(URN, Op.CREATE))


def test_summary_shows_outputs_and_their_changes() -> None:
    display, out, _ = plain()
    display.finish(
        result(
            {Op.SAME: 2},
            outputs={"a": 1, "pass": Secret("hush"), "new": UNKNOWN},
            before={"a": 0, "pass": Secret("hush"), "old": True},
        )
    )
    assert out.getvalue().splitlines() == [
        "Outputs:",
        "    a   : 0 => 1",
        "    new : [unknown]",
        "    old : - true",
        "    pass: [secret]",
        "2 unchanged (done in 1.2 s)",
    ]


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (result(succeeded=False, outputs={"a": 1}), "0 unchanged (failed after 1.2 s)"),
        (result(succeeded=False, cancelled=True), "0 unchanged (cancelled after 1.2 s)"),
        (result(preview=True), "0 unchanged (previewed in 1.2 s)"),
    ],
)
def test_summary_reports_the_result(end: Result, words: str) -> None:
    display, out, _ = plain()
    display.finish(end)
    assert out.getvalue().splitlines() == [words]


def test_json_preview_has_the_fields_of_pulumi_and_no_secret(
    capsys: pytest.CaptureFixture[str],
) -> None:
    old = StoredResource(URN, "x:y:Z", True, inputs={"a": 1, "b": Secret("hush")}, protect=True)
    new = StoredResource(URN, "x:y:Z", True, inputs={"a": UNKNOWN, "b": Secret("hush too")})
    changes = (Change("a", "1", "[unknown]", replaces=True), Change("b", "[secret]", "[secret]"))
    display = PreviewJson()
    display.known(Step(URN, Op.REPLACE, changes=changes, old=old, new=new))
    display.known(Step(URN, Op.SAME))
    display.known(Step(URN, Op.REPLACE, note="deleting original", counts=False))
    display.finish(result({Op.REPLACE: 1, Op.SAME: 2}, preview=True, outputs={"k": "hush"}))

    output = capsys.readouterr().out
    assert "hush" not in output
    assert json.loads(output) == {
        "steps": [
            {
                "op": "replace",
                "urn": URN,
                "oldState": {
                    "urn": URN,
                    "custom": True,
                    "type": "x:y:Z",
                    "inputs": {"a": 1, "b": "[secret]"},
                    "protect": True,
                },
                "newState": {
                    "urn": URN,
                    "custom": True,
                    "type": "x:y:Z",
                    "inputs": {"a": UNKNOWN_STRING, "b": "[secret]"},
                },
                "diffReasons": ["a", "b"],
                "replaceReasons": ["a"],
                "detailedDiff": None,
            }
        ],
        "diagnostics": [],
        "duration": 1_250_000_000,
        "changeSummary": {"replace": 1, "same": 2},
    }


def test_policy_violations_are_shown_in_the_format_of_pulumi() -> None:
    advice = Violation("age", Level.ADVISORY, "Nothing is old\ntake a new one", URN)
    order = Violation("value", Level.MANDATORY, "No value is forbidden\n", URN)
    display, out, _ = plain()
    display.finish(
        result(
            succeeded=False,
            verdicts=(
                Verdict("ours", "1.2.3", "policy", [advice, order]),
                Verdict("mild", "0.1", "mild", [advice]),
                Verdict("good", "0.1", "good"),
            ),
        )
    )
    assert out.getvalue().splitlines() == [
        "Policies:",
        "    ❌ ours@v1.2.3 (local: policy)",
        "        - [mandatory]  value  (x:y:Z: a)",
        "          No value is forbidden",
        "        - [advisory]  age  (x:y:Z: a)",
        "          Nothing is old",
        "          take a new one",
        "    ⚠️ mild@v0.1 (local: mild)",
        "        - [advisory]  age  (x:y:Z: a)",
        "          Nothing is old",
        "          take a new one",
        "    ✅ good@v0.1 (local: good)",
        "0 unchanged (failed after 1.2 s)",
    ]


def test_preview_of_an_update_prints_only_failures_in_json_mode(
    capsys: pytest.CaptureFixture[str],
) -> None:
    choose(True, only_failure=True).finish(result(preview=True))
    assert capsys.readouterr().out == ""
    choose(True, only_failure=True).finish(result(preview=True, succeeded=False))
    assert json.loads(capsys.readouterr().out)["result"] == "failed"


def test_json_output_is_a_single_document(capsys: pytest.CaptureFixture[str]) -> None:
    display = Json()
    display.started(Step(URN, Op.CREATE))
    display.finished(Step(URN, Op.CREATE, note="x", changes=(Change("p", "1", "2"),)), 0.5)
    display.failed(Step(URN, Op.UPDATE), "no room")
    display.message(Severity.WARNING, "careful", URN)
    display.finish(result({Op.CREATE: 1}, succeeded=False, outputs={"a": Secret("hush")}))
    document = json.loads(capsys.readouterr().out)
    assert document == {
        "result": "failed",
        "preview": False,
        "changes": {"create": 1},
        "outputs": {"a": "[secret]"},
        "steps": [
            {
                "op": "create",
                "urn": URN,
                "type": "x:y:Z",
                "name": "a",
                "note": "x",
                "changes": [{"path": "p", "old": "1", "new": "2", "replaces": False}],
                "seconds": 0.5,
            },
            {"op": "update", "urn": URN, "type": "x:y:Z", "name": "a", "error": "no room"},
        ],
        "diagnostics": [{"severity": "warning", "message": "careful", "urn": URN}],
        "policies": [],
        "seconds": 1.25,
    }


def test_display_is_plain_unless_json_is_requested() -> None:
    assert isinstance(choose(as_json=False), Plain)
    assert isinstance(choose(as_json=True), Json)
