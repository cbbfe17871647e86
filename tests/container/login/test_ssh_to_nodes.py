"""`ssh cpu-0` on a login node or in a job enters the user's job on the node cpu-0."""

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from components import conventions as c
from components.identity import users as people
from components.settings import Settings
from components.settings.isolation import Isolation
from components.slurm.nodeset import SLURMD_CAPABILITIES
from components.slurmconf import node_options
from tests.container.login.node import NODE_SSH, LoginNode, run
from tests.support.containers import put
from tests.support.slurmctld import Slurmctld, start_worker
from tests.support.waiting import eventually

NODE = "cpu-0"
# These directories need volumes: an overlay cannot be on the container's root, which is an overlay.
OWN = [c.WORKER_SCRATCH, c.WORKER_SPOOL]


def start_node(started: LoginNode, config: Settings, name: str) -> Slurmctld:
    """Start a node that shares the login node's jail, with the default isolation of jobs."""

    def prepare(worker: Slurmctld) -> None:
        nodeset = next(one for one in config.nodesets if one.name == "cpu")
        accounts = {"passwd": people.passwd(config.users), "group": people.group(config.users)}
        put(
            worker.container,
            {
                **{f"{c.EXTRAUSERS}/{name}": text for name, text in accounts.items()},
                **NODE_SSH,
                f"{c.NODE_SETTINGS}/{c.NODE_OPTIONS}": node_options(nodeset),
            },
        )
        worker.run(f"mkdir -p {c.PROGRAMS}/scripts && chmod 0700 {c.WORKER_SCRATCH}", user="root")

    node = start_worker(
        started.start_container,
        started.secret,
        name,
        "CPUs=8 RealMemory=4000 Feature=cpu",
        started.slurmctld,
        before=prepare,
        cap_drop=["ALL"],
        cap_add=list(SLURMD_CAPABILITIES),
        security_opt=["seccomp=unconfined", "apparmor=unconfined"],
        volumes=[f"{started.jail}:{c.JAIL}", *OWN],
    )
    # slurmctld connects to srun by its host name. An unresolvable name would block slurmctld for
    # ten seconds.
    for address, host in ((started.daemons.address, "login-0"), (node.address, name)):
        started.slurmctld.run(f"echo '{address} {host}' >>/etc/hosts", user="root")
    idle = f"sinfo --noheader --nodes={name} --format=%T"
    eventually("the node is idle", lambda: "idle" in started.slurmctld.run(idle))
    return node


@pytest.fixture(scope="module")
def worker(started: LoginNode, config: Settings) -> Slurmctld:
    return start_node(started, config, NODE)


@pytest.fixture
def node(login: LoginNode, worker: Slurmctld) -> Iterator[Slurmctld]:
    """The node. After the test, the fixture cancels all jobs."""
    yield worker
    login.slurmctld.run("scancel --user=researcher --quiet; scancel --user=student --quiet")
    left = f"squeue --noheader --nodelist={NODE}"
    eventually("no job is left", lambda: not login.slurmctld.run(left))


def submit(login: LoginNode, *options: str, user: str = "researcher", setup: str = "") -> str:
    """Submit a job. Return its id after the commands of `setup` have ended."""
    script = f"{setup or 'true'}; touch $SLURM_JOB_ID; sleep 300"
    job = login.answer(
        f"sbatch --parsable --output=/dev/null {' '.join(options)} --wrap {shlex.quote(script)}",
        user=user,
    )
    runs = f"test -e {job} && echo yes || true"
    eventually("the job runs", lambda: login.answer(runs, user=user) == "yes")
    return job


def inside(
    login: LoginNode, script: str, *options: str, user: str = "researcher", **given: str
) -> subprocess.CompletedProcess[str]:
    """Run a script on the node with ssh from the login node."""
    command = ["ssh", "-o", "BatchMode=yes", *options, NODE, *([script] if script else [])]
    return login.ssh(shlex.join(command), user=user, **given)


def answer(login: LoginNode, script: str, *options: str) -> str:
    done = inside(login, script, *options)
    assert done.returncode == 0, done
    assert done.stderr == "", done
    return done.stdout.strip()


# --- In the job ----------------------------------------------------------------------------------

IDENTIFY = (
    "hostname; id -un; pwd; readlink /proc/self/ns/pid; readlink /proc/self/ns/mnt; cat /tmp/own"
)


def test_session_runs_inside_the_job(login: LoginNode, node: Slurmctld) -> None:
    job = submit(login, setup=f"echo mine >/tmp/own; ({IDENTIFY}) >seen")

    assert answer(login, IDENTIFY) == login.answer("cat seen")
    assert answer(login, "echo $SLURM_JOB_ID $SLURMD_NODENAME") == f"{job} {NODE}"
    assert answer(login, "grep NoNewPrivs /proc/self/status").split()[1] == "1"


