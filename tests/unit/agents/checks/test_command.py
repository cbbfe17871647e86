"""Whole passes beside a Slurm of a few lines of shell, as slurmd and an operator start them."""

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
    """A node's folder: its fake commands, what they were asked, and what readers remember."""

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

    def stands(self, reason: str) -> None:
        (self.folder / "standing").write_text(reason)

    def words(self) -> dict[str, str]:
        """What scontrol was told to set."""
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
    """A check that fails where `most` is less than nothing."""
    limits = {**CHECKS["disk"].limits, "paths": (str(node.disk),), "max_percent": most}
    return Chosen(CHECKS["disk"], effect, limits)


def gpus() -> list[Chosen]:
    names = ("gpu-present", "gpu-row-remap", "gpu-xid")
    return [Chosen(CHECKS[name], Effect.DRAIN, CHECKS[name].limits) for name in names]


def interval(node: Node, *chosen: Chosen) -> int:
    return command.interval(chosen, node.state)


# --- At intervals --------------------------------------------------------------------------------


def test_a_healthy_node_leaves_its_evidence_and_nothing_else(node: Node) -> None:
    before = int(time.time())

    assert interval(node, disk(node)) == 0

    evidence = node.evidence()
    assert evidence is not None
    assert before <= evidence.at <= time.time()
    assert (evidence.failed, evidence.unknown) == ((), ())
    assert node.words().keys() == {"nodename", "extra"}


def test_a_bad_node_is_drained_and_leaves_its_evidence_in_one_call(node: Node) -> None:
    assert interval(node, disk(node, most=-1)) == 0

    words = node.words()
    assert (words["nodename"], words["state"]) == (NODE, "drain")
    assert words["reason"].startswith(f"{CHECK}disk: {node.disk} is full (")
    assert words["extra"] == str(node.evidence())
    assert node.asked.read_text().count("nodename=") == 1
    evidence = node.evidence()
    assert evidence is not None
    assert evidence.failed == ("disk",)


def test_what_is_only_reported_drains_nothing(node: Node) -> None:
    interval(node, disk(node, most=-1, effect=Effect.REPORT))

    assert node.words().keys() == {"nodename", "extra"}
    assert "disk: " in node.log.read_text()


def test_a_foreign_drain_stays_and_the_evidence_is_left(node: Node) -> None:
    node.stands("broken fan, ticket 4711\n")

    interval(node, disk(node, most=-1))

    assert node.words().keys() == {"nodename", "extra"}
    evidence = node.evidence()
    assert evidence is not None
    assert evidence.failed == ("disk",)


def test_what_cannot_be_carried_out_drains_nothing_and_stands_in_the_evidence(node: Node) -> None:
    node.program("nvidia-smi", "exit 255")

    interval(node, disk(node), *gpus()[:2])

    assert "state" not in node.words()
    evidence = node.evidence()
    assert evidence is not None
    assert evidence.unknown == ("gpu-present", "gpu-row-remap")


@pytest.mark.parametrize(
    "text", ["exit 1", "echo 'slurm_load_node: Unable to contact slurm controller' >&2; exit 1"]
)
def test_a_slurm_that_does_not_answer_changes_nothing_and_is_told(node: Node, text: str) -> None:
    node.program("sinfo", text)

    assert interval(node, disk(node, most=-1)) == 0

    assert node.words() == {}
    found, in_vain = node.log.read_text().splitlines()
    assert found.startswith('level=warn msg="checks: disk: ')
    assert in_vain.startswith('level=error msg="checks: nothing changed in Slurm: sinfo failed: ')


def test_a_slurm_that_hangs_is_not_waited_for(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "_WRITE", 0.3)
    node.program("scontrol", "exec sleep 60")
    start = time.monotonic()

    assert interval(node, disk(node)) == 0

    assert time.monotonic() - start < 3
    assert "nothing changed in Slurm" in node.log.read_text()


def test_a_pass_that_has_not_ended_keeps_the_next_from_beginning(node: Node) -> None:
    node.state.mkdir()
    held = os.open(node.state / "pass", os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)

    assert interval(node, disk(node)) == 0

    assert node.words() == {}
    assert "has not ended yet" in node.log.read_text()
    os.close(held)


