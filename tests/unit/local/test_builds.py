"""Programs are rebuilt if, and only if, their sources change."""

from pathlib import Path

import pytest

from local import binaries, host, node_image
from local.errors import LocalError


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    module = tmp_path / "go" / "module"
    module.mkdir(parents=True)
    (module / "main.go").write_text("package main\n")
    (module / "go.mod").write_text("module example.org/a\n")
    (module / "go.sum").write_text("")
    return tmp_path / "go"


def test_same_sources_and_go_version_give_the_same_build_key(sources: Path) -> None:
    assert binaries.cache_key(sources, "go1.24.1") == binaries.cache_key(sources, "go1.24.1")


def test_new_go_version_changes_the_build_key(sources: Path) -> None:
    assert binaries.cache_key(sources, "go1.24.1") != binaries.cache_key(sources, "go1.24.2")


@pytest.mark.parametrize("name", ["main.go", "go.mod", "go.sum", "new.go"])
def test_changed_source_changes_the_build_key(sources: Path, name: str) -> None:
    before = binaries.cache_key(sources, "go1.24.1")
    (sources / "module" / name).write_text("// changed\n")
    assert binaries.cache_key(sources, "go1.24.1") != before


def test_build_key_does_not_depend_on_files_that_go_ignores(sources: Path) -> None:
    before = binaries.cache_key(sources, "go1.24.1")
    (sources / "module" / "notes.txt").write_text("notes\n")
    assert binaries.cache_key(sources, "go1.24.1") == before


def test_changed_binaries_change_the_image_names() -> None:
    one, other = Path("go-1"), Path("go-2")
    assert node_image.system_image(one) != node_image.system_image(other)
    assert node_image.node_image(one) != node_image.node_image(other)
    assert node_image.node_image(one) == node_image.node_image(one)


def test_additional_binary_is_rebuilt_only_when_its_sources_change(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "go-command").write_text(
        "#!/bin/sh\n"
        "while [ $# -gt 0 ]; do [ $1 = -o ] && echo binary >$2 && echo built >>built; shift; done\n"
        "echo go1.24.1\n"
    )
    (tmp_path / "go-command").chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/go").symlink_to(tmp_path / "go-command")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(binaries, "CACHE", tmp_path / "cache")
    build = binaries.Build("tool", str(sources / "module"), "example.org/a")

    first = binaries.ensure_further(build, print)
    assert binaries.ensure_further(build, print) == first
    assert (sources / "module/built").read_text() == "built\n"
    (sources / "module/main.go").write_text("package other\n")
    assert binaries.ensure_further(build, print) != first


def fake_go(directory: Path, output: str) -> None:
    command = directory / "go"
    command.write_text(f"#!/bin/sh\necho {output}\n")
    command.chmod(0o755)


def test_recent_go_version_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_go(tmp_path, "go1.24.0")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert host.go_version() == "go1.24.0"


@pytest.mark.parametrize("version", ["go1.19.8", "go1.23.12", "devel"])
def test_error_for_an_old_go_names_the_required_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    fake_go(tmp_path, version)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalError, match=r"1\.24 or newer") as failure:
        host.go_version()
    assert version in str(failure.value)


def test_missing_go_installation_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalError, match="go: not found on PATH"):
        host.go_version()


def test_only_missing_debian_packages_are_installed() -> None:
    installed = {"dockerd": "/usr/sbin/dockerd", "runc": "/usr/sbin/runc"}
    assert host.missing_packages(host.ENGINE_COMMANDS, installed.get) == ["containerd", "iptables"]


def test_pid_file_that_names_no_dockerd_is_ignored(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    assert host.own_engine(pid_file) is None
    pid_file.write_text("1\n")
    assert host.own_engine(pid_file) is None
    pid_file.write_text("nonsense\n")
    assert host.own_engine(pid_file) is None


def test_go_build_shows_progress_counts_and_returns_only_errors() -> None:
    from local.binaries import REPORT_EVERY, _watched

    lines: list[str] = []
    downloads = [f"go: downloading example.org/m{n} v1.0.0\n" for n in range(REPORT_EVERY)]
    packages = [f"example.org/m/pkg{n}\n" for n in range(2 * REPORT_EVERY)]
    problem = "./main.go:3:8: no required module provides package example.org/x\n"

    problems = _watched([*downloads, *packages, problem], lines.append)

    assert lines == [
        "100 modules downloaded",
        "100 packages compiled",
        "200 packages compiled",
    ]
    assert problems == [problem.rstrip()]
