"""`python -m local COMMAND [--stack dev]` manages the local cluster, and accesses any cluster."""

import argparse
import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from docker.errors import DockerException
from requests.exceptions import RequestException

from components.settings import ExistingCluster, LocalCluster, Settings, SettingsError, read_stack
from images import build, tags
from local import binaries, host, images, outputs
from local.api import ApiError
from local.cluster import Cluster
from local.containers import Engine, stacks
from local.errors import LocalError
from local.paths import KUBECTL, LOCK, ROOT, locked, write
from local.progress import Progress
from local.state import State

RESERVED = frozenset({"bin", "cache", "engine", "lock", "state"})
"""Names that a stack cannot have, because folders and files of `.local` have these names."""
_STACK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Command:
    """A parsed command line."""

    verb: str
    stack: str
    arguments: tuple[str, ...] = ()


def parse(arguments: Sequence[str]) -> Command:
    """Parse the arguments. Raises LocalError if the stack's name is invalid.

    On other errors, argparse prints a message and ends the process.
    """
    parser = argparse.ArgumentParser(
        prog="python -m local", description="Run a Kubernetes cluster in containers of this host."
    )
    parser.add_argument("--stack", default="dev", help="name of the stack (default: dev)")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    for verb, text in (
        ("up", "start the local cluster, or change the running cluster to match the stack file"),
        ("stop", "stop the local cluster and keep its data; `up` starts it again"),
        ("down", "remove the local cluster and all its data"),
        ("clear", "remove all local clusters on this host, also those of other checkouts"),
        ("status", "list the nodes; exit with 0 if all nodes are ready, otherwise with 1"),
        ("load", "load images of this host's Docker into all nodes of the local cluster"),
        ("kubeconfig", "print the command, with its options, that runs kubectl on the cluster"),
        ("kubectl", "run kubectl on the cluster"),
    ):
        command = verbs.add_parser(verb, help=text)
        if verb == "kubectl":
            continue
        command.add_argument("--stack", default=argparse.SUPPRESS, help="name of the stack")
        if verb == "load":
            command.add_argument("arguments", nargs="+", metavar="IMAGE")
    # argparse must not parse kubectl's own options.
    before, kubectl, after = _split_kubectl(arguments)
    options = parser.parse_args([*before, *kubectl])
    stack = options.stack
    if kubectl:
        stack, after = _take_stack(after, stack)
    if stack in RESERVED or not _STACK.fullmatch(stack):
        raise LocalError(
            f"--stack {stack}: invalid name of a stack; begin with a letter or a digit, use only"
            " letters, digits, '_', '.' and '-', and use none of the reserved names:"
            f" {', '.join(sorted(RESERVED))}"
        )
    given = after if kubectl else getattr(options, "arguments", [])
    return Command(options.verb, stack, tuple(given))


