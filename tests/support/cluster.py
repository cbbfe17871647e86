"""Access to a running stack: as a user over SSH, as an operator with kubectl and make."""

import contextlib
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import yaml
from docker.models.containers import Container

from agents.kubernetes import Api
from components import conventions as c
from components.settings import read_stack
from local import deploy
from local.paths import ROOT
from tests.support import kube, shell
from tests.support.commands import checked, execute
from tests.support.containers import frozen
from tests.support.waiting import becomes, eventually, patience

NAMESPACE = "slurm"
_CHECKOUT = int(hashlib.sha256(str(ROOT).encode()).hexdigest()[:4], 16)
"""Number of this checkout. Ports derive from it, so that tests of several checkouts can run on one
machine at the same time."""
_CLUSTERS = ("shared", "edits", "nodesets", "health", "single", "other", "bridge")
"""Names of the test clusters. A name's position in this tuple defines the cluster's two ports."""


@dataclass(frozen=True)
class Cluster:
    """One deployed stack with a local cluster."""

    stack: str

    @property
    def directory(self) -> Path:
        return ROOT / ".local" / self.stack

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    @property
    def stack_file(self) -> Path:
        return ROOT / f"Pulumi.{self.stack}.yaml"

    @property
    def state_file(self) -> Path:
        return ROOT / ".local/state/.pulumi/stacks/slurmstack" / f"{self.stack}.json"

    # --- The user ---------------------------------------------------------------------------------

    def ssh(
        self,
        script: str,
        *,
        check: bool = True,
        timeout: float = 120,
        tty: bool = False,
        user: str = "researcher",
        alone: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a script in the user's login shell. If `alone` is true, use a separate connection."""
        config = self.directory / "ssh_config"
        options = ["-tt"] if tty else []
        shared = not (alone or tty)
        ask = shell.command(config, user, *options, shared=shared)
        answer = execute([*ask, script], check=False, timeout=timeout)
        if shared and shell.is_lost(answer):
            ask = shell.command(config, user, shared=False)
            answer = execute([*ask, script], check=False, timeout=timeout)
        return checked(answer) if check else answer

    def wait_for_login(self, timeout: float = 60) -> None:
        """Wait until the user can log in."""
        eventually("login works", lambda: self.ssh("true", check=False).returncode == 0, timeout)

    def log_out(self) -> None:
        """Close the shared connection.

        A login node that shuts down would wait for an open connection. The next connection is also
        a new login, at which sshd reads the user's groups again.
        """
        shell.forget(self.directory / "ssh_config")

    def run(self, script: str, **options: Any) -> str:
        return self.ssh(script, **options).stdout.strip()

    def submit(self, folder: str, script: str, *options: str) -> int:
        """Submit a batch script from `folder`, and return its job id."""
        quoted = script.replace("'", "'\\''")
        command = f"cd {folder} && printf '%s\\n' '{quoted}' >job.sh && sbatch --parsable"
        return int(self.run(f"{command} {' '.join(options)} job.sh").split(";")[0])

    def job_state(self, job: int) -> str:
        return self.run(f"squeue --noheader --states=all --jobs={job} --format=%T").splitlines()[0]

    def wait_for_job(self, job: int, state: str = "COMPLETED", timeout: float = 60) -> None:
        try:
            becomes(f"the state of job {job}", lambda: self.job_state(job), state, timeout)
        except AssertionError as error:
            shown = f"scontrol show job {job}"
            output = f"tail -n 20 \"$({shown} | sed -n 's/^ *StdOut=//p')\""
            asked = self.ssh(f"{shown}; {output}; sinfo -lN; sinfo -R; squeue", check=False)
            raise AssertionError(f"{error}\n{asked.stdout}{asked.stderr}") from None

    def nodes(self) -> dict[str, str]:
        """Return the state of every node in Slurm, such as `idle` or `mix*`."""
        lines = self.run("sinfo --noheader --Node --format='%N %t'").splitlines()
        return dict(tuple(line.split()) for line in lines)  # type: ignore[misc]  # pairs

    def node_on(self, machine: str) -> str:
        """Return a Slurm node on this Kubernetes node."""
        workers = self.pods("worker")
        return str(
            next(pod for pod in workers if pod["spec"]["nodeName"] == machine)["metadata"]["name"]
        )

    def wanted_nodes(self) -> list[str]:
        """Return the names of the nodes in the settings of the stack."""
        settings = read_stack(self.stack, ROOT)
        return [node for nodeset in settings.nodesets for node in settings.nodes(nodeset)]

    def wait_for_nodes(self, *names: str, timeout: float = 90) -> None:
        becomes("the state of each node", self.nodes, dict.fromkeys(names, "idle"), timeout)

    # --- The operator -----------------------------------------------------------------------------

    def kubectl(self, *arguments: str, **options: Any) -> str:
        return self.kubectl_result(*arguments, **options).stdout

    def kubectl_result(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run kubectl, and return its result with exit code and errors."""
        if "delete" in arguments:
            self.log_out()
        kubectl = (ROOT / ".local/bin/kubectl", "--kubeconfig", self.kubeconfig, "-n", NAMESPACE)
        return execute([*kubectl, *arguments], **options)

    def objects(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """Return the objects of a kind, filtered by a label selector."""
        return kube.objects(self.kubeconfig, kind, NAMESPACE, selector)

    def as_account(self, name: str) -> Api:
        """Return the agents' client, with the rights of a service account for an hour."""
        token = self.kubectl("create", "token", name, "--duration=1h").strip()
        return kube.as_account(self.kubeconfig, token)

    def pods(self, component: str) -> list[dict[str, Any]]:
        return self.objects("pods", f"slurmstack.dev/component={component}")

    def in_pod(
        self, pod: str, container: str, *command: str, check: bool = True, timeout: float = 120
    ) -> str:
        """Return a command's output in a container of a pod, or of a Deployment (`deploy/name`)."""
        if "/" in pod:
            words = ("exec", pod, "-c", container, "--", *command)
            return self.kubectl(*words, check=check, timeout=timeout)
        answer = kube.run(self.kubeconfig, NAMESPACE, pod, container, command, timeout)
        return (checked(answer) if check else answer).stdout

    def as_user(self, user: int, group: int, script: str, **options: Any) -> str:
        """Return a script's output in the jail of the login node, as any user, including root."""
        who = f"--userspec={user}:{group}"
        command = ("chroot", who, "--groups=", "/mnt/jail", "sh", "-c", f"cd /; {script}")
        return self.in_pod("login-0", "sshd", *command, **options)

    def replace_pod(self, pod: str) -> None:
        """Delete a pod with a fixed name, and wait until its replacement is ready."""
        before = self.pod_uid(pod)
        self.kubectl("delete", "pod", pod, timeout=240)
        eventually(f"{pod} is replaced", lambda: self.pod_uid(pod) not in ("", before), 60)
        self.kubectl("wait", "--for=condition=Ready", f"pod/{pod}", _within(90))

    def wait_for_deployment(self, name: str) -> None:
        """Wait until one pod of the Deployment is ready. A standby controller is never ready."""
        ready = ("--for=jsonpath={.status.readyReplicas}=1", _within(150))
        self.kubectl("wait", f"deployment/{name}", *ready, timeout=180)

    def wait_for_rollouts(self) -> None:
        """Wait until all pods of every StatefulSet have its latest template and are ready."""
        becomes("the list of StatefulSets with outdated pods", self._outdated, [], 300)

    def _outdated(self) -> list[str]:
        owners = self.objects("statefulsets")
        return [one["metadata"]["name"] for one in owners if not self._is_updated(one)]

    def _is_updated(self, owner: dict[str, Any]) -> bool:
        spec, status = owner["spec"], owner["status"]
        latest = {
            **spec["selector"]["matchLabels"],
            "controller-revision-hash": status.get("updateRevision", ""),
        }
        selector = ",".join(f"{key}={value}" for key, value in latest.items())
        ready = sum(map(is_ready, self.objects("pods", selector)))
        seen = status.get("observedGeneration") == owner["metadata"]["generation"]
        return bool(seen and ready == spec["replicas"])

    def signal(self, signal: str, program: str, pod: str, container: str, **options: Any) -> None:
        """Send a signal, such as STOP, to all processes of a program in a container."""
        each = f"grep -qx {program} $p/comm && kill -{signal} ${{p#/proc/}}"
        script = f"for p in /proc/[0-9]*; do {each}; done; true"
        self.in_pod(pod, container, "sh", "-c", script, **options)

    @contextlib.contextmanager
    def cordoned(self, node: str) -> Iterator[None]:
        """Cordon a Kubernetes node during the `with` block."""
        self.kubectl("cordon", node)
        try:
            yield
        finally:
            self.kubectl("uncordon", node)

    def operate(self, *command: str) -> str:
        """Return the output of a Slurm command that an operator runs."""
        return self.in_pod(self.controller(), "slurmctld", *command)

    def controller(self) -> str:
        """Return the pod with the active slurmctld; a second controller is on standby."""
        return eventually("one controller is active", self._active)

    def _active(self) -> str:
        """Return the pod with the active slurmctld, or "" during a takeover."""
        ready = [pod["metadata"]["name"] for pod in self.pods("controller") if is_ready(pod)]
        return str(ready[0]) if len(ready) == 1 else ""

    def controllers(self) -> dict[str, str]:
        """Return the Kubernetes node of each controller pod."""
        return {
            pod["metadata"]["name"]: pod["spec"].get("nodeName", "")
            for pod in self.pods("controller")
        }

    def serves_on(self, node: str) -> bool:
        """Return whether the active controller is on this Kubernetes node."""
        return self.controllers().get(self._active()) == node

    def move_controller(self, node: str) -> None:
        """Make the controller on this Kubernetes node active. Two nodes have a controller each."""
        if not self.serves_on(node):
            self.kubectl("delete", "pod", self.controller(), timeout=120)
            eventually(f"the controller on {node} is active", lambda: self.serves_on(node))

    def queue(self, controller: str) -> list[str]:
        """Return a controller's jobs with state, nodes and start; [] if slurmctld fails."""
        ask = ("squeue", "-h", "-o", "%A %T %N %S")
        return sorted(self.in_pod(controller, "slurmctld", *ask, check=False).splitlines())

    def settled_queue(self, controller: str) -> list[str]:
        """Return the queue as soon as no job is COMPLETING.

        This state may end at any time, so a queue with such a job may differ from a later queue.
        """

        def settled() -> list[str]:
            jobs = self.queue(controller)
            return [] if any(" COMPLETING " in job for job in jobs) else jobs

        return eventually("no job is completing", settled, 120)

    def computer(self, node: str) -> Container:
        """Return the container of a Kubernetes node."""
        return docker.from_env().containers.get(f"slurmstack-{self.stack}-{node}")

    @contextlib.contextmanager
    def frozen_kubelet(self, machine: str) -> Iterator[None]:
        """Freeze the kubelet of a Kubernetes node during the `with` block."""
        container = self.computer(machine)

        def has_signalled(signal: str) -> bool:
            # One command reads the pid and sends the signal: on a busy machine, Docker once lost a
            # command's output.
            script = f"kill -{signal} $(cat /run/slurmstack/kubelet.pid)"
            return bool(container.exec_run(["sh", "-c", script]).exit_code == 0)

        eventually("kubelet is stopped", lambda: has_signalled("STOP"))
        try:
            yield
        finally:
            eventually("kubelet continues", lambda: has_signalled("CONT"))

    def kill_api_server(self) -> None:
        """Kill the API server of Kubernetes, which then starts again."""
        kill = 'kill -KILL "$(cat /run/slurmstack/kube-apiserver.pid)"'
        self.computer("node-0").exec_run(["sh", "-c", kill])

    @contextlib.contextmanager
    def frozen(self, node: str) -> Iterator[None]:
        """Freeze a Kubernetes node during the `with` block."""
        self.log_out()
        try:
            with frozen(self.computer(node)):
                yield
        finally:
            self.log_out()

    def restarts(self, *names: str) -> dict[str, int]:
        """Return the restart count of each container of these pods, by `pod/container`."""
        return {
            f"{pod['metadata']['name']}/{status['name']}": status["restartCount"]
            for pod in self.objects("pods")
            if not names or pod["metadata"]["name"] in names
            for status in pod["status"]["containerStatuses"]
        }

    def pod(self, name: str) -> dict[str, Any] | None:
        """Return a pod, or None if it does not exist."""
        return kube.find(self.kubeconfig, "pods", NAMESPACE, name)

    def pod_uid(self, name: str) -> str:
        """Return the uid of a pod, or "" if the pod does not exist."""
        pod = self.pod(name)
        return str(pod["metadata"]["uid"]) if pod else ""

    def deploy(
        self,
        verb: str,
        *extra: str,
        check: bool = True,
        timeout: float = 300,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run the embedded engine, as `make` does."""
        self.log_out()
        command, env = self._engine(verb, extra, env or os.environ)
        return execute(command, check=check, timeout=timeout, env=env)

    def start_deploy(self, verb: str) -> subprocess.Popen[bytes]:
        """Start the embedded engine in its own process group, and do not wait for it."""
        command, env = self._engine(verb, (), os.environ)
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _engine(
        self, verb: str, extra: Sequence[str], env: Mapping[str, str]
    ) -> tuple[list[str], dict[str, str]]:
        (command,) = deploy.commands(verb, self.stack, "embedded", extra, sys.executable)
        return command, deploy.environment(self.stack, ROOT, env)

    def up(self) -> None:
        """Deploy the stack as an operator does, with the output on the terminal."""
        command = ["make", "up", f"STACK={self.stack}", "ENGINE=embedded"]
        subprocess.run(command, cwd=ROOT, check=True, timeout=3000)

    def state(self) -> str:
        """Return the states of machines, pods and nodes, and the ends of logs, for diagnosis."""
        slurmctld = ("-c", "slurmctld")
        logs = ("logs", "--selector=slurmstack.dev/component=controller", *slurmctld, "--tail=60")
        asked = (
            ("get", "nodes"),
            *(("logs", f"deploy/{agent}", "--tail=20") for agent in (c.RECONCILER, c.ON_DEMAND)),
            ("get", "pods", "--output=wide"),
            (
                "exec",
                "deploy/controller",
                *slurmctld,
                "--",
                "scontrol",
                "--future",
                "show",
                "nodes",
            ),
            logs,
            (*logs, "--previous"),
        )
        return "\n".join(self.kubectl(*command, check=False) for command in asked)

    def down(self) -> None:
        """Remove the stack and its cluster, and then the stack file, which `make down` needs."""
        self.log_out()
        execute(["make", "down", f"STACK={self.stack}", "ENGINE=embedded"], timeout=300)
        self.stack_file.unlink()

    def edit(self, edit: Callable[[dict[str, Any]], object]) -> None:
        """Edit the settings in the stack file, as an operator does."""
        document = yaml.safe_load(self.stack_file.read_text())
        values = {key.split(":", 1)[1]: value for key, value in document["config"].items()}
        edit(values)
        document["config"] = {f"slurmstack:{key}": value for key, value in values.items()}
        self.stack_file.write_text(stack_text(document))

    @contextlib.contextmanager
    def edited(self, edit: Callable[[dict[str, Any]], object]) -> Iterator[None]:
        """Edit the settings in the stack file, and restore the file afterwards."""
        original = self.stack_file.read_text()
        try:
            self.edit(edit)
            yield
        finally:
            self.stack_file.write_text(original)


Deployed = Callable[[Cluster], AbstractContextManager[Cluster]]
"""A function that deploys a stack for the duration of a `with` block."""


def _within(seconds: float) -> str:
    """Return kubectl's option for a time limit."""
    return f"--timeout={seconds * patience():g}s"


def is_ready(pod: dict[str, Any]) -> bool:
    """Return whether a pod is ready and not terminating."""
    conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", [])}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def stack_text(document: dict[str, Any]) -> str:
    """Return the text of a stack file, with the schema in its first line as in all stack files."""
    head = (ROOT / "Pulumi.dev.yaml").read_text().splitlines()[0]
    return f"{head}\n{yaml.safe_dump(document, sort_keys=False)}"


def write_stack(
    stack: str, edit: Callable[[dict[str, Any]], object] = lambda _: None, **settings: Any
) -> Cluster:
    """Write a copy of the dev stack's file with changed settings, without a deploy.

    `settings` replaces whole keys. `edit` changes parts of them.
    """
    cluster = Cluster(stack)
    document = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text())
    values = {key.split(":", 1)[1]: value for key, value in document["config"].items()}
    values |= {"cluster_name": stack, **settings}
    values["users"][0]["ssh_key_files"] = [f".local/{stack}/id_ed25519.pub"]
    edit(values)
    document["config"] = {f"slurmstack:{key}": value for key, value in values.items()}
    cluster.stack_file.write_text(stack_text(document))
    return cluster


def write_test_stack(
    purpose: str,
    nodes: int = 2,
    edit: Callable[[dict[str, Any]], object] = lambda _: None,
    **settings: Any,
) -> Cluster:
    """Write a stack file for a local cluster with a unique name and unique ports."""
    port = 20000 + 2 * (_CHECKOUT % 800 * len(_CLUSTERS) + _CLUSTERS.index(purpose))
    # The shared cluster, on which most tests run, uses runc, as most Kubernetes clusters do. The
    # other clusters use crun, the default of local clusters.
    runtime = "runc" if purpose == "shared" else "crun"
    cluster = {**local_cluster(nodes, port, port + 1), "runtime": runtime}
    return write_stack(f"test-{purpose}-{_CHECKOUT:04x}", edit, cluster=cluster, **settings)


def local_cluster(nodes: int, api_port: int, ssh_port: int) -> dict[str, Any]:
    """Return the setting `cluster` for `write_stack`."""
    return {"kind": "local", "nodes": nodes, "api_port": api_port, "ssh_port": ssh_port}
