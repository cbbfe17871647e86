"""What a user asks when something is wrong, and the answers of a classic cluster.

For the seeds' guides to trouble with files, the network and the nodes, which they ask by kubectl:
here the user asks. Each command is one of theirs.
"""

import re

import pytest

from tests.cluster.transparency.shown import NODES, PLACES, at, everywhere, one
from tests.support.cluster import Cluster


def slurmctld(cluster: Cluster) -> str:
    """The host and the port at which clients find slurmctld, as they themselves say."""
    config = dict(
        line.split(" = ", 1)
        for line in cluster.run("scontrol show config | sed 's/  *=/ =/'").splitlines()
        if " = " in line
    )
    name = config["SlurmctldHost[0]"].partition("(")[2].rstrip(")")
    return f"{name} {config['SlurmctldPort']}"


def test_is_the_shared_file_system_there(cluster: Cluster) -> None:
    sizes = everywhere(cluster, "df --output=source,size . | tail --lines=1")

    assert int(one(sizes).split()[1]) > 0


def test_is_the_command_there(cluster: Cluster) -> None:
    assert one(everywhere(cluster, "which sbatch")) == "/usr/bin/sbatch"


def test_have_the_nodes_registered(cluster: Cluster) -> None:
    assert set(cluster.nodes()) == set(NODES)
    assert not any("*" in state for state in cluster.nodes().values()), "one does not respond"


def test_would_the_job_run(cluster: Cluster, folder: str) -> None:
    cluster.run(f"printf '#!/bin/sh\\ntrue\\n' >{folder}/test_job.sh")

    answer = cluster.ssh(f"sbatch --test-only --nodes=2 {folder}/test_job.sh")

    assert "to start at" in answer.stderr
    assert "on nodes cpu-[0-1] in partition main" in answer.stderr


def test_does_slurmctld_answer(cluster: Cluster) -> None:
    assert one(everywhere(cluster, "scontrol ping")).endswith("is UP")


@pytest.mark.parametrize("place", PLACES)
def test_is_a_name_resolved(cluster: Cluster, place: str) -> None:
    for host in PLACES:
        told = cluster.run(at(place, f"nslookup {host}"))
        # The last is the host's; before it comes the name server's own.
        address = re.findall(r"^Address: (\S+)$", told, re.MULTILINE)[-1]
        assert address in cluster.run(at(place, f"getent hosts {host}")).split()
        assert f"name = {host}." in cluster.run(at(place, f"nslookup {address}"))


@pytest.mark.parametrize("place", PLACES)
def test_is_slurmctlds_port_reached(cluster: Cluster, place: str) -> None:
    told = cluster.ssh(at(place, f"echo quit | telnet {slurmctld(cluster)}"), check=False).stdout

    assert "Connected to" in told


@pytest.mark.parametrize("place", PLACES)
def test_is_another_node_reached(cluster: Cluster, place: str) -> None:
    for host in PLACES:
        assert " 0% packet loss" in cluster.run(at(place, f"ping -c 1 -W 5 {host}"))


def test_what_is_a_node_doing(cluster: Cluster) -> None:
    told = cluster.run("scontrol show nodes")

    assert [line.split()[0] for line in told.splitlines() if line.startswith("NodeName=")] == [
        f"NodeName={node}" for node in NODES
    ]


def test_why_does_a_job_wait(cluster: Cluster, folder: str) -> None:
    cluster.run(f"cd {folder} && sbatch --exclusive --nodes=2 --job-name=fills --wrap='sleep 60'")
    job = cluster.submit(folder, "#!/bin/sh\ntrue", "--exclusive", "--nodes=2")

    reasons = ("Resources", "Priority")
    told = cluster.run(
        f"squeue --noheader --jobs={job} --format='%T %r'; squeue --start --jobs={job}"
    )

    state, reason = told.split()[:2]
    assert state == "PENDING"
    assert reason in (*reasons, "None"), told  # None: the scheduler has not looked at it yet


def test_what_does_the_controller_do(cluster: Cluster) -> None:
    assert "Main schedule statistics" in cluster.run("sdiag")


@pytest.mark.parametrize(
    ("what", "shown"),
    [
        ("config", "ClusterName"),
        ("partition main", "PartitionName=main"),
        ("node cpu-0", "NodeName=cpu-0"),
        ("hostnames cpu-[0-1]", "cpu-0\ncpu-1"),
        ("hostlist cpu-0,cpu-1", "cpu-[0-1]"),
        ("reservations", "No reservations in the system"),
        ("licenses", "No licenses configured in Slurm."),
        ("daemons", ""),
        ("steps", ""),
        ("version", "slurm-wlm "),
    ],
)
def test_scontrol_shows(cluster: Cluster, what: str, shown: str) -> None:
    command = "scontrol version" if what == "version" else f"scontrol show {what}"

    assert shown in cluster.run(command)
