"""Nodes on demand: all nodes of a job start together, and each node leaves when it is idle."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from agents.ondemand import carry
from agents.ondemand.observed import Template
from components import conventions as c
from tests.cluster.errors import error_line
from tests.support.chance import shuffled
from tests.support.cluster import NAMESPACE, Cluster
from tests.support.nodesets import SMALL, deployed, edit_nodeset
from tests.support.waiting import becomes, eventually

IDLE = 15
"""Seconds after which an idle node of the tests goes to sleep."""
CLOUD = {
    **SMALL,
    "name": "cloud",
    "replicas": 5,
    "weight": 2,
    "on_demand": {"idle": IDLE, "start": 120},
}
LOST = {
    **SMALL,
    "name": "lost",
    "replicas": 1,
    "weight": 1,
    "node_selector": {"example.org/pool": "none"},
    "on_demand": {"idle": IDLE, "start": 30},
}
PARTITIONS = [
    {"name": "main", "nodesets": ["cpu"], "default": True},
    {"name": "cloud", "nodesets": ["cloud"]},
    {"name": "both", "nodesets": ["lost", "cloud"]},
]
ASLEEP = {f"cloud-{ordinal}": "idle~" for ordinal in range(5)}


@pytest.fixture(scope="module", autouse=True)
def _nodesets(cluster: Cluster) -> Iterator[None]:
    # Use a short interval, so that the reconciler soon protects the pods of nodes with jobs from
    # evictions: it updates this protection once in each interval.
    reconciler = {"interval": 5, "rollout": 60}
    with deployed(cluster, nodesets=[CLOUD, LOST], partitions=PARTITIONS, reconciler=reconciler):
        becomes("the state of each cloud node", lambda: nodes(cluster), ASLEEP)
        yield


@pytest.fixture(autouse=True)
def _asleep(cluster: Cluster) -> Iterator[None]:
    """Each test begins without awake nodes, and ends without jobs."""
    becomes("the state of each cloud node", lambda: nodes(cluster), ASLEEP, 120)
    yield
    cluster.run("scancel --me")


def nodes(cluster: Cluster) -> dict[str, str]:
    """Return the states of the nodes `cloud-…`, in Slurm's short form."""
    ask = "sinfo --noheader --Node --partition=cloud --format='%N %t'"
    found = cluster.ssh(ask, check=False)  # slurmctld may be restarting
    return dict(line.split() for line in found.stdout.splitlines())


def pods(cluster: Cluster) -> dict[str, dict[str, Any]]:
    found = cluster.objects("pods", "slurmstack.dev/on-demand")
    return {pod["metadata"]["name"]: pod for pod in found}


def protected(cluster: Cluster) -> list[str]:
    """Return the pods that Kubernetes does not evict."""
    path = "{.spec.selector.matchExpressions[0].values}"
    shown = ("get", "poddisruptionbudget", c.BUSY_NODES, f"--output=jsonpath={path}")
    found: list[str] = json.loads(cluster.kubectl(*shown) or "[]")
    return found


def test_sleeping_nodes_have_no_pods_and_are_visible(cluster: Cluster) -> None:
    assert pods(cluster) == {}
    assert nodes(cluster) == ASLEEP


def test_node_starts_for_a_job_and_leaves_afterwards(cluster: Cluster) -> None:
    assert cluster.run("srun --partition=cloud hostname", timeout=120) == "cloud-0"
    assert set(pods(cluster)) == {"cloud-0"}
    # Wait for the end of the first job's epilog. The second job then finds the node awake.
    becomes("the state of cloud-0", lambda: nodes(cluster)["cloud-0"], "idle")
    assert cluster.run("srun --partition=cloud hostname") == "cloud-0"
    eventually("no pod is left", lambda: not pods(cluster), 90)
    becomes("the state of each cloud node", lambda: nodes(cluster), ASLEEP)


