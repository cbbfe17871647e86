"""Each mutant fits the code, and counts as caught only if the test that the mutant names fails.

A mutant is a small fault in a copy of the code. It names the test that must detect the fault.
"""

import ast
import shutil
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from local.paths import ROOT
from tests.mutants.apply import Scratch
from tests.mutants.commands import Ended
from tests.mutants.fault import AREAS, TIERS, Fault, StaleError
from tests.mutants.judge import Run, Verdict, problem_without, read, verdict
from tests.mutants.table import FAULTS
from tests.support.layout import need_of

LEAST = 60
FILE = "tests/unit/test_x.py"
TEST = f"{FILE}::test_it"
FAULT = Fault("a fault", "agents", "agents/say.py", "one", "two", TEST)
FAILURE, ERROR, SKIPPED, PASSED = (
    '<failure message="it is 2"/>',
    '<error message="no Docker"/>',
    '<skipped message="not here"/>',
    "",
)


def faulty(fault: Fault) -> str:
    return fault.applied((ROOT / fault.file).read_text())


@cache
def functions(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def problem_of(*command: str | Path, text: str | None = None) -> str:
    """Return the errors of a compiler or shell, or an empty string if it succeeds."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr if done.returncode else ""


# --- The table of mutants ------------------------------------------------------------------------


def test_every_mutant_can_be_applied_to_the_code() -> None:
    for fault in FAULTS:
        text = (ROOT / fault.file).read_text()
        assert fault.applied(text) != text, fault.name


def test_every_mutant_names_existing_tests_of_its_tier() -> None:
    for fault in FAULTS:
        assert fault.tests, fault.name
        for test in fault.tests:
            file, _, function = test.partition("::")
            assert function.partition("[")[0] in functions(file), test
            assert (need_of(ROOT / file) or "unit") == fault.tier, test


def test_every_area_and_tier_has_mutants() -> None:
    assert len(FAULTS) >= LEAST
    assert {fault.area for fault in FAULTS} == set(AREAS)
    assert {fault.tier for fault in FAULTS} == set(TIERS)


def test_every_mutant_has_a_short_and_unique_name() -> None:
    names = [fault.name for fault in FAULTS]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert [name for name in names if name.endswith(".") or len(name) > 72] == []


def test_file_with_a_fault_still_compiles(tmp_path: Path) -> None:
    """A failed test proves nothing if the file does not compile or names something that does not
    exist, because then every test fails."""
    undefined_names = (sys.executable, "-m", "ruff", "check", "--quiet", "--select=F821", "-")
    for fault in FAULTS:
        text, path = faulty(fault), ROOT / fault.file
        if path.suffix == ".py":
            compile(text, fault.file, "exec")
            assert problem_of(*undefined_names, text=text) == "", fault.name
        elif text.startswith(("#!/bin/sh", "#!/bin/bash")):
            assert problem_of("bash", "-n", text=text) == "", fault.name
        elif path.suffix in (".c", ".h"):
            source = tmp_path / path.stem
            shutil.copytree(path.parent, source, ignore=shutil.ignore_patterns("*.so", "tests"))
            (source / path.name).write_text(text)
            unit = path.name if path.suffix == ".c" else "chroot.c"
            flags = ("-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror")
            assert problem_of("gcc", *flags, "-fsyntax-only", source / unit) == "", fault.name
            shutil.rmtree(source)


def test_error_for_an_outdated_mutant_names_the_remedy() -> None:
    for text, found in (("zero", 0), ("one and one", 2)):
        with pytest.raises(StaleError, match=rf"agents/say.py .* {found} times.*table/agents.py"):
            FAULT.applied(text)


# --- Copies of the repository --------------------------------------------------------------------


def test_fault_and_compiled_files_are_removed_after_the_test(tmp_path: Path) -> None:
    file = tmp_path / FAULT.file
    file.parent.mkdir()
    file.write_text("one")
    cache = file.parent / "__pycache__"

    with Scratch(tmp_path).with_fault(FAULT):
        assert file.read_text() == "two"
        cache.mkdir()

    assert file.read_text() == "one"
    assert not cache.exists()


@pytest.mark.skipif(
    not ((ROOT / ".git").exists() and shutil.which("git")), reason="needs a checkout and git"
)
def test_copy_has_tracked_files_and_the_virtual_environment(tmp_path: Path) -> None:
    copy = Scratch.made(tmp_path / "copy").root

    assert (copy / "agents/say.py").read_text() == (ROOT / "agents/say.py").read_text()
    assert (copy / ".venv/bin/python").exists()
    assert not (copy / ".local").exists()
    mode = (ROOT / "images/worker/leave").stat().st_mode
    assert (copy / "images/worker/leave").stat().st_mode == mode


# --- Verdicts ------------------------------------------------------------------------------------


def run_of(folder: Path, code: int | None, cases: dict[str, str]) -> Run:
    """Return a run of pytest with this exit code and report."""
    parts = "".join(
        f'<testcase classname="tests.unit.test_x" name="{name}">{part}</testcase>'
        for name, part in cases.items()
    )
    report, log = folder / "report.xml", folder / "log"
    report.write_text(f"<testsuites><testsuite>{parts}</testsuite></testsuites>")
    log.write_text("the end of the output")
    return read(Ended(code, log), report)


@pytest.mark.parametrize(
    ("code", "cases", "expected"),
    [
        (1, {"test_it": FAILURE}, Verdict.CAUGHT),
        (1, {"test_it[a]": PASSED, "test_it[b]": FAILURE}, Verdict.CAUGHT),
        (0, {"test_it": PASSED}, Verdict.SURVIVED),
        (0, {"test_it[a]": SKIPPED, "test_it[b]": PASSED}, Verdict.SURVIVED),
        (0, {"test_it": SKIPPED}, Verdict.ERROR),
        (1, {"test_it": ERROR}, Verdict.ERROR),
        (1, {"test_item": FAILURE}, Verdict.ERROR),
        (2, {"test_it": FAILURE}, Verdict.ERROR),
        (2, {}, Verdict.ERROR),
        (-11, {}, Verdict.ERROR),
        (None, {"test_it": FAILURE}, Verdict.ERROR),
    ],
)
def test_mutant_is_caught_only_if_its_own_test_fails(
    tmp_path: Path, code: int | None, cases: dict[str, str], expected: Verdict
) -> None:
    assert verdict(FAULT, TEST, run_of(tmp_path, code, cases))[0] is expected


def test_setup_error_catches_a_mutant_with_setup_may_fail(tmp_path: Path) -> None:
    fault = Fault("a fault", "images", "f", "one", "two", TEST, "container", setup_may_fail=True)

    assert verdict(fault, TEST, run_of(tmp_path, 1, {"test_it": ERROR}))[0] is Verdict.CAUGHT


@pytest.mark.parametrize(
    ("cases", "problem"),
    [
        ({"test_it": PASSED}, ""),
        ({"test_it[a]": PASSED, "test_it[b]": SKIPPED}, ""),
        ({"test_it[a]": PASSED, "test_it[b]": FAILURE}, "failed and passed"),
        ({"test_it": ERROR}, "error"),
        ({"test_it": SKIPPED}, "skipped"),
        ({"test_item": PASSED}, "not run"),
    ],
)
def test_test_must_pass_without_the_fault(
    tmp_path: Path, cases: dict[str, str], problem: str
) -> None:
    assert problem_without(run_of(tmp_path, 1, cases), TEST).endswith(problem)


def test_error_is_explained_by_failed_tests_or_the_output(tmp_path: Path) -> None:
    assert run_of(tmp_path, 1, {"test_it": ERROR}).explanation == "no Docker"
    assert run_of(tmp_path, 4, {}).explanation == "the end of the output"
