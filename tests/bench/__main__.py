"""`make bench`: measure durations, CPU time and memory.

Many figures are ratios of two values from the same run: a ratio depends less on the machine.
The benchmark deploys a separate stack, `bench`, and removes this stack at the end.
`docs/benchmarks.md` explains each figure.
"""

import argparse
import contextlib
import functools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import yaml
from docker.errors import DockerException, ImageNotFound
from rich.console import Console

from components.settings import read_stack
from images import build, tags
from local.access import write_access
from local.configuration import MAX_NODES
from local.paths import ROOT
from tests.bench import (
    accounting,
    backup,
    bridge,
    confinement,
    exporter,
    health,
    images,
    jail,
    load,
    loss,
    ondemand,
    previews,
    scale,
    session,
)
from tests.bench.figures import Figures, as_json, say, seconds, show
from tests.support.cluster import NAMESPACE, Cluster, local_cluster, write_stack
from tests.support.commands import execute
from tests.support.waiting import eventually

BENCH = Cluster("bench")
NODESET = {"name": "cpu", "replicas": 2, "cpus": 2, "cpu_request": 0.2, "memory": "1GiB"}
SRUNS = 50
IN_CONTAINERS: Mapping[str, Callable[[Figures], None]] = {
    "previews": previews.measure,
    "scale": scale.measure,
    "health": health.measure,
    "confinement": confinement.measure,
    "jail": jail.measure,
    "containers": images.measure,
    "accounting": accounting.measure,
    "backup": backup.measure,
    "exporter": exporter.measure,
}
"""Parts that need no cluster; some need containers."""
NOWHERE = "bench.invalid"
"""Registry with a reserved name (RFC 2606). It cannot exist, so no other image has this name."""


@contextlib.contextmanager
def stack() -> Iterator[None]:
    """Write the stack file; after the `with` block, remove the stack and its file."""
    write_stack(
        BENCH.stack,
        cluster=local_cluster(2, api_port=18443, ssh_port=14222),
        # If slurmctld is gone before a worker, the worker waits for slurmctld when it stops.
        # Shorten this wait (`drain_grace`), because each round removes the stack.
        nodesets=[NODESET | {"drain_grace": 1}],
    )
    down = ["make", "down", f"STACK={BENCH.stack}", "ENGINE=embedded"]
    try:
        if BENCH.directory.exists() or BENCH.state_file.exists():
            say("removing the leftovers of an earlier run")
            execute(down, timeout=300)
        yield
    finally:
        # Ignore a second Ctrl-C. Otherwise, `make down` would also get the signal, and a part of
        # the stack would stay.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        say("removing the stack")
        if execute(down, check=False, timeout=300).returncode:
            say(f"stack {BENCH.stack} was not removed completely; run: {' '.join(down)}")
        else:
            BENCH.stack_file.unlink(missing_ok=True)


