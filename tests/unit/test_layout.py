"""The folder of a test shows what the test needs. Helpers are in separate modules.

A helper is neither in a `conftest.py` nor in a test module.
"""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.support.layout import NEEDS, NOTHING, TESTS, need_of

FILES: Final = sorted(TESTS.rglob("*.py"))
FORBIDDEN: Final = (
    *("docker", "tests.bench", "tests.mutants"),
    *("tests.support.containers", "tests.support.cluster"),
    *(f"tests.{need}" for need in NEEDS),
)
"""Modules that unit tests must import neither directly nor indirectly.

The rule also applies to submodules of these modules.
"""
ALLOWED: Final[Mapping[tuple[str, str], str]] = {
    ("unit/images/test_build.py", "docker.errors"): "raises Docker's errors from a fake client",
    ("unit/local/test_containers.py", "docker.errors"): "raises Docker's errors from a fake client",
    ("unit/monitoring/test_alerts.py", "tests.cluster.health.faults"): (
        "reads the alerts that each fault causes, but causes no fault"
    ),
    ("unit/monitoring/test_alerts.py", "tests.cluster.bridge.faults"): (
        "reads the alerts that each fault causes, but causes no fault"
    ),
    **{
        ("unit/test_mutants.py", f"tests.mutants.{name}"): "tests the table and the verdicts"
        for name in ("apply", "commands", "fault", "judge", "table")
    },
}
"""Exceptions from `FORBIDDEN` by file and module, each with its reason."""


def source(name: str) -> Path | None:
    """Return the file of a test module, or None for other modules."""
    if not name.startswith("tests."):
        return None
    path = TESTS.parent / name.replace(".", "/")
    files = (path.with_name(f"{path.name}.py"), path / "__init__.py")
    return next((file for file in files if file.is_file()), None)


def folder(helper: Path) -> Path:
    """Return the folder that contains a module or a package."""
    return helper.parents[helper.name == "__init__.py"]


@cache
def imports(file: Path) -> frozenset[str]:
    """Return all modules that a file imports, including imports inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module, f"{file}: use absolute imports"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if source(name) else node.module for name in names}
    return frozenset(found)


def is_forbidden(module: str) -> bool:
    return any(f"{module}.".startswith(f"{name}.") for name in FORBIDDEN)


def forbidden(file: Path) -> Iterator[str]:
    """Yield forbidden modules that a file imports, directly or through other test modules."""
    visited, pending = {file}, [file]
    while pending:
        for module in imports(pending.pop()):
            if is_forbidden(module):
                yield module
            elif (further := source(module)) and further not in visited:
                visited.add(further)
                pending.append(further)


def test_no_module_imports_a_conftest() -> None:
    found = {file: [m for m in imports(file) if "conftest" in m.split(".")] for file in FILES}
    assert not {file: modules for file, modules in found.items() if modules}


def test_no_module_imports_a_test_module() -> None:
    found = {
        file: [m for m in imports(file) if source(m) and m.rpartition(".")[2].startswith("test_")]
        for file in FILES
    }
    assert not {file: modules for file, modules in found.items() if modules}


@pytest.mark.parametrize("name", ["eventually", "execute"])
def test_shared_helper_is_defined_only_once(name: str) -> None:
    """Consider only functions at module level, because only these are helpers."""
    homes = [
        file
        for file in FILES
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    assert [file.parent for file in homes] == [TESTS / "support"]


def test_unit_tests_import_no_container_or_cluster_module() -> None:
    reached = {
        (str(file.relative_to(TESTS)), module)
        for file in FILES
        if file.relative_to(TESTS).parts[0] in (*NOTHING, "conftest.py")
        for module in forbidden(file)
    }
    assert reached == set(ALLOWED)


def test_helper_outside_support_is_used_only_in_its_folder() -> None:
    found = {
        (str(file.relative_to(TESTS)), module)
        for file in FILES
        for module in imports(file)
        if (helper := source(module))
        and TESTS / "support" not in helper.parents
        and folder(helper) not in file.parents
    }
    assert found - ALLOWED.keys() == set()


def test_every_test_module_is_in_a_known_folder() -> None:
    folders = {file.relative_to(TESTS).parts[0] for file in FILES if file.name.startswith("test_")}
    assert folders == {*NOTHING, *NEEDS}


def test_folder_of_a_test_sets_its_marker(request: pytest.FixtureRequest) -> None:
    assert need_of(TESTS / "container/nfs/test_nfs.py") == "container"
    assert need_of(TESTS / "cluster/health/test_watch.py") == "cluster"
    assert need_of(Path(__file__)) is None
    assert not {mark.name for mark in request.node.iter_markers()} & set(NEEDS)
