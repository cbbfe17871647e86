"""A run of checks first runs their readers. Each check then passes, fails or is unknown.

A reader is a function that collects text on the node, such as the usage of its disks.
"""

import json
from pathlib import Path

import pytest

from agents.checks import settings
from agents.checks.bounded import MISSING, Reading
from agents.checks.passes import Outcome, Verdict, carry_out, judge
from agents.checks.readers import READERS
from agents.checks.registry import CHECKS, Effect, Lift, When
from agents.checks.settings import Chosen, SettingsError


def chosen(name: str, effect: Effect = Effect.DRAIN) -> Chosen:
    limits = CHECKS[name].limits
    return Chosen(CHECKS[name], effect, {**limits, "paths": ("/",)} if name == "disk" else limits)


def outcome(name: str, reading: Reading | None) -> tuple[Verdict, str]:
    found = judge(chosen(name), dict.fromkeys(READERS, reading))
    return found.verdict, found.what


def test_check_passes_or_fails_by_the_text_of_its_reader() -> None:
    assert outcome("disk", Reading("10 1 rw /\n")) == (Verdict.PASSED, "")
    assert outcome("disk", Reading("97 1 rw /\n")) == (
        Verdict.FAILED,
        "/ is full (97 %): delete files there",
    )


@pytest.mark.parametrize(
    ("name", "reading", "what"),
    [
        (
            "disk",
            None,
            ("disks: no answer within 3 s; check the devices and the storage of this node"),
        ),
        ("disk", Reading("", "[Errno 5] I/O error", 1), "disks: [Errno 5] I/O error"),
        ("disk", Reading("", "", -9), "disks: exit code -9"),
        ("kernel-log", Reading("", "dmesg: Operation not permitted\n", 1), "kernel: dmesg: "),
        ("gpu-count", Reading("", "", MISSING), "nvidia-smi: the command is missing on this node"),
        (
            "gpu-count",
            None,
            ("nvidia-smi: no answer within 6 s; check the devices and the storage of this node"),
        ),
        (
            "disk",
            Reading("many 1 rw /\n"),
            "disks: cannot read the output, because its format is unexpected: ",
        ),
        ("disk", Reading(""), "'/' was not read"),
        (
            "memory",
            Reading("limit many\n"),
            "memory/processes: cannot read the output, because its format is unexpected: ",
        ),
    ],
)
def test_check_without_a_usable_reading_is_unknown(
    name: str, reading: Reading | None, what: str
) -> None:
    verdict, message = outcome(name, reading)

    assert verdict is Verdict.UNKNOWN
    assert message.startswith(what)


@pytest.mark.parametrize("name", ["jail", "munge"])
def test_checks_of_jail_and_munge_fail_on_a_timeout(name: str) -> None:
    assert outcome(name, None)[0] is Verdict.FAILED


def test_message_of_a_failing_nvidia_smi_fails_the_gpu_check() -> None:
    message = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."

    assert outcome("gpu-present", Reading(message, "", 9)) == (Verdict.FAILED, message)


def test_failed_check_drains_only_with_effect_drain() -> None:
    failing = dict.fromkeys(READERS, Reading("97 1 rw /\n"))

    assert judge(chosen("disk"), failing).drains
    assert not judge(chosen("disk", Effect.REPORT), failing).drains


def test_checks_get_the_texts_of_the_readers_that_they_need(tmp_path: Path) -> None:
    some = Chosen(CHECKS["disk"], Effect.DRAIN, {**CHECKS["disk"].limits, "paths": [str(tmp_path)]})

    assert carry_out([some], tmp_path / "state") == [Outcome("disk", Verdict.PASSED)]


# --- The registry and the node's settings --------------------------------------------------------


def test_run_at_an_interval_includes_every_check() -> None:
    """A drain is lifted if the check that caused it has passed in a run at an interval. So these
    runs must include every check that can drain a node."""
    assert all(When.INTERVAL in check.when for check in CHECKS.values())


def test_each_event_that_lifts_a_drain_belongs_to_a_check() -> None:
    assert {check.lift for check in CHECKS.values()} == set(Lift)


def node(tmp_path: Path, given: object) -> Path:
    path = tmp_path / "checks.json"
    path.write_text(json.dumps(given))
    return path


def test_settings_of_a_node_choose_checks_effects_and_limits(tmp_path: Path) -> None:
    given = {"munge": {}, "disk": {"max_percent": 80, "effect": "report"}}

    disk, munge = settings.read(node(tmp_path, given))

    assert (disk.check.name, disk.effect, disk.limits["max_percent"]) == ("disk", "report", 80)
    assert disk.limits["paths"] == CHECKS["disk"].limits["paths"]
    assert (munge.check.name, munge.effect) == ("munge", CHECKS["munge"].effect)


def test_unknown_check_of_another_release_is_skipped(tmp_path: Path) -> None:
    assert settings.read(node(tmp_path, {"gpu-colour": {}})) == []


@pytest.mark.parametrize("given", [5, ["disk"], {"disk": 5}, {"disk": {"effect": "explode"}}])
def test_invalid_settings_are_reported_in_one_line(given: object, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        assert settings.read(node(tmp_path, given)) == []

    assert "\n" not in str(caught.value)


def test_missing_settings_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"checks\.json: cannot read the settings of the checks: "
    ):
        settings.read(tmp_path / "checks.json")
