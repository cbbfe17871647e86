"""Complete runs of a node's health checks with fake Slurm commands.

The tests start the checks as slurmd starts them (at intervals, before and after a job) or as an
operator does (`check-node`). Evidence is the result of all checks, which a run at an interval
writes into the field `extra` of the node's Slurm record.
"""

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agents.checks import __main__ as command
from agents.checks import demand, slurm
from agents.checks.passes import Outcome, Verdict
from agents.checks.registry import CHECKS, Effect, When
from agents.checks.settings import Chosen
from agents.drains import CHECK, Evidence
from local.paths import ROOT
from tests.support.recordings import recorded

NODE = "cpu-0"


class Node:
    """Directory of a fake node. It contains fake commands, the arguments of their calls, and the
    files in which the checks keep state between runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.log = folder / "log"
        self.asked = folder / "asked"
        self.disk = folder / "disk"
        self.disk.mkdir()
        self.program("sinfo", "cat standing 2>/dev/null || :")
        self.program("scontrol", f'for word; do echo "$word" >>{self.asked}; done')

    def program(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\ncd {self.folder}\n{text}\n")
        path.chmod(0o755)

    def set_reason(self, reason: str) -> None:
        (self.folder / "standing").write_text(reason)

    def words(self) -> dict[str, str]:
        """Return the fields that the checks have set with scontrol."""
        lines = self.asked.read_text().splitlines() if self.asked.exists() else []
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def evidence(self) -> Evidence | None:
        return Evidence.parse(self.words().get("extra", ""))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("SLURMD_NODENAME", NODE)
    monkeypatch.setattr(command, "LOG", tmp_path / "log")
    return Node(tmp_path)


def disk(node: Node, most: float = 100, effect: Effect = Effect.DRAIN) -> Chosen:
    """Return a check that fails if more than `most` percent of the disk is used. It always fails
    if `most` is negative."""
    limits = {**CHECKS["disk"].limits, "paths": (str(node.disk),), "max_percent": most}
    return Chosen(CHECKS["disk"], effect, limits)


def gpus() -> list[Chosen]:
    names = ("gpu-present", "gpu-row-remap", "gpu-xid")
    return [Chosen(CHECKS[name], Effect.DRAIN, CHECKS[name].limits) for name in names]


def interval(node: Node, *chosen: Chosen) -> int:
    return command.interval(chosen, node.state)


# --- Runs at intervals ---------------------------------------------------------------------------


def test_run_on_a_healthy_node_writes_only_evidence(node: Node) -> None:
    before = int(time.time())

    assert interval(node, disk(node)) == 0

    evidence = node.evidence()
    assert evidence is not None
    assert before <= evidence.at <= time.time()
    assert (evidence.failed, evidence.unknown) == ((), ())
    assert node.words().keys() == {"nodename", "extra"}


def test_one_scontrol_call_drains_the_node_and_writes_evidence(node: Node) -> None:
    assert interval(node, disk(node, most=-1)) == 0

    words = node.words()
    assert (words["nodename"], words["state"]) == (NODE, "drain")
    assert words["reason"].startswith(f"{CHECK}disk: {node.disk} is full (")
    assert words["extra"] == str(node.evidence())
    assert node.asked.read_text().count("nodename=") == 1
    evidence = node.evidence()
    assert evidence is not None
    assert evidence.failed == ("disk",)


def test_check_with_effect_report_does_not_drain_the_node(node: Node) -> None:
    interval(node, disk(node, most=-1, effect=Effect.REPORT))

    assert node.words().keys() == {"nodename", "extra"}
    assert "disk: " in node.log.read_text()


def test_drain_of_an_operator_stays_and_evidence_is_written(node: Node) -> None:
    node.set_reason("broken fan, ticket 4711\n")

    interval(node, disk(node, most=-1))

    assert node.words().keys() == {"nodename", "extra"}
    evidence = node.evidence()
    assert evidence is not None
    assert evidence.failed == ("disk",)


def test_check_that_cannot_run_is_unknown_and_does_not_drain(node: Node) -> None:
    node.program("nvidia-smi", "exit 255")

    interval(node, disk(node), *gpus()[:2])

    assert "state" not in node.words()
    evidence = node.evidence()
    assert evidence is not None
    assert evidence.unknown == ("gpu-present", "gpu-row-remap")


@pytest.mark.parametrize(
    "text", ["exit 1", "echo 'slurm_load_node: Unable to contact slurm controller' >&2; exit 1"]
)
def test_unavailable_slurm_is_logged_and_nothing_changes(node: Node, text: str) -> None:
    node.program("sinfo", text)

    assert interval(node, disk(node, most=-1)) == 0

    assert node.words() == {}
    found, failure = node.log.read_text().splitlines()
    assert found.startswith('level=warn msg="checks: disk: ')
    assert failure.startswith(
        'level=error msg="checks: cannot write the results of the checks to Slurm: the '
        "command sinfo failed: "
    )
    assert failure.endswith('; the next run of the checks tries again"')


def test_run_does_not_wait_for_a_hanging_slurm(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "_WRITE", 0.3)
    node.program("scontrol", "exec sleep 60")
    start = time.monotonic()

    assert interval(node, disk(node)) == 0

    assert time.monotonic() - start < 3
    assert "cannot write the results of the checks to Slurm" in node.log.read_text()


def test_run_does_not_start_while_the_previous_run_continues(node: Node) -> None:
    node.state.mkdir()
    held = os.open(node.state / "pass", os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)

    assert interval(node, disk(node)) == 0

    assert node.words() == {}
    assert "their previous run has not ended" in node.log.read_text()
    os.close(held)


# --- Prolog and epilog ---------------------------------------------------------------------------


@pytest.mark.parametrize(("occasion", "code"), [(When.PROLOG, 1), (When.EPILOG, 0)])
def test_faulty_gpu_drains_the_node_and_fails_only_the_prolog(
    node: Node, occasion: When, code: int
) -> None:
    (node.folder / "smi").write_text(recorded("a10-535.129.03-rows-pending"))
    node.program("nvidia-smi", "cat smi")

    assert command.around_job(occasion, gpus(), node.state) == code

    words = node.words()
    assert words.keys() == {"nodename", "state", "reason"}, (
        "only a run of all checks writes evidence"
    )
    assert words["reason"] == (
        f"{CHECK}gpu-row-remap: GPU 0 (07:00.0): faulty memory rows will be replaced only after a "
        "reset: reset the GPU or restart the machine"
    )


@pytest.mark.parametrize("occasion", [When.PROLOG, When.EPILOG])
@pytest.mark.parametrize("smi", ["cat smi", "exit 255", "exec nothing-of-that-name"])
def test_passed_or_unknown_checks_change_nothing_in_prolog_and_epilog(
    node: Node, occasion: When, smi: str
) -> None:
    (node.folder / "smi").write_text(recorded("h200-550.90.12"))
    node.program("nvidia-smi", smi)

    assert command.around_job(occasion, gpus(), node.state) == 0
    assert node.words() == {}


@pytest.mark.parametrize("occasion", [When.PROLOG, When.EPILOG])
def test_prolog_and_epilog_fail_if_the_drain_fails(node: Node, occasion: When) -> None:
    (node.folder / "smi").write_text(recorded("a10-535.129.03-rows-pending"))
    node.program("nvidia-smi", "cat smi")
    node.program("scontrol", "exit 1")

    assert command.around_job(occasion, gpus(), node.state) == 1


def test_prolog_without_checks_writes_no_files(node: Node) -> None:
    assert command.around_job(When.PROLOG, [], node.state) == 0
    assert not node.state.exists()


# --- Separate processes --------------------------------------------------------------------------


def start(node: Node, occasion: str, *arguments: str, given: object = None) -> str:
    """Run the command in its own process, as on a node. `given` contains the node's settings."""
    settings = node.folder / "checks.json"
    settings.write_text(json.dumps(given))
    run = f"""
import sys
from pathlib import Path
from agents.checks import __main__ as command, demand
command.PATHS = {os.environ["PATH"]!r}
command.LOG = Path({str(node.log)!r})
command.SCRIPT = Path({str(node.folder)!r}) / "site"
command.SETTINGS = demand.SETTINGS = Path({str(settings)!r})
command.STATE = demand.STATE = Path({str(node.state)!r})
command.interval.__defaults__ = command.around_job.__defaults__ = (command.STATE,)
code = command.main({occasion!r}, {list(arguments)!r})
print(code)
"""
    done = subprocess.run(
        [sys.executable, "-IS", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{run}"],
        env={"SLURMD_NODENAME": NODE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr.startswith("Traceback"), done.stderr
    return done.stdout


def here(node: Node, most: float) -> dict[str, object]:
    return {"disk": {"paths": [str(node.disk)], "max_percent": most}}


def test_checks_need_only_the_standard_library_and_slurmds_environment(node: Node) -> None:
    assert start(node, "interval", given=here(node, -1)) == "0\n"
    assert node.words()["state"] == "drain"


def test_script_of_the_site_runs_only_at_intervals(node: Node) -> None:
    script = node.folder / "site"
    script.write_text("#!/bin/sh\necho site\n")
    script.chmod(0o755)

    assert start(node, "interval", given=here(node, 100)) == "site\n"
    assert "site" not in start(node, "prolog", given=here(node, 100))


def test_node_with_invalid_settings_runs_no_checks(node: Node) -> None:
    assert start(node, "interval", given=[5]) == "0\n"
    assert node.words() == {}


def test_command_check_node_lists_all_checks_and_changes_nothing(node: Node) -> None:
    given = {**here(node, -1), "gpu-count": {"count": 8}}

    lines = start(node, "check-node", given=given).splitlines()

    gpu, disks, code = (line.split("\t") for line in lines)
    assert gpu[:2] == ["gpu-count", "unknown"]
    assert disks[:2] == ["disk", "failed"]
    assert code == [str(demand.FAILED)]
    assert node.words() == {}


def test_command_check_node_prints_json_for_a_single_check(node: Node) -> None:
    text, code = start(node, "check-node", "--json", "disk", given=here(node, 100)).splitlines()

    assert json.loads(text) == {
        "node": NODE,
        "checks": {"disk": {"verdict": "passed", "what": "", "effect": "drain"}},
    }
    assert code == str(demand.PASSED)


@pytest.mark.parametrize(
    ("given", "arguments", "code"),
    [
        ({"gpu-count": {}}, (), demand.UNKNOWN),
        ({"disk": {}}, ("dsk",), demand.UNUSABLE),
        (None, (), demand.UNUSABLE),
    ],
)
def test_exit_code_of_the_command_check_node_reports_the_result(
    node: Node, given: object, arguments: tuple[str, ...], code: int
) -> None:
    assert start(node, "check-node", *arguments, given=given).splitlines()[-1] == str(code)


def test_table_for_a_terminal_has_colours() -> None:
    outcomes = [Outcome("disk", Verdict.FAILED, "full"), Outcome("gpu-count", Verdict.PASSED)]

    lines = demand.table(outcomes, colours=True).splitlines()

    assert [line.index("\033") for line in lines] == [11, 11]
