"""Users cannot reach Kubernetes or cloud metadata. Nodes resolve each other's names."""

import pytest

from tests.support.cluster import Cluster
from tests.support.commands import execute

API = "kubernetes.default.svc.cluster.local"
ASK = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
    print("answered")
except OSError as error:
    print(type(error).__name__)
"""
LOOK_BACK = """
import socket, sys
for name in sys.argv[1:]:
    print(socket.gethostbyaddr(socket.gethostbyname(name))[0])
"""


def write(cluster: Cluster, path: str, script: str) -> None:
    cluster.run(f"cat >{path} <<'END'\n{script}\nEND")


@pytest.fixture
def forbidden(cluster: Cluster) -> list[tuple[str, int]]:
    """Addresses that root in a pod can reach, but users cannot."""
    machines = [
        address["address"]
        for node in cluster.objects("nodes")
        for address in node["status"]["addresses"]
        if address["type"] == "InternalIP"
    ]
    api_server = cluster.kubectl(
        *("get", "endpoints", "--namespace=default", "kubernetes"),
        "--output=jsonpath={.subsets[0].addresses[0].ip}",
    )
    return [(API, 443), (api_server, 6443), *((machine, 10250) for machine in machines)]


def test_users_cannot_reach_kubernetes_or_metadata(
    cluster: Cluster, folder: str, forbidden: list[tuple[str, int]]
) -> None:
    write(cluster, f"{folder}/ask", ASK)
    for address, port in [*forbidden, ("169.254.169.254", 80)]:
        ask = f"python3 {folder}/ask {address} {port}"
        output = cluster.run(f"{ask}; srun --nodes=2 {ask}")
        assert output.split() == ["ConnectionRefusedError"] * 3, f"{address}:{port}"


def test_root_in_a_pod_can_reach_kubernetes(
    cluster: Cluster, forbidden: list[tuple[str, int]]
) -> None:
    """Root's success shows that the servers run, and only the pod's packet filter blocks users."""
    for address, port in forbidden:
        ask = f": </dev/tcp/{address}/{port}"
        for pod, container in (("login-0", "sshd"), ("cpu-0", "slurmd")):
            cluster.in_pod(pod, container, "timeout", "10", "bash", "-c", ask)


def test_ssh_forwarding_cannot_reach_kubernetes(cluster: Cluster) -> None:
    config = cluster.directory / "ssh_config"

    answer = execute(["ssh", "-F", config, "-W", f"{API}:443", "login"], check=False)

    assert "Connection refused" in answer.stderr


def test_reverse_lookup_returns_the_host_names(cluster: Cluster, folder: str) -> None:
    hosts = ["cpu-0", "cpu-1", "login-0"]
    write(cluster, f"{folder}/look", LOOK_BACK)
    look = f"python3 {folder}/look {' '.join(hosts)}"

    for where in ("", "srun --nodelist=cpu-1 "):
        names = cluster.run(where + look).split()
        assert [name.partition(".")[0] for name in names] == hosts


def test_host_name_equals_the_slurm_node_name(cluster: Cluster) -> None:
    output = cluster.run("srun --nodes=2 sh -c 'echo $SLURMD_NODENAME $(hostname) $(hostname -s)'")

    for line in output.splitlines():
        assert len(set(line.split())) == 1, line
