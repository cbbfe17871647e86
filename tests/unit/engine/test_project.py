"""The content of Pulumi.yaml, and the directories that it names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine.errors import EngineError
from engine.project import find_project


def write(directory: Path, text: str) -> Path:
    (directory / "Pulumi.yaml").write_text(text)
    return directory


def test_project_is_found_from_a_subdirectory(tmp_path: Path) -> None:
    write(tmp_path, "name: web\nruntime: python\n")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    project = find_project(inner)
    assert (project.name, project.root, project.main) == ("web", tmp_path, tmp_path)
    assert project.interpreter == Path(sys.executable)


def test_project_file_sets_virtualenv_and_main_directory(tmp_path: Path) -> None:
    python = tmp_path / "env/bin/python"
    python.parent.mkdir(parents=True)
    python.touch()
    write(
        tmp_path,
        "name: web\nmain: src\nruntime:\n  name: python\n  options:\n    virtualenv: env\n",
    )
    project = find_project(tmp_path)
    assert (project.interpreter, project.main) == (python, tmp_path / "src")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("runtime: python", "name: is missing: expected text"),
        ("name: web\nruntime: nodejs", "runtime: 'nodejs': this engine runs only Python programs"),
        ("name: web", "runtime: None"),
        ("- web", "expected a mapping"),
        ("name: [", "invalid YAML"),
        ("name: web\nname: lab\nruntime: python", "line 2, column 1: duplicate key 'name'"),
        (
            "name: web\nruntime:\n  name: python\n  options: {virtualenv: env}",
            "virtualenv: env: this folder has no bin/python; create",
        ),
    ],
)
def test_error_names_the_mistake_in_the_project_file(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(EngineError, match=message) as caught:
        find_project(write(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_missing_project_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"no Pulumi\.yaml .* pass --cwd"):
        find_project(tmp_path)


def test_stack_config_overrides_project_defaults(tmp_path: Path) -> None:
    write(
        tmp_path,
        "name: web\nruntime: python\nconfig:\n  size: 1\n  shape: {value: round}\n"
        "  kind: {type: string, default: soft}\n  later: {type: string}\n",
    )
    (tmp_path / "Pulumi.dev.yaml").write_text("config:\n  web:size: 2\n")
    assert find_project(tmp_path).read_stack("dev").config == {
        "web:size": 2,
        "web:shape": "round",
        "web:kind": "soft",
    }


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", "{root}/.local/state"),
        ("file:///var/lib/pulumi", "/var/lib/pulumi"),
        ("file:///with%20space?no_tmp_dir=true", "/with space"),
        ("file://./here", "{root}/here"),
        ("file://~/there", "{home}/there"),
        ("file://~", "{home}"),
    ],
)
def test_environment_variable_sets_the_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, expected: str
) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", url)
    project = find_project(write(tmp_path, "name: web\nruntime: python\n"))
    assert str(project.state_directory()) == expected.format(root=tmp_path, home=Path.home())


def test_project_file_sets_the_default_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    write(tmp_path, "name: web\nruntime: python\nbackend:\n  url: file:///srv/state\n")
    assert find_project(tmp_path).state_directory() == Path("/srv/state")


def test_backend_other_than_a_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", "s3://bucket")
    project = find_project(write(tmp_path, "name: web\nruntime: python\n"))
    with pytest.raises(
        EngineError, match="s3://bucket: this engine stores state only in a directory"
    ):
        project.state_directory()
