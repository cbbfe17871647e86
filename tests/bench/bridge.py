"""The bridge: how fast pods get their machines, compared with Kubernetes' default scheduler, and
how much memory it needs for many pods.

The image of the pods does not exist, so no container starts. While pods are bound, the kubelets are
frozen: otherwise, they would use the processor for pods that are already bound. Slurm's own
processes on the nodes count. This part runs last: it leaves thousands of pods to the removal of the
stack.
"""

import contextlib
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import kubernetes

from tests.bench.figures import Figures, say, seconds
from tests.bench.load import alternate
from tests.support.cluster import Cluster
from tests.support.commands import execute
from tests.support.waiting import eventually

NAMESPACE = "pods"
SCHEDULERS = ("slurm-bridge", "default-scheduler")
MACHINES = 3
"""Each machine has at most 110 pods."""
CPUS = 70
"""CPUs of each node in Slurm, so that all pods fit at the same time."""
PODS, ROUNDS = 200, 4
PENDING, FINISHED, LATENCIES = 1000, 10_000, 50
MANY = 5000
THREADS = 8
LIMIT = 600
"""Seconds that a number of pods may need to get machines."""
Object = dict[str, Any]
CLIENT: Any = kubernetes
"""The client of Kubernetes, which has no complete types."""
JOBS = f"""
set -e
split() {{
  scontrol update "jobid=${{1}}_0-998" comment=split
}}
for _ in $(seq {FINISHED // 1000}); do
  job=$(sbatch --parsable --hold --array=0-999 --output=/dev/null --wrap=true)
  split "$job"
  scancel "$job"
done
for _ in $(seq {PENDING // 1000}); do
  split "$(sbatch --parsable --begin=now+1day --array=0-999 --output=/dev/null --wrap=true)"
done
"""
"""Script that leaves finished and pending jobs. `scontrol update` gives tasks their own records."""


def bridged(values: Object) -> None:
    values["cluster"]["nodes"] = MACHINES
    pods = {"name": "cpu", "replicas": MACHINES, "cpus": CPUS, "memory": "2GiB", "pods_only": True}
    jobs = {"name": "jobs", "replicas": 1, "cpus": 1, "cpu_request": 0.1, "memory": "1GiB"}
    values["nodesets"] = [{**nodeset, "drain_grace": 1} for nodeset in (pods, jobs)]
    values["bridge"] = {"users": [{"namespace": NAMESPACE, "user": values["users"][0]["name"]}]}
    values["slurm"] = {
        "timeouts": {"min_job_age": 36_000},
        "extra": {"slurm.conf": [f"MaxJobCount={2 * (PENDING + FINISHED + MANY)}"]},
    }


def measure(figures: Figures, cluster: Cluster) -> None:
    with cluster.edited(bridged):
        execute([sys.executable, "-m", "local", "up", "--stack", cluster.stack], timeout=1800)
        cluster.kubectl("create", "namespace", NAMESPACE)
        cluster.deploy("up")
        cluster.wait_for_nodes(*cluster.wanted_nodes(), timeout=180)
        pods = Pods(cluster)
        binding(figures, pods, cluster)
        latency(figures, pods, cluster)
        memory(figures, pods, cluster)


