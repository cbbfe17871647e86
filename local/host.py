"""Requirements on the host: a few Debian packages, a running Docker engine, Go."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import docker
from docker.errors import DockerException, ImageNotFound
from requests.exceptions import RequestException

from local.errors import LocalError
from local.paths import ENGINE, locked

Say = Callable[[str], None]

PACKAGES = {
    "dockerd": "docker.io",
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "debootstrap": "debootstrap",
    "ssh": "openssh-client",
}
"""Commands, each with the Debian package that provides it."""
ENGINE_COMMANDS = ("dockerd", "containerd", "runc", "iptables")
GO_MINIMUM = (1, 24)
ENGINE_START = 60
"""Seconds that a Docker engine may take to start."""
_PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"


def missing_packages(
    commands: Sequence[str], find: Callable[[str], str | None] | None = None
) -> list[str]:
    """Return the Debian packages that provide the missing commands."""
    look = find or (lambda command: shutil.which(command, path=_PATH))
    return sorted({PACKAGES[command] for command in commands if look(command) is None})


def install(packages: Sequence[str], say: Say) -> None:
    """Install Debian packages. Raises LocalError, for example if the user is not root."""
    if not packages:
        return
    names = " ".join(packages)
    if shutil.which("apt-get") is None:
        raise LocalError(
            f"missing packages: {names}; install them by hand, because this host has no apt-get"
        )
    if os.geteuid() != 0:
        raise LocalError(
            f"missing packages: {names}; run `sudo apt-get install {names}`, or run this command"
            " again as root"
        )
    say(f"apt-get install {names}")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    if subprocess.run(command, env=environment, capture_output=True).returncode == 0:
        return
    # The package lists may be missing or out of date: update them, and try again.
    subprocess.run(["apt-get", "update"], env=environment, capture_output=True)
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    if result.returncode != 0:
        lines = [line for line in result.stderr.splitlines() if line.startswith("E:")]
        reason = lines[0] if lines else f"exit code {result.returncode}"
        raise LocalError(
            f"apt-get install {names} failed: {reason}; install the packages by hand, then run"
            " the command again"
        )


# --- The Docker engine ---------------------------------------------------------------------------


def connect(environment: Mapping[str, str] | None = None) -> docker.DockerClient | None:
    """Return a client of the Docker engine, or None if the engine does not respond.

    The variables of Docker in `environment` choose the engine. The default is this process's
    environment.
    """
    try:
        client = docker.from_env(timeout=10, environment=environment)
        client.ping()
    except (DockerException, RequestException):
        return None
    client.api.timeout = 600
    return client


def engine(say: Say) -> docker.DockerClient:
    """Return a client of a running Docker engine; install and start an engine if needed.

    Raises LocalError with the remedy.
    """
    client = connect()
    if client is not None:
        return client
    if os.environ.get("DOCKER_HOST"):
        raise LocalError(
            f"no Docker engine responds at DOCKER_HOST={os.environ['DOCKER_HOST']}; start Docker"
            " there, or unset DOCKER_HOST to use this host's own Docker"
        )
    install(missing_packages(ENGINE_COMMANDS), say)
    client = connect()  # with systemd, the installation starts Docker
    if client is not None:
        return client
    if os.geteuid() != 0:
        raise LocalError(
            "Docker does not respond; start it (`sudo systemctl start docker`), join the group"
            " docker, or run this command as root"
        )
    with locked(ENGINE / "start.lock", say):
        return connect() or _start_engine(say)


def _start_engine(say: Say) -> docker.DockerClient:
    say("starting dockerd")
    ENGINE.mkdir(parents=True, exist_ok=True)
    log = ENGINE / "dockerd.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [
                *("dockerd", "--storage-driver", "overlay2"),
                *("--pidfile", str(_pid_file())),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=os.environ | {"PATH": _PATH},
        )
    deadline = time.monotonic() + ENGINE_START
    while time.monotonic() < deadline and process.poll() is None:
        client = connect()
        if client is not None:
            return client
        time.sleep(0.2)
    if process.poll() is None:
        process.terminate()
    raise LocalError(f"dockerd did not start; read the reason at the end of its log, {log}")


def has_image(client: docker.DockerClient, reference: str) -> bool:
    try:
        client.images.get(reference)
    except ImageNotFound:
        return False
    return True


def stop_own_engine(client: docker.DockerClient, say: Say) -> None:
    """Stop the Docker engine if `engine` started it and no container is left."""
    pid = own_engine(_pid_file())
    if pid is None or client.containers.list(all=True):
        return
    say("stopping dockerd, because `python -m local up` started it and no container is left")
    os.kill(pid, 15)
    deadline = time.monotonic() + ENGINE_START
    while time.monotonic() < deadline and Path(f"/proc/{pid}").exists():
        if _is_zombie(pid):
            break
        time.sleep(0.1)


def own_engine(pid_file: Path) -> int | None:
    """Return the process id in the file, or None if this process is not a running dockerd."""
    try:
        pid = int(pid_file.read_text())
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except (OSError, ValueError):
        return None
    return pid if name == "dockerd" else None


def _pid_file() -> Path:
    return ENGINE / "dockerd.pid"


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


# --- Go ------------------------------------------------------------------------------------------


def go_version() -> str:
    """Return the Go toolchain's version, such as `go1.24.2`.

    Raises LocalError if Go is missing or too old.
    """
    wanted = f"Go {GO_MINIMUM[0]}.{GO_MINIMUM[1]} or newer"
    remedy = f"to build the Kubernetes of the local cluster, install {wanted} and add `go` to PATH"
    try:
        result = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True)
    except FileNotFoundError:
        raise LocalError(f"go: not found on PATH; {remedy}") from None
    version = result.stdout.strip()
    numbers = re.match(r"go(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < GO_MINIMUM:
        raise LocalError(f"go: version {version or 'unknown'} is not supported; {remedy}")
    return version