def test_session_can_use_all_resources_of_the_job(login: LoginNode, node: Slurmctld) -> None:
    job = submit(login, "--cpus-per-task=4", "--mem=1000")

    steps = answer(login, f"scontrol show step {job}")

    step = next(step for step in steps.split("StepId=") if "Name=ssh " in step)
    assert "CPUs=4 " in step
    assert "mem=1000M" in step
    assert "cpu=4," in step


def test_slurm_commands_work_in_a_session(login: LoginNode, node: Slurmctld) -> None:
    job = submit(login)

    assert answer(login, "squeue --me --noheader --format=%A") == job
    assert answer(login, "srun --quiet --overlap hostname") == NODE


def test_ssh_enters_the_latest_job_or_the_selected_job(login: LoginNode, node: Slurmctld) -> None:
    first, second = submit(login), submit(login)

    assert answer(login, "echo $SLURM_JOB_ID") == second
    command = f"SLURM_JOB_ID={first} ssh -o BatchMode=yes {NODE} 'echo $SLURM_JOB_ID'"
    assert login.answer(command) == first


def test_ssh_can_enter_each_array_task(login: LoginNode, node: Slurmctld) -> None:
    login.answer("sbatch --array=1-2 --output=/dev/null --wrap 'sleep 300'")
    running = "squeue --me --noheader --states=RUNNING --format=%A"
    eventually("both tasks run", lambda: len(login.answer(running).split()) == 2)

    for job in login.answer(running).split():
        script = f"SLURM_JOB_ID={job} ssh -o BatchMode=yes {NODE} 'echo $SLURM_JOB_ID'"
        assert login.answer(script) == job


def test_ssh_works_from_inside_a_job(login: LoginNode, node: Slurmctld) -> None:
    job = submit(login)

    script = f"ssh -o BatchMode=yes {NODE} 'echo $SLURM_JOB_ID'"
    assert login.answer(f"srun --quiet --jobid={job} --overlap {script}") == job


# --- Features of a session -----------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 42])
def test_ssh_returns_exit_code_and_output_of_a_command(
    login: LoginNode, node: Slurmctld, code: int
) -> None:
    submit(login)

    done = inside(login, f"echo out; echo err >&2; exit {code}")

    assert (done.returncode, done.stdout, done.stderr) == (code, "out\n", "err\n")


def test_binary_data_passes_through_ssh_unchanged(login: LoginNode, node: Slurmctld) -> None:
    submit(login)
    login.answer("head -c 5000000 /dev/urandom >sent")

    login.answer(f"ssh -o BatchMode=yes {NODE} 'cat; printf no-newline' <sent >back")

    assert login.answer("(cat sent; printf no-newline) | cmp - back && echo same") == "same"


def test_partial_lines_arrive_immediately(login: LoginNode, node: Slurmctld) -> None:
    submit(login)
    command = login.command("ssh", "login", f"ssh -o BatchMode=yes {NODE} cat")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as session:
        assert session.stdin is not None
        assert session.stdout is not None
        session.stdin.write("half")
        session.stdin.flush()
        assert session.stdout.read(4) == "half"
        session.stdin.close()


def test_interactive_session_has_a_terminal(login: LoginNode, node: Slurmctld) -> None:
    submit(login)

    shown = inside(login, "tty && stty size && echo $TERM", "-tt").stdout.split()

    assert shown[0].startswith("/dev/pts/")
    shell = inside(login, "", "-tt", input="echo $0 $(id -un); exit\n").stdout
    assert "-bash researcher" in shell


@pytest.mark.parametrize("way", ["scp", "scp -O", "sftp", "rsync"])
def test_files_can_be_copied_in_both_directions(
    login: LoginNode, node: Slurmctld, way: str
) -> None:
    submit(login)
    login.answer("head -c 300000 /dev/urandom >sent; rm -f back")

    if way == "sftp":
        login.answer(f"printf 'put sent /tmp/there\\nget /tmp/there back\\n' | sftp -qb - {NODE}")
    else:
        login.answer(f"{way} -q sent {NODE}:/tmp/there && {way} -q {NODE}:/tmp/there back")

    assert login.answer("cmp sent back && echo same") == "same"
    assert answer(login, "ls /tmp/there") == "/tmp/there", "the file is in the job's private /tmp"


def test_ports_of_the_job_can_be_forwarded(login: LoginNode, node: Slurmctld) -> None:
    serves = (
        'import socket; s = socket.create_server(("127.0.0.1", 8765)); s.accept()[0].send(b"hi")'
    )
    submit(login, setup=f"python3 -c '{serves}' & sleep 2")

    assert inside(login, "", "-W", "127.0.0.1:8765").stdout == "hi"


