"""What ends leaves nothing behind."""

from collections.abc import Iterator

import pytest

from components import conventions as c
from tests.support.containers import put
from tests.support.spank import Node
from tests.support.waiting import eventually

_HANDED = "/srv/handed"
# Takes descriptors of directories, and makes files there until it is refused.
_HOLD = f"""
import errno, os, socket, time
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind("{_HANDED}")
    listener.listen()
    print("waits", flush=True)
    giver, _ = listener.accept()
    _, folders, _, _ = socket.recv_fds(giver, 1, 2)
    giver.send(b".")
end, made = time.monotonic() + 30, 0
try:
    while time.monotonic() < end:
        for folder in folders:
            made += 1
            os.close(os.open(f"made-{{made}}", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
except OSError as error:
    print(errno.errorcode[error.errno], flush=True)
time.sleep(30)
"""
_GIVE = f"""
import os, socket, time
os.makedirs("/tmp/a/b")
with socket.socket(socket.AF_UNIX) as holder:
    holder.connect("{_HANDED}")
    folders = [os.open(path, os.O_RDONLY) for path in ("/tmp", "/tmp/a/b")]
    socket.send_fds(holder, [b"."], folders)
    holder.recv(1)
while not os.path.exists("/tmp/a/b/made-1000"):
    time.sleep(0.01)
"""


@pytest.fixture
def scripts(node: Node) -> Iterator[None]:
    programs = {f"{c.JAIL}/srv/hold.py": _HOLD, f"{c.JAIL}/srv/give.py": _GIVE}
    put(node.worker.container, programs)
    yield
    node.root(f"rm -f {' '.join(programs)} {c.JAIL}{_HANDED}")


@pytest.mark.usefixtures("scripts")
def test_what_another_job_holds_of_a_jobs_directories_is_closed_to_it(node: Node) -> None:
    holder = node.submit("python3 /srv/hold.py")
    eventually("it listens", lambda: "waits" in node.output(holder))
    giver = node.submit("python3 /srv/give.py")

    said = eventually("it is refused", lambda: node.output(holder).split()[1:])
    left = f"ls -d {c.WORKER_SCRATCH}/slurm-jobs/{giver}.* 2>/dev/null || true"
    eventually("the directories are gone", lambda: node.root(left) == "")

    assert said in (["EACCES"], ["ENOENT"])
    assert "cannot remove" not in node.worker.log()
