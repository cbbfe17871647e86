"""A set of backups restores a stack whose namespace and volumes are lost."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from local.paths import ROOT
from tests.support.cluster import NAMESPACE, Cluster
from tests.support.waiting import eventually

SECRET = "sets"
MAKE = r"""
import os
home = "/home/researcher/kept"
os.makedirs(f"{home}/private", 0o700)
with open(f"{home}/private/ünï\n", "w") as file:
    file.write("mine")
os.setxattr(f"{home}/private/ünï\n", "user.tag", b"value")
os.link(f"{home}/private/ünï\n", f"{home}/link")
os.symlink("/etc/passwd", f"{home}/symbolic")
with open(f"{home}/sparse", "wb") as file:
    file.truncate(1 << 30)
    file.seek(1 << 29)
    file.write(b"island")
with open(f"{home}/large", "wb") as file:
    file.write(os.urandom(1 << 24))
os.chmod(f"{home}/large", 0o640)
os.makedirs(f"{home}/many")
for number in range(2000):
    with open(f"{home}/many/{number}", "w") as file:
        file.write(str(number))
"""
LIST = r"""
import hashlib, os, sys
digest = hashlib.sha256()
for place, folders, names in os.walk("/home/researcher/kept"):
    folders.sort()
    for name in sorted(folders + names):
        path = os.path.join(place, name)
        one = os.lstat(path)
        digest.update(repr((path, one.st_mode, one.st_uid, one.st_gid, one.st_size)).encode())
        if name not in folders:
            digest.update(repr((one.st_mtime_ns, one.st_nlink)).encode())
        if os.path.isfile(path) and not os.path.islink(path):
            digest.update(open(path, "rb").read())
            digest.update(repr(sorted(os.listxattr(path))).encode())
print(digest.hexdigest())
"""
SYSTEM = (
    "find /usr /etc /opt -xdev ! -name hosts ! -name hostname ! -name resolv.conf"
    " -printf '%p %y %m %U %G %l\\n' 2>/dev/null | sort | sha256sum"
)
QUEUE = "squeue --all --noheader --array --states=PENDING --format=%i|%j|%u|%P|%l|%r|%E|%o|%Z"
RECORDS = (
    "sacct --allusers --duplicates --noheader --parsable2 --state=COMPLETED,FAILED"
    " --starttime=2020-01-01 --endtime=now"
    " --format=jobid,jobname,user,account,state,exitcode,alloctres,nodelist,submit,start,end"
)


def python(cluster: Cluster, program: str) -> str:
    """Return the output of a Python program that the user runs."""
    return cluster.run(f"python3 - <<'END'\n{program}\nEND")


def store() -> str:
    """Return objects of a store outside the stack: a folder of the Kubernetes node, and the
    password."""
    metadata = {"name": SECRET, "namespace": NAMESPACE}
    size = {"storage": "1Gi"}
    volume = {
        "accessModes": ["ReadWriteMany"],
        "capacity": size,
        "claimRef": {**metadata, "kind": "PersistentVolumeClaim", "apiVersion": "v1"},
        "hostPath": {"path": "/srv/sets", "type": "DirectoryOrCreate"},
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "",
    }
    claim = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": size},
        "storageClassName": "",
        "volumeName": SECRET,
    }
    objects: list[dict[str, Any]] = [
        {"kind": "PersistentVolume", "metadata": {"name": SECRET}, "spec": volume},
        {"kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim},
        {"kind": "Secret", "metadata": metadata, "stringData": {"password": "open-sesame"}},
    ]
    return yaml.safe_dump_all({"apiVersion": "v1", **one} for one in objects)


def provide_store(cluster: Cluster) -> None:
    """Create the store's objects as soon as the deploy has created the namespace."""
    eventually(
        "the namespace exists",
        lambda: cluster.kubectl("get", "namespace", NAMESPACE, check=False),
        120,
    )
    cluster.kubectl("apply", "--filename=-", stdin=store())


