"""How users and operators use a login node."""

import contextlib
import hashlib
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from components import conventions as c
from components.settings import Login
from tests.container.login.node import FIRST, LoginNode, make_key, run
from tests.support.containers import frozen
from tests.support.waiting import eventually


def with_(**fields: object) -> Login:
    """Return the initial settings with other values for some fields of `login`."""
    return Login.model_validate({"service": FIRST.service, **fields})


# --- Login ---------------------------------------------------------------------------------------


def test_user_with_a_key_from_the_settings_enters_the_jail(login: LoginNode) -> None:
    output = login.answer("id -un; pwd; cat /var/lib/slurmstack/jail-refresh")

    assert output.split() == ["researcher", "/home/researcher", "0"]


def test_sessions_cannot_mount(login: LoginNode) -> None:
    sys_admin = 1 << 21
    bounding = login.answer("grep CapBnd /proc/self/status").split()[1]

    assert not int(bounding, 16) & sys_admin


def test_setting_home_keys_controls_keys_in_home_directories(
    login: LoginNode, tmp_path: Path
) -> None:
    key = make_key(tmp_path, "own")
    own = ("-o", f"IdentityFile={tmp_path / 'own'}", "-F", str(without_key(login, tmp_path)))
    assert login.ssh("true", *own).returncode == 255

    login.answer(f"mkdir -pm 700 .ssh && echo '{key}' >.ssh/authorized_keys")
    assert login.ssh("true", *own).returncode == 0

    login.edit(with_(home_keys=False))
    refused = login.ssh("true", *own)
    assert refused.returncode == 255
    assert "Permission denied (publickey)" in refused.stderr
    assert login.ssh("true").returncode == 0, "the key in the settings still works"


def without_key(login: LoginNode, folder: Path) -> Path:
    """Write a client configuration without a key, and return its path."""
    lines = (login.folder / "config").read_text().splitlines(keepends=True)
    path = folder / "config"
    path.write_text("".join(line for line in lines if "IdentityFile" not in line))
    return path


def test_key_in_the_home_works_between_login_nodes(login: LoginNode) -> None:
    login.answer(
        "mkdir -pm 700 .ssh && ssh-keygen -qt ed25519 -N '' -f .ssh/id_ed25519"
        " && cat .ssh/id_ed25519.pub >>.ssh/authorized_keys"
    )
    try:
        there = login.answer("ssh -o BatchMode=yes login-0 'id -un; hostname'")
    finally:
        login.answer("rm -r .ssh")

    assert there.split() == ["researcher", "login-0"]


# --- Files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["scp", "scp -O", "sftp", "rsync"])
def test_files_can_be_copied_in_both_directions(login: LoginNode, tmp_path: Path, way: str) -> None:
    here, back = tmp_path / "here", tmp_path / "back"
    here.write_bytes(bytes(range(256)) * 4096)
    there = f"there-{hashlib.sha256(way.encode()).hexdigest()[:6]}"

    for source, target, batch in (
        (here, f"login:{there}", f"put {here} {there}"),
        (f"login:{there}", back, f"get {there} {back}"),
    ):
        if way == "sftp":
            done = run(login.command("sftp", "-b", "-", "login"), input=f"{batch}\n")
        elif way == "rsync":
            shell = " ".join(login.command("ssh"))
            done = login.beside("rsync", "-e", shell, str(source), str(target))
        else:
            done = run(login.command(*way.split(), str(source), str(target)))
        assert done.returncode == 0, done

    assert back.read_bytes() == here.read_bytes()


# --- Forwarding ----------------------------------------------------------------------------------


def test_settings_control_port_forwarding(login: LoginNode) -> None:
    assert banner_through(login).startswith("SSH-2.0")

    login.edit(with_(forwarding={"tcp": False}))

    assert banner_through(login) == ""


def banner_through(login: LoginNode) -> str:
    """Return the banner of sshd, read through a forwarded port."""
    target = f"127.0.0.1:{c.SSHD_PORT}"
    return login.ssh("", "-W", target, input="\n").stdout


