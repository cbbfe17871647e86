"""Jobs end without delay, leave nothing behind, and survive a crash of slurmd."""

from collections.abc import Iterator

import pytest

from components import conventions as c
from tests.support.containers import put
from tests.support.slurmctld import FIND_SLURMD, find_directories
from tests.support.spank import NODE, Node
from tests.support.waiting import eventually

_HANDED = "/srv/handed"
# This program receives descriptors of directories, and creates new directories in them, up to the
# given number.
_HOLD = f"""
import errno, os, socket, sys, time
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind("{_HANDED}")
    listener.listen()
    print("waits", flush=True)
    giver, _ = listener.accept()
    _, folders, _, _ = socket.recv_fds(giver, 1, 250)
    giver.send(b".")
made = 0
while folders and made < int(sys.argv[1]):
    for folder in list(folders):
        made += 1
        try:
            os.mkdir(f"made-{{made}}", dir_fd=folder)
        except OSError as error:
            print(errno.errorcode[error.errno], flush=True)
            folders.remove(folder)
time.sleep(30)
"""
# This program creates the given number of nested directories, sends their descriptors, and waits
# until they contain many new directories.
_GIVE = f"""
import os, socket, sys, time
folders = ["/tmp"]
while len(folders) < int(sys.argv[1]):
    folders.append(folders[-1] + "/d")
    os.mkdir(folders[-1])
with socket.socket(socket.AF_UNIX) as holder:
    holder.connect("{_HANDED}")
    socket.send_fds(holder, [b"."], [os.open(path, os.O_RDONLY) for path in folders])
    holder.recv(1)
while sum(len(os.listdir(path)) for path in folders) < 5_000:
    time.sleep(0.1)
"""
# Until the test ends, this program tries to bind slurmd's port over IPv4 and IPv6, with and without
# SO_REUSEPORT.
_TAKE = """
import itertools, os, socket, time
def opened(address, alone, options):
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as port:
        if ":" in address:
            port.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, alone)
        for option in options:
            port.setsockopt(socket.SOL_SOCKET, option, 1)
        try:
            port.bind((address, 6818))
        except OSError:
            return False
        return True
reuse = [(), (socket.SO_REUSEADDR,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT)]
print("begins", flush=True)
tries = 0
while not os.path.exists("/srv/go-on"):
    for ways in itertools.product(["0.0.0.0", "127.0.0.1", "::", "::1"], [1, 0], reuse):
        tries += 1
        if opened(*ways):
            print("taken", *ways, flush=True)
    time.sleep(0.001)
print("ends", tries > 1000, flush=True)
"""


_PROGRAMS = {"hold.py": _HOLD, "give.py": _GIVE, "take.py": _TAKE}
pytestmark = pytest.mark.usefixtures("programs")


@pytest.fixture
def programs(node: Node) -> Iterator[None]:
    put(node.worker.container, {f"{c.JAIL}/srv/{name}": text for name, text in _PROGRAMS.items()})
    yield
    node.root(f"cd {c.JAIL}/srv && rm -f {' '.join(_PROGRAMS)} go-on; rm -f {c.JAIL}{_HANDED}")


def hold(node: Node, number: int) -> str:
    """Submit a job that holds directories of another job open, and creates directories in them."""
    job = node.submit(f"python3 /srv/hold.py {number}")
    eventually("the job listens", lambda: "waits" in node.output(job))
    return job


def left_of(node: Node, job: str) -> str:
    """Return the paths of a job's directories on the node."""
    return node.root(find_directories(job))


def has_ended(node: Node, job: str) -> bool:
    return not node.user(f"squeue --noheader --jobs={job} || true")


def test_other_jobs_cannot_use_directories_of_an_ended_job(
    node: Node,
) -> None:
    holder = hold(node, 200_000)
    giver = node.submit("python3 /srv/give.py 2")

    errors = eventually("the holder gets an error", lambda: node.output(holder).split()[1:])
    eventually("the directories are gone", lambda: left_of(node, giver) == "")

    assert set(errors) <= {"EACCES", "ENOENT"}
    assert "cannot remove" not in node.worker.log()


def test_job_ends_while_another_job_fills_its_directories(node: Node) -> None:
    hold(node, 60_000)
    giver = node.submit("python3 /srv/give.py 250")

    eventually("the job has ended", lambda: has_ended(node, giver))

    assert "/ended." in left_of(node, giver)
    node.user("srun --time=1 true")
    eventually("the directories are gone", lambda: left_of(node, giver) == "")
    assert "cannot remove" not in node.worker.log()


def test_out_of_memory_killer_ends_tasks_before_daemons(node: Node) -> None:
    score = "cat /proc/{}/oom_score_adj"
    init, slurmd = (node.root(score.format(process)) for process in (1, f"$({FIND_SLURMD})"))

    assert node.job(score.format("self")) == "1000"
    # slurmd has the same score as process 1. Some kernels refuse to lower the score, but then they
    # refuse it for both processes.
    assert init == slurmd
    assert int(slurmd) <= 900


def test_slurmd_crash_loses_neither_jobs_nor_its_port(node: Node) -> None:
    job = node.submit("python3 /srv/take.py")
    eventually("the job runs", lambda: "begins" in node.output(job))
    before = node.root(FIND_SLURMD)

    node.root(f"kill -SEGV {before}")

    eventually("slurmd runs again", lambda: node.root(f"{FIND_SLURMD} || true") not in ("", before))
    eventually("slurmd answers", lambda: node.user("srun --time=1 hostname || true") == NODE)
    node.root(f"touch {c.JAIL}/srv/go-on")
    eventually("the job ends", lambda: has_ended(node, job))
    assert node.output(job).split() == ["begins", "ends", "True"]
    state = "sinfo --noheader --format=%T"
    eventually("the node is idle", lambda: node.controller.run(state).strip() == "idle")
