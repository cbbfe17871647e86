"""A stack's local cluster: up, down and status."""

import datetime
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import docker

from components.settings import LocalCluster, Settings
from local import addons, binaries, debian, images, node_image
from local.api import Api, ApiError
from local.configuration import API_PORT, MAX_NODES, Node, node_name
from local.containers import LABEL_DIRECTORY, Engine, NodeContainer, Port
from local.errors import LocalError
from local.paths import KUBECTL
from local.progress import Progress
from local.state import State

START_TIMEOUT = 300
"""Seconds that each step of a start may take."""
DRAIN_TIMEOUT = 60
"""Seconds that `kubectl drain` waits for the pods of a node."""
POLL = 0.25
"""Seconds between two checks of a condition."""
CONTROL_PLANE_LABEL = "node-role.kubernetes.io/control-plane"
ADDONS_RECORD = "slurmstack-addons"
"""ConfigMap with a digest of the applied add-ons. Unchanged add-ons are not applied again."""


@dataclass(frozen=True)
class NodeStatus:
    """A node's state in Docker and Kubernetes."""

    name: str
    container: str
    ready: bool


@dataclass(frozen=True)
class Cluster:
    """The local cluster of a stack."""

    client: docker.DockerClient
    stack: str
    spec: LocalCluster
    login_node_port: int
    images: Sequence[str] = ()
    """References of images for the nodes; Docker must have all of them."""

    @classmethod
    def of(
        cls,
        client: docker.DockerClient,
        stack: str,
        settings: Settings,
        images: Sequence[str] = (),
    ) -> "Cluster":
        """Return the cluster in the settings. Raises LocalError if the cluster is not local."""
        if not isinstance(settings.cluster, LocalCluster) or settings.login.node_port is None:
            raise LocalError(
                f"stack '{stack}': slurmstack:cluster.kind: expected 'local'; choose a stack with a"
                " local cluster"
            )
        return cls(client, stack, settings.cluster, settings.login.node_port, images)

    @property
    def state(self) -> State:
        return State(self.stack)

    @property
    def engine(self) -> Engine:
        return Engine(self.client, self.stack)

    @property
    def api(self) -> Api:
        return Api(self.spec.api_port, self.state.pki)

    # --- Up --------------------------------------------------------------------------------------

    def up(self, progress: Progress) -> None:
        """Create the cluster, or change it to match the settings. Raises LocalError."""
        if self.spec.nodes > MAX_NODES:
            raise LocalError(
                f"slurmstack:cluster.nodes: {self.spec.nodes}: expected at most {MAX_NODES} nodes;"
                " lower the number"
            )
        self._refuse_foreign()
        image, system_image = self._prepare_images(progress)
        if not self.state.has_authority:
            # The files with the cluster's keys are missing, so its containers and volumes cannot
            # be used any more.
            self.engine.remove_all()
        self.state.write_user_files()
        self.state.write_cluster_files(self.spec.api_port)
        with progress.phase("node containers"):
            self._ensure_nodes(image, progress)
        started = self.engine.started()
        with progress.phase("Kubernetes API"):
            self._wait("the Kubernetes API", self.api.is_ready)
        self._apply_addons(system_image, progress)
        with progress.phase("nodes ready"):
            self._wait("the nodes", lambda: self._nodes_are_ready(started))
        self._remove_surplus(progress)
        self._mark_control_plane()
        with progress.phase("DNS and volumes"):
            self._wait("DNS and volumes", lambda: self._addons_run(started))
        if self.images:
            with progress.phase("images"):
                images.load(self.client, self.stack, self.images, progress.note)

    def _refuse_foreign(self) -> None:
        for container in self.engine.nodes().values():
            directory = container.labels.get(LABEL_DIRECTORY)
            if directory != str(self.state.directory):
                raise LocalError(
                    f"stack '{self.stack}': another checkout already runs a cluster of this name,"
                    f" with its data in {directory}; run `make down STACK={self.stack}` in that"
                    " checkout, or rename this stack"
                )

    def _prepare_images(self, progress: Progress) -> tuple[str, str]:
        with ThreadPoolExecutor(1) as pool, progress.phase("Kubernetes binaries"):
            base = pool.submit(debian.ensure_base_image, self.client, progress.note)
            directory = binaries.ensure(progress.note)
            base.result()
        with progress.phase("node image"):
            image = node_image.ensure(self.client, directory, progress.note)
        return image, node_image.system_image(directory)

    def _ensure_nodes(self, image: str, progress: Progress) -> None:
        network = self.engine.ensure_network()
        existing = self.engine.nodes()
        volumes = self.engine.volumes()
        wanted = [
            self._container(Node(ordinal, network, self.spec.runtime), image)
            for ordinal in range(self.spec.nodes)
        ]
        all_are_old = all(node.name in volumes for node in wanted)
        unpacked = "" if all_are_old else self._unpacked(image, progress)
        wanted = [replace(node, unpacked=volumes.get(node.name, unpacked)) for node in wanted]
        with ThreadPoolExecutor(len(wanted)) as pool:
            for _ in pool.map(
                lambda node: self.engine.ensure_node(node, existing.get(node.node.ordinal)),
                wanted,
            ):
                pass

    def _unpacked(self, image: str, progress: Progress) -> str:
        """Return the name of the volume with unpacked images for new nodes; "" without images."""
        if not self.images:
            return ""
        return images.unpacked(self.client, image, self.images, progress.note)

    def _container(self, node: Node, image: str) -> NodeContainer:
        ports = (
            Port(self.spec.api_port, API_PORT, "api_port"),
            Port(self.spec.ssh_port, self.login_node_port, "ssh_port"),
        )
        return NodeContainer(
            stack=self.stack,
            directory=self.state.directory,
            image=image,
            node=node,
            files=self.state.write_node_files(node),
            ports=ports if node.is_control_plane else (),
        )

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while not condition():
            stopped = [
                container.name
                for container in self.engine.nodes().values()
                if container.status not in ("running", "created")
            ]
            if stopped:
                raise LocalError(
                    f"{what}: not ready, because the container {stopped[0]} has stopped; run"
                    f" `docker logs {stopped[0]}` to see why"
                )
            if time.monotonic() > deadline:
                name = f"slurmstack-{self.stack}-{node_name(0)}"
                raise LocalError(
                    f"{what}: not ready after {START_TIMEOUT} s; read the logs in"
                    f" /var/log/slurmstack of the container {name}, then run the command again"
                )
            time.sleep(POLL)

    def _nodes_are_ready(self, started: Mapping[int, datetime.datetime]) -> bool:
        try:
            listed = self.api.get("/api/v1/nodes")["items"]
        except ApiError:
            return False
        ready = {node["metadata"]["name"] for node in listed if node_is_ready(node, started)}
        return ready >= {node_name(ordinal) for ordinal in range(self.spec.nodes)}

    def _addons_run(self, started: Mapping[int, datetime.datetime]) -> bool:
        space = f"namespaces/{addons.NAMESPACE}"
        try:
            deployments = [
                self.api.get(f"/apis/apps/v1/{space}/deployments/{name}")
                for name in addons.DEPLOYMENTS
            ]
            pods = self.api.get(f"/api/v1/{space}/pods")["items"]
        except ApiError:
            return False
        return all(map(is_rolled_out, deployments)) and all(
            any(pod_runs(pod, started) for pod in pods if belongs_to(pod, name))
            for name in addons.DEPLOYMENTS
        )

    def _mark_control_plane(self) -> None:
        path = f"/api/v1/nodes/{node_name(0)}"
        if CONTROL_PLANE_LABEL not in self.api.get(path)["metadata"]["labels"]:
            self.api.merge(path, {"metadata": {"labels": {CONTROL_PLANE_LABEL: ""}}})

    def _apply_addons(self, system_image: str, progress: Progress) -> None:
        address = Node(0, self.engine.ensure_network()).address
        objects = addons.objects(system_image, address)
        digest = node_image.content_digest([json.dumps(objects, sort_keys=True)], ())
        record = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": ADDONS_RECORD, "namespace": addons.NAMESPACE},
            "data": {"digest": digest},
        }
        path = f"/api/v1/namespaces/{addons.NAMESPACE}/configmaps/{ADDONS_RECORD}"
        try:
            if self.api.get(path)["data"] == record["data"]:
                return
        except ApiError as error:
            if error.status != 404:
                raise LocalError(
                    f"stack '{self.stack}': a request to the Kubernetes API failed: {error};"
                    f" check the nodes with `make status STACK={self.stack}`, then run the"
                    " command again"
                ) from error
        with progress.phase("add-ons applied"):
            document = {"apiVersion": "v1", "kind": "List", "items": [*objects, record]}
            result = self.kubectl(
                # Skip validation: kubectl would first read the schemas of all resources.
                ["apply", "--server-side", "--force-conflicts", "--validate=false", "--filename=-"],
                text=json.dumps(document),
            )
            if result.returncode != 0:
                reason = result.stderr.strip().splitlines()[-1:]
                raise LocalError(
                    "kubectl cannot apply the add-ons of the local cluster of stack"
                    f" '{self.stack}': {''.join(reason)}; check the nodes with `python -m"
                    f" local status --stack {self.stack}`, then run the command again"
                )

    def kubectl(
        self, arguments: Sequence[str], text: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator, with `text` on its standard input."""
        return subprocess.run(
            [str(KUBECTL), "--kubeconfig", str(self.state.kubeconfig), *arguments],
            input=text,
            capture_output=True,
            text=True,
        )

    def _remove_surplus(self, progress: Progress) -> None:
        """Remove nodes that exceed the number in the settings, starting with the last node."""
        surplus = {
            ordinal: container
            for ordinal, container in sorted(self.engine.nodes().items(), reverse=True)
            if ordinal >= self.spec.nodes
        }
        for ordinal, container in surplus.items():
            name = node_name(ordinal)
            with progress.phase(f"{name} removed"):
                self.kubectl(
                    [
                        *("drain", name, "--force", "--ignore-daemonsets", "--disable-eviction"),
                        *("--delete-emptydir-data", f"--timeout={DRAIN_TIMEOUT}s"),
                    ]
                )
                # The API still lists pods that did not end in time: delete them after the node.
                pods = self.api.get(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{name}")["items"]
                self.engine.remove_node(container)
                self.api.delete(f"/api/v1/nodes/{name}")
                for pod in pods:
                    metadata = pod["metadata"]
                    self.api.delete(
                        f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
                        "?gracePeriodSeconds=0"
                    )
                network = self.engine.ensure_network()
                self.state.remove_node(Node(ordinal, network))

    # --- Stop, down and status --------------------------------------------------------------------

    def stop(self, progress: Progress) -> None:
        """Stop the nodes and keep their data for the next `up`. Raises LocalError."""
        self._refuse_foreign()
        with progress.phase("node containers stopped"):
            self.engine.stop_all()

    def down(self, progress: Progress) -> None:
        """Remove the cluster and all files below the stack's directory. Raises LocalError."""
        self._refuse_foreign()
        with progress.phase("node containers removed"):
            self.engine.remove_all()
        with progress.phase("data removed"):
            try:
                shutil.rmtree(self.state.directory)
            except FileNotFoundError:
                pass
            except PermissionError as error:
                raise LocalError(
                    f"{error.filename}: cannot be deleted, because a user of the cluster owns it;"
                    " run the command again as root"
                ) from error

    def status(self) -> list[NodeStatus]:
        """Return the existing nodes, and the nodes in the settings that do not exist."""
        existing = self.engine.nodes()
        try:
            listed = self.api.get("/api/v1/nodes")["items"]
        except ApiError:
            listed = []
        started = self.engine.started()
        ready = {node["metadata"]["name"] for node in listed if node_is_ready(node, started)}
        return [
            NodeStatus(
                node_name(ordinal),
                existing[ordinal].status if ordinal in existing else "missing",
                node_name(ordinal) in ready,
            )
            for ordinal in sorted({*existing, *range(self.spec.nodes)})
        ]


# --- The state of API objects --------------------------------------------------------------------


def node_is_ready(node: Mapping[str, Any], started: Mapping[int, datetime.datetime]) -> bool:
    """Return whether a node has reported that it is ready after its container started.

    `started` maps each node's ordinal to the start time of its container.
    """
    since = _started_by_name(started).get(node["metadata"]["name"])
    for condition in node["status"].get("conditions", []):
        if condition["type"] == "Ready" and since is not None:
            reported = datetime.datetime.fromisoformat(condition["lastHeartbeatTime"])
            return bool(condition["status"] == "True" and reported >= since)
    return False


def is_rolled_out(deployment: Mapping[str, Any]) -> bool:
    """Return whether all pods of a Deployment are available and have the latest template."""
    status = deployment["status"]
    wanted = deployment["spec"]["replicas"]
    return status.get("observedGeneration") == deployment["metadata"]["generation"] and all(
        status.get(count, 0) == wanted
        for count in ("replicas", "updatedReplicas", "availableReplicas")
    )


def pod_runs(pod: Mapping[str, Any], started: Mapping[int, datetime.datetime]) -> bool:
    """Return whether a pod is ready, and all its containers started after the node's container."""
    since = _started_by_name(started).get(pod["spec"].get("nodeName", ""))
    containers = pod["status"].get("containerStatuses", [])
    if since is None or not containers:
        return False
    return all(_runs_since(container, since) for container in containers)


def _runs_since(container: Mapping[str, Any], when: datetime.datetime) -> bool:
    running = container["state"].get("running")
    if running is None or not container["ready"]:
        return False
    return datetime.datetime.fromisoformat(running["startedAt"]) >= when


def belongs_to(pod: Mapping[str, Any], deployment: str) -> bool:
    """Return whether the Pod belongs to the Deployment, according to the Pod's name."""
    prefix: str = pod["metadata"].get("generateName", "")
    return prefix.rstrip("-").rpartition("-")[0] == deployment


def _started_by_name(
    started: Mapping[int, datetime.datetime],
) -> dict[str, datetime.datetime]:
    return {node_name(ordinal): when for ordinal, when in started.items()}