def test_settings_control_agent_forwarding(login: LoginNode, tmp_path: Path) -> None:
    check_socket = "test -S $SSH_AUTH_SOCK && echo yes || echo no"
    with agent(tmp_path) as sock:
        env = {"SSH_AUTH_SOCK": str(sock), "PATH": "/usr/bin:/bin"}
        assert login.ssh(check_socket, "-A", env=env).stdout.strip() == "yes"

        login.edit(with_(forwarding={"agent": False}))

        assert login.ssh("echo $SSH_AUTH_SOCK", "-A", env=env).stdout.strip() == ""


@contextlib.contextmanager
def agent(folder: Path) -> Iterator[Path]:
    """Run a key agent, and yield the path of its socket."""
    sock = folder / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", sock], stdout=subprocess.DEVNULL) as process:
        eventually("the agent listens", sock.exists)
        yield sock
        process.terminate()


def test_settings_control_x11_forwarding(login: LoginNode) -> None:
    env = {"DISPLAY": ":77", "PATH": "/usr/bin:/bin"}
    shown = "echo $DISPLAY; xauth list | wc -l"
    assert login.ssh(shown, "-Y", env=env).stdout.split()[0] == "localhost:10.0"

    login.edit(with_(forwarding={"x11": False}))

    assert login.ssh("echo $DISPLAY", "-Y", env=env).stdout.strip() == ""


# --- Edits ---------------------------------------------------------------------------------------


def test_edited_settings_leave_open_sessions_connected(login: LoginNode) -> None:
    command = login.command("ssh", "login", "cat")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as session:
        assert session.stdin is not None
        assert session.stdout is not None
        session.stdin.write("before\n")
        session.stdin.flush()
        assert session.stdout.readline() == "before\n"

        login.edit(with_(forwarding={"tcp": False}))

        session.stdin.write("after\n")
        session.stdin.close()
        assert session.stdout.readline() == "after\n"


def test_invalid_settings_leave_sshd_unchanged(login: LoginNode) -> None:
    login.install(FIRST)
    # Break the copy of the settings before the link `..data` leads to it. Otherwise, the login
    # node's check could accept the copy while it is still valid, and sshd would exit when it
    # reloads the broken copy.
    broken = "cp -rT $(readlink ..data) ..broken && echo Nonsense yes >>..broken/sshd_config"
    login.daemons.run(f"cd {c.LOGIN_SETTINGS} && {broken} && ln -sfn ..broken ..data", user="root")

    eventually("sshd logs an error", lambda: "keeps the old ones" in login.log())

    assert login.ssh("true").returncode == 0


def test_login_node_warns_sessions_before_it_stops(login: LoginNode) -> None:
    command = login.command("ssh", "-tt", "login")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as session:
        assert session.stdin is not None
        assert session.stdout is not None
        session.stdin.write("echo b''egun\n")
        session.stdin.flush()
        shown = iter(session.stdout.readline, "")
        assert any("begun" in line for line in shown)

        login.daemons.run("pkill -TERM -f '[s]lurmstack/serve'", user="root")

        assert any("This login node stops in 4 seconds" in line for line in shown)
        assert login.ssh("true").returncode == 255, "new logins are refused"
        session.stdin.write("echo s''till here; exit\n")
        session.stdin.flush()
        assert any("still here" in line for line in shown)
    eventually("the login node has stopped", lambda: not login.is_running())
    login.start()


def test_blocked_terminal_does_not_delay_a_stop_of_sshd(login: LoginNode) -> None:
    stop = (
        "import pty, termios, time; _, terminal = pty.openpty();"
        " termios.tcflow(terminal, termios.TCOOFF); print(flush=True); time.sleep(120)"
    )
    with subprocess.Popen(
        login.command("ssh", "login", f"python3 -c '{stop}'"), stdout=subprocess.PIPE, text=True
    ) as stopped:
        assert stopped.stdout is not None
        assert stopped.stdout.readline() == "\n"

        login.daemons.run("pkill -TERM -f '[s]lurmstack/serve'", user="root")

        eventually("the login node has stopped", lambda: not login.is_running())
        stopped.kill()
    login.start()


