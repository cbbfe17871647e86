"""Faults that last during a `with` block, and tables of the alerts that the faults fire.

The docstring of each fault describes the cluster during the block.
"""

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
from tests.cluster.health.node import BROKEN, WELL, Node, runs_now
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
    """A deployment has no replicas."""
    scale = ("scale", f"deployment/{deployment}")
    before = cluster.kubectl("get", *scale[1:], "-o", "jsonpath={.spec.replicas}")

    def is_gone() -> bool:
        # Look at running pods only, because pods of completed Jobs remain.
        return all(pod["status"]["phase"] != "Running" for pod in cluster.pods(deployment))

    try:
        cluster.kubectl(*scale, "--replicas=0")
        eventually(f"{deployment} has no running pod", is_gone, 120)
        yield
    finally:
        cluster.kubectl(*scale, f"--replicas={before}")
        cluster.wait_for_deployment(deployment)


@contextlib.contextmanager
def broken_gpus(cluster: Cluster) -> Iterator[None]:
    """Checks find GPU errors on both nodes."""
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
    """An operator drains both nodes."""
    update = ("scontrol", "update", "nodename=cpu-[0-1]")
    cluster.operate(*update, "state=drain", "reason=mine")
    try:
        yield
    finally:
        cluster.operate(*update, "state=resume")


@contextlib.contextmanager
def failing_jobs(cluster: Cluster) -> Iterator[None]:
    """Many jobs fail on one node within a short time."""
    cluster.run("sbatch --array=1-12 --nodelist=cpu-1 --output=/dev/null --wrap='exit 1'")
    yield


def _resumed(node: Node) -> bool:
    """Return whether the node is in service again.

    If the node is down, resume it, because slurmctld does not contact a node that is down. The
    reconciler would restart the node's pod instead, which does not end this fault.
    """
    if node.state.startswith("down"):
        node.cluster.operate("scontrol", "update", f"nodename={node.name}", "state=resume")
    return node.state == "idle"


@contextlib.contextmanager
def silent_nodes(cluster: Cluster) -> Iterator[None]:
    """Nodes do not answer the ping that slurmctld sends every minute."""
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
    """A node's GPU alternates between broken and healthy."""
    node = Node(cluster, "cpu-1")
    for _ in range(4):
        node.prints(BROKEN)
        node.is_drained_for("check:gpu-ecc", 120)
        node.prints(WELL)
        node.is_back(120)
    yield


@contextlib.contextmanager
def records_that_wait(cluster: Cluster) -> Iterator[None]:
    """Jobs run while slurmdbd is stopped."""
    with without(cluster, c.ACCOUNTING):
        cluster.run("sbatch --array=1-10 --output=/dev/null --wrap=true")
        yield


@contextlib.contextmanager
def blocked_queue(cluster: Cluster) -> Iterator[None]:
    """The settings stop slurmctld from starting jobs, although a node is idle."""
    never = {"parameters": {"defer": True, "sched_interval": -1, "bf_interval": -1}}
    with _slurm(cluster, scheduler=never):
        cluster.run("sbatch --output=/dev/null --wrap=true")
        yield


@contextlib.contextmanager
def _slurm(cluster: Cluster, **settings: Any) -> Iterator[None]:
    """Deploy other Slurm settings. Afterwards, cancel the jobs and restore the settings."""
    try:
        with cluster.edited(lambda values: values.update(slurm=settings)):
            cluster.deploy("up")
            yield
    finally:
        cluster.run("scancel --user=researcher")
        cluster.deploy("up")


@contextlib.contextmanager
def refused_configuration(cluster: Cluster) -> Iterator[None]:
    """Prometheus' configuration becomes invalid."""
    kind = ("configmap", c.MONITORING_CONFIG)
    before = json.loads(cluster.kubectl("get", *kind, "-o", "json"))["data"]

    def write(text: str) -> None:
        data = json.dumps({"data": {monitoringconf.PROMETHEUS_FILE: text}})
        cluster.kubectl("patch", *kind, "--type=merge", f"--patch={data}")

    write("none: [")
    try:
        yield
    finally:
        write(before[monitoringconf.PROMETHEUS_FILE])


@contextlib.contextmanager
def away_collector(cluster: Cluster) -> Iterator[None]:
    """The collector of log lines does not answer."""
    there = ("exec", f"--namespace={COLLECTOR_NAMESPACE}", "receiver", "--")
    cluster.kubectl(*there, "touch", AWAY)
    try:
        yield
    finally:
        cluster.kubectl(*there, "rm", AWAY)


# --- Storage -------------------------------------------------------------------------------------


@contextlib.contextmanager
def full_jail(cluster: Cluster) -> Iterator[None]:
    """The jail's storage has 2 % of free space."""
    with disk(100) as folder, jail_as_the_exporter_sees_it(cluster, folder):
        _fill(folder, 0.02)
        yield


