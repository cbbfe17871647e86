"""Real controllers of JobSet and LeaderWorkerSet create gangs of pods for Slurm.

The controllers are built from their Go modules, and installed as their projects describe it.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from local import binaries
from local.paths import KUBECTL
from tests.cluster.bridge.lab import JOB, NAMESPACE, Lab
from tests.support.containers import put
from tests.support.waiting import becomes, eventually

FOLDER = Path(__file__).parent / "controllers"
MACHINE = "node-0"
PROGRAMS = "/opt/controllers"
"""Folder on the machine with the controllers' programs."""
JOBSET, LWS = "sigs.k8s.io/jobset", "sigs.k8s.io/lws"
BUILDS = {
    JOBSET: binaries.Build("jobset", str(FOLDER), JOBSET),
    LWS: binaries.Build("lws", str(FOLDER), f"{LWS}/cmd"),
}
EVERYWHERE = ""
"""No namespace, so that each object keeps its own."""
Object = dict[str, Any]

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module", autouse=True)
def controllers(_lab: Lab) -> Iterator[None]:
    image = _lab.manifest("any")["spec"]["containers"][0]["image"]
    installed = {
        module: installation(module, build.binary, image) for module, build in BUILDS.items()
    }
    for build in BUILDS.values():
        program = binaries.ensure_further(build, print).read_bytes()
        put(_lab.cluster.computer(MACHINE), {f"{PROGRAMS}/{build.binary}": program}, mode=0o755)
    try:
        for objects in installed.values():
            apply = ("apply", "--server-side", "--filename=-")
            _lab.kubectl(*apply, namespace=EVERYWHERE, stdin=yaml.safe_dump_all(objects))
        for build in BUILDS.values():
            wait = ("rollout", "status", "deployment", "--timeout=120s")
            _lab.kubectl(*wait, namespace=f"{build.binary}-system", timeout=150)
        yield
    finally:
        _lab.clear()
        for objects in installed.values():
            gone = ("delete", "--ignore-not-found", "--filename=-")
            text = yaml.safe_dump_all(objects)
            _lab.kubectl(*gone, namespace=EVERYWHERE, stdin=text, timeout=180)


def installation(module: str, binary: str, image: str) -> list[Object]:
    """Return the objects that install a controller, whose program is a file on the machine."""
    fetch = ["go", "mod", "download", "-json", module]
    found = subprocess.run(fetch, cwd=FOLDER, check=True, capture_output=True, text=True)
    folder = Path(json.loads(found.stdout)["Dir"], "config/default")
    build = [str(KUBECTL), "kustomize", str(folder)]
    rendered = subprocess.run(build, check=True, capture_output=True, text=True)
    objects: list[Object] = list(yaml.safe_load_all(rendered.stdout))
    for one in objects:
        if one["kind"] == "Deployment":
            one["spec"]["replicas"] = 1
            run_from_machine(one["spec"]["template"]["spec"], binary, image)
    return objects


def run_from_machine(pod: Object, binary: str, image: str) -> None:
    (container,) = pod["containers"]
    container.update(image=image, command=[f"/programs/{binary}"], resources={})
    container["volumeMounts"].append({"name": "programs", "mountPath": "/programs"})
    pod["volumes"].append({"name": "programs", "hostPath": {"path": PROGRAMS}})
    pod["nodeSelector"] = {"kubernetes.io/hostname": MACHINE}
    pod["securityContext"]["runAsUser"] = 65534


def template(lab: Lab, script: str) -> Object:
    """Return a template of pods with one CPU each."""
    return {"spec": lab.manifest("any", script)["spec"]}


def part(lab: Lab, name: str, pods: int, script: str = "sleep 5", **more: Any) -> Object:
    """Return a part of a JobSet."""
    job = {"parallelism": pods, "completions": pods, "template": template(lab, script)}
    return {"name": name, "replicas": 1, "template": {"spec": job}, **more}


def job_set(name: str, *parts: Object) -> Object:
    annotations = {"slurmjob.slinky.slurm.net/job-name": f"slurm-{name}"}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
        "spec": {"replicatedJobs": list(parts)},
    }


def jobs(lab: Lab, name: str) -> list[list[str]]:
    """Return the states and the numbers of CPUs of the jobs with a name, in order of their ids."""
    asked = f"sacct --noheader --parsable2 --allocations --name={name} --format=State,AllocCPUS"
    return [line.split("|") for line in lab.cluster.run(asked).splitlines()]


def test_parts_of_a_job_set_start_together_as_one_job(lab: Lab) -> None:
    blocking = lab.holds("cpu-0", 2)
    lab.kubectl(
        *("apply", "--filename=-"),
        stdin=json.dumps(job_set("whole", part(lab, "leader", 1), part(lab, "workers", 2))),
    )
    eventually("all three pods wait in Slurm", lambda: len(linked(lab)) == 3)
    assert len(set(linked(lab).values())) == 1, "they have one job"
    assert not any(lab.machine(name) for name in lab.pods())

    lab.cluster.run(f"scancel {blocking}")
    becomes("the job", lambda: jobs(lab, "slurm-whole"), [["COMPLETED", "3"]], 90)


def test_parts_of_a_job_set_that_start_one_after_the_other_have_jobs_of_their_own(
    lab: Lab,
) -> None:
    first = part(lab, "first", 1, "sleep 2")
    second = part(lab, "second", 2, dependsOn=[{"name": "first", "status": "Complete"}])
    lab.kubectl("apply", "--filename=-", stdin=json.dumps(job_set("ordered", first, second)))

    becomes(
        "the jobs",
        lambda: jobs(lab, "slurm-ordered"),
        [["COMPLETED", "1"], ["COMPLETED", "2"]],
        90,
    )


def test_each_group_of_a_leader_worker_set_has_a_job(lab: Lab) -> None:
    workers = template(lab, "sleep 3600")
    # These pods always restart.
    del workers["spec"]["restartPolicy"]
    made = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "serve", "namespace": NAMESPACE},
        "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": workers}},
    }
    lab.kubectl("apply", "--filename=-", stdin=json.dumps(made))
    try:
        names = ("serve-0", "serve-0-1", "serve-1", "serve-1-1")
        eventually("all pods exist", lambda: lab.pods().keys() >= set(names), 60)
        for name in names:
            lab.wait_for(name)
        links = linked(lab)
        assert links["serve-0"] == links["serve-0-1"] != links["serve-1"] == links["serve-1-1"]

        # A cancelled job ends its group, which the controller creates again.
        lab.cluster.run(f"scancel {links['serve-0']}")
        eventually(
            "the group has another job",
            lambda: linked(lab).get("serve-0", links["serve-0"]) != links["serve-0"],
            90,
        )
        for name in names:
            lab.wait_for(name, timeout=90)
        assert linked(lab)["serve-1"] == links["serve-1"]
    finally:
        lab.kubectl("delete", "leaderworkersets", "--all")


def linked(lab: Lab) -> dict[str, str]:
    """Return the job of each pod that has one."""
    return {
        name: pod["metadata"]["labels"][JOB]
        for name, pod in lab.pods().items()
        if JOB in pod["metadata"].get("labels", {})
    }
