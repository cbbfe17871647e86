"""Pods in the namespace `lab`, which Slurm schedules."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from tests.support import kube
from tests.support.cluster import Cluster
from tests.support.waiting import becomes, eventually

NAMESPACE = "lab"
ALL_PODS = "everything"
"""Namespace of which Slurm schedules all pods."""
ONLY_PODS = "example.org/only-pods"
"""Label and taint of the machine on which only pods run."""
SCHEDULER = "slurm-bridge"
GANG: dict[str, Any] = {
    "labels": {"slurmstack.dev/gang": "mpi"},
    "annotations": {"slurmstack.dev/gang-size": "2"},
}
"""Labels and annotations of the pods of a gang of two."""
JOB = "slurmstack.dev/job"
_UNASKED = "failed calling webhook"
"""Part of Kubernetes' error while the bridge does not answer."""
Object = dict[str, Any]


class Lab:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.nodes = cluster.wanted_nodes()
        (bridge,) = cluster.pods("bridge")
        self._image = bridge["spec"]["containers"][0]["image"]

    # --- Pods -------------------------------------------------------------------------------------

    def manifest(
        self,
        name: str,
        script: str = "sleep 3600",
        *,
        cpu: str = "100m",
        memory: str = "16Mi",
        devices: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
        **spec: Any,
    ) -> Object:
        """Return a pod of one container. All images of the stack have a shell."""
        size = {"cpu": cpu, "memory": memory, **(devices or {})}
        container = {
            "name": "main",
            "image": self._image,
            "command": ["sh", "-c", script],
            "resources": {"requests": size, "limits": size},
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "annotations": annotations or {},
                "labels": {"app": name, **(labels or {})},
            },
            "spec": {
                "schedulerName": SCHEDULER,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "containers": [container],
                **spec,
            },
        }

    def kubectl(
        self, *arguments: str, namespace: str = NAMESPACE, check: bool = True, **options: Any
    ) -> str:
        """Return kubectl's output, including its errors."""
        answer = self.cluster.kubectl_result("-n", namespace, *arguments, check=check, **options)
        return answer.stdout + answer.stderr

    def create(self, *manifests: Object, check: bool = True, **options: Any) -> str:
        """Create pods. As controllers do, try again while the bridge cannot be asked."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        options["stdin"] = json.dumps(listed)

        def applied() -> str:
            said = self.kubectl("apply", "--server-side", "-f", "-", check=False, **options)
            assert not check or "serverside-applied" in said or _UNASKED in said, said
            return "" if _UNASKED in said else said

        return eventually("Kubernetes can ask the bridge about new pods", applied)

    def delete(self, *names: str, wait: bool = True) -> None:
        self.kubectl("delete", "pod", *names, f"--wait={json.dumps(wait)}", "--ignore-not-found")

    def pods(self) -> dict[str, Object]:
        found = kube.objects(self.cluster.kubeconfig, "pods", NAMESPACE, "")
        return {one["metadata"]["name"]: one for one in found}

    def pod(self, name: str) -> Object:
        return self.pods()[name]

    def machine(self, name: str) -> str:
        """Return the machine of a pod, or "" while it has none."""
        return str(self.pod(name)["spec"].get("nodeName", ""))

    def phase(self, name: str) -> str:
        """Return the phase of a pod, or "" if it does not exist."""
        found = self.pods().get(name)
        return str(found["status"]["phase"]) if found else ""

    def message(self, name: str) -> str:
        """Return why a pod has no machine."""
        conditions = self.pod(name)["status"].get("conditions", ())
        return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")

    def wait_for_message(self, name: str, part: str) -> None:
        """Wait until the reason why a pod has no machine contains a text."""
        eventually(f"the pod says '{part}'", lambda: part in self.message(name))

    def wait_for(self, name: str, phase: str = "Running", timeout: float = 60) -> None:
        try:
            becomes(f"the phase of pod {name}", lambda: self.phase(name), phase, timeout)
        except AssertionError as error:
            shown = json.dumps(self.pods().get(name), indent=1)
            raise AssertionError(f"{error}\n{shown}") from None

    def clear(self) -> None:
        """Delete all pods, and wait until Slurm has freed their resources."""
        self.kubectl("delete", "jobs,pods", "--all", "--wait=false", check=False)
        self.cluster.run("scancel --me")
        becomes("the list of pods", lambda: list(self.pods()), [], 90)
        self.cluster.wait_for_nodes(*self.nodes, timeout=60)

    def machine_of(self, node: str) -> str:
        """Return the machine of a Slurm node."""
        worker = self.cluster.pod(node)
        assert worker
        return str(worker["spec"]["nodeName"])

    @contextlib.contextmanager
    def devices(
        self, name: str, *, number: int = 1, nodes: tuple[str, ...] = ("cpu-0", "cpu-1")
    ) -> Iterator[None]:
        """The machines of these Slurm nodes have devices of this name during the `with` block."""
        # The kubelet would copy the capacity to the allocatable amount only after a while.
        paths = [f"/status/{one}/{name.replace('/', '~1')}" for one in ("capacity", "allocatable")]
        machines = [self.machine_of(node) for node in nodes]

        def patch(**operation: str) -> None:
            operations = [{"path": path, **operation} for path in paths]
            for machine in machines:
                self.cluster.kubectl(
                    *("patch", "node", machine, "--subresource=status", "--type=json"),
                    f"--patch={json.dumps(operations)}",
                )

        patch(op="add", value=str(number))
        try:
            yield
        finally:
            patch(op="remove")

    # --- Faults -----------------------------------------------------------------------------------

    def bridge(self) -> Object:
        """Return the pod of the bridge, of which there is one."""
        (found,) = self.cluster.pods("bridge")
        return found

    def kill_bridge(self) -> None:
        """Kill the process of the bridge, which Kubernetes starts again."""
        bridge = self.bridge()
        name = bridge["metadata"]["name"]
        before = self.cluster.restarts(name)
        self.signal("KILL", bridge)
        eventually("the bridge has started again", lambda: self.cluster.restarts(name) != before)

    def signal(self, signal: str, bridge: Object) -> None:
        """Send a signal to the process of the bridge in a pod.

        The signal comes from the machine: a process that is the first of its container ignores
        KILL and STOP from inside.
        """
        uid = bridge["metadata"]["uid"]
        each = f"grep -q {uid} /proc/$p/cgroup && kill -{signal} $p && echo sent"
        script = f"for p in $(pgrep -x python3); do {each}; done"
        sent = self.cluster.computer(bridge["spec"]["nodeName"]).exec_run(["sh", "-c", script])
        assert b"sent" in sent.output

    # --- Jobs -------------------------------------------------------------------------------------

    def holds(self, node: str, cpus: int) -> int:
        """Submit a job that holds CPUs of a node, and return its number when it runs."""
        options = (f"--nodelist={node}", f"--cpus-per-task={cpus}")
        job = self.cluster.submit("~", "#!/bin/sh\nsleep 600", *options)
        self.cluster.wait_for_job(job, "RUNNING")
        return job

    def job(self, name: str) -> int:
        """Return the job of a pod, when it has one."""
        return int(
            eventually(
                f"pod {name} has a job", lambda: self.pod(name)["metadata"]["labels"].get(JOB)
            )
        )

    def shown(self, job: int, *fields: str) -> list[str]:
        """Return fields of a job, as users see them."""
        text = self.cluster.run(f"scontrol show job {job} --oneliner")
        found = dict(word.split("=", 1) for word in text.split() if "=" in word)
        return [found[field] for field in fields]

    def state(self, job: int) -> str:
        return self.cluster.job_state(job)

    def wait_for_state(self, job: int, state: str, timeout: float = 60) -> None:
        becomes(f"the state of job {job}", lambda: self.state(job), state, timeout)
