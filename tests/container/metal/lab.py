"""Containers with sshd in place of machines, and a stack that creates a cluster on them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import docker
import yaml
from docker.models.containers import Container

from local import binaries, node_image
from local.configuration import CONFIG, POD_RANGE, Node, kube_proxy, kubelet, node_files
from local.containers import IMAGES, Engine, NodeContainer
from local.paths import KUBECTL, ROOT, write
from tests.support import open_shells
from tests.support.waiting import eventually

HERE = Path(__file__).parent
STATE = "/var/lib/slurmstack"
"""Folder in which the stack's scripts create marker files."""
REPOSITORY = "slurmstack.test/kubernetes"
"""Image repository in kubeadm's configuration. It does not exist, so no image can be pulled."""
KUBEADM = replace(
    binaries.BUILDS[0],
    binary="kubeadm",
    module=str(HERE / "go"),
    package="k8s.io/kubernetes/cmd/kubeadm",
)
"""kubeadm, built from the same release as the other programs of the local cluster."""
RELEASE = binaries.KUBERNETES_VERSION.removeprefix("v")
PROGRAM = """
import pulumi
import pulumi_kubernetes as k8s
from components import cluster
from components.settings import from_config

settings = from_config(pulumi.runtime.get_config_env())
ground = cluster.make(settings, "dev")
(nodeset,) = settings.nodesets
if nodeset.replicas:
    machines = ground.node_classes[nodeset.name]
    # Use a controller, which replaces a rejected pod: a kubelet that does not know the new labels
    # of its node yet rejects a pod with a nodeSelector.
    k8s.apps.v1.StatefulSet(
        "pod",
        metadata={"name": "pod", "namespace": "default"},
        spec={
            "serviceName": "pod",
            "selector": {"matchLabels": {"app": "pod"}},
            "template": {
                "metadata": {"labels": {"app": "pod"}},
                "spec": {
                    "nodeSelector": machines.labels,
                    "tolerations": machines.tolerations(),
                    "terminationGracePeriodSeconds": 0,
                    "containers": [
                        {
                            "name": "pod",
                            "image": pulumi.Config("test").require("image"),
                            "command": ["sleep", "3600"],
                            "imagePullPolicy": "IfNotPresent",
                        }
                    ],
                },
            },
        },
        opts=pulumi.ResourceOptions(
            provider=cluster.provider(ground), depends_on=[*ground.ready]
        ),
    )
pulumi.export("kubeconfig", ground.kubeconfig)
"""
OF_THE_NODES = (
    *("cgroupDriver", "enforceNodeAllocatable", "evictionHard", "failCgroupV1", "failSwapOn"),
    *("imageGCHighThresholdPercent", "imageGCLowThresholdPercent", "oomScoreAdj"),
    *("systemReserved", "volumeStatsAggPeriod"),
)
"""Settings of the kubelet that a node in a container needs."""
MACHINES = 3
Values = dict[str, Any]


@dataclass(frozen=True)
class Machine:
    """A container with sshd."""

    name: str
    address: str
    container: Container

    def run(self, command: str, check: bool = True) -> str:
        """Run a shell command as root on the machine, and return its output."""
        code, text = open_shells.run(self.container, command)
        assert code == 0 or not check, f"{self.name}: {command}: exit code {code}: {text}"
        return text.strip()

    def exists(self, path: str) -> bool:
        return self.run(f"compgen -G '{path}' || true") != ""

    def settings(self, **more: Any) -> Values:
        """Return the machine's entry in the settings."""
        key = self.run("cat /etc/ssh/ssh_host_ed25519_key.pub")
        return {"name": self.name, "address": self.address, "host_key": key, **more}