@contextlib.contextmanager
def jail_full_of_files(cluster: Cluster) -> Iterator[None]:
    """The jail's storage has no free inode."""
    with disk(100, inodes=64) as folder, jail_as_the_exporter_sees_it(cluster, folder):
        with contextlib.suppress(OSError):
            for number in range(10_000):
                (folder / str(number)).touch()
        assert os.statvfs(folder).f_ffree == 0
        yield


@contextlib.contextmanager
def jail_that_fills_up(cluster: Cluster) -> Iterator[None]:
    """A process writes continuously into a jail that is two thirds full."""
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
    """A disk of a machine has 5 % of free space."""
    with disk(100) as folder, attached(cluster, "node-1", folder, "/mnt/disk"):
        _fill(folder, 0.05)
        _restart_on(cluster, c.NODE_EXPORTER, "node-1")
        yield
    _restart_on(cluster, c.NODE_EXPORTER, "node-1")


@contextlib.contextmanager
def jail_without_an_answer(cluster: Cluster) -> Iterator[None]:
    """The jail's storage stops answering."""
    with storage_server() as (folder, server), jail_as_the_exporter_sees_it(cluster, folder):
        os.kill(server, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(server, signal.SIGCONT)


@contextlib.contextmanager
def wrong_clock(cluster: Cluster) -> Iterator[None]:
    """The clocks of a node and of its jail's storage differ by an hour."""
    node = Node(cluster, "cpu-1")
    written = f"{volume_path(cluster, c.JAIL_CLAIM)}/var/lib/slurmstack/nodes"
    with storage_server(clock="-1h") as (folder, _):
        with attached(cluster, node.machine, folder, written):
            cluster.replace_pod(node.name)
        yield
        cluster.replace_pod(node.name)
    node.is_back(120)


def _fill(folder: Path, left: float) -> None:
    """Fill a file system until only the part `left` (between 0 and 1) is free."""
    room = os.statvfs(folder)
    size = int(room.f_frsize * (room.f_bavail - left * room.f_blocks))
    with (folder / "full").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)


def _restart_on(cluster: Cluster, component: str, machine: str) -> None:
    """Restart a DaemonSet's pod on a machine, so that the pod sees the current mounts."""
    (name,) = (
        pod["metadata"]["name"]
        for pod in cluster.pods(component)
        if pod["spec"]["nodeName"] == machine
    )
    cluster.kubectl("delete", "pod", name, timeout=120)


# --- Slurm ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def slow_submit_script(cluster: Cluster) -> Iterator[None]:
    """The site's job_submit.lua is slow, so that submissions occupy all threads of slurmctld."""
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
    """slurmctld runs only for milliseconds at a time, too short for a cycle over all pending jobs.

    Requests take less time, so slurmctld still answers them. Each submitted job starts a new cycle
    of the schedulers.
    """
    send = "sbatch --quiet --nodelist=cpu-1 --output=/dev/null --wrap=true"
    submit = f"touch ~/ask; while [ -e ~/ask ]; do {send}; sleep 1; done"
    # Add no other command to the loop: slurmctld would use that time to answer more requests.
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
    """The exporter queries slurmctld rarely and with a long timeout.

    Otherwise, the exporter would report a slow slurmctld as down.
    """
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
    """A node's munged is stopped. Every munged that the kubelet starts later is also stopped.

    A loop on the machine sends the stop signal, which reaches a new munged before its first answer.
    """
    where = cluster.kubectl("get", "pod", node, "-o", "jsonpath={.spec.nodeName}")
    machine, uid = cluster.computer(where), cluster.pod_uid(node)
    mark = f"/run/hold-{uid}"

    def kill_munged(signal: str) -> str:
        each = f"grep -q {uid} /proc/$p/cgroup && kill -{signal} $p"
        return f"for p in $(pgrep -x munged); do {each}; done"

    hold = f"while [ -e {mark} ]; do {kill_munged('STOP')}; sleep 0.05; done"
    machine.exec_run(["sh", "-c", f"touch {mark}"])
    machine.exec_run(["timeout", "900", "sh", "-c", hold], detach=True)
    try:
        yield
    finally:
        machine.exec_run(["sh", "-c", f"rm {mark}; sleep 1; {kill_munged('CONT')}; true"])


@contextlib.contextmanager
def hanging_munged(cluster: Cluster) -> Iterator[None]:
    """A node's munged hangs after every restart, so slurmctld gets no answer from the node."""
    with munged_hangs(cluster, "cpu-1"):
        yield
    # Wait longer than five minutes, the longest pause of the kubelet before its next restart.
    Node(cluster, "cpu-1").is_back(400)


