"""A victim with jobs on the attacker's nodes, and the outcomes of all attempts to escape."""

import json
import shlex
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from components import conventions as c
from tests.cluster.escape import attempts, commands, daemons, places
from tests.cluster.escape.victim import (
    NODE,
    OTHER,
    OTHER_GROUP,
    Outcomes,
    Victim,
    changes,
    in_shell,
    parsed,
)
from tests.support.cluster import Cluster
from tests.support.slurmctld import FIND_SLURMD
from tests.support.waiting import eventually

_WORK = """#!/bin/sh
# {secret}
umask 0
for place in /tmp /var/tmp /dev/shm; do echo "{secret}" >$place/secret; done
export SECRET={secret}
python3 -c 'import ctypes; print(ctypes.CDLL(None).shmget(0, 4096, 0o1600))' \
  >{folder}/segment.new
mv {folder}/segment.new {folder}/segment
exec srun sleep 1000
"""


def pid_of(cluster: Cluster, pod: str, container: str, user: int, command: str) -> int:
    """Return the process id, in the pod, of the user's oldest process with this command line."""
    look = f"pgrep -of -u {user} '^[a-z/]*{command}$' || true"
    return int(in_shell(cluster, pod, container, look) or 0)


@pytest.fixture(scope="package")
def victim(cluster: Cluster) -> Iterator[Victim]:
    name = f"other-{uuid.uuid4().hex[:8]}"
    folder, secret = f"/home/{name}", uuid.uuid4().hex
    public = f"/srv/{name}"
    outside = f"/mnt/jail{folder}"
    in_shell(
        cluster,
        "login-0",
        "sshd",
        f"mkdir -m 700 {outside}; echo {secret} >{outside}/secret; touch /mnt/jail{public};"
        f"cat >{outside}/work <<'END'\n{_WORK.format(secret=secret, folder=folder)}\nEND\n"
        f"chown -R {OTHER}:{OTHER_GROUP} {outside} /mnt/jail{public}; chmod 644 /mnt/jail{public}",
    )
    # Create an association (the right to use an account). This user is not in the settings, so the
    # user could not submit jobs otherwise. If an earlier run kept the stack, the association may
    # already exist.
    exists = "sacctmgr --noheader show user games | grep -q games"
    by_hand = f"{exists} || sacctmgr --immediate add user games account=users"
    in_shell(cluster, cluster.controller(), "slurmctld", by_hand)
    job = int(
        cluster.as_user(
            OTHER,
            OTHER_GROUP,
            f"sbatch --parsable -D / -o /dev/null -w {NODE} --mem=100 {folder}/work",
        )
    )
    seconds = 1000 + job
    try:
        cluster.as_user(
            OTHER,
            OTHER_GROUP,
            f"SECRET={secret} setsid sleep {seconds} >/dev/null 2>&1 </dev/null &",
        )
        on_worker = eventually(
            "the other user's step runs",
            lambda: pid_of(cluster, NODE, "slurmd", OTHER, "sleep 1000"),
        )
        on_login = eventually(
            "the other user's process runs",
            lambda: pid_of(cluster, "login-0", "sshd", OTHER, f"sleep {seconds}"),
        )
        segment = int(in_shell(cluster, "login-0", "sshd", f"cat {outside}/segment"))
        yield Victim(cluster, folder, public, secret, job, segment, on_worker, on_login)
    finally:
        cluster.as_user(0, 0, f"scancel {job}", check=False)
        in_shell(
            cluster,
            "login-0",
            "sshd",
            f"pkill -f '^sleep {seconds}$'; rm -rf {outside} /mnt/jail{public}",
            check=False,
        )
        # Remove System V shared memory, because it outlives the process that created it.
        in_shell(
            cluster,
            NODE,
            "slurmd",
            "ipcs -m | awk '$3 == \"games\" { print $2 }' | xargs -rn1 ipcrm -m",
            check=False,
        )


@pytest.fixture(scope="module")
def unharmed(victim: Victim) -> Iterator[None]:
    """Check that the tests of a file leave the other user, the nodes and the daemons unchanged."""
    before = victim.state()
    yield
    assert changes(before, victim.state()) == ""


