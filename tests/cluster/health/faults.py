"""Faults of a cluster, each for as long as its context lasts, and the alerts of each."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

from components import conventions as c
from components.monitoring import monitoringconf
from images import tags
from tests.cluster.health.node import BROKEN, WELL, Node, operator, runs_now
from tests.cluster.health.receiving import AWAY, COLLECTOR_NAMESPACE
from tests.cluster.health.storage import (
    attached,
    disk,
    jail_as_the_exporter_sees_it,
    storage_server,
    volume_path,
)
from tests.support.cluster import Cluster
from tests.support.waiting import eventually


@contextlib.contextmanager
def without(cluster: Cluster, deployment: str) -> Iterator[None]:
    """A daemon is not there."""
    scale = ("scale", f"deployment/{deployment}")
    before = cluster.kubectl("get", *scale[1:], "-o", "jsonpath={.spec.replicas}")

    def is_gone() -> bool:
        # Those of its Jobs that are over may be there still.
        return all(pod["status"]["phase"] != "Running" for pod in cluster.pods(deployment))

    try:
        cluster.kubectl(*scale, "--replicas=0")
        eventually(f"no {deployment} is left", is_gone, 120)
        yield
    finally:
        cluster.kubectl(*scale, f"--replicas={before}")
        cluster.wait_for_deployment(deployment)


@contextlib.contextmanager
def broken_gpus(cluster: Cluster) -> Iterator[None]:
    """Checks find errors on both nodes' GPUs."""
    nodes = [Node(cluster, name) for name in ("cpu-0", "cpu-1")]
    for one in nodes:
        one.prints(BROKEN)
    try:
        yield
    finally:
        for one in nodes:
            one.prints(WELL)
        for one in nodes:
            one.is_back(120)
        for one in nodes[:1]:
            one.root("rm -f /usr/local/bin/nvidia-smi")


@contextlib.contextmanager
def drained_by_hand(cluster: Cluster) -> Iterator[None]:
    """Somebody takes both nodes out of service."""
    update = ("scontrol", "update", "nodename=cpu-[0-1]")
    operator(cluster, *update, "state=drain", "reason=mine")
    try:
        yield
    finally:
        operator(cluster, *update, "state=resume")


@contextlib.contextmanager
def failing_jobs(cluster: Cluster) -> Iterator[None]:
    """Jobs fail in a burst on one node."""
    cluster.run("sbatch --array=1-12 --nodelist=cpu-1 --output=/dev/null --wrap='exit 1'")
    yield


def _resumed(node: Node) -> bool:
    """Whether it is in service again.

    slurmctld asks no node that is down. The reconciler would restart its pod, which here mends
    nothing.
    """
    if node.state.startswith("down"):
        operator(node.cluster, "scontrol", "update", f"nodename={node.name}", "state=resume")
    return node.state == "idle"


@contextlib.contextmanager
def silent_nodes(cluster: Cluster) -> Iterator[None]:
    """No node answers slurmctld, which asks each of them every minute."""
    nodes = [Node(cluster, name) for name in ("cpu-0", "cpu-1")]
    try:
        with contextlib.ExitStack() as stack:
            for node in nodes:
                stack.enter_context(munged_hangs(cluster, node.name))
            yield
    finally:
        for node in nodes:
            eventually(f"{node.name} is back", partial(_resumed, node), 400)


@contextlib.contextmanager
def flapping(cluster: Cluster) -> Iterator[None]:
    """A node's GPU is broken and well by turns."""
    node = Node(cluster, "cpu-1")
    for _ in range(4):
        node.prints(BROKEN)
        node.is_drained_for("check:gpu-ecc", 120)
        node.prints(WELL)
        node.is_back(120)
    yield


@contextlib.contextmanager
def records_that_wait(cluster: Cluster) -> Iterator[None]:
    """Jobs run while slurmdbd is not there."""
    with without(cluster, c.ACCOUNTING):
        cluster.run("sbatch --array=1-10 --output=/dev/null --wrap=true")
        yield


@contextlib.contextmanager
def blocked_queue(cluster: Cluster) -> Iterator[None]:
    """An edit of the settings after which slurmctld starts no job, while a node is idle."""
    never = {"parameters": {"defer": True, "sched_interval": -1, "bf_interval": -1}}
    with _slurm(cluster, scheduler=never):
        cluster.run("sbatch --output=/dev/null --wrap=true")
        yield


