"""Tell nodes when Slurm may free the resources of a job, and when slurmd may start.

After a job, each of its nodes runs an epilog, and Slurm gives the job's CPUs and memory to another
job only when the epilog has ended. The epilog of a job of the bridge therefore asks again and again
whether the job's pods on this node have stopped. After a positive answer, the bridge binds no more
pods of this job to this node.

If the pod of a node is replaced, the node's jobs are lost, but the pods of these jobs still run. So
the new pod starts slurmd only after the bridge has deleted them, and they have stopped.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping

from agents.bridge.cluster import Cluster
from agents.bridge.observed import Job, Pod
from agents.bridge.records import Records

RECENT = 10.0
"""Seconds after its last question for which a node counts as waiting. It asks every second."""
SETTLE = 15.0
"""Seconds after the start of slurmd in which slurmctld may still know its former address."""


class Nodes:
    """All methods may be called from several threads at the same time."""

    def __init__(self, cluster: Cluster, records: Records) -> None:
        self._cluster = cluster
        self._records = records
        self._lock = threading.Lock()
        self._machines: Mapping[str, str] = {}
        """Machine of each node."""
        self._starting: dict[str, float] = {}
        """When a node last asked whether it may start on a machine, on a monotonic clock."""
        self._allowed: dict[str, float] = {}
        """When a node was last allowed to start on a machine, on a monotonic clock."""
        self._freed: set[tuple[int, str]] = set()
        """Jobs and machines to which the bridge binds no more pods."""
        self._bound: dict[int, set[str]] = defaultdict(set)
        """For each job, the uids of the pods that this process has bound. The list of pods may be
        older than that."""

    def set_nodes(self, machines: Mapping[str, str]) -> None:
        """Set the machine of each node, by the node's name in Slurm."""
        self._machines = machines

    def forget_all_but(self, jobs: Mapping[int, Job]) -> None:
        """Forget jobs that Slurm no longer knows, or that wait again."""
        with self._lock:
            known = {number for number, job in jobs.items() if not job.waits}
            self._freed = {pair for pair in self._freed if pair[0] in known}
            for job in self._bound.keys() - jobs.keys():
                del self._bound[job]

    def may_free(self, job: int, node: str) -> bool:
        """Return whether a job no longer uses a node, and its pods there have stopped.

        Raises `SlurmError` or `KubernetesError` if this is unknown.
        """
        record = self._records.current(job)
        if record and (record.waits or (not record.is_over and node in record.shares)):
            return False
        machine = self._machines.get(node)
        with self._lock:
            if any(
                # A pod that was just bound may still appear without its machine.
                machine is None or one.spec.node_name in ("", machine)
                for one in self._cluster.running(job, self._bound.get(job, ()))
            ):
                return False
            self._freed.add((job, machine or node))
            return True

    def may_start(self, machine: str) -> bool:
        """Return whether no pod of the bridge runs on the machine of a node that starts.

        Raises `KubernetesError` if this is unknown.
        """
        is_free = not self._cluster.running_on(machine)
        with self._lock:
            if is_free:
                self._starting.pop(machine, None)
                self._allowed[machine] = time.monotonic()
            else:
                self._starting[machine] = time.monotonic()
        return is_free

    def starting(self) -> frozenset[str]:
        """Return the machines on which nodes wait for their start."""
        return self._since(self._starting, RECENT)

    def restarted(self) -> frozenset[str]:
        """Return the machines on which slurmd has just started."""
        return self._since(self._allowed, SETTLE)

    def _since(self, times: Mapping[str, float], seconds: float) -> frozenset[str]:
        """Return the machines whose time was at most this number of seconds ago."""
        now = time.monotonic()
        with self._lock:
            return frozenset(machine for machine, when in times.items() if now - when < seconds)

    def bind(self, job: int, pod: Pod, machine: str, request: Callable[[], object]) -> bool:
        """Send a request that binds a pod, unless Slurm may have freed the job's resources.

        Returns whether the request was sent.
        """
        with self._lock:
            if (job, machine) in self._freed:
                return False
            self._bound[job].add(pod.uid)
            request()
            return True
