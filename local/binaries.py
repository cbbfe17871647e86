"""Builds the cluster's programs from pinned Go modules. Caches them by a digest of the sources."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from local import host
from local.errors import LocalError
from local.paths import CACHE, KUBECTL, ROOT

GO = ROOT / "local" / "go"
KUBERNETES_VERSION = "v1.34.4"
KUBERNETES = "kubernetes"
"""Name of the binary that contains all Kubernetes servers, etcd and kubectl.

Each of these programs has a symbolic link to the binary. The binary runs the program by whose name
it was called.
"""
REPORT_EVERY = 100
_PACKAGE = re.compile(r"[\w.~/-]+")
UNFINISHED = "go-unfinished-"


@dataclass(frozen=True)
class Build:
    """A binary, with the directory of its Go module, its package, and the linker's variables."""

    binary: str
    module: str
    package: str
    variables: tuple[tuple[str, str], ...] = ()


_MAJOR, _MINOR, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
BUILDS = (
    Build(
        KUBERNETES,
        "kubernetes",
        ".",
        (
            ("k8s.io/component-base/version.gitVersion", KUBERNETES_VERSION),
            ("k8s.io/component-base/version.gitMajor", _MAJOR),
            ("k8s.io/component-base/version.gitMinor", _MINOR),
        ),
    ),
    Build(
        "local-path-provisioner",
        "kubernetes",
        "github.com/rancher/local-path-provisioner",
    ),
    Build("coredns", "coredns", "."),
)


def cache_key(sources: Path, toolchain: str) -> str:
    """Return twelve hex digits, derived from Go sources, module versions and the toolchain."""
    digest = hashlib.sha256(f"{toolchain}\n{BUILDS!r}\n".encode())
    for path in sorted(sources.rglob("*")):
        if path.is_file() and (path.suffix == ".go" or path.name in ("go.mod", "go.sum")):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(sources)}\n{len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]


def ensure(say: Callable[[str], None]) -> Path:
    """Return the directory with the binaries; build them if needed. Raises LocalError.

    The caller must hold a lock, so that only one run builds at a time.
    """
    toolchain = host.go_version()
    directory = CACHE / f"go-{cache_key(GO, toolchain)}"
    if not directory.is_dir():
        _build_all(directory, toolchain, say)
    _link_kubectl(directory / KUBERNETES)
    return directory


def ensure_further(build: Build, say: Callable[[str], None]) -> Path:
    """Return the path of a binary that is not part of the cluster; build the binary if needed.

    Raises LocalError.
    """
    toolchain = host.go_version()
    path = CACHE / f"{build.binary}-{cache_key(GO / build.module, toolchain)}"
    if not path.is_file():
        CACHE.mkdir(parents=True, exist_ok=True)
        say(f"go build {build.binary} ({toolchain})")
        unfinished = path.with_suffix(f".{os.getpid()}")
        _go_build(build, unfinished, say)
        unfinished.rename(path)
    return path


def _build_all(directory: Path, toolchain: str, say: Callable[[str], None]) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    for leftover in CACHE.glob(f"{UNFINISHED}*"):
        shutil.rmtree(leftover)
    unfinished = Path(tempfile.mkdtemp(dir=CACHE, prefix=UNFINISHED))
    try:
        for build in BUILDS:
            say(f"go build {build.binary} ({toolchain})")
            _go_build(build, unfinished / build.binary, say)
        unfinished.chmod(0o755)
        unfinished.rename(directory)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _go_build(build: Build, output: Path, say: Callable[[str], None]) -> None:
    variables = "".join(f" -X {name}={value}" for name, value in build.variables)
    process = subprocess.Popen(
        [
            *("go", "build", "-v", "-trimpath", "-ldflags", f"-s -w{variables}"),
            *("-o", str(output), build.package),
        ],
        cwd=GO / build.module,
        env=os.environ | {"CGO_ENABLED": "0"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None  # noqa: S101  # it is a pipe
    problems = _watched(process.stderr, lambda done: say(f"go build {build.binary}: {done}"))
    if process.wait() != 0:
        reason = problems[-1] if problems else f"exit code {process.returncode}"
        raise LocalError(
            f"go build of {build.binary} failed: {reason}; check that this host can reach a Go"
            " module proxy (`go env GOPROXY`), then run the command again"
        )


def _watched(lines: Iterable[str], say: Callable[[str], None]) -> list[str]:
    """Count the progress lines of `go build -v`, and show the counts from time to time.

    Return all other lines, such as errors.
    """
    counts = Counter[str]()
    rest: list[str] = []
    for line in map(str.rstrip, lines):
        if line.startswith("go: downloading "):
            what = "modules downloaded"
        elif _PACKAGE.fullmatch(line):
            what = "packages compiled"
        else:
            rest.append(line)
            continue
        counts[what] += 1
        if counts[what] % REPORT_EVERY == 0:
            say(f"{counts[what]} {what}")
    return rest


def _link_kubectl(binary: Path) -> None:
    if KUBECTL.is_symlink() and KUBECTL.readlink() == binary:
        return
    KUBECTL.parent.mkdir(parents=True, exist_ok=True)
    KUBECTL.unlink(missing_ok=True)
    KUBECTL.symlink_to(binary)