@contextlib.contextmanager
def _slurm(cluster: Cluster, **settings: Any) -> Iterator[None]:
    """Other settings of Slurm's; no job is left of that time."""
    try:
        with cluster.edited(lambda values: values.update(slurm=settings)):
            cluster.deploy("up")
            yield
    finally:
        cluster.run("scancel --user=researcher")
        cluster.deploy("up")


@contextlib.contextmanager
def refused_configuration(cluster: Cluster) -> Iterator[None]:
    """Somebody edits Prometheus' configuration to one that is none."""
    kind = ("configmap", c.MONITORING_CONFIG)
    before = json.loads(cluster.kubectl("get", *kind, "-o", "json"))["data"]

    def becomes(text: str) -> None:
        data = json.dumps({"data": {monitoringconf.PROMETHEUS_FILE: text}})
        cluster.kubectl("patch", *kind, "--type=merge", f"--patch={data}")

    becomes("none: [")
    try:
        yield
    finally:
        becomes(before[monitoringconf.PROMETHEUS_FILE])


@contextlib.contextmanager
def away_collector(cluster: Cluster) -> Iterator[None]:
    """Whoever takes the daemons' lines answers nothing."""
    there = ("exec", f"--namespace={COLLECTOR_NAMESPACE}", "receiver", "--")
    cluster.kubectl(*there, "touch", AWAY)
    try:
        yield
    finally:
        cluster.kubectl(*there, "rm", AWAY)


# --- Storage -------------------------------------------------------------------------------------


@contextlib.contextmanager
def full_jail(cluster: Cluster) -> Iterator[None]:
    """The jail's storage has a few percent left."""
    with disk(100) as folder, jail_as_the_exporter_sees_it(cluster, folder):
        _fill(folder, 0.02)
        yield


@contextlib.contextmanager
def jail_full_of_files(cluster: Cluster) -> Iterator[None]:
    """The jail's storage takes no further file."""
    with disk(100, inodes=64) as folder, jail_as_the_exporter_sees_it(cluster, folder):
        with contextlib.suppress(OSError):
            for number in range(10_000):
                (folder / str(number)).touch()
        assert os.statvfs(folder).f_ffree == 0
        yield


@contextlib.contextmanager
def jail_that_fills_up(cluster: Cluster) -> Iterator[None]:
    """Somebody writes into a jail of which two thirds are in use, and goes on."""
    with disk(400) as folder, jail_as_the_exporter_sees_it(cluster, folder):
        _fill(folder, 0.35)
        grow = f"while sleep 1; do head --bytes=200K /dev/zero >>{folder}/more; done"
        writer = subprocess.Popen(["sh", "-c", grow])
        try:
            yield
        finally:
            writer.kill()
            writer.wait()


@contextlib.contextmanager
def full_machine(cluster: Cluster) -> Iterator[None]:
    """A disk of a machine has a few percent left."""
    with disk(100) as folder, attached(cluster, "node-1", folder, "/mnt/disk"):
        _fill(folder, 0.05)
        _anew(cluster, c.NODE_EXPORTER, "node-1")
        yield
    _anew(cluster, c.NODE_EXPORTER, "node-1")


@contextlib.contextmanager
def jail_without_an_answer(cluster: Cluster) -> Iterator[None]:
    """The jail's storage falls silent."""
    with storage_server() as (folder, server), jail_as_the_exporter_sees_it(cluster, folder):
        os.kill(server, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(server, signal.SIGCONT)


@contextlib.contextmanager
def wrong_clock(cluster: Cluster) -> Iterator[None]:
    """A node and the storage of what it writes into the jail have clocks that differ."""
    node = Node(cluster, "cpu-1")
    written = f"{volume_path(cluster, c.JAIL_CLAIM)}/var/lib/slurmstack/nodes"
    with storage_server(clock="-1h") as (folder, _):
        with attached(cluster, node.machine, folder, written):
            cluster.replace_pod(node.name)
        yield
        cluster.replace_pod(node.name)
    node.is_back(120)


def _fill(folder: Path, left: float) -> None:
    """Leaves this share of a file system."""
    room = os.statvfs(folder)
    size = int(room.f_frsize * (room.f_bavail - left * room.f_blocks))
    with (folder / "full").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)


