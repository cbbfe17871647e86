"""Interactive work: terminals, shells on nodes, interactive allocations.

Covers the interactive debugging that the original requirements describe (`srun --pty --ntasks=1
bash`).
"""

import pytest

from tests.cluster.transparency.shown import NODES, terminal, typed
from tests.support.cluster import Cluster
from tests.support.waiting import eventually


def test_shell_on_a_node_runs_typed_commands(cluster: Cluster) -> None:
    keys = "echo on-$SLURMD_NODENAME-$((6*7))\nexit\n"
    output = typed(cluster, keys, "srun --pty --ntasks=1 bash")

    assert any(f"on-{node}-42" in output for node in NODES), output


def test_shell_on_a_node_has_the_nodes_prompt(cluster: Cluster) -> None:
    output = typed(cluster, "exit\n", "srun --pty --nodelist=cpu-1 bash")

    assert "researcher@cpu-1:~$" in output


def test_shell_on_a_node_has_the_users_terminal_size(cluster: Cluster) -> None:
    output = typed(cluster, "", "stty rows 33 cols 111; srun --pty stty size")

    assert "33 111" in output


def test_a_shell_on_a_node_has_job_control(cluster: Cluster) -> None:
    keys = "sleep 60 &\njobs | sed s/^/listed:/\nkill %1\nexit\n"
    output = typed(cluster, keys, "srun --pty bash")

    assert "listed:[1]+  Running" in output
    assert "no job control" not in output


def test_interrupt_ends_the_command_but_not_the_shell(
    cluster: Cluster,
) -> None:
    with terminal(cluster, "srun --pty bash") as shell:
        assert shell.stdin
        assert shell.stdout
        # Wait for this output: an interrupt right after a fork may get lost.
        shell.stdin.write("sh -c 'echo begun-$((6*7)); exec sleep 300'; echo slept\n")
        shell.stdin.flush()
        assert any("begun-42" in line for line in shell.stdout)

        output, _ = shell.communicate("\x03echo still-$((6*7))\nexit\n", timeout=60)

    assert "still-42" in output
    assert "slept" not in output


def test_interactive_allocation_ends_when_its_shell_exits(cluster: Cluster) -> None:
    keys = "srun --label hostname </dev/null\necho nodes-$SLURM_JOB_NUM_NODES\nexit\n"
    output = typed(cluster, keys, "salloc --nodes=2 --job-name=worked-in")

    for line in ("Granted job allocation", "0: cpu-0", "1: cpu-1", "nodes-2"):
        assert line in output
    assert "Relinquishing job allocation" in output
    eventually(
        "the allocation has ended", lambda: not cluster.run("squeue --noheader --name=worked-in")
    )


def test_steps_run_in_an_allocation_that_has_no_shell(cluster: Cluster) -> None:
    answer = cluster.ssh("salloc --no-shell --nodelist=cpu-1 2>&1").stdout
    job = answer.partition("Granted job allocation ")[2].split()[0]
    try:
        assert cluster.run(f"srun --jobid={job} hostname") == "cpu-1"
    finally:
        cluster.run(f"scancel {job}")


def test_task_reads_the_standard_input_of_srun(cluster: Cluster) -> None:
    assert cluster.run("printf 'one\\ntwo\\n' | srun wc --lines") == "2"


def test_label_option_of_srun_prefixes_lines_with_the_task_number(cluster: Cluster) -> None:
    output = cluster.run("srun --nodes=2 --label echo hello")

    assert sorted(output.splitlines()) == ["0: hello", "1: hello"]


@pytest.mark.parametrize(
    "command", ["srun --pty --job-name={}", "srun --job-name={}", "salloc --job-name={} srun"]
)
def test_terminal_hangup_ends_the_job(cluster: Cluster, command: str) -> None:
    """When a laptop closes, its terminal hangs up, and the session's foreground processes end."""
    name = "hung-up"
    listed = f"squeue --noheader --name={name} --format=%T"
    with terminal(cluster, f"{command.format(name)} sh -c 'echo begun; exec sleep 300'") as session:
        assert session.stdout
        # Wait for the output of the command: while salloc starts its command, it loses a hangup
        # (source: salloc.c of Slurm 24.11).
        assert any("begun" in line for line in session.stdout)

    eventually("the job has ended", lambda: not cluster.run(listed))