def test_ssh_from_a_users_own_machine_reaches_the_node(login: LoginNode, node: Slurmctld) -> None:
    submit(login)
    way = login.command("ssh", "login", f"{c.PROGRAMS}/to-node", "%h", "%r")
    options = {
        "ProxyCommand": " ".join(way),
        "IdentityFile": str(login.folder / "key"),
        "UserKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "no",
    }
    ssh_options = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]

    done = run(login.command("ssh", *ssh_options, NODE, "hostname; id -un"))

    assert done.stdout.split() == [NODE, "researcher"], done


OPEN = {"no_new_privileges": False, "private_devices": False}


@pytest.mark.parametrize("isolation", [OPEN, {"overlay": True, "tmp": "64MiB"}])
def test_session_has_a_terminal_under_other_isolation_settings(
    login: LoginNode, node: Slurmctld, config: Settings, isolation: dict[str, Any]
) -> None:
    (nodeset,) = (one for one in config.nodesets if one.name == "cpu")
    isolated = nodeset.model_copy(update={"isolation": Isolation.model_validate(isolation)})
    options = f"{c.NODE_SETTINGS}/{c.NODE_OPTIONS}"
    put(node.container, {options: node_options(isolated)})
    try:
        submit(login, setup="echo mine >/tmp/own")

        shown = inside(login, "tty; cat /tmp/own", "-tt").stdout.split()
    finally:
        put(node.container, {options: node_options(nodeset)})

    assert shown[0].startswith("/dev/pts/")
    assert shown[1] == "mine"


# --- Refusals ------------------------------------------------------------------------------------


def test_ssh_requires_a_running_job_on_the_node(login: LoginNode, node: Slurmctld) -> None:
    submit(login)

    refused = inside(login, "hostname", user="student")

    assert refused.returncode == 255
    assert refused.stdout == ""
    assert refused.stderr.splitlines()[0] == (
        f"{NODE}: you have no running job there, and ssh requires one: see squeue --me"
    )


def test_pending_job_gives_no_access(login: LoginNode, node: Slurmctld) -> None:
    login.answer(f"sbatch --hold --nodelist={NODE} --wrap true")

    assert "you have no running job" in inside(login, "hostname").stderr


def test_ssh_refuses_the_name_of_another_user(login: LoginNode, node: Slurmctld) -> None:
    submit(login)
    submit(login, user="student")

    for other in ("student", "root"):
        refused = inside(login, "id", "-l", other)
        assert refused.returncode == 255
        assert f"cannot enter jobs of {other}" in refused.stderr


def test_slurm_refuses_users_who_bypass_the_check_of_ssh(login: LoginNode, node: Slurmctld) -> None:
    job = submit(login)

    refused = login.ssh(f"srun --jobid={job} --overlap {c.PROGRAMS}/in-node", user="student")

    assert refused.returncode != 0
    assert "SSH-2.0" not in refused.stdout


def test_ssh_reports_an_unknown_node(login: LoginNode, node: Slurmctld) -> None:
    refused = login.ssh("ssh -o BatchMode=yes cpu-77 true")

    assert refused.returncode == 255
    assert "cpu-77: " in refused.stderr


def test_node_runs_sshd_only_during_a_session(login: LoginNode, node: Slurmctld) -> None:
    assert node.run("pgrep -l sshd || echo none", user="root").strip() == "none"


# --- The end -------------------------------------------------------------------------------------


def test_session_ends_with_the_job(login: LoginNode, node: Slurmctld) -> None:
    job = submit(login)
    session = f"ssh -o BatchMode=yes {NODE} 'nohup setsid sleep 987 & echo in; sleep 986'"
    with subprocess.Popen(
        login.command("ssh", "login", session), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        assert node.run("pgrep -cf 'sleep 98[67]'").strip() != "0"

        login.answer(f"scancel {job}")

        assert process.wait(30) == 255
    gone = "pgrep -f '[s]leep 98|[s]shd' || echo none"
    eventually(
        "no process of the session is left", lambda: node.run(gone, user="root").strip() == "none"
    )


def test_ending_a_session_ends_its_step_but_not_the_job(login: LoginNode, node: Slurmctld) -> None:
    job = submit(login)

    assert answer(login, "true") == ""

    steps = f"squeue --steps --noheader --jobs={job} --format=%j"
    eventually("the step has ended", lambda: "ssh" not in login.answer(steps))
    assert login.answer(f"squeue --noheader --jobs={job} --format=%T") == "RUNNING"


def test_session_ends_if_its_client_is_killed(
    login: LoginNode, node: Slurmctld, tmp_path: Path
) -> None:
    submit(login)
    session = f"ssh -o BatchMode=yes {NODE} 'echo in; exec sleep 985'"
    with subprocess.Popen(
        login.command("ssh", "login", session), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        login.daemons.run(f"pkill -KILL -f '^ssh -o BatchMode=yes {NODE}'", user="root")
        process.wait(30)

    gone = "pgrep -f '[s]shd' || echo none"
    eventually("the step has ended", lambda: node.run(gone, user="root").strip() == "none")
