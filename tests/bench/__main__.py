"""`make bench`: how long things take and how much they need, as ratios in one run.

Works on a stack of its own, `bench`, beside any other, and removes it at the end. What each figure
means stands in `docs/benchmarks.md`.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from components.settings import LocalCluster, read_stack
from local.access import write_access
from local.configuration import MAX_NODES
from tests.e2e.cluster import NAMESPACE, ROOT, Cluster, eventually, execute

BENCH = Cluster("bench")
SRUNS = 50


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def seconds(work: Callable[[], object]) -> float:
    begin = time.monotonic()
    work()
    return time.monotonic() - begin


@contextmanager
def stack() -> Iterator[None]:
    """The stack file and a local cluster with the images in it; afterwards neither is there."""
    document = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text())
    document["config"] |= {
        "slurmstack:cluster_name": BENCH.stack,
        "slurmstack:cluster": {"kind": "local", "nodes": 2, "api_port": 18443, "ssh_port": 14222},
    }
    # A worker whose controller is gone waits for it; between two rounds nobody need wait long.
    document["config"]["slurmstack:nodesets"][0]["drain_grace"] = 1
    user = document["config"]["slurmstack:users"][0]
    user["ssh_key_files"] = [f".local/{BENCH.stack}/id_ed25519.pub"]
    BENCH.stack_file.write_text(yaml.safe_dump(document))
    try:
        yield
    finally:
        say("removing the stack")
        execute(["make", "down", f"STACK={BENCH.stack}"], check=False, timeout=300)
        BENCH.stack_file.unlink(missing_ok=True)


def module(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return execute([sys.executable, "-m", *arguments, "--stack", BENCH.stack], **options)


def first_job() -> None:
    """Waits until a job of the user's runs."""
    eventually(
        "the first srun is done", lambda: BENCH.ssh("srun hostname", check=False).stdout, 300
    )


def deployed() -> None:
    """From an empty cluster to the first job, by the engine."""
    BENCH.deploy("up")
    settings = read_stack(BENCH.stack, ROOT)
    assert isinstance(settings.cluster, LocalCluster)
    write_access(BENCH.stack, settings, settings.cluster)
    first_job()


def manifests() -> str:
    """The same objects, as the engine was told to make them."""
    environment = {"PULUMI_CONFIG_PASSPHRASE": (BENCH.directory / "passphrase").read_text().strip()}
    answer = module("engine", "stack", "export", "--show-secrets", env=environment)
    resources = json.loads(answer.stdout)["deployment"]["resources"]
    objects = [plain(r["inputs"]) for r in resources if r["type"].startswith("kubernetes:")]
    # The namespace before what lies in it.
    objects.sort(key=lambda item: item["kind"] != "Namespace")
    return yaml.safe_dump_all(objects)


def plain(value: Any) -> Any:
    """A property of an export with the secrets' wrapping taken off."""
    if isinstance(value, dict):
        if "plaintext" in value:
            return json.loads(value["plaintext"])
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def applied(objects: str) -> None:
    """From an empty cluster to the first job, by `kubectl apply` of the same objects."""
    BENCH.kubectl("apply", "--server-side", "-f", "-", stdin=objects)
    first_job()


def working_set() -> float:
    """Memory that the node containers hold and cannot give back, in GiB, Slurm included.

    As the kubelet counts it: usage less inactive file pages.
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


def measure(rounds: int) -> dict[str, float]:
    """All figures by name; seconds unless the name says otherwise."""
    figures: dict[str, float] = {}
    say("starting the cluster")
    figures["cluster from nothing"] = seconds(lambda: module("local", "up", timeout=1800))
    say("building and loading the images")
    figures["images, built already, into the nodes"] = seconds(
        lambda: module("images.build", timeout=1800)
    )
    by_engine, by_kubectl = [], []
    for turn in range(rounds):
        say(f"round {turn + 1} of {rounds}: deploying with the engine")
        by_engine.append(seconds(deployed))
        objects = manifests()
        BENCH.deploy("destroy")
        say(f"round {turn + 1} of {rounds}: deploying with kubectl apply")
        by_kubectl.append(seconds(lambda: applied(objects)))  # noqa: B023  # called at once
        BENCH.kubectl("delete", "namespace", NAMESPACE, timeout=300)
    figures["first srun after engine up"] = min(by_engine)
    figures["first srun after kubectl apply"] = min(by_kubectl)
    figures["ratio of the two"] = min(by_engine) / min(by_kubectl)
    say("deploying once more, for what follows")
    deployed()
    BENCH.wait_for_nodes("cpu-0", "cpu-1")
    figures["preview, nothing to do"] = statistics.median(
        seconds(lambda: BENCH.deploy("preview", "--expect-no-changes")) for _ in range(5)
    )
    figures["make up, nothing to do"] = seconds(
        lambda: execute(["make", "up", f"STACK={BENCH.stack}", "ENGINE=embedded"])
    )
    loop = f"for i in $(seq {SRUNS}); do srun --nodes=1 true; done"
    figures["one srun, in ms"] = seconds(lambda: BENCH.ssh(loop)) * 1000 / SRUNS
    figures["memory of the whole stack, in GiB"] = working_set()
    return figures


def show(figures: dict[str, float]) -> None:
    table = Table("figure", "value")
    for name, value in figures.items():
        table.add_row(name, f"{value:.2f}")
    console = Console()
    if console.is_terminal:
        console.print(table)
    else:
        print("\n".join(f"{name}: {value:.2f}" for name, value in figures.items()))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="alternating deploys (default: 2)")
    parser.add_argument("--json", action="store_true", help="figures as JSON")
    options = parser.parse_args()
    try:
        with stack():
            figures = measure(options.rounds)
    except KeyboardInterrupt:
        say("interrupted; the stack is removed")
        return 130
    if options.json:
        print(json.dumps(figures))
    else:
        show(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
