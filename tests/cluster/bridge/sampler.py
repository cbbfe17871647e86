"""Sample the use of all CPUs from both sides, many times in a second.

The program runs in the pod of the bridge, which may read Slurm and Kubernetes. It prints one JSON
object: the number of samples, the largest number of CPUs in use at once on each machine, the
longest time between two samples in seconds, and each sample that exceeded a machine.

Arguments: seconds, CPUs of each machine, namespace of the pods.
"""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from pydantic import Field

from agents.kubernetes import in_cluster
from agents.slurm import Client, from_key
from agents.slurm.dataparser import Flags
from agents.slurm.models import Record

INTERVAL = 0.1
Samples = dict[str, Any]


class Meta(msgspec.Struct):
    name: str


class Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class Status(msgspec.Struct):
    phase: str = ""


class Pod(msgspec.Struct):
    metadata: Meta
    spec: Spec
    status: Status


class Job(Record):
    state: Flags = Field(validation_alias="job_state")
    admin_comment: str
    resources: Mapping[str, Any] | None = Field(validation_alias="job_resources")


def sample(seconds: float, cpus: int, namespace: str) -> Samples:
    api = in_cluster()
    slurm = Client(os.environ["REST_URL"], from_key(Path(os.environ["JWT_KEY"]), "slurm"))
    machines = {node.name: node.machine for node in slurm.nodes()}
    path = f"/api/v1/namespaces/{namespace}/pods"

    def running() -> dict[str, str]:
        """Return the machine of each pod that may run. Each uses a CPU."""
        return {
            pod.metadata.name: pod.spec.node_name
            for pod in api.items(path, Pod)
            if pod.spec.node_name and pod.status.phase in ("Pending", "Running")
        }

    def of_jobs() -> Counter[str]:
        """Return the CPUs of the jobs that are no pod's, by machine."""
        found: Counter[str] = Counter()
        for job in slurm.jobs_containing("", Job):
            if "RUNNING" in job.state and job.resources and not job.admin_comment:
                for node in job.resources["nodes"]["allocation"]:
                    found[machines[node["name"]]] += node["cpus"]["count"]
        return found

    begin = last = time.monotonic()
    most: Counter[str] = Counter()
    result: Samples = {"samples": 0, "longest": 0.0, "exceeded": []}
    before = running()
    while time.monotonic() < begin + seconds:
        jobs, after = of_jobs(), running()
        # A pod counts only if it runs both before and after Slurm was asked.
        used = jobs + Counter(before[name] for name in before.keys() & after.keys())
        for machine, number in used.items():
            most[machine] = max(most[machine], number)
            if number > cpus:
                result["exceeded"].append([machine, dict(jobs), sorted(before.items())])
        now = time.monotonic()
        result["samples"] += 1
        result["longest"] = max(result["longest"], now - last)
        time.sleep(max(0.0, INTERVAL - (now - last)))
        before, last = after, time.monotonic()
    return {**result, "most": most}


if __name__ == "__main__":
    print(json.dumps(sample(float(sys.argv[1]), int(sys.argv[2]), sys.argv[3])))