# --- Limits --------------------------------------------------------------------------------------


def test_process_limit_protects_other_users(login: LoginNode) -> None:
    login.edit(with_(limits={"processes": 40}))
    # Use sh: bash would retry a failed fork for half a minute.
    forks = "for _ in $(seq 100); do sleep 60 >/dev/null 2>&1 & done"

    flood = login.ssh(f"sh -c '{forks}'", user="student")

    assert "Cannot fork" in flood.stderr
    assert int(login.daemons.run("pgrep -cu student", user="root")) <= 40
    assert login.answer("seq 3 | cat | wc -l") == "3", "other users can still work"
    login.daemons.run("pkill -KILL -u student", user="root")


def test_memory_limit_affects_only_its_user(login: LoginNode) -> None:
    login.edit(with_(limits={"memory": "128MiB"}))
    allocate = "python3 -c 'b = bytearray({} << 20)' && echo done"

    assert login.answer(allocate.format(32), user="student") == "done"
    assert "done" not in login.ssh(allocate.format(300), user="student").stdout
    assert login.ssh("true").returncode == 0


def test_new_limits_apply_to_existing_sessions(login: LoginNode) -> None:
    command = login.command("ssh", "login", "cat")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as session:
        assert session.stdin is not None
        is_there = "pgrep -cxu researcher cat || true"
        eventually("the session has started", lambda: login.daemons.run(is_there).strip() == "1")

        login.edit(with_(limits={"cpus": 0.5, "processes": 77}))

        assert cgroup(login, "cpu", "cpu.cfs_quota_us") == "50000"
        assert cgroup(login, "pids", "pids.max") == "77"
        session.stdin.close()


def cgroup(login: LoginNode, hierarchy: str, file: str) -> str:
    """Return a value from the cgroup of the user's process `cat`."""
    return login.daemons.run(
        f"pid=$(pgrep -xu researcher cat) && sed -n 's/.*:{hierarchy}:.*\\(user-.*\\)/\\1/p' "
        f"/proc/$pid/cgroup | while read group; do cat /sys/fs/cgroup/{hierarchy}/$group/{file}; "
        "done",
        user="root",
    ).strip()


def test_login_is_refused_if_user_limits_cannot_be_set(login: LoginNode) -> None:
    login.edit(with_(limits={"processes": 100}))
    login.daemons.run("mv /run/sshd/limits /run/sshd/gone", user="root")
    try:
        refused = login.ssh("true")
    finally:
        login.daemons.run("mv /run/sshd/gone /run/sshd/limits", user="root")

    assert refused.returncode != 0
    assert "cannot set your limits" in refused.stderr + refused.stdout


ON_CGROUPS_V2 = f"""
set -e
mount -t tmpfs files /sys/fs/cgroup
mount -t tmpfs marker /run/sshd
cd /sys/fs/cgroup
touch cgroup.controllers
sh -c 'echo $$ >cgroup.procs && exec {c.PROGRAMS}/limits prepare'
PAM_TYPE=open_session PAM_USER=researcher {c.PROGRAMS}/limits enter
echo $$ >self
grep -H . cgroup.subtree_control cgroup.procs daemons/cgroup.procs self user-2000/*
"""
"""Script that replaces cgroup v2 with regular files, and prints what `limits` writes to them."""


