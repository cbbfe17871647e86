"""Commands for troubleshooting give users the same answers as without Kubernetes.

The original requirements contain guides to troubleshooting for files, the network and nodes. These
tests cover the guides. The guides use kubectl, but in these tests the user runs the commands that a
Slurm cluster without Kubernetes has.
"""

import re

import pytest

from tests.cluster.transparency.shown import NODES, PLACES, at, common_answer, everywhere
from tests.support.cluster import Cluster


def slurmctld(cluster: Cluster) -> str:
    """Return the host and the port of slurmctld, from the clients' configuration."""
    config = dict(
        line.split(" = ", 1)
        for line in cluster.run("scontrol show config | sed 's/  *=/ =/'").splitlines()
        if " = " in line
    )
    name = config["SlurmctldHost[0]"].partition("(")[2].rstrip(")")
    return f"{name} {config['SlurmctldPort']}"


def test_df_shows_the_shared_file_system(cluster: Cluster) -> None:
    sizes = everywhere(cluster, "df --output=source,size . | tail --lines=1")

    assert int(common_answer(sizes).split()[1]) > 0


def test_command_which_finds_sbatch(cluster: Cluster) -> None:
    assert common_answer(everywhere(cluster, "which sbatch")) == "/usr/bin/sbatch"


def test_all_nodes_are_registered(cluster: Cluster) -> None:
    assert set(cluster.nodes()) == set(NODES)
    assert not any("*" in state for state in cluster.nodes().values()), "all nodes respond"


def test_option_test_only_of_sbatch_predicts_the_nodes(cluster: Cluster, folder: str) -> None:
    cluster.run(f"printf '#!/bin/sh\\ntrue\\n' >{folder}/test_job.sh")

    answer = cluster.ssh(f"sbatch --test-only --nodes=2 {folder}/test_job.sh")

    assert "to start at" in answer.stderr
    assert "on nodes cpu-[0-1] in partition main" in answer.stderr


def test_scontrol_ping_reports_slurmctld_up(cluster: Cluster) -> None:
    assert common_answer(everywhere(cluster, "scontrol ping")).endswith("is UP")


@pytest.mark.parametrize("place", PLACES)
def test_nslookup_resolves_forward_and_reverse_names(cluster: Cluster, place: str) -> None:
    for host in PLACES:
        output = cluster.run(at(place, f"nslookup {host}"))
        # nslookup first prints the address of the name server. The last address is that of the
        # host.
        address = re.findall(r"^Address: (\S+)$", output, re.MULTILINE)[-1]
        assert address in cluster.run(at(place, f"getent hosts {host}")).split()
        assert f"name = {host}." in cluster.run(at(place, f"nslookup {address}"))


@pytest.mark.parametrize("place", PLACES)
def test_telnet_can_connect_to_the_port_of_slurmctld(cluster: Cluster, place: str) -> None:
    output = cluster.ssh(at(place, f"echo quit | telnet {slurmctld(cluster)}"), check=False).stdout

    assert "Connected to" in output


@pytest.mark.parametrize("place", PLACES)
def test_ping_reaches_every_node(cluster: Cluster, place: str) -> None:
    for host in PLACES:
        assert " 0% packet loss" in cluster.run(at(place, f"ping -c 1 -W 5 {host}"))


def test_scontrol_lists_all_nodes(cluster: Cluster) -> None:
    output = cluster.run("scontrol show nodes")

    assert [line.split()[0] for line in output.splitlines() if line.startswith("NodeName=")] == [
        f"NodeName={node}" for node in NODES
    ]


def test_squeue_shows_why_a_job_is_pending(cluster: Cluster, folder: str) -> None:
    cluster.run(f"cd {folder} && sbatch --exclusive --nodes=2 --job-name=fills --wrap='sleep 60'")
    job = cluster.submit(folder, "#!/bin/sh\ntrue", "--exclusive", "--nodes=2")

    reasons = ("Resources", "Priority")
    output = cluster.run(
        f"squeue --noheader --jobs={job} --format='%T %r'; squeue --start --jobs={job}"
    )

    state, reason = output.split()[:2]
    assert state == "PENDING"
    assert reason in (*reasons, "None"), output  # None: the scheduler has not evaluated the job yet


def test_sdiag_prints_scheduler_statistics(cluster: Cluster) -> None:
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
def test_scontrol_prints_each_kind_of_record(cluster: Cluster, what: str, shown: str) -> None:
    command = "scontrol version" if what == "version" else f"scontrol show {what}"

    assert shown in cluster.run(command)