def _anew(cluster: Cluster, component: str, machine: str) -> None:
    """A DaemonSet's pod on a machine begins anew, with the mounts that are there now."""
    (name,) = (
        pod["metadata"]["name"]
        for pod in cluster.pods(component)
        if pod["spec"]["nodeName"] == machine
    )
    cluster.kubectl("delete", "pod", name, timeout=120)


# --- Slurm ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def slow_submit_script(cluster: Cluster) -> Iterator[None]:
    """The site's job_submit.lua asks a slow server, and as many users submit as find a thread."""
    lua = """
function slurm_job_submit(job, partitions, uid)
  os.execute("sleep 0.3")
  return slurm.ERROR
end
function slurm_job_modify(job, record, partitions, uid)
  return slurm.SUCCESS
end
return slurm.SUCCESS
"""
    submit = "while [ -e ~/ask ]; do sbatch --quiet --output=/dev/null --wrap=true; done"
    many = f"touch ~/ask; for i in $(seq 45); do {submit} & done >/dev/null 2>&1; wait"
    asking = Thread(target=cluster.ssh, args=(many,), kwargs={"check": False, "timeout": 900})
    with _slurm(cluster, job_submit_lua={"text": lua}), _patient_exporter(cluster):
        asking.start()
        try:
            yield
        finally:
            cluster.run("rm ~/ask")
            asking.join()


@contextlib.contextmanager
def starved_scheduler(cluster: Cluster) -> Iterator[None]:
    """slurmctld gets milliseconds at a time, in which no cycle over all that waits comes to an end.

    What it answers needs less. The schedulers begin with each job that is submitted.
    """
    send = "sbatch --quiet --nodelist=cpu-1 --output=/dev/null --wrap=true"
    submit = f"touch ~/ask; while [ -e ~/ask ]; do {send}; sleep 1; done"
    # Without a gap: what asks is answered in the first one that there is.
    turns = (
        "for p in /proc/[0-9]*; do grep -qx slurmctld $p/comm && pid=${p#/proc/}; done;"
        "touch /tmp/starve; for _ in $(seq 360); do [ -e /tmp/starve ] || break;"
        " kill -STOP $pid; sleep 2.5; kill -CONT $pid; sleep 0.002; done"
    )
    controller = cluster.controller()
    starve = ("sh", "-c", turns)

    kwargs = {"check": False, "timeout": 960}
    both = (
        Thread(target=cluster.in_pod, args=(controller, "slurmctld", *starve), kwargs=kwargs),
        Thread(target=cluster.ssh, args=(submit,), kwargs=kwargs),
    )
    every_job = {"parameters": {"default_queue_depth": 10_000}}
    with _slurm(cluster, scheduler=every_job), _patient_exporter(cluster):
        cluster.run("sbatch --nodes=2 --exclusive --output=/dev/null --wrap='sleep 3600'")
        cluster.run(f"seq 4000 | xargs -P4 -I% {send}", timeout=300)
        for thread in both:
            thread.start()
        try:
            yield
        finally:
            cluster.in_pod(controller, "slurmctld", "rm", "/tmp/starve", check=False)
            cluster.run("rm ~/ask", check=False)
            for thread in both:
                thread.join()


@contextlib.contextmanager
def _patient_exporter(cluster: Cluster) -> Iterator[None]:
    """It reads seldom, and waits as long for an answer: what is slow is not down for it."""
    exporter = f"deployment/{c.EXPORTER}"
    interval = "{.spec.template.spec.containers[*].env[?(@.name=='INTERVAL')].value}"
    before = cluster.kubectl("get", exporter, "-o", f"jsonpath={interval}")

    def reads_every(seconds: str) -> None:
        cluster.kubectl("set", "env", exporter, f"INTERVAL={seconds}")
        cluster.wait_for_deployment(c.EXPORTER)

    try:
        reads_every("30")
        yield
    finally:
        reads_every(before)