class Pods:
    def __init__(self, cluster: Cluster) -> None:
        connection = CLIENT.config.new_client_from_config(str(cluster.kubeconfig))
        self._api = CLIENT.client.CoreV1Api(connection)

    def create(self, names: Iterable[str], scheduler: str) -> None:
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(lambda name: self._create(name, scheduler), names))

    def _create(self, name: str, scheduler: str) -> None:
        size = {"cpu": "1m", "memory": "1Mi"}
        container = {
            "name": "main",
            "image": "bench.invalid/none",
            "imagePullPolicy": "Never",
            "resources": {"requests": size, "limits": size},
        }
        spec = {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        }
        self._api.create_namespaced_pod(NAMESPACE, {"metadata": {"name": name}, "spec": spec})

    def bound(self, names: Sequence[str], scheduler: str) -> float:
        """Create pods; return the seconds until all of them have a machine."""
        version = self._api.list_namespaced_pod(NAMESPACE, limit=1).metadata.resource_version
        waiting = set(names)
        begin = time.monotonic()
        with ThreadPoolExecutor(1) as thread:
            created = thread.submit(self.create, names, scheduler)
            following = CLIENT.watch.Watch()
            for event in following.stream(
                self._api.list_namespaced_pod,
                NAMESPACE,
                resource_version=version,
                timeout_seconds=LIMIT,
            ):
                pod = event["object"]
                if pod.spec.node_name:
                    waiting.discard(pod.metadata.name)
                if not waiting:
                    following.stop()
        took = time.monotonic() - begin
        created.result()
        if waiting:
            raise TimeoutError(f"{len(waiting)} of {len(names)} pods have no machine: {waiting}")
        return took

    def delete(self) -> None:
        self._api.delete_collection_namespaced_pod(NAMESPACE, grace_period_seconds=0)

    def clear(self) -> None:
        self.delete()
        eventually("the pods are gone", lambda: not self.number(), 300)

    def number(self) -> int:
        found = self._api.list_namespaced_pod(NAMESPACE, limit=1)
        return len(found.items) + (found.metadata.remaining_item_count or 0)

    def all_have_jobs(self) -> bool:
        without = {"label_selector": "!slurmstack.dev/job"}
        return not self._api.list_namespaced_pod(NAMESPACE, limit=1, **without).items


def binding(figures: Figures, pods: Pods, cluster: Cluster) -> None:
    say(f"binding {PODS} pods with Slurm and with the default scheduler, {ROUNDS} times")
    names = [f"p{number}" for number in range(PODS)]

    def took(scheduler: str) -> float:
        with contextlib.ExitStack() as frozen:
            for number in range(MACHINES):
                frozen.enter_context(cluster.frozen_kubelet(f"node-{number}"))
            found = pods.bound(names, scheduler)
            # The kubelets must not start these pods.
            pods.delete()
        pods.clear()
        # The processes of the last jobs must not slow the next pods.
        eventually("no job is left", lambda: not cluster.run("squeue --noheader"), 120)
        return found

    sides = [lambda scheduler=scheduler: took(scheduler) for scheduler in SCHEDULERS]
    times = alternate(*sides, rounds=ROUNDS)
    for side, name in enumerate(("with Slurm", "with the default scheduler")):
        figures.add(
            f"{PODS} pods bound, {name}", statistics.median(values[side] for values in times)
        )
    ratio = statistics.median(slurm / default for slurm, default in times)
    figures.add("ratio of Slurm to the default scheduler", ratio, at_most=2)


def latency(figures: Figures, pods: Pods, cluster: Cluster) -> None:
    say(f"creating {FINISHED} finished and {PENDING} pending jobs")
    cluster.ssh(JOBS, timeout=900)
    say(f"binding {LATENCIES} pods one after the other")
    times = [pods.bound([f"q{number}"], SCHEDULERS[0]) for number in range(LATENCIES)]
    pods.clear()
    median = statistics.median(times)
    figures.add("median time from the creation of a pod to its machine", median, at_most=1)


def memory(figures: Figures, pods: Pods, cluster: Cluster) -> None:
    say(f"creating {MANY} pods, of which {MACHINES * CPUS} fit")
    names = [f"r{number}" for number in range(MANY)]
    took = seconds(lambda: pods.create(names, SCHEDULERS[0]))
    say(f"  created in {took:.0f} s")
    took += seconds(lambda: eventually("all pods have a job", pods.all_have_jobs, 1800))
    figures.add(f"{MANY} pods have jobs", took)
    # Let the bridge make some more plans.
    time.sleep(60)
    status = cluster.in_pod("deploy/bridge", "bridge", "cat", "/proc/1/status")
    lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    used = {name: int(lines[name].split()[0]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM")}
    figures.add(f"memory of the bridge with {MANY} pods, in MB", used["VmRSS"], at_most=150)
    figures.add("the most that it has used, in MB", used["VmHWM"])
