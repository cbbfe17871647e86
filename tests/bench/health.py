"""Measure the time, CPU time and memory of the reconciler and of the checks of a node.

A pass of the reconciler reads the state of all nodes once, and then drains nodes and lifts drains.
The benchmark measures passes over 5,000 nodes, and runs of all checks on one node.

This runs in containers, without Kubernetes. slurmctld and slurmrestd are real. One slurmd
represents all nodes, and answers slurmctld for each of them. `tests.bench.kubernetes` provides the
needed part of Kubernetes' API, with a Node and a Pod for each node.
"""

import json
import re
import secrets
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import pytest
from docker.models.containers import Container

from agents.checks import infiniband
from agents.checks.readers import STATE
from agents.drains import CHECK, KUBERNETES, Evidence
from components import conventions as c
from components.settings import Settings
from components.slurmconf import node_checks, node_conf, wanted_nodes
from local.certificates import Authority, Request
from tests.bench.figures import Figures, say
from tests.bench.kubernetes import NUMBER, PORT
from tests.support.containers import Start, containers, put
from tests.support.graph import record, templates
from tests.support.recordings import recorded
from tests.support.slurmctld import Slurmctld, start_controller, start_worker, without_jail
from tests.support.slurmrestd import start_rest
from tests.support.stack import alone, config
from tests.support.waiting import eventually

NODES, FEW = 5000, 500
NODESET = "gpu"
FRONT = "front-0"
"""The node whose slurmd also answers slurmctld for all other nodes."""
ROUNDS = 5
CHANGES = 10
"""Number of nodes that fail in each round, and number of nodes that recover. The number applies to
each cause (cordon or failed check) separately."""
KIB = 1024

WORLD: Final = "/bench"
ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
ENVIRONMENT: Final = {
    "KUBERNETES_SERVICE_HOST": "127.0.0.1",
    "KUBERNETES_SERVICE_PORT": str(PORT),
    "JWT_KEY": c.JWT_KEY,
    "WANTED": f"{c.NODESETS}/{c.NODES_FILE}",
    "NAMESPACE": "slurm",
    "MEMORY": c.MEMORY_CONFIG,
    "TOPOLOGY": c.TOPOLOGY_CONFIG,
    "BUDGET": c.BUSY_NODES,
    "OWNER": f"apps/v1 Deployment {c.RECONCILER}",
}

MEASURE = """
import json, os, sys, time
begin = time.monotonic()
child = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(child, 0)
print(json.dumps({
    "code": os.waitstatus_to_exitcode(status),
    "seconds": time.monotonic() - begin,
    "cpu": usage.ru_utime + usage.ru_stime,
    "memory": usage.ru_maxrss,
}), file=sys.stderr)
"""
"""Program that runs a command, and prints the resource usage of the command with its children
(memory in KiB)."""

COUNT = """
import collections, json, sys
import httpx
from agents.reconciler.__main__ import main
asked = collections.Counter()
send = httpx.Client.send
def counted(self, request, **options):
    asked["Kubernetes" if request.url.scheme == "https" else "Slurm"] += 1
    return send(self, request, **options)
httpx.Client.send = counted
main(sys.argv[1:])
print(json.dumps(asked), file=sys.stderr)
"""
"""Program that runs a pass of the reconciler, and counts the requests that the pass sends."""


CORDON = f"""
import http.client, ssl, sys, time
anybody = ssl._create_unverified_context()
for _ in range(50):
    try:
        server = http.client.HTTPSConnection("127.0.0.1", {PORT}, context=anybody)
        server.request("PUT", "/", sys.argv[1])
        sys.exit(server.getresponse().status != 200)
    except ConnectionRefusedError:
        time.sleep(0.1)
sys.exit("the API does not listen")
"""
"""Program that waits for the simulated API and sets the API's cordoned machines."""

BUSY = """
sinfo --noheader --Node --format=%T | grep --max-count=1 -e unknown -e '[*]'
sdiag | grep -E '^(Server thread count|Agent .*): +([2-9]|1[0-9])'
true
"""
"""Script that prints lines only while slurmctld waits for a node or communicates with a node."""

