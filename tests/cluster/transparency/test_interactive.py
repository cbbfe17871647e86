"""Interactive work: terminals, shells on nodes, allocations that one works in.

For the seeds' row of interactive debugging (`srun --pty --ntasks=1 bash`) and what belongs to it.
"""

import pytest

from tests.cluster.transparency.shown import NODES, terminal, typed
from tests.support.cluster import Cluster
from tests.support.waiting import eventually


def test_a_shell_on_a_node_does_what_is_typed(cluster: Cluster) -> None:
    keys = "echo on-$SLURMD_NODENAME-$((6*7))\nexit\n"
    shown = typed(cluster, keys, "srun --pty --ntasks=1 bash")

    assert any(f"on-{node}-42" in shown for node in NODES), shown


def test_a_shell_on_a_node_has_a_prompt_of_that_node(cluster: Cluster) -> None:
    shown = typed(cluster, "exit\n", "srun --pty --nodelist=cpu-1 bash")

    assert "researcher@cpu-1:~$" in shown


def test_a_shell_on_a_node_is_as_wide_as_the_users_terminal(cluster: Cluster) -> None:
    shown = typed(cluster, "", "stty rows 33 cols 111; srun --pty stty size")

    assert "33 111" in shown


def test_a_shell_on_a_node_has_job_control(cluster: Cluster) -> None:
    keys = "sleep 60 &\njobs | sed s/^/listed:/\nkill %1\nexit\n"
    shown = typed(cluster, keys, "srun --pty bash")

    assert "listed:[1]+  Running" in shown
    assert "no job control" not in shown


def test_an_interrupt_ends_what_a_shell_on_a_node_runs_and_not_the_shell(
    cluster: Cluster,
) -> None:
    with terminal(cluster, "srun --pty bash") as shell:
        assert shell.stdin
        assert shell.stdout
        # Said by what is to be interrupted: an interrupt of what has just been forked may get lost.
        shell.stdin.write("sh -c 'echo begun-$((6*7)); exec sleep 300'; echo slept\n")
        shell.stdin.flush()
        assert any("begun-42" in line for line in shell.stdout)

        shown, _ = shell.communicate("\x03echo still-$((6*7))\nexit\n", timeout=60)

    assert "still-42" in shown
    assert "slept" not in shown


def test_an_allocation_is_worked_in_and_ends_with_its_shell(cluster: Cluster) -> None:
    keys = "srun --label hostname </dev/null\necho nodes-$SLURM_JOB_NUM_NODES\nexit\n"
    shown = typed(cluster, keys, "salloc --nodes=2 --job-name=worked-in")

    for line in ("Granted job allocation", "0: cpu-0", "1: cpu-1", "nodes-2"):
        assert line in shown
    assert "Relinquishing job allocation" in shown
    eventually("it has ended", lambda: not cluster.run("squeue --noheader --name=worked-in"))


def test_an_allocation_without_a_shell_is_used_by_its_number(cluster: Cluster) -> None:
    answer = cluster.ssh("salloc --no-shell --nodelist=cpu-1 2>&1").stdout
    job = answer.partition("Granted job allocation ")[2].split()[0]
    try:
        assert cluster.run(f"srun --jobid={job} hostname") == "cpu-1"
    finally:
        cluster.run(f"scancel {job}")


def test_what_is_piped_into_srun_its_task_reads(cluster: Cluster) -> None:
    assert cluster.run("printf 'one\\ntwo\\n' | srun wc --lines") == "2"


def test_output_comes_line_by_line_with_the_number_of_its_task(cluster: Cluster) -> None:
    said = cluster.run("srun --nodes=2 --label echo hello")

    assert sorted(said.splitlines()) == ["0: hello", "1: hello"]


@pytest.mark.parametrize(
    "command", ["srun --pty --job-name={}", "srun --job-name={}", "salloc --job-name={} srun"]
)
def test_who_hangs_up_leaves_no_job_behind(cluster: Cluster, command: str) -> None:
    """As a laptop that is closed: with the session ends what ran in its foreground."""
    name = "hung-up"
    listed = f"squeue --noheader --name={name} --format=%T"
    with terminal(cluster, f"{command.format(name)} sh -c 'echo begun; exec sleep 300'") as session:
        assert session.stdout
        # salloc loses a hang-up that comes while it starts its command (salloc.c of Slurm 24.11).
        assert any("begun" in line for line in session.stdout)

    eventually("the job has ended", lambda: not cluster.run(listed))