def test_nodes_of_a_job_start_at_once(cluster: Cluster) -> None:
    found = cluster.run("srun --partition=cloud --nodes=5 hostname", timeout=150)
    assert set(found.split()) == set(ASLEEP)
    made = sorted(
        datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
        for pod in pods(cluster).values()
    )
    assert len(made) == 5
    assert made[-1] - made[0] <= timedelta(seconds=2)


def test_array_of_five_tasks_runs_on_five_nodes_at_once(cluster: Cluster, folder: str) -> None:
    script = f"#!/bin/sh\ntimeout 240 sh -c 'until test -e {folder}/go; do sleep 0.5; done'"
    array = cluster.submit(folder, script, "--partition=cloud", "--exclusive", "--array=1-5")
    eventually("five nodes run", lambda: set(pods(cluster)) == set(ASLEEP), 60)
    asked = f"squeue --noheader --array --jobs={array} --format='%t %N'"
    running = [f"R {node}" for node in ASLEEP]
    becomes(
        "the states of the tasks", lambda: sorted(cluster.run(asked).splitlines()), running, 180
    )
    cluster.run(f"touch {folder}/go")
    ended = f"sacct --noheader --allocations --format=state --jobs={array}"
    becomes("the states of the tasks", lambda: cluster.run(ended).split(), ["COMPLETED"] * 5, 180)


def test_array_of_two_tasks_wakes_only_two_nodes(cluster: Cluster, folder: str) -> None:
    script = "#!/bin/sh\nsleep 10"
    array = cluster.submit(folder, script, "--partition=cloud", "--exclusive", "--array=1-2")
    ended = f"sacct --noheader --allocations --format=state --jobs={array}"
    woken: set[str] = set()

    def states() -> list[str]:
        woken.update(pods(cluster))
        return cluster.run(ended).split()

    becomes("the states of the tasks", states, ["COMPLETED"] * 2, 180)
    assert len(woken) == 2


def test_any_node_leaves_while_its_neighbours_work(cluster: Cluster, folder: str) -> None:
    stays = [
        cluster.submit(folder, "#!/bin/sh\nsleep 600", "--partition=cloud", f"--nodelist={node}")
        for node in ("cloud-0", "cloud-2")
    ]
    cluster.run("srun --partition=cloud --nodelist=cloud-1 true", timeout=120)
    for job in stays:
        cluster.wait_for_job(job, "RUNNING", 90)
    eventually("cloud-1 has left", lambda: set(pods(cluster)) == {"cloud-0", "cloud-2"}, 90)
    becomes("the state of cloud-1", lambda: nodes(cluster)["cloud-1"], "idle~")
    becomes("the list of protected pods", lambda: protected(cluster), ["cloud-0", "cloud-2"])
    assert [cluster.job_state(job) for job in stays] == ["RUNNING", "RUNNING"]


def test_job_of_a_node_that_cannot_start_moves_to_another(cluster: Cluster, folder: str) -> None:
    script = f"#!/bin/sh\nhostname >{folder}/where"
    job = cluster.submit(folder, script, "--partition=both")
    eventually("the pod waits for a machine", lambda: "lost-0" in pods(cluster))
    reason = "scontrol show node lost-0 | sed -n 's/^ *Reason=//p'"
    given = eventually("the agent stops trying to start the node", lambda: cluster.run(reason), 90)
    assert given.startswith("slurmstack:start:capacity: 0/2 nodes are available")
    eventually("the pod is gone", lambda: "lost-0" not in pods(cluster))
    # Wait longer than two minutes, after which Slurm starts a requeued job.
    cluster.wait_for_job(job, "COMPLETED", 240)
    assert cluster.run(f"cat {folder}/where") == "cloud-0"


# --- Kills ---------------------------------------------------------------------------------------


def kill_agent(cluster: Cluster) -> None:
    now = ("--grace-period=0", "--force", "--wait=false")
    cluster.kubectl("delete", "pods", "-l", "slurmstack.dev/component=ondemand", *now, check=False)