def test_limits_are_written_for_cgroup_v2(login: LoginNode) -> None:
    login.edit(with_(limits={"cpus": 1.5, "memory": "1GiB", "processes": 100}))

    printed = login.daemons.run(
        f"unshare --mount bash -c {shlex.quote(ON_CGROUPS_V2)}", user="root"
    )

    written = dict(line.split(":") for line in printed.splitlines())
    assert written["daemons/cgroup.procs"] == written["cgroup.procs"], (
        "daemons are in their own cgroup"
    )
    assert written["cgroup.subtree_control"] == "+cpu +memory +pids"
    assert written["user-2000/cpu.max"] == "150000"
    assert written["user-2000/memory.max"] == str(1 << 30)
    assert written["user-2000/pids.max"] == "100"
    assert written["user-2000/cgroup.procs"] == written["self"], (
        "the session is in the user's cgroup"
    )


def test_rejected_limit_does_not_prevent_other_limits(login: LoginNode) -> None:
    login.edit(with_(limits={"cpus": 1.5, "memory": "1GiB", "processes": 100}))
    # A folder in place of memory.max makes the write fail. With real cgroups, the write fails if
    # the limit is below the current usage.
    script = ON_CGROUPS_V2.replace("\nPAM_TYPE", "\nmkdir -p user-2000/memory.max\nPAM_TYPE")
    script = script.replace("\ngrep -H", "\ngrep -H --directories=skip")

    printed = login.daemons.run(f"unshare --mount bash -c {shlex.quote(script)} 2>&1", user="root")

    assert "could not set all limits" in printed
    assert "user-2000/cpu.max:150000" in printed
    assert "user-2000/pids.max:100" in printed


def test_accounts_of_the_image_are_reserved(login: LoginNode) -> None:
    """Accounts of the image have precedence over the users and groups in the settings."""
    names = login.daemons.run("cut -d: -f1 /etc/passwd /etc/group").split()

    assert {*names} - {c.CHECKS_USER} <= c.SYSTEM_ACCOUNTS


# --- The message of the day ----------------------------------------------------------------------


def greeting(login: LoginNode) -> str:
    """Return what a terminal shows between login and logout."""
    return login.ssh("", "-tt", input="exit\n").stdout


def greeting_with_jobs(login: LoginNode) -> str:
    """Log in until the greeting shows the jobs, because Slurm may answer late on a busy machine."""

    def complete() -> str:
        shown = greeting(login)
        return shown if "your jobs:" in shown else ""

    return eventually("the greeting shows the user's jobs", complete)


def test_terminal_login_shows_the_state_of_the_cluster(login: LoginNode) -> None:
    login.answer("sbatch --hold --wrap true")
    login.edit(with_(motd={"text": "Maintenance on Friday."}))

    try:
        shown = greeting_with_jobs(login)
    finally:
        login.answer("scancel --me")

    assert "Maintenance on Friday." in shown
    assert "test:" in shown
    assert "main*" in shown
    assert "0 running, 1 pending" in shown


def test_commands_and_hushlogin_show_no_greeting(login: LoginNode) -> None:
    assert login.ssh("echo a", "-tt").stdout.strip() == "a"
    assert login.answer("echo b") == "b"

    login.answer("touch .hushlogin")
    hushed = greeting(login)
    login.answer("rm .hushlogin")
    assert "main*" not in hushed
    login.edit(with_(motd={"state": False}))
    assert "main*" not in greeting(login)


def test_login_continues_if_slurm_does_not_answer(login: LoginNode) -> None:
    with frozen(login.slurmctld.container):
        shown = greeting(login)

    assert "Slurm does not answer" in shown


def test_many_users_can_log_in_at_once(login: LoginNode) -> None:
    command = login.command("ssh", "login", "true")
    sessions = [subprocess.Popen(command, stdin=subprocess.DEVNULL) for _ in range(20)]

    assert [session.wait(60) for session in sessions] == [0] * 20


def test_failed_logins_do_not_block_other_logins_from_the_address(
    login: LoginNode, tmp_path: Path
) -> None:
    make_key(tmp_path, "wrong")
    wrong = ("-F", str(without_key(login, tmp_path)), "-o", f"IdentityFile={tmp_path / 'wrong'}")

    for _ in range(6):
        assert login.ssh("true", *wrong).returncode == 255

    assert login.ssh("true").returncode == 0