@dataclass
class Lab:
    """The machines and their stack, which the embedded engine deploys in a separate process."""

    root: Path
    machines: tuple[Machine, ...]
    image: str
    cluster: Values = field(default_factory=dict)
    nodeset: Values = field(default_factory=dict)

    @property
    def head(self) -> Machine:
        return self.machines[0]

    @property
    def worker(self) -> Machine:
        return self.machines[1]

    def write(self) -> None:
        """Write the settings for the next deploy."""
        values = {
            "slurmstack:cluster_name": "lab",
            "slurmstack:registry": "registry.example.org/hpc",
            "slurmstack:protect_data": False,
            "slurmstack:nodesets": [self.nodeset],
            "slurmstack:cluster": self.cluster,
            "test:image": self.image,
        }
        (self.root / "Pulumi.dev.yaml").write_text(yaml.safe_dump({"config": values}))

    def engine(self, *words: str) -> subprocess.Popen[str]:
        """Start an engine command."""
        self.write()
        return subprocess.Popen(
            [sys.executable, "-m", "engine", *words, "--stack", "dev", "--cwd", str(self.root)],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PULUMI_BACKEND_URL": f"file://{self.root}",
                "PULUMI_CONFIG_PASSPHRASE": "none",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def deploy(self, *words: str, fails: bool = False) -> str:
        """Run an engine command, and return its output."""
        output, _ = (process := self.engine(*words)).communicate(timeout=600)
        assert (process.returncode != 0) == fails, output
        return output

    def up(self, fails: bool = False) -> str:
        return self.deploy("up", "--yes", fails=fails)

    def kubectl(self, *words: str) -> Any:
        """Query the API with the kubeconfig that the stack exports."""
        kubeconfig = self.root / "kubeconfig"
        write(kubeconfig, self.deploy("stack", "output", "kubeconfig", "--show-secrets"))
        done = subprocess.run(
            [str(KUBECTL), "--kubeconfig", str(kubeconfig), *words, "--output", "json"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def nodes(self) -> dict[str, Values]:
        """Return the ready Nodes by name."""
        return {
            node["metadata"]["name"]: node
            for node in self.kubectl("get", "nodes")["items"]
            if {"type": "Ready", "status": "True"}.items()
            in [
                {"type": one["type"], "status": one["status"]}.items()
                for one in node["status"]["conditions"]
            ]
        }


def is_clean(machine: Machine) -> bool:
    """Return whether a machine has no files or processes of a cluster."""
    left = [
        path
        for path in ("/etc/kubernetes/*", "/var/lib/etcd", "/var/lib/kubelet/pki", f"{STATE}/*")
        if machine.exists(path)
    ]
    running = machine.run("pgrep -x 'kubelet|etcd|kube-apiserver' || true")
    tasks = machine.run("ctr --namespace k8s.io tasks list --quiet")
    return not (left or running or tasks)


# --- Images --------------------------------------------------------------------------------------


def machine_image(client: docker.DockerClient, node: str, pause: str, folder: Path) -> str:
    """Build the image of a machine, based on the image of the local cluster's nodes."""
    for name in ("Dockerfile", "machine.sh", "systemctl"):
        shutil.copy(HERE / name, folder / name)
    shutil.copy(binaries.ensure_further(KUBEADM, print), folder / "kubeadm")
    containerd = (ROOT / "local/node/containerd.toml").read_text()
    (folder / "containerd.toml").write_text(
        containerd.replace("@SYSTEM_IMAGE@", pause).replace(f"{CONFIG}/cni", "/etc/cni/net.d")
    )
    image, _ = client.images.build(
        path=str(folder),
        tag="slurmstack/machine:test",
        rm=True,
        forcerm=True,
        network_mode="host",
        buildargs={
            "NODE": node,
            **{name: os.environ[name] for name in node_image.PROXIES if os.environ.get(name)},
        },
    )
    return cast(str, image.id)


def kubernetes_images(kubeadm: Path) -> list[str]:
    """Return the names of the images that kubeadm requires."""
    done = subprocess.run(
        [
            *(str(kubeadm), "config", "images", "list"),
            *("--image-repository", REPOSITORY, "--kubernetes-version", f"v{RELEASE}"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in done.stdout.split() if "coredns" not in name]


@contextlib.contextmanager
def saved(
    client: docker.DockerClient, node: str, system: str, names: list[str], archive: Path
) -> Iterator[None]:
    """Save local images under the names that kubeadm requires.

    Docker has these names only during the `with` block.
    """
    try:
        for name in names:
            source = client.images.get(system if "/pause:" in name else node)
            source.tag(*name.rsplit(":", 1))
        archive.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["docker", "save", "--output", str(archive), system, *names], check=True, timeout=300
        )
        yield
    finally:
        for name in names:
            with contextlib.suppress(docker.errors.ImageNotFound):
                client.images.remove(name, noprune=True)


# --- Machines ------------------------------------------------------------------------------------


def prepare(machine: Machine) -> None:
    """Wait until the machine runs, and import the images, because kubeadm cannot pull them."""
    up = "pgrep -x sshd && ctr version >&2 && echo up"
    eventually(
        f"{machine.name} is up", lambda: machine.run(up, check=False).endswith("up"), timeout=60
    )
    machine.run(f"ctr --namespace k8s.io images import {IMAGES}/kubernetes.tar")


def start(engine: Engine, image: str, node: Node, directory: Path, public: bytes) -> None:
    """Start a machine with the operator's key, and with routes to the pods of other machines."""
    wanted = ("node.env", "routes", "cni/10-pods.conflist")
    files = {name: text for name, text in node_files(node).items() if name in wanted}
    for name, text in {**files, "authorized_keys": public.decode()}.items():
        write(directory / "nodes" / node.name / name, text, 0o644)
    (directory / "volumes").mkdir(exist_ok=True)
    engine.ensure_node(NodeContainer(engine.stack, directory, image, node, {}, ()), None)


def the_lab(root: Path, machines: list[Machine], key: bytes, system: str, nodes: list[Node]) -> Lab:
    write(root / "key", key)
    (root / "Pulumi.yaml").write_text("name: lab\nruntime: python\n")
    (root / "__main__.py").write_text(PROGRAM)
    kubelet_config = kubelet(nodes[0])
    proxy_config = kube_proxy(nodes[0])
    head, worker, _ = machines
    return Lab(
        root,
        tuple(machines),
        f"docker.io/{system}",
        cluster={
            "kind": "metal",
            "release": RELEASE,
            "control_planes": [head.name],
            "key_file": str(root / "key"),
            "pods": str(POD_RANGE),
            "machines": [
                head.settings(),
                # Log in as a user with sudo: on most cloud machines, root cannot log in.
                worker.settings(user="admin", nodeset="cpu"),
            ],
            "kubeadm": {
                "ClusterConfiguration": {
                    "imageRepository": REPOSITORY,
                    "dns": {"disabled": True},
                    # etcd is faster without fsync. A test cluster need not survive a power failure.
                    "etcd": {
                        "local": {"extraArgs": [{"name": "unsafe-no-fsync", "value": "true"}]}
                    },
                },
                "KubeletConfiguration": {name: kubelet_config[name] for name in OF_THE_NODES},
                "KubeProxyConfiguration": {
                    name: proxy_config[name] for name in ("conntrack", "mode", "oomScoreAdj")
                },
                "nodeRegistration": {"ignorePreflightErrors": ["SystemVerification"]},
            },
        },
        nodeset={"name": "cpu", "replicas": 1, "cpus": 1, "memory": "1GiB", "drain_grace": 0},
    )