NVIDIA_SMI = f"""#!/bin/sh
case $1 in --query) exec cat {WORLD}/query ;; *) exec cat {WORLD}/nvlink ;; esac
"""


def measure(figures: Figures) -> None:
    with cluster(FEW) as few:
        checks(figures, few.front)
        say(f"counting the requests of a reconciler pass over {FEW} nodes")
        asked_few = few.requests()
    with cluster(NODES) as many:
        passes(figures, many)
        asked = many.requests()
    changes = f"{3 * CHANGES} changes"
    for who in ("Slurm", "Kubernetes"):
        figures.add(f"requests to {who}, {FEW} nodes, {changes}", asked_few[who])
        figures.add(
            f"requests to {who}, {NODES} nodes, {changes}",
            asked[who],
            at_least=asked_few[who],
            at_most=asked_few[who],
        )


# --- The reconciler ------------------------------------------------------------------------------


def passes(figures: Figures, many: "Cluster") -> None:
    """Measure passes that only report the changes (--dry-run), and passes that make the changes."""
    say(f"reconciler passes over {NODES} nodes, a fifth drained, with {3 * CHANGES} changes each")
    many.look("--dry-run")
    found: dict[str, list[Used]] = {"--dry-run": [], "--once": []}
    for _ in range(ROUNDS):
        many.move_on()
        for way, used in found.items():
            used.append(many.look(way))
            say(f"  {way}: {used[-1]}")
    for way, used in found.items():
        name = f"a pass over {NODES} nodes, {way}"
        figures.add(name, statistics.median(one.seconds for one in used), at_most=2)
        figures.add(f"{name}, CPU", statistics.median(one.cpu for one in used))
        figures.add(f"{name}, in MB", max(one.memory for one in used), at_most=150)


@dataclass(frozen=True)
class Used:
    """Resources that a process has used."""

    seconds: float
    cpu: float
    """CPU time in seconds."""
    memory: float
    """Peak memory in MB."""
    output: str

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s, CPU {self.cpu:.2f} s, {self.memory:.0f} MB"