@pytest.fixture(scope="package")
def forbidden(cluster: Cluster) -> dict[str, tuple[str, int]]:
    """Addresses of Kubernetes and of the cloud's metadata, by the name of the service."""
    machines = [
        address["address"]
        for node in cluster.objects("nodes")
        for address in node["status"]["addresses"]
        if address["type"] == "InternalIP"
    ]
    where = ("get", "--namespace=default")
    service = cluster.kubectl(*where, "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}")
    server = cluster.kubectl(
        *where, "endpoints", "kubernetes", "-o", "jsonpath={.subsets[0].addresses[0].ip}"
    )
    return {
        "metadata": ("169.254.169.254", 80),
        "api_service": (service, 443),
        "api_server": (server, 6443),
        "kubelet": (machines[0], 10250),
        "kubelet_of_another": (machines[-1], 10250),
    }


_SERVE = f"""python3 -c "
import socket
server = socket.create_server((str(), {c.NFS_PORT}))
while True:
    server.accept()[0].close()
" """


@pytest.fixture(scope="package")
def storage(cluster: Cluster, victim: Victim) -> Iterator[tuple[str, int]]:
    """A server on the NFS port of another node, to which users must not be able to connect."""
    sbatch = "sbatch --parsable -D / -o /dev/null -w cpu-1 --mem=100"
    job = int(victim.run(f"{sbatch} --wrap '{_SERVE}'"))
    ask = f"timeout 5 bash -c ': </dev/tcp/cpu-1/{c.NFS_PORT}' && echo answers || true"
    try:
        eventually(
            "root in a pod can connect to the server",
            lambda: in_shell(cluster, "login-0", "sshd", ask).strip(),
        )
        yield "cpu-1", c.NFS_PORT
    finally:
        cluster.as_user(0, 0, f"scancel {job}", check=False)


@pytest.fixture(scope="package")
def shared(cluster: Cluster) -> Iterator[str]:
    """A folder of the attacker for all tests, readable by all users."""
    path = f"/home/researcher/escape-{uuid.uuid4().hex[:8]}"
    cluster.run(f"mkdir {path}")
    for file in (attempts.__file__, commands.__file__, daemons.__file__):
        text = Path(file).read_text()
        cluster.run(f"cat >{path}/{Path(file).name} <<'THE-END'\n{text}\nTHE-END")
    cluster.run(places.EMPTY_IMAGE.format(folder=f"{path}/image"))
    yield path
    cluster.run(f"scancel --user=researcher; rm -rf {path}", check=False)


@pytest.fixture(scope="package")
def outcomes(
    cluster: Cluster,
    victim: Victim,
    shared: str,
    forbidden: dict[str, tuple[str, int]],
    storage: tuple[str, int],
) -> Callable[[str], Outcomes]:
    """Return a function that returns the outcomes of all attempts in a place, such as `login`.

    The function makes the attempts only once for each place.
    """
    daemons = {
        "login": int(in_shell(cluster, "login-0", "sshd", "pgrep -ox sshd")),
        "job": int(in_shell(cluster, NODE, "slurmd", FIND_SLURMD)),
    }
    cache: dict[str, Outcomes] = {}

    def facts(place: str) -> attempts.Facts:
        on_login = place == "login"
        return {
            **forbidden,
            "storage": storage,
            "configuration": "/run/slurm/conf/slurm.conf"
            if on_login
            else "/var/spool/slurmd/conf-cache/slurm.conf",
            "daemon": daemons["login" if on_login else "job"],
            "folder": shared,
            "job": victim.job,
            "node": NODE,
            "other": OTHER,
            "others": victim.folder,
            "program": f"{shared}/attempts.py",
            "public": victim.public,
            "segment": victim.segment,
            "victim": victim.on_login if on_login else victim.on_worker,
        }

    def attempted(place: str) -> Outcomes:
        encoded = shlex.quote(json.dumps(facts(place)))
        program = f"python3 {shared}/attempts.py {places.kind(place)} {encoded}"
        command = places.leading_to(place, program, shared)
        return parsed(cluster.as_user(0, 0, command) if place == "root" else cluster.run(command))

    def ask(place: str) -> Outcomes:
        if place not in cache:
            before = victim.state()
            cache[place] = attempted(place)
            cache[place]["harm"] = changes(before, victim.state())
        return cache[place]

    return ask