def kill_slurmctld(cluster: Cluster) -> None:
    """Kill the active slurmctld, if there is one: after an earlier kill, none may be active yet."""
    for pod in cluster.pods("controller"):
        name = pod["metadata"]["name"]
        cluster.signal("KILL", "slurmctld", name, "slurmctld", check=False)


WAVE = 50
"""Seconds between two waves of jobs. Meanwhile, nodes start, run short jobs, are idle for `IDLE`
seconds, and go to sleep."""
KILLS: tuple[Callable[[Cluster], None], ...] = (kill_agent, kill_slurmctld, Cluster.kill_api_server)


@pytest.mark.timeout(1200)
def test_random_kills_lose_no_job_and_no_pod(cluster: Cluster, folder: str) -> None:
    """Kill the agent, slurmctld or the API server at random moments while nodes start and stop.

    A rare fault shows only after many random kills. The second wave of jobs begins when nodes of
    the first wave have been idle for long enough to sleep. The kills continue while nodes of the
    second wave go to sleep.
    """
    chosen, kills = shuffled(KILLS, 20)
    # Tasks of 3 to 15 seconds: nodes become idle, and then go to sleep, one after the other.
    script = (
        "#!/bin/sh\nsleep $((SLURM_ARRAY_TASK_ID % 5 * 3 + 3))"
        f"; echo $SLURM_ARRAY_TASK_ID >{folder}/ended-$SLURM_ARRAY_TASK_ID"
    )
    options = ("--partition=cloud", "--exclusive", "--requeue")
    # Submit both waves before the kills: sbatch fails without slurmctld.
    waves = [
        cluster.submit(folder, script, *options, f"--array={tasks}", f"--begin=now+{seconds}")
        for tasks, seconds in (("1-5", 0), ("6-10", WAVE))
    ]
    # slurmctld saves its state within five seconds of a change.
    time.sleep(6)

    for kill in kills:
        time.sleep(chosen.uniform(0, 4 * WAVE / len(kills)))
        kill(cluster)

    def states() -> list[str]:
        jobs = ",".join(map(str, waves))
        found = cluster.ssh(
            f"sacct --noheader --allocations --format=state --jobs={jobs}", check=False
        )
        return found.stdout.split()

    becomes("the states of the tasks", states, ["COMPLETED"] * 10, 300)
    assert set(cluster.run(f"cat {folder}/ended-*").split()) == {str(n) for n in range(1, 11)}
    # Wait long, because a kill may lose the end of a task. slurmctld then requeues the task after
    # half a minute, and starts the task again after two minutes.
    becomes("the state of each cloud node", lambda: nodes(cluster), ASLEEP, 300)
    eventually("no pod is left", lambda: not pods(cluster), 90)


def test_job_and_node_recover_if_slurmctld_dies_at_job_start(cluster: Cluster, folder: str) -> None:
    """The kill usually comes before slurmctld saves the job's start, so the job starts twice.

    Because the node already runs the job, slurmctld then drains the node and requeues the job. The
    reconciler returns the node to service.
    """
    script = f"#!/bin/sh\necho >>{folder}/begun; sleep 10"
    job = cluster.submit(folder, script, "--partition=cloud", "--requeue")
    begun = f"timeout 120 sh -c 'until test -e {folder}/begun; do sleep 0.2; done'"
    cluster.run(begun, timeout=150)
    kill_slurmctld(cluster)

    def state() -> str:
        # Without this new start time, a requeued job would wait for two minutes.
        cluster.ssh(f"scontrol update jobid={job} starttime=now", check=False)
        asked = f"sacct --noheader --allocations --format=state --jobs={job}"
        return cluster.ssh(asked, check=False).stdout.strip()

    becomes("the state of the job", state, "COMPLETED", 180)
    becomes("the state of each cloud node", lambda: nodes(cluster), ASLEEP, 120)