@dataclass
class Cluster:
    """A cluster with a fifth of its nodes drained: half by cordons, half by checks."""

    count: int
    controller: Slurmctld
    front: Slurmctld
    reconciler: Container
    environment: Mapping[str, str]
    moved: int = 0
    """Number of rounds so far; each round moves the sets of drained nodes."""

    @property
    def cordoned(self) -> range:
        """Return the cordoned machines: less than a tenth, so that a pass can drain more nodes."""
        return range(self.moved * CHANGES, self.moved * CHANGES + self.count // 10 - CHANGES)

    @property
    def failing(self) -> range:
        """Return the nodes with failing checks."""
        first = self.count // 2 + self.moved * CHANGES
        return range(first, first + self.count // 5 - len(self.cordoned))

    def begin(self) -> None:
        """Create faults, and drain their nodes as a pass of the reconciler would."""
        self._settle()
        self._update(self.cordoned, f"state=drain reason='{KUBERNETES}cordoned: machine'")
        self._fail(self.failing)
        healthy = (range(self.failing.start), range(self.failing.stop, self.count))
        for nodes in healthy:
            self._pass(nodes)
        self._cordon()

    def move_on(self) -> None:
        """Uncordon CHANGES machines, and cordon as many others. Do the same with failing checks."""
        failed = self.failing
        self.moved += 1
        self._settle()
        self._fail(range(failed.stop, self.failing.stop))
        self._pass(range(failed.start, self.failing.start))
        self._cordon()

    def look(self, way: str) -> Used:
        """Run a pass of the reconciler, and check that it finds the changes of `move_on`."""
        command = ["python3", "-m", "agents.reconciler", way, "--json"]
        used = run(self.reconciler, command, self.environment, c.SLURM_ID)
        done = Counter(action["action"] for action in json.loads(used.output)["actions"])
        if self.moved:
            expected = Counter(drain=CHANGES, lift=2 * CHANGES)
            assert done == expected, f"{way}: the pass has the actions {done}; expected {expected}"
        return used

    def requests(self) -> dict[str, int]:
        """Count the requests of one more pass with as many changes as the other passes."""
        self.move_on()
        code, output = self.reconciler.exec_run(
            ["python3", "-c", COUNT, "--once"],
            environment=dict(self.environment),
            user=str(c.SLURM_ID),
        )
        text = cast(bytes, output).decode()
        assert code is not None, text
        return dict(json.loads(text.splitlines()[-1]))

    def _settle(self) -> None:
        """Wait until all nodes have answered slurmctld, and slurmctld sends them no more requests.

        When a node returns, slurmctld queries all nodes that have never registered. These are all
        nodes except FRONT, so the queries would slow the measured pass.
        """
        eventually("slurmctld has all answers, and sends no requests", self._is_quiet, 300)

    def _is_quiet(self) -> bool:
        for _ in range(3):
            if self.controller.run(BUSY):
                return False
            time.sleep(1)
        return True

    def _fail(self, nodes: range) -> None:
        evidence = Evidence(int(time.time()), ("disk",))
        reason = f"{CHECK}disk: /tmp is full (97 %)"
        self._update(nodes, f"state=drain reason='{reason}' extra='{evidence}'")

    def _pass(self, nodes: range) -> None:
        # Slurm may have drained the nodes in this second, and the reconciler lifts a drain only if
        # the evidence (the result of checks) is newer: add a second.
        self._update(nodes, f"extra='{Evidence(int(time.time()) + 1)}'")

    def _update(self, nodes: range, what: str) -> None:
        names = f"{NODESET}-[{nodes.start}-{nodes.stop - 1}]"
        self.controller.run(f"scontrol update nodename={names} {what}")

    def _cordon(self) -> None:
        bounds = [self.cordoned.start, self.cordoned.stop]
        code, output = self.reconciler.exec_run(["python3", "-c", CORDON, json.dumps(bounds)])
        assert code == 0, cast(bytes, output).decode()


def run(
    container: Container, command: list[str], environment: Mapping[str, str], user: int
) -> Used:
    """Run a command in a container, and return the resources that it used."""
    _, (stdout, stderr) = container.exec_run(
        ["python3", "-c", MEASURE, *command],
        environment=dict(environment),
        user=str(user),
        demux=True,
    )
    text = cast(bytes, stderr).decode()
    used = json.loads(text.splitlines()[-1])
    assert used["code"] in (0, 1), text
    output = cast(bytes, stdout or b"").decode()
    return Used(used["seconds"], used["cpu"], used["memory"] * KIB / 1e6, output)


# --- The simulated cluster -----------------------------------------------------------------------


@contextmanager
def cluster(count: int) -> Iterator[Cluster]:
    say(f"starting slurmctld, slurmrestd and a simulated Kubernetes with {count} nodes")
    stack, secret = alone(simulated(count)), secrets.token_hex(64)
    (nodeset,) = stack.nodesets
    with containers("slurmstack-bench") as start:
        controller = start_controller(start, secret)
        names = f"{NODESET}-[0-{count - 1}]"
        files: dict[str, str] = {}

        def serve(front: Slurmctld) -> None:
            listed = f"NodeName={names} {node_conf(nodeset)} NodeAddr={front.address}\n"
            conf = without_jail(stack)
            files.update({**conf, "slurm.conf": conf["slurm.conf"] + listed})
            controller.install(stack, files)
            controller.start()

        front = start_worker(
            start,
            secret,
            FRONT,
            "CPUs=2 RealMemory=1000",
            controller,
            serve,
            cap_add=["SYS_ADMIN", "SYS_NICE", "SYS_PTRACE", "SYSLOG"],
        )
        rest = start_rest(
            start, controller, {f"{c.SLURM_ETC}/{name}": text for name, text in files.items()}
        )
        reconciler = start_reconciler(start, secret, stack)
        found = Cluster(count, controller, front, reconciler, {**ENVIRONMENT, "REST_URL": rest})
        found.begin()
        yield found
        controller.stop()


def start_reconciler(start: Start, secret: str, stack: Settings) -> Container:
    """Start a container with the reconciler's files, and Kubernetes' API on its loopback."""
    container = start("agents", entrypoint="")
    (nodeset,) = stack.nodesets
    world = {"count": nodeset.replicas, "node": machine(), "pod": worker(edited(nodeset.replicas))}
    authority = Authority.new("bench")
    pair = authority.issue(Request("kubernetes", addresses=("127.0.0.1",)))
    put(
        container,
        {
            f"{WORLD}/kubernetes.py": Path(__file__).with_name("kubernetes.py").read_text(),
            f"{WORLD}/world.json": json.dumps(world),
            f"{WORLD}/server.pem": (pair.certificate + pair.key).decode(),
            f"{ACCOUNT}/ca.crt": authority.pair.certificate.decode(),
            f"{ACCOUNT}/token": "bench",
            c.JWT_KEY: secret,
            ENVIRONMENT["WANTED"]: wanted_nodes(stack),
        },
    )
    container.exec_run(["python3", f"{WORLD}/kubernetes.py", f"{WORLD}/world.json"], detach=True)
    return container


def worker(edit: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Return a nodeset's running Pod, as an API server shows it."""
    with pytest.MonkeyPatch.context() as patch:
        template = templates(record(patch, config(edit)))[f"nodeset-{NODESET}-slurmd"]
    spec, name = template["spec"], f"{NODESET}-{NUMBER}"
    now = {"lastTransitionTime": "2026-11-01T00:00:00Z", "lastProbeTime": None}
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return owned(
        {
            "metadata": {
                **template["metadata"],
                **identity(name),
                "namespace": ENVIRONMENT["NAMESPACE"],
            },
            "spec": {**spec, "nodeName": f"machine-{NUMBER}"},
            "status": {
                "phase": "Running",
                "startTime": "2026-11-01T00:00:00Z",
                "conditions": [{**now, "type": kind, "status": "True"} for kind in kinds],
                "initContainerStatuses": [state(one) for one in spec["initContainers"]],
                "containerStatuses": [state(one) for one in spec["containers"]],
                "hostIP": "192.0.2.1",
                "podIP": "192.0.2.2",
            },
        }
    )


def state(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status of a running container."""
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": f"{container['image']}@sha256:{64 * '0'}",
        "containerID": f"containerd://{64 * '0'}",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": "2026-11-01T00:00:00Z"}},
        "volumeMounts": container.get("volumeMounts", []),
    }


def machine() -> dict[str, Any]:
    """Return a Node as an API server shows it, with 50 images, a kubelet's default maximum."""
    size = {"cpu": "192", "memory": "2113409212Ki", "nvidia.com/gpu": "8", "pods": "110"}
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "KernelDeadlock", "Ready")
    return owned(
        {
            "metadata": {
                **identity(f"machine-{NUMBER}"),
                "labels": {f"feature.node.kubernetes.io/cpu-{n:02}": "true" for n in range(40)},
                "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
            },
            "spec": {"providerID": f"cloud:///zone/{NUMBER}", "podCIDR": "192.0.2.0/24"},
            "status": {
                "capacity": size,
                "allocatable": size,
                "conditions": [
                    {
                        "type": kind,
                        "status": str(kind == "Ready"),
                        "reason": f"KubeletHas{kind}",
                        "message": "kubelet reported it",
                        "lastHeartbeatTime": "2026-11-22T00:00:00Z",
                        "lastTransitionTime": "2026-11-01T00:00:00Z",
                    }
                    for kind in kinds
                ],
                "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
                "nodeInfo": {"bootID": f"00000000-0000-0000-0000-{NUMBER}"},
                "images": [
                    {
                        "names": [
                            f"registry.example.org/team/image-{n}@sha256:{64 * '0'}",
                            f"registry.example.org/team/image-{n}:1.{n}",
                        ],
                        "sizeBytes": 10**9,
                    }
                    for n in range(50)
                ],
            },
        }
    )


def identity(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "uid": f"00000000-0000-0000-0001-{NUMBER}",
        "resourceVersion": "1",
        "creationTimestamp": "2026-11-01T00:00:00Z",
    }


def owned(item: dict[str, Any]) -> dict[str, Any]:
    """Add managed fields, as an API server does."""
    fields = {"manager": "bench", "operation": "Update", "fieldsV1": _fields(item)}
    return {**item, "metadata": {**item["metadata"], "managedFields": [fields]}}


def _fields(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        keyed = [one for one in value if isinstance(one, dict) and ("name" in one or "type" in one)]
        return {f"k:{one.get('name', one.get('type'))}": _fields(one) for one in keyed}
    items = value.items() if isinstance(value, dict) else ()
    return {f"f:{key}": _fields(inner) for key, inner in items}


def edited(count: int) -> Callable[[dict[str, Any]], None]:
    """Return an edit of settings: one nodeset with `count` nodes of eight GPUs."""

    def edit(valid: dict[str, Any]) -> None:
        valid["nodesets"] = [
            {
                "name": NODESET,
                "replicas": count,
                "cpus": 128,
                "memory": "1900GiB",
                "gpus": {"type": "h100", "count": 8},
                "features": ["infiniband"],
            }
        ]

    return edit


def simulated(count: int) -> Callable[[dict[str, Any]], None]:
    """Like `edited`, but slurmctld neither pings the nodes nor runs checks on them."""

    def edit(valid: dict[str, Any]) -> None:
        edited(count)(valid)
        valid["slurm"] = {"timeouts": {"slurmd": 60_000}}
        valid["health"] = {"enabled": False}

    return edit


# --- The checks of a node ------------------------------------------------------------------------


def checks(figures: Figures, front: Slurmctld) -> None:
    """Measure one run of all checks on a healthy node with eight GPUs and InfiniBand."""
    stack = alone(edited(1))
    (nodeset,) = stack.nodesets
    # Repeat the record of the first of the eight GPUs, which is healthy.
    head, gpu, *others = re.split("(?m)^(?=GPU )", recorded("h100-535.183.01"))
    ports = (line.split(None, 3) for line in recorded("infiniband-h100").splitlines())
    put(
        front.container,
        {
            f"{c.NODE_SETTINGS}/{c.NODE_CHECKS}": node_checks(nodeset, stack),
            f"{WORLD}/query": head + gpu * (1 + len(others)),
            f"{WORLD}/nvlink": recorded("nvlink-a100"),
            "/usr/local/bin/nvidia-smi": NVIDIA_SMI,
            **{
                f"{WORLD}/class/infiniband/{device}/ports/{port}/{_folder(name)}{name}": value
                for device, port, name, value in ports
            },
        },
    )
    front.run(f"chmod 755 /usr/local/bin/nvidia-smi; mount --bind {WORLD}/class /sys/class", "root")
    program, environment = f"{c.CHECKS}/interval", {"SLURMD_NODENAME": FRONT}
    # The check of processes compares the processes with those of its previous run, normally one
    # minute earlier: make the file of the previous run look that old.
    aged = f"touch -d '1 minute ago' {STATE}/processes"
    used = []
    for _ in range(2 * ROUNDS):
        used.append(run(front.container, [program], environment, 0))
        front.run(aged, "root")
    lines = front.run("check-node || true", "root").splitlines()
    unlike = [line for line in lines if "\tpassed\t" not in line]
    say("\n".join((f"{len(lines)} checks, of which {len(unlike)} did not pass", *unlike)))
    figures.add(
        "all checks of a node, CPU time", statistics.median(one.cpu for one in used), at_most=1
    )
    figures.add("all checks of a node", statistics.median(one.seconds for one in used))


def _folder(name: str) -> str:
    """Return the folder with a value of an InfiniBand port. Counters are in a separate folder."""
    return "" if name in infiniband.VALUES else "counters/"