# --- Around jobs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("occasion", "code"), [(When.PROLOG, 1), (When.EPILOG, 0)])
def test_around_a_job_a_bad_gpu_drains_first_and_a_prolog_sends_the_job_back(
    node: Node, occasion: When, code: int
) -> None:
    (node.folder / "smi").write_text(recorded("a10-535.129.03-rows-pending"))
    node.program("nvidia-smi", "cat smi")

    assert command.around_job(occasion, gpus(), node.state) == code

    words = node.words()
    assert words.keys() == {"nodename", "state", "reason"}, "a part of the checks is no evidence"
    assert (
        words["reason"] == f"{CHECK}gpu-row-remap: GPU 0 (07:00.0): row remapping waits for a reset"
    )


@pytest.mark.parametrize("occasion", [When.PROLOG, When.EPILOG])
@pytest.mark.parametrize("smi", ["cat smi", "exit 255", "exec nothing-of-that-name"])
def test_around_a_job_nothing_happens_where_all_is_well_or_cannot_be_told(
    node: Node, occasion: When, smi: str
) -> None:
    (node.folder / "smi").write_text(recorded("h200-550.90.12"))
    node.program("nvidia-smi", smi)

    assert command.around_job(occasion, gpus(), node.state) == 0
    assert node.words() == {}


@pytest.mark.parametrize("occasion", [When.PROLOG, When.EPILOG])
def test_what_cannot_be_drained_by_us_slurm_learns_by_the_exit_code(
    node: Node, occasion: When
) -> None:
    (node.folder / "smi").write_text(recorded("a10-535.129.03-rows-pending"))
    node.program("nvidia-smi", "cat smi")
    node.program("scontrol", "exit 1")

    assert command.around_job(occasion, gpus(), node.state) == 1


def test_a_prolog_without_checks_costs_nothing(node: Node) -> None:
    assert command.around_job(When.PROLOG, [], node.state) == 0
    assert not node.state.exists()


# --- As programs ---------------------------------------------------------------------------------


def start(node: Node, occasion: str, *arguments: str, given: object = None) -> str:
    """Runs the command as its program does; `given` are the node's settings."""
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


def test_it_runs_on_the_standard_library_alone_with_slurmds_poor_environment(node: Node) -> None:
    assert start(node, "interval", given=here(node, -1)) == "0\n"
    assert node.words()["state"] == "drain"


def test_after_an_intervals_pass_the_sites_own_script_is_run(node: Node) -> None:
    script = node.folder / "site"
    script.write_text("#!/bin/sh\necho site\n")
    script.chmod(0o755)

    assert start(node, "interval", given=here(node, 100)) == "site\n"
    assert "site" not in start(node, "prolog", given=here(node, 100))


def test_a_node_without_usable_settings_checks_nothing(node: Node) -> None:
    assert start(node, "interval", given=[5]) == "0\n"
    assert node.words() == {}


def test_an_operator_sees_every_check_and_changes_nothing(node: Node) -> None:
    given = {**here(node, -1), "gpu-count": {"count": 8}}

    lines = start(node, "check-node", given=given).splitlines()

    gpu, disks, code = (line.split("\t") for line in lines)
    assert gpu[:2] == ["gpu-count", "unknown"]
    assert disks[:2] == ["disk", "failed"]
    assert code == [str(demand.FAILED)]
    assert node.words() == {}


def test_an_operator_may_have_it_as_json_and_one_by_one(node: Node) -> None:
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
def test_the_exit_code_tells_an_operators_script_how_it_went(
    node: Node, given: object, arguments: tuple[str, ...], code: int
) -> None:
    assert start(node, "check-node", *arguments, given=given).splitlines()[-1] == str(code)


def test_a_terminal_gets_a_table_with_colours() -> None:
    outcomes = [Outcome("disk", Verdict.FAILED, "full"), Outcome("gpu-count", Verdict.PASSED)]

    lines = demand.table(outcomes, colours=True).splitlines()

    assert [line.index("\033") for line in lines] == [11, 11]