@contextlib.contextmanager
def munged_hangs(cluster: Cluster, node: str) -> Iterator[None]:
    """A node's munged gets no time, nor does any that the kubelet starts in its place.

    It is held from the machine, where a new munged is seen before its first answer.
    """
    where = cluster.kubectl("get", "pod", node, "-o", "jsonpath={.spec.nodeName}")
    machine, uid = cluster.computer(where), cluster.pod_uid(node)
    mark = f"/run/hold-{uid}"

    def tell(signal: str) -> str:
        each = f"grep -q {uid} /proc/$p/cgroup && kill -{signal} $p"
        return f"for p in $(pgrep -x munged); do {each}; done"

    hold = f"while [ -e {mark} ]; do {tell('STOP')}; sleep 0.05; done"
    machine.exec_run(["sh", "-c", f"touch {mark}"])
    machine.exec_run(["timeout", "900", "sh", "-c", hold], detach=True)
    try:
        yield
    finally:
        machine.exec_run(["sh", "-c", f"rm {mark}; sleep 1; {tell('CONT')}; true"])


@contextlib.contextmanager
def hanging_munged(cluster: Cluster) -> Iterator[None]:
    """A node's munged hangs however often it is started again; Slurm hears nothing of it."""
    with munged_hangs(cluster, "cpu-1"):
        yield
    # The kubelet may wait for five minutes before it starts it once more.
    Node(cluster, "cpu-1").is_back(400)


@contextlib.contextmanager
def checks_that_cannot_run(cluster: Cluster) -> Iterator[None]:
    """The program of the quick checks is no program any more."""
    nodes = [Node(cluster, name) for name in ("cpu-0", "cpu-1")]
    program = "/usr/lib/slurmstack/check-node"
    for node in nodes:
        node.root(f"chmod a-x {program}")
    try:
        yield
    finally:
        for node in nodes:
            node.root(f"chmod a+x {program}")


@contextlib.contextmanager
def long_checks_that_do_not_begin(cluster: Cluster) -> Iterator[None]:
    """Nobody begins them any more."""
    names = [f"cronjob/{one['metadata']['name']}" for one in cluster.objects("cronjobs")]
    checks = [name for name in names if name.startswith(f"cronjob/{c.LONG_CHECK}-")]

    def suspended(whether: bool) -> None:
        patch = json.dumps({"spec": {"suspend": whether}})
        cluster.kubectl("patch", *checks, f"--patch={patch}")

    assert "Complete" in runs_now(cluster, "network")
    suspended(True)
    try:
        yield
    finally:
        suspended(False)
        _forgotten(cluster, "network")


@contextlib.contextmanager
def slow_memory(cluster: Cluster) -> Iterator[None]:
    """A long check finds less than what is wanted."""
    assert "Failed" in runs_now(cluster, "cpu-memory")
    try:
        yield
    finally:
        operator(cluster, "scontrol", "update", "nodename=cpu-[0-1]", "state=resume")
        _forgotten(cluster, "cpu-memory")


def _forgotten(cluster: Cluster, check: str) -> None:
    """What a long check has found, which is told until it finds something else."""
    series = f"{c.LONG_CHECKS_DATA}/{check}"
    cluster.kubectl("exec", f"deploy/{c.LONG_CHECKS}", "--", "rm", "-r", series)


# --- GPUs ----------------------------------------------------------------------------------------

GPUS_NAMESPACE = "gpu-operator"
_GPU = '{gpu="0",UUID="GPU-5b1c",device="nvidia0",modelName="NVIDIA H200"}'
_TOLD = "/tmp/metrics"
_DCGM = f"""
import http.server
class Exporter(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(open("{_TOLD}", "rb").read())
    def log_message(self, *_):
        pass
open("{_TOLD}", "w").close()
http.server.HTTPServer(("", 9400), Exporter).serve_forever()
"""