def _split_kubectl(arguments: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Return the words before `kubectl`, the word `kubectl` itself, and the words after it.

    If the command is not `kubectl`, return all words first, then two empty lists.
    """
    words = list(arguments)
    index = 0
    while index < len(words) and words[index].startswith("-"):
        index += 2 if words[index] == "--stack" else 1
    if words[index : index + 1] == ["kubectl"]:
        return words[:index], ["kubectl"], words[index + 1 :]
    return words, [], []


def _take_stack(words: list[str], default: str) -> tuple[str, list[str]]:
    """Return the stack's name, and kubectl's arguments without the option `--stack`.

    Without this option, the name is the default. Arguments after `--` stay as they are.
    """
    end = words.index("--") if "--" in words else len(words)
    for index, word in enumerate(words[:end]):
        if word == "--stack" and index + 1 < end:
            return words[index + 1], words[:index] + words[index + 2 :]
        if word.startswith("--stack="):
            return word.removeprefix("--stack="), words[:index] + words[index + 1 :]
    return default, words


def up(stack: str, settings: Settings, progress: Progress) -> int:
    """Start the cluster. Load the images into its nodes if all images are built."""
    if not isinstance(settings.cluster, LocalCluster):
        progress.note(
            f"stack '{stack}': cluster.kind is not local, so this tool started no cluster"
        )
        return 0
    with locked(LOCK, progress.note):
        with progress.phase("Docker"):
            client = host.engine(progress.note)
        wanted = () if settings.registry else build.references(settings)
        ready = wanted if images.are_here(client, wanted) else ()
        Cluster.of(client, stack, settings, ready).up(progress)
    progress.summary()
    return 0


def down(stack: str, settings: Settings, progress: Progress) -> int:
    """Remove the cluster. Stop Docker if this tool started it and no container is left."""
    if not isinstance(settings.cluster, LocalCluster):
        progress.note(
            f"stack '{stack}': cluster.kind is not local, so this tool removed no cluster"
        )
        return 0
    with locked(LOCK, progress.note):
        client = host.engine(progress.note)
        Cluster.of(client, stack, settings).down(progress)
        host.stop_own_engine(client, progress.note)
    return 0


def clear(progress: Progress) -> int:
    """Remove every local cluster of the host. Stop Docker if this tool started it."""
    with locked(LOCK, progress.note):
        client = host.engine(progress.note)
        for stack in sorted(stacks(client)):
            with progress.phase(f"stack '{stack}' removed"):
                Engine(client, stack).remove_all()
        host.stop_own_engine(client, progress.note)
    return 0


def stop(stack: str, settings: Settings, progress: Progress) -> int:
    """Stop the cluster and keep its data."""
    client = host.connect()
    if client is None or not isinstance(settings.cluster, LocalCluster):
        progress.note(f"stack '{stack}': no local cluster is running, so no cluster was stopped")
        return 0
    with locked(LOCK, progress.note):
        Cluster.of(client, stack, settings).stop(progress)
    return 0


def status(stack: str, settings: Settings) -> int:
    """Print a line for each node; return 0 if all are ready."""
    if not isinstance(settings.cluster, LocalCluster):
        return kubectl(stack, settings, ["get", "nodes"])
    client = host.connect()
    if client is None:
        print(
            f"Docker does not respond; run `python -m local up --stack {stack}`, which starts"
            " Docker and the cluster"
        )
        return 1
    nodes = Cluster.of(client, stack, settings).status()
    for node in nodes:
        print(f"{node.name}  {node.container:8}  {'ready' if node.ready else 'not ready'}")
    return 0 if all(node.ready for node in nodes) else 1


def load(stack: str, references: Sequence[str], progress: Progress) -> int:
    client = host.connect()
    if client is None:
        raise LocalError(
            f"Docker does not respond; run `python -m local up --stack {stack}`, which starts"
            " Docker and the cluster"
        )
    with progress.phase("images loaded"):
        images.load(client, stack, references, progress.note)
    return 0


def kubectl(stack: str, settings: Settings, arguments: Sequence[str]) -> int:
    """Replace this process with kubectl.

    For a local cluster, run the kubectl that this project builds; otherwise, the one on PATH.
    """
    options = access_options(stack, settings)
    is_local = isinstance(settings.cluster, LocalCluster)
    program = _own_kubectl() if is_local else shutil.which("kubectl")
    if program is None:
        raise LocalError(
            "kubectl: not found on PATH; install kubectl (this project builds its own kubectl only"
            " for local clusters)"
        )
    sys.stdout.flush()
    os.execv(program, ["kubectl", *options, *arguments])  # noqa: S606


def _own_kubectl() -> str:
    if not KUBECTL.exists():
        say = Progress().note
        with locked(LOCK, say):
            binaries.ensure(say)
    return str(KUBECTL)


def access_options(stack: str, settings: Settings) -> list[str]:
    """Return kubectl's options for a stack's cluster. Raises LocalError without a cluster."""
    match settings.cluster:
        case LocalCluster():
            return ["--kubeconfig", str(_own_kubeconfig(stack))]
        case ExistingCluster(kubeconfig=path, context=context):
            # Do not use the path of the kubeconfig in the stack's outputs: this path is valid only
            # on the machine on which the last deploy ran.
            named = ["--kubeconfig", str(Path(path).expanduser())] if path else []
            return [*named, *(["--context", context] if context else [])]
    return ["--kubeconfig", str(_written_kubeconfig(stack))]


def _own_kubeconfig(stack: str) -> Path:
    config = State(stack).kubeconfig
    if not config.is_file():
        raise LocalError(
            f"stack '{stack}' has no cluster yet; create it with `python -m local up --stack"
            f" {stack}`"
        )
    return config


def _written_kubeconfig(stack: str) -> Path:
    """Write the kubeconfig in the stack's outputs to `.local/<stack>/kubeconfig`."""
    kubeconfig = outputs.read(stack).get("kubeconfig")
    if kubeconfig is None:
        raise LocalError(
            f"stack '{stack}': the stack has no output `kubeconfig` yet; deploy it with `make"
            f" up STACK={stack}`"
        )
    config = State(stack).kubeconfig
    write(config, str(kubeconfig))
    return config


def show_kubeconfig(stack: str, settings: Settings) -> int:
    """Print the kubectl command for the stack's cluster."""
    options = access_options(stack, settings)
    program = _own_kubectl() if isinstance(settings.cluster, LocalCluster) else "kubectl"
    print(" ".join([program, *options]))
    return 0


def run(command: Command) -> int:
    progress = Progress()
    if command.verb == "load":
        return load(command.stack, command.arguments, progress)
    if command.verb == "clear":
        return clear(progress)
    settings = read_stack(command.stack, ROOT)
    if command.verb == "kubectl":
        return kubectl(command.stack, settings, command.arguments)
    if command.verb == "kubeconfig":
        return show_kubeconfig(command.stack, settings)
    if command.verb == "status":
        return status(command.stack, settings)
    return {"up": up, "stop": stop, "down": down}[command.verb](command.stack, settings, progress)


def main(arguments: Sequence[str]) -> int:
    """Run a command line and return the exit code. Print an error as one line."""
    try:
        return run(parse(arguments))
    except (LocalError, SettingsError, tags.ContextError) as error:
        message = str(error)
    except (DockerException, RequestException) as error:
        message = (
            f"a request to Docker failed: {' '.join(str(error).split())}; check that Docker"
            " runs (`docker info`), then run the command again"
        )
    except ApiError as error:
        message = (
            f"a request to the API of the local cluster failed: {error}; check the nodes with"
            " `python -m local status`, then run the command again"
        )
    except KeyboardInterrupt:
        print("interrupted; run the command again to continue", file=sys.stderr)
        return 130
    print(f"error: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
