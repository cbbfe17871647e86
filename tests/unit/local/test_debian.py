"""The apt sources of the machine determine the Debian mirrors."""

from pathlib import Path

import pytest

from local.debian import Mirrors, container_sources, find_mirrors, machine_mirrors

EXAMPLE = Mirrors("http://mirror.example/debian", "http://mirror.example/debian-security")


def apt(directory: Path, files: dict[str, str]) -> Path:
    (directory / "sources.list.d").mkdir()
    for name, text in files.items():
        (directory / name).write_text(text)
    return directory


def test_apt_sources_in_deb822_format_are_read(tmp_path: Path) -> None:
    text = (
        "Types: deb\n# URIs: http://old.example/debian\nURIs: http://mirror.example/debian\n"
        "Suites: bookworm\n\nTypes: deb\nURIs: http://mirror.example/debian-security/\n"
    )
    assert machine_mirrors(apt(tmp_path, {"sources.list.d/debian.sources": text})) == EXAMPLE


def test_apt_sources_in_one_line_format_are_read(tmp_path: Path) -> None:
    text = (
        "# deb http://old.example/debian trixie main\n"
        "deb [signed-by=/a b=c] http://mirror.example/debian trixie main\n"
        "deb-src http://source.example/debian trixie main\n"
        "deb http://mirror.example/debian-security trixie-security main\n"
    )
    assert machine_mirrors(apt(tmp_path, {"sources.list": text})) == EXAMPLE


def test_archives_other_than_debian_are_ignored() -> None:
    uris = ["https://packages.example/apt", "http://mirror.example/ubuntu"]
    assert find_mirrors(uris) == Mirrors(None, None)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_containers_use_mirrors_over_plain_http(scheme: str) -> None:
    mirrors = Mirrors(f"{scheme}://mirror.example/debian", f"{scheme}://mirror.example/security")
    lines = container_sources(mirrors).splitlines()
    assert lines == [
        "deb http://mirror.example/debian trixie main",
        "deb http://mirror.example/debian trixie-updates main",
        "deb http://mirror.example/security trixie-security main",
    ]