@contextlib.contextmanager
def gpus(cluster: Cluster) -> Iterator[None]:
    """Metrics of a GPU as DCGM exporter prints them, where it runs; no machine here has one."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "dcgm", "labels": {"app": "nvidia-dcgm-exporter"}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "exporter",
                    "image": tags.reference("agents"),
                    "command": ["python3", "-c", _DCGM],
                    "ports": [{"name": "metrics", "containerPort": 9400}],
                }
            ],
        },
    }
    there = f"--namespace={GPUS_NAMESPACE}"
    cluster.kubectl("delete", "namespace", GPUS_NAMESPACE, "--ignore-not-found")
    cluster.kubectl("create", "namespace", GPUS_NAMESPACE)
    try:
        cluster.kubectl("apply", there, "--filename=-", stdin=json.dumps(pod))
        cluster.kubectl("wait", there, "--for=condition=Ready", "pod/dcgm", "--timeout=60s")
        yield
    finally:
        cluster.kubectl("delete", "namespace", GPUS_NAMESPACE, "--wait=false")


@contextlib.contextmanager
def ill_gpu(cluster: Cluster) -> Iterator[None]:
    """It has fallen off the bus, a row of its memory cannot be replaced, and it is hot."""
    _gpu_tells(cluster, xid=79, unmapped=1, celsius=92)
    try:
        yield
    finally:
        _gpu_tells(cluster, xid=0, unmapped=0, celsius=41)


def _gpu_tells(cluster: Cluster, xid: int, unmapped: int, celsius: int) -> None:
    values = {
        "DCGM_FI_DEV_XID_ERRORS": xid,
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": unmapped,
        "DCGM_FI_DEV_GPU_TEMP": celsius,
    }
    text = "".join(f"{name}{_GPU} {value}\n" for name, value in values.items())
    there = ("exec", f"--namespace={GPUS_NAMESPACE}", "dcgm", "--stdin", "--")
    cluster.kubectl(*there, "sh", "-c", f"cat >{_TOLD}", stdin=text)


# --- Alerts --------------------------------------------------------------------------------------

Fault = Callable[[Cluster], AbstractContextManager[None]]
QUICK: Mapping[str, tuple[Fault, set[str]]] = {
    "the exporter is gone": (lambda cluster: without(cluster, c.EXPORTER), {"SlurmExporterDown"}),
    "slurmctld is gone": (
        lambda cluster: without(cluster, c.CONTROLLER),
        {"SlurmControllerDown"},
    ),
    "the reconciler is gone": (
        lambda cluster: without(cluster, c.RECONCILER),
        {"SlurmReconcilerNotPassing"},
    ),
    "GPUs of both nodes are broken": (
        broken_gpus,
        {"SlurmNodeHardware", "SlurmNodesDrainedByCause", "SlurmNodeNeedsPerson"},
    ),
    "both nodes are drained": (drained_by_hand, {"SlurmNodesDrained"}),
    "jobs fail on one node": (failing_jobs, {"SlurmJobsFailingOnNode"}),
    "a machine is silent": (lambda cluster: cluster.frozen("node-1"), {"MachineAway"}),
}
"""Faults with the alerts that fire soon after each."""
LASTING: Mapping[str, tuple[Fault, set[str]]] = {
    "no node answers": (silent_nodes, {"SlurmNodesDown"}),
    "a node comes and goes": (flapping, {"SlurmNodeFlapping"}),
    "slurmdbd is gone": (records_that_wait, {"SlurmAccountingNotWritten"}),
    "nothing is scheduled": (blocked_queue, {"SlurmQueueStuck"}),
    "slurmctld is held up": (
        slow_submit_script,
        {"SlurmRpcsSlow", "SlurmServerThreadsHigh"},
    ),
    "the schedulers are starved": (starved_scheduler, {"SlurmSchedulerSlow"}),
    "munged hangs": (hanging_munged, {"SlurmMungeTrouble"}),
    "clocks differ": (wrong_clock, {"SlurmClockTrouble"}),
    "checks cannot run": (checks_that_cannot_run, {"SlurmChecksNotRunning"}),
    "long checks do not begin": (
        long_checks_that_do_not_begin,
        {"SlurmLongChecksNotRunning"},
    ),
    "memory is slow": (slow_memory, {"SlurmLongCheckBad"}),
    "the jail is silent": (jail_without_an_answer, {"SlurmExporterStale"}),
    "the jail is full": (full_jail, {"SlurmJailNearlyFull"}),
    "the jail is full of files": (jail_full_of_files, {"SlurmJailFilesNearlyFull"}),
    "the jail fills up": (jail_that_fills_up, {"SlurmJailFullSoon"}),
    "a machine's disk is full": (full_machine, {"MachineDiskNearlyFull"}),
    "a GPU is ill": (ill_gpu, {"GpuXid", "GpuRowRemapFailed", "GpuHot"}),
    "Prometheus cannot read its files": (
        refused_configuration,
        {"MonitoringConfigRefused"},
    ),
    "the collector of logs is gone": (away_collector, {"SlurmLogsNotSent"}),
}
"""Faults with the alerts that fire once each has lasted."""