@pytest.mark.parametrize(
    ("up", "down"),
    [
        (("power", "up", "cloud-1"), ("power", "down", "cloud-1")),
        # These are older forms of the two commands above. scontrol(1) calls them obsolete.
        (
            ("update", "nodename=cloud-1", "state=power_up"),
            ("update", "nodename=cloud-1", "state=power_down"),
        ),
    ],
    ids=["power", "update"],
)
def test_operators_wake_nodes_and_put_them_to_sleep(
    cluster: Cluster, up: tuple[str, ...], down: tuple[str, ...]
) -> None:
    cluster.operate("scontrol", *up)
    becomes("the state of cloud-1", lambda: nodes(cluster)["cloud-1"], "idle", 90)
    cluster.operate("scontrol", *down)
    becomes("the state of cloud-1", lambda: nodes(cluster)["cloud-1"], "idle~", 90)
    assert pods(cluster) == {}


# --- Refusals ------------------------------------------------------------------------------------


def test_agent_may_create_and_delete_only_its_pods(cluster: Cluster) -> None:
    """The requests are dry runs: the API server accepts or refuses them, but changes nothing."""
    made = pod_of(cluster, "cloud")
    assert answer(cluster, made, "create", "-f", "-") == "pod/cloud-0 created (server dry run)\n"
    made["spec"]["volumes"].append({"name": "machine", "hostPath": {"path": "/"}})
    assert "volumes must be the same as in the PodTemplate of the nodeset" in answer(
        cluster, made, "create", "-f", "-"
    )
    refused = answer(cluster, made, "delete", "pod", cluster.controller())
    assert "may create and delete only pods of nodes on demand" in refused


@pytest.mark.parametrize("label", [c.LABEL_NODESET, *c.ON_DEMAND_LABELS])
def test_template_still_limits_pods_after_it_loses_a_label(cluster: Cluster, label: str) -> None:
    made = pod_of(cluster, "lost")
    made["spec"]["volumes"].append({"name": "machine", "hostPath": {"path": "/"}})
    value = made["metadata"]["labels"][label]
    cluster.kubectl("label", "podtemplate", "lost", f"{label}-")
    try:
        # Give the API server time to read the change.
        time.sleep(3)
        assert "volumes must be the same as in the PodTemplate of the nodeset" in answer(
            cluster, made, "create", "-f", "-"
        )
    finally:
        cluster.kubectl("label", "podtemplate", "lost", f"{label}={value}")


def pod_of(cluster: Cluster, nodeset: str) -> dict[str, Any]:
    """Return the nodeset's first pod, as the agent creates it."""
    found = json.loads(cluster.kubectl("get", "podtemplates", "--output=json"))["items"]
    (template,) = (one for one in found if one["metadata"]["name"] == nodeset)
    uid, content = template["metadata"]["uid"], template["template"]
    return carry.pod(f"{nodeset}-0", Template(nodeset, uid, content, ""))


def answer(cluster: Cluster, pod: dict[str, Any], *request: str) -> str:
    """Send a request of the agent as a dry run, and return kubectl's output and errors."""
    agent = f"--as=system:serviceaccount:{NAMESPACE}:ondemand"
    asked = (agent, "--dry-run=server", *request)
    result = cluster.kubectl_result(*asked, stdin=json.dumps(pod), check=False)
    return result.stdout + result.stderr


def test_nodeset_with_nodes_does_not_change_its_kind(cluster: Cluster) -> None:
    edits = {
        "cannot add on_demand to nodeset cpu: its node cpu-0 exists": edit_nodeset(
            "cpu", on_demand={"idle": IDLE}
        ),
        "cannot remove on_demand from nodeset cloud: it has nodes on demand": edit_nodeset(
            "cloud", kind="static", on_demand=None
        ),
    }
    for reason, edit in edits.items():
        with cluster.edited(edit):
            refused = cluster.deploy("up", check=False)
        assert reason in error_line(refused)
    assert nodes(cluster) == ASLEEP