def module(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a module of the project on the stack.

    Print the last line of its stderr, which lists the phases with their durations.
    """
    command = [sys.executable, "-m", *arguments, "--stack", BENCH.stack]
    result = execute(command, **options)
    if lines := result.stderr.strip().splitlines():
        say(f"  {lines[-1].strip()}")
    return result


def first_job() -> None:
    """Wait until the user can run a job."""
    eventually(
        "the first srun succeeds", lambda: BENCH.ssh("srun hostname", check=False).stdout, 300
    )


def deployed() -> None:
    """Deploy with the engine, from an empty cluster to the first job."""
    say(f"  deploying with the engine took {seconds(lambda: BENCH.deploy('up')):.1f} s")
    settings = read_stack(BENCH.stack, ROOT)
    write_access(BENCH.stack, settings)
    first_job()


def manifests() -> str:
    """Return the manifests of the objects that the engine created."""
    environment = {"PULUMI_CONFIG_PASSPHRASE": (BENCH.directory / "passphrase").read_text().strip()}
    answer = module("engine", "stack", "export", "--show-secrets", env=environment)
    resources = json.loads(answer.stdout)["deployment"]["resources"]
    objects = [plain(r["inputs"]) for r in resources if r["type"].startswith("kubernetes:")]
    # Create the namespace before the objects in it.
    objects.sort(key=lambda item: item["kind"] != "Namespace")
    return yaml.safe_dump_all(objects)


def plain(value: Any) -> Any:
    """Unwrap the secrets in a property of an export."""
    if isinstance(value, dict):
        if "plaintext" in value:
            return json.loads(value["plaintext"])
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def applied(objects: str) -> None:
    """Deploy the same objects with `kubectl apply`, from an empty cluster to the first job."""
    BENCH.kubectl("apply", "--server-side", "-f", "-", stdin=objects)
    first_job()


def working_set() -> float:
    """Return the working set of the node containers in GiB, including Slurm.

    As in the kubelet, the working set is the memory usage minus the inactive file pages.
    """
    total = 0
    script = (
        "cd /sys/fs/cgroup; if [ -e memory.current ];"
        " then cat memory.current; grep ^inactive_file memory.stat;"
        " else cat memory/memory.usage_in_bytes; grep ^total_inactive_file memory/memory.stat; fi"
    )
    for ordinal in range(MAX_NODES):
        name = f"slurmstack-{BENCH.stack}-node-{ordinal}"
        answer = execute(["docker", "exec", name, "sh", "-c", script], check=False)
        if answer.returncode == 0:
            usage, inactive = answer.stdout.splitlines()
            total += int(usage) - int(inactive.split()[1])
    return total / 2**30


def build_binaries() -> None:
    """Build Kubernetes, CoreDNS and the volume provisioner with an empty Go build cache.

    The build runs in a copy of the sources with a separate `.local`. The modules are already
    downloaded.
    """
    with tempfile.TemporaryDirectory(prefix="slurmstack-bench-") as copy:
        for folder in ("components", "local"):
            shutil.copytree(ROOT / folder, f"{copy}/{folder}")
        command = [sys.executable, "-c", "from local import binaries; binaries.ensure(print)"]
        environment = os.environ | {"GOCACHE": f"{copy}/go"}
        subprocess.run(command, cwd=copy, env=environment, stdout=sys.stderr, check=True)


def build_images() -> None:
    """Build all images as `make images` does, but without Docker's cache."""
    client = build.connect(say)
    client.api.build = functools.partial(  # type: ignore[method-assign]  # of this client only
        client.api.build, nocache=True
    )
    names = build.closure(tags.IMAGES)
    try:
        build.build_missing(client, names, NOWHERE, build.Report(Console(stderr=True)))
    finally:
        for name in reversed(names):
            with contextlib.suppress(ImageNotFound):
                client.images.remove(tags.reference(name, NOWHERE))


def start(figures: Figures, cold: bool) -> None:
    """Start the cluster with the images."""
    if cold:
        say("building Kubernetes with an empty cache")
        figures.add("Go programs, cold", seconds(build_binaries))
        say("building the images without a cache")
        figures.add("images, cold", seconds(build_images))
    say("building the missing images")
    module("images.build", timeout=1800)
    say("starting the cluster")
    up = seconds(lambda: module("local", "up", timeout=1800))
    figures.add("start of a cluster, with images built before", up)


def deploys(figures: Figures, rounds: int) -> None:
    """Deploy with the engine and with kubectl in turn, and remove everything afterwards."""
    by_engine, by_kubectl = [], []
    for turn in range(rounds):
        say(f"round {turn + 1} of {rounds}: deploying with the engine")
        by_engine.append(seconds(deployed))
        objects = manifests()
        BENCH.deploy("destroy")
        say(f"round {turn + 1} of {rounds}: deploying with kubectl apply")
        by_kubectl.append(seconds(lambda: applied(objects)))  # noqa: B023  # called at once
        BENCH.kubectl("delete", "namespace", NAMESPACE, timeout=300)
    for name, statistic in (("quickest", min), ("median", statistics.median)):
        engine, kubectl = statistic(by_engine), statistic(by_kubectl)
        figures.add(f"deploy with the engine, and first srun, {name}", engine)
        figures.add(f"deploy with kubectl apply, and first srun, {name}", kubectl)
        figures.add(f"ratio of the engine to kubectl apply, {name}", engine / kubectl, at_most=1.5)


def everyday(figures: Figures, _: Cluster) -> None:
    """Measure everyday operations on a running stack."""
    preview = statistics.median(
        seconds(lambda: BENCH.deploy("preview", "--expect-no-changes")) for _ in range(5)
    )
    figures.add("preview, nothing to do", preview, at_most=3)
    up = ["make", "up", f"STACK={BENCH.stack}", "ENGINE=embedded"]
    figures.add("make up, nothing to do", seconds(lambda: execute(up)), at_most=20)
    for name, shell, nodes in (
        ("a job of one node", "bash -c", 1),
        ("a job of two nodes", "bash -c", 2),
        ("a step in an allocation", "salloc --quiet --nodes=1 bash -c", 1),
    ):
        loop = f"for i in $(seq {SRUNS}); do srun --nodes={nodes} true; done"
        command = f"{shell} '{loop}'"
        took = seconds(lambda: BENCH.ssh(command))  # noqa: B023  # called at once
        figures.add(f"one srun, {name}, in ms", took * 1000 / SRUNS)
    figures.add("memory of the whole stack, in GiB", working_set(), at_most=3.2)


DEPLOYED: Mapping[str, Callable[[Figures, Cluster], None]] = {
    "everyday": everyday,
    "session": session.measure,
    "ondemand": ondemand.measure,
    "load": load.measure,
    "loss": loss.measure,
    "bridge": bridge.measure,
}
"""Parts that need a running stack, in their order."""
ON_THE_STACK = ("deploy", *DEPLOYED)
PARTS = (*IN_CONTAINERS, *ON_THE_STACK)


def measure(figures: Figures, parts: Collection[str], rounds: int, cold: bool) -> None:
    """Run the requested parts in their order."""
    for name, part in IN_CONTAINERS.items():
        if name in parts:
            part(figures)
    if not {*ON_THE_STACK} & {*parts}:
        return
    with stack():
        start(figures, cold)
        if "deploy" in parts:
            deploys(figures, rounds)
        say("deploying the stack for the next measurements")
        deployed()
        BENCH.wait_for_nodes("cpu-0", "cpu-1")
        for name, of_stack in DEPLOYED.items():
            if name in parts:
                of_stack(figures, BENCH)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=2, help="number of alternating deploys (default: 2)"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument(
        "--cold", action="store_true", help="also rebuild Kubernetes and the images (takes minutes)"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=PARTS,
        default=PARTS,
        help="measure only these parts (default: all)",
    )
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: expected 1 or more")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    figures = Figures()
    try:
        measure(figures, options.only, options.rounds, options.cold)
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    except (AssertionError, build.BuildError, DockerException, subprocess.SubprocessError) as error:
        say(f"error: {error}")
        return 1
    if options.json:
        print(as_json(figures))
    else:
        show(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
