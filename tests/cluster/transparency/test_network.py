"""Names of nodes resolve in both directions, and users' programs can open ports.

Covers the network transparency of the original requirements: usual host names, standard ports, and
names that resolve to addresses. The tests run on the login node, on workers and in jobs.
"""

import ipaddress

import pytest

from tests.cluster.transparency.shown import NODES, PLACES, everywhere, write
from tests.support.cluster import Cluster
from tests.support.commands import execute

LISTEN = """
import socket, sys
server = socket.create_server(("", int(sys.argv[1])))
server.settimeout(60)
print("listens", flush=True)
for _ in range(int(sys.argv[2])):
    client, _ = server.accept()
    client.sendall(socket.gethostname().encode() + b"\\n")
    client.close()
"""
ASK = """
import socket, sys, time
for attempt in range(150):
    try:
        server = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
        print(server.makefile().readline(), end="")
        break
    except ConnectionRefusedError:
        time.sleep(0.2)
"""


@pytest.fixture
def addresses(cluster: Cluster) -> dict[str, str]:
    """Return the address of each node's pod in Kubernetes."""
    pods = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in cluster.objects("pods")}
    return {place: pods[place] for place in PLACES}


@pytest.mark.parametrize("place", [*PLACES, "slurmd container"])
def test_names_resolve_forward_and_reverse(
    cluster: Cluster, addresses: dict[str, str], place: str
) -> None:
    def ask(name: str) -> list[str]:
        if place == "slurmd container":
            return cluster.in_pod("cpu-0", "slurmd", "getent", "hosts", name).split()
        prefix = "" if place == "login-0" else f"srun --nodelist={place} "
        return cluster.run(f"{prefix}getent hosts {name}").split()

    for host, address in addresses.items():
        assert ask(host)[0] == address
        names = [name.partition(".")[0] for name in ask(address)[1:]]
        assert set(names) == {host}


def test_host_name_of_a_node_is_its_slurm_name(cluster: Cluster) -> None:
    ask = """hostname; hostname -s; uname -n; cat /etc/hostname
python3 -c 'import socket; print(socket.gethostname())'"""

    for place, output in everywhere(cluster, ask).items():
        assert output.split() == [place] * 5


def test_slurm_uses_short_node_names(cluster: Cluster) -> None:
    output = cluster.run(
        "sinfo --noheader --Node --format='%N %n'; srun --nodes=2 printenv SLURMD_NODENAME"
    )

    assert set(output.split()) == set(NODES)


def test_own_host_name_does_not_resolve_to_a_loopback_address(
    cluster: Cluster, addresses: dict[str, str]
) -> None:
    """Programs send this address to other nodes. A loopback address would be useless there."""
    for place, output in everywhere(cluster, "getent hosts $(hostname)").items():
        address = output.split()[0]
        assert address == addresses[place]
        assert not ipaddress.ip_address(address).is_loopback


def test_resolver_has_a_search_domain_for_short_names(cluster: Cluster) -> None:
    for output in everywhere(cluster, "grep ^search /etc/resolv.conf").values():
        assert len(output.split()) > 1


@pytest.mark.parametrize(("key", "port"), [("SlurmctldPort", 6817), ("SlurmdPort", 6818)])
def test_slurm_uses_its_standard_ports(cluster: Cluster, key: str, port: int) -> None:
    output = cluster.run(f"scontrol show config | sed -n 's/^{key} *= //p'")

    assert int(output) == port


def test_server_in_a_job_is_reachable_from_everywhere(cluster: Cluster, folder: str) -> None:
    """Users open notebooks and dashboards from jobs, login nodes, and through ssh from outside."""
    port = 8888
    write(cluster, f"{folder}/listen", LISTEN)
    write(cluster, f"{folder}/ask", ASK)
    cluster.submit(folder, f"#!/bin/sh\npython3 listen {port} 3", "--nodelist=cpu-0")
    ask = f"python3 {folder}/ask cpu-0 {port}"

    assert cluster.run(f"{ask}; srun --nodelist=cpu-1 {ask}").split() == ["cpu-0"] * 2
    config = str(cluster.directory / "ssh_config")
    forwarded = execute(["ssh", "-F", config, "-W", f"cpu-0:{port}", "login"], check=False)
    assert forwarded.stdout == "cpu-0\n", forwarded.stderr


def test_tasks_of_a_job_can_connect_to_its_first_node(cluster: Cluster, folder: str) -> None:
    """Machine learning frameworks connect to an address that the script computes."""
    write(cluster, f"{folder}/listen", LISTEN)
    write(cluster, f"{folder}/ask", ASK)
    script = """#!/bin/bash
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head --lines=1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
srun bash -c '
  if [ $SLURM_PROCID = 0 ]; then python3 listen $MASTER_PORT 2 >/dev/null & fi
  echo $SLURMD_NODENAME met $(python3 ask $MASTER_ADDR $MASTER_PORT); wait'"""
    write(cluster, f"{folder}/job.sh", script)
    cluster.run(f"cd {folder} && sbatch --nodes=2 --wait --output=out job.sh")

    assert sorted(cluster.run(f"cat {folder}/out").splitlines()) == [
        "cpu-0 met cpu-0",
        "cpu-1 met cpu-0",
    ]