def backed_up(restore: str | None) -> Any:
    chosen = {"restore": restore} if restore else {}
    return lambda values: values.update(
        backup={"claim": SECRET, "password_secret": SECRET, "keep": {"last": 2}, **chosen}
    )


def back_up(cluster: Cluster, identity: str) -> str:
    """Make a set, and return the logs of its containers."""
    cluster.kubectl("create", "job", "--from=cronjob/backup", identity)
    cluster.kubectl(
        *("wait", "--for=condition=complete", "--timeout=300s", f"job/{identity}"), timeout=330
    )
    return cluster.kubectl("logs", f"job/{identity}", "--all-containers")


def queue(cluster: Cluster) -> list[str]:
    return sorted(cluster.operate(*QUEUE.split()).splitlines())


def destroy(cluster: Cluster) -> None:
    """Remove the stack with its namespace, volumes and state. Only the store remains."""
    cluster.deploy("destroy")
    eventually("the namespace is gone", lambda: not cluster.objects("persistentvolumeclaims"), 120)
    cluster.kubectl("delete", "persistentvolume", SECRET)


def restore(cluster: Cluster) -> None:
    deploy = subprocess.Popen(["make", "up", f"STACK={cluster.stack}", "ENGINE=embedded"], cwd=ROOT)
    try:
        provide_store(cluster)
        assert deploy.wait(1200) == 0
    finally:
        deploy.kill()
        deploy.wait()


@pytest.fixture
def filled(cluster: Cluster) -> Iterator[Cluster]:
    """The stack with a store for sets, with files, ended jobs, and pending jobs."""
    cluster.kubectl("apply", "--filename=-", stdin=store())
    with cluster.edited(backed_up(None)):
        cluster.deploy("up")
        python(cluster, MAKE)
        yield cluster
    cluster.run("scancel --me; rm -rf kept")
    cluster.deploy("up")
    cluster.kubectl("delete", "job", "before", "after", "--ignore-not-found")
    for kind in ("persistentvolumeclaim", "persistentvolume", "secret"):
        cluster.kubectl("delete", kind, SECRET)


@pytest.mark.soak
def test_lost_stack_is_restored_from_a_set(filled: Cluster) -> None:
    ended = filled.run("sbatch --parsable --wait --wrap true")
    failed = filled.run("sbatch --parsable --wait --wrap 'exit 3' || true")
    running = filled.run("sbatch --parsable --requeue --wrap 'sleep 1200'").strip()
    held = filled.run("sbatch --parsable --hold --job-name=held --time=7 --wrap 'hostname'").strip()
    filled.run("sbatch --begin=now+2days --array=1-3 --wrap true")
    filled.run(f"sbatch --dependency=afterok:{held} --wrap true")
    eventually("a job runs", lambda: filled.job_state(int(running)) == "RUNNING")
    files, system = python(filled, LIST), filled.run(SYSTEM)
    pending, records = queue(filled), filled.run(RECORDS)
    assert {ended.strip(), failed.strip()} <= {line.split("|")[0] for line in records.splitlines()}

    assert "the set 'before' is complete" in back_up(filled, "before")
    destroy(filled)
    with filled.edited(backed_up("latest")):
        restore(filled)
        filled.wait_for_login(120)
        assert python(filled, LIST) == files
        assert filled.run(SYSTEM) == system
        assert filled.run("stat --format=%b kept/sparse") < "8192", "the file still has holes"
        assert filled.run(RECORDS) == records
        assert [line for line in queue(filled) if line.split("|")[0] != running] == pending
        suspended = filled.objects("cronjobs")
        assert [one["spec"]["suspend"] for one in suspended if one["metadata"]["name"] == "backup"]

    filled.deploy("up")
    filled.wait_for_nodes(*filled.wanted_nodes(), timeout=120)
    filled.run(f"scontrol release {held}")
    filled.wait_for_job(int(held))
    newest = int(filled.run("sbatch --parsable --wait --wrap true"))
    assert newest > int(held), "no job id is used twice"
    assert "the set 'after' is complete" in back_up(filled, "after")