@contextlib.contextmanager
def checks_that_cannot_run(cluster: Cluster) -> Iterator[None]:
    """The program of the quick checks is not executable."""
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
    """The CronJobs of long checks are suspended."""
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
        _delete_history(cluster, "network")


@contextlib.contextmanager
def slow_memory(cluster: Cluster) -> Iterator[None]:
    """A long check measures a value below its threshold."""
    assert "Failed" in runs_now(cluster, "cpu-memory")
    try:
        yield
    finally:
        cluster.operate("scontrol", "update", "nodename=cpu-[0-1]", "state=resume")
        _delete_history(cluster, "cpu-memory")


def _delete_history(cluster: Cluster, check: str) -> None:
    """Delete the measurements of a long check. Metrics would show the last one until the next."""
    series = f"{c.LONG_CHECKS_DATA}/{check}"
    cluster.kubectl("exec", f"deploy/{c.LONG_CHECKS}", "--", "rm", "-r", series)


# --- GPUs ----------------------------------------------------------------------------------------

GPUS_NAMESPACE = "gpu-operator"
_GPU = '{gpu="0",UUID="GPU-5b1c",device="nvidia0",modelName="NVIDIA H200"}'
_METRICS = "/tmp/metrics"
_DCGM = f"""
import http.server
class Exporter(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(open("{_METRICS}", "rb").read())
    def log_message(self, *_):
        pass
open("{_METRICS}", "w").close()
http.server.HTTPServer(("", 9400), Exporter).serve_forever()
"""


@contextlib.contextmanager
def gpus(cluster: Cluster) -> Iterator[None]:
    """A pod serves the metrics of one GPU as DCGM exporter does, because no machine has a GPU."""
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
    """The GPU has fallen off the bus, a row remap has failed, and the GPU is hot."""
    _set_gpu_metrics(cluster, xid=79, unmapped=1, celsius=92)
    try:
        yield
    finally:
        _set_gpu_metrics(cluster, xid=0, unmapped=0, celsius=41)


def _set_gpu_metrics(cluster: Cluster, xid: int, unmapped: int, celsius: int) -> None:
    values = {
        "DCGM_FI_DEV_XID_ERRORS": xid,
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": unmapped,
        "DCGM_FI_DEV_GPU_TEMP": celsius,
    }
    text = "".join(f"{name}{_GPU} {value}\n" for name, value in values.items())
    there = ("exec", f"--namespace={GPUS_NAMESPACE}", "dcgm", "--stdin", "--")
    cluster.kubectl(*there, "sh", "-c", f"cat >{_METRICS}", stdin=text)


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
    "a machine stops answering": (lambda cluster: cluster.frozen("node-1"), {"MachineAway"}),
}
"""Faults with the alerts that fire soon after the fault begins."""
LASTING: Mapping[str, tuple[Fault, set[str]]] = {
    "no node answers": (silent_nodes, {"SlurmNodesDown"}),
    "a node is drained again and again": (flapping, {"SlurmNodeFlapping"}),
    "slurmdbd is gone": (records_that_wait, {"SlurmAccountingNotWritten"}),
    "slurmctld starts no job": (blocked_queue, {"SlurmQueueStuck"}),
    "slurmctld is slow": (
        slow_submit_script,
        {"SlurmRpcsSlow", "SlurmServerThreadsHigh"},
    ),
    "the schedulers get no CPU time": (starved_scheduler, {"SlurmSchedulerSlow"}),
    "munged hangs": (hanging_munged, {"SlurmMungeTrouble"}),
    "clocks differ": (wrong_clock, {"SlurmClockTrouble"}),
    "checks cannot run": (checks_that_cannot_run, {"SlurmChecksNotRunning"}),
    "long checks do not begin": (
        long_checks_that_do_not_begin,
        {"SlurmLongChecksNotRunning"},
    ),
    "memory is slow": (slow_memory, {"SlurmLongCheckBad"}),
    "the jail's storage stops answering": (jail_without_an_answer, {"SlurmExporterStale"}),
    "the jail is full": (full_jail, {"SlurmJailNearlyFull"}),
    "the jail has no free inode": (jail_full_of_files, {"SlurmJailFilesNearlyFull"}),
    "the jail fills up": (jail_that_fills_up, {"SlurmJailFullSoon"}),
    "a machine's disk is full": (full_machine, {"MachineDiskNearlyFull"}),
    "a GPU is broken": (ill_gpu, {"GpuXid", "GpuRowRemapFailed", "GpuHot"}),
    "Prometheus cannot read its files": (
        refused_configuration,
        {"MonitoringConfigRefused"},
    ),
    "the collector of logs is gone": (away_collector, {"SlurmLogsNotSent"}),
}
"""Faults with the alerts that fire only after the fault has lasted for some minutes."""
