"""Kinds and features of nodesets: static or dynamic, scripts, volumes, groups, and removal."""

from tests.cluster.edits.nodesets import SMALL, deployed, is_idle
from tests.cluster.errors import error_line
from tests.support.cluster import Cluster
from tests.support.waiting import eventually


def test_static_node_returns_by_itself_and_its_job_blocks_removal(
    cluster: Cluster, folder: str
) -> None:
    fixed = {**SMALL, "name": "fixed", "kind": "static", "replicas": 2}
    with deployed(cluster, nodesets=[fixed]):
        eventually(
            "the static nodes are idle", lambda: cluster.nodes().get("fixed-1") == "idle", 90
        )
        assert cluster.run("srun --nodelist=fixed-1 hostname") == "fixed-1"

        cluster.kubectl("delete", "pod", "fixed-1", "--grace-period=1")
        eventually("fixed-1 is no longer idle", lambda: cluster.nodes()["fixed-1"] != "idle")
        eventually("fixed-1 is back", is_idle(cluster, "fixed-1"), 90)
        assert cluster.run("srun --nodelist=fixed-1 hostname") == "fixed-1"

        job = cluster.submit(folder, "#!/bin/sh\nsleep 300", "--nodelist=fixed-1")
        cluster.wait_for_job(job, "RUNNING")
        with cluster.edited(lambda values: values["nodesets"][-1].update(replicas=1)):
            refused = cluster.deploy("up", check=False)
            assert "cannot remove static nodes: they have jobs (1)" in error_line(refused)
            assert "nodename=fixed-1" in error_line(refused)
            assert cluster.job_state(job) == "RUNNING"

            cluster.run(f"scancel {job}")
            eventually("fixed-1 is idle", is_idle(cluster, "fixed-1"))
            cluster.deploy("up")
            eventually("fixed-1 is gone", lambda: "fixed-1" not in cluster.nodes())
            assert cluster.nodes()["fixed-0"] == "idle"


def test_static_nodes_without_pods_do_not_block_slurmctld(cluster: Cluster) -> None:
    nowhere = {**SMALL, "name": "nowhere", "kind": "static", "replicas": 50}
    nowhere["node_selector"] = {"example.org/pool": "none"}
    with deployed(cluster, nodesets=[nowhere]):
        eventually("slurmctld has all nodes", lambda: len(cluster.nodes()) == 52)
        states = {s for name, s in cluster.nodes().items() if name.startswith("nowhere")}
        assert states == {"down~"}
        assert cluster.run("srun --nodes=2 hostname").split()
        latest = cluster.run("time -p scontrol ping 2>&1 | sed -n 's/^real //p'")
        assert float(latest or 0) < 5, "slurmctld does not wait ten seconds per unresolvable name"


def test_scripts_volumes_and_limits_of_a_nodeset_reach_its_jobs(
    cluster: Cluster, folder: str
) -> None:
    mark = "#!/bin/sh\ntouch /tmp/{}\n"
    slurm = {
        "prolog": {"text": mark.format("prolog-$SLURM_JOB_ID")},
        "epilog": {"text": mark.format("epilog-$SLURM_JOB_ID")},
        "task_prolog": {"text": "#!/bin/sh\necho export GREETING=hello\n"},
    }
    health = {"script": {"text": mark.format("healthy")}, "interval": 10, "node_states": ["any"]}
    equipped = {
        **SMALL,
        "name": "equipped",
        "features": ["fast"],
        "weight": 5,
        "ephemeral_storage": "1GiB",
        "parameters": {"TmpDisk": 100},
        "limits": {"core": "1MiB", "open_files": 2048, "locked_memory": "none"},
        "pod": {
            "annotations": {"example.org/network": "fast"},
            "environment": {"GREETING_OF_SLURMD": "hello"},
            "init_containers": [
                {"name": "first", "image": image_of(cluster, "cpu-0"), "command": ["true"]}
            ],
        },
        "tolerations": [{"key": "example.org/reserved"}],
        "volumes": [{"name": "data", "path": "/mnt/jail/data", "empty": {"size": "10MiB"}}],
    }
    with deployed(cluster, nodesets=[equipped], slurm=slurm, health=health):
        eventually("equipped-0 is idle", is_idle(cluster, "equipped-0"), 90)

        output = cluster.run(
            "srun --constraint=fast --chdir=/tmp sh -c "
            "'echo $SLURM_JOB_ID $GREETING $(hostname) $(stat -c %F /data)'"
        )
        job, *rest = output.split(maxsplit=3)
        assert rest == ["hello", "equipped-0", "directory"]
        eventually("the epilog ran", lambda: f"epilog-{job}" in files(cluster))
        assert f"prolog-{job}" in files(cluster)
        eventually("the health check ran", lambda: "healthy" in files(cluster))
        record = cluster.run("scontrol show node equipped-0")
        assert "Weight=5" in record
        assert "TmpDisk=100" in record

        limits = "for limit in c n l; do ulimit -$limit; done"
        assert cluster.run(f"srun --constraint=fast bash -c '{limits}'").split() == [
            *("1024", "2048", "0")
        ]
        assert cluster.run("srun --constraint=fast printenv GREETING_OF_SLURMD || true") == ""
        pod = cluster.pod("equipped-0")
        assert pod
        assert pod["metadata"]["annotations"]["example.org/network"] == "fast"
        assert "site-first" in [each["name"] for each in pod["status"]["initContainerStatuses"]]
        variables = cluster.in_pod("equipped-0", "slurmd", "cat", "/proc/1/environ").split("\0")
        assert "GREETING_OF_SLURMD=hello" in variables

        # An edited script reaches running nodes.
        slurm["prolog"] = {"text": mark.format("second-$SLURM_JOB_ID")}
        uid = cluster.pod_uid("equipped-0")
        with cluster.edited(lambda values: values.update(slurm=slurm)):
            cluster.deploy("up")
            job = cluster.run("srun --constraint=fast sh -c 'echo $SLURM_JOB_ID'")
            assert f"second-{job}" in files(cluster)
            assert cluster.pod_uid("equipped-0") == uid


def image_of(cluster: Cluster, node: str) -> str:
    """Return the image of a node's slurmd."""
    pod = cluster.pod(node)
    assert pod
    containers = {each["name"]: each for each in pod["spec"]["containers"]}
    return str(containers["slurmd"]["image"])


def files(cluster: Cluster) -> list[str]:
    return cluster.in_pod("equipped-0", "slurmd", "ls", "/tmp").split()


def test_only_group_members_can_use_the_partition_of_the_group(cluster: Cluster) -> None:
    lab = {"name": "lab", "gid": 5000, "members": ["researcher"]}
    other = {"name": "other", "gid": 5001}
    partitions = [
        {"name": "main", "nodesets": ["cpu"], "default": True},
        {"name": "ours", "nodesets": ["cpu"], "allow_groups": ["lab"]},
        {"name": "theirs", "nodesets": ["cpu"], "allow_groups": ["other"]},
    ]
    with deployed(cluster, groups=[lab, other], partitions=partitions):
        eventually(
            "workers have the group", lambda: "lab" in cluster.run("srun id -nG").split(), 120
        )
        assert cluster.run("srun --partition=ours hostname")
        job = cluster.run("sbatch --parsable --partition=theirs --wrap=hostname --output=/dev/null")
        reason = f"squeue --noheader --jobs={job} --format=%r"
        eventually(
            "squeue shows the reason", lambda: "not in group permitted" in cluster.run(reason)
        )
        assert cluster.job_state(int(job)) == "PENDING"


def test_nodeset_scales_to_zero_and_back(cluster: Cluster, folder: str) -> None:
    with deployed(cluster, nodesets=[{**SMALL, "name": "elastic"}]):
        eventually("elastic-0 is idle", is_idle(cluster, "elastic-0"), 90)
        waiting = cluster.submit(folder, "#!/bin/sh\nhostname >host", "--constraint=elastic --hold")
        with cluster.edited(lambda values: values["nodesets"][-1].update(replicas=0)):
            cluster.deploy("up")
            eventually("elastic-0 is gone", lambda: "elastic-0" not in cluster.nodes(), 90)
            cluster.run(f"scontrol release {waiting}")
            assert cluster.job_state(waiting) == "PENDING", "the job waits for the nodeset"
        cluster.deploy("up")
        cluster.wait_for_job(waiting, "COMPLETED", 120)
        assert cluster.run(f"cat {folder}/host") == "elastic-0"


def test_removing_a_nodeset_does_not_restart_slurmctld(cluster: Cluster, folder: str) -> None:
    controller = cluster.controller()
    restarts = cluster.restarts(controller)
    with deployed(cluster, nodesets=[{**SMALL, "name": "doomed", "drain_grace": 60}]):
        eventually("doomed-0 is idle", is_idle(cluster, "doomed-0"), 90)
        brief = cluster.submit(
            folder, "#!/bin/sh\nsleep 40; echo finished >done", "--nodelist=doomed-0 --mem=10"
        )
        cluster.wait_for_job(brief, "RUNNING")
        waiting = cluster.submit(folder, "#!/bin/sh\ntrue", "--constraint=doomed --mem=200")

        with cluster.edited(lambda values: values["nodesets"].pop()):
            cluster.deploy("up")

            assert cluster.job_state(brief) == "COMPLETED", "the job ends within drain_grace"
            assert cluster.run(f"cat {folder}/done") == "finished"
            assert set(cluster.nodes()) == {"cpu-0", "cpu-1"}
            assert cluster.job_state(waiting) == "PENDING"
            assert cluster.run("srun hostname")
    assert cluster.controller() == controller
    assert cluster.restarts(controller) == restarts


def test_invalid_node_parameter_is_refused_before_pods_exist(cluster: Cluster) -> None:
    odd = {**SMALL, "name": "odd", "parameters": {"NoSuchThing": 1}}
    with cluster.edited(lambda values: values["nodesets"].append(odd)):
        refused = cluster.deploy("up", check=False)
    assert "nodeset odd" in error_line(refused)
    assert "NoSuchThing" in error_line(refused)
    assert cluster.kubectl("get", "pod", "odd-0", "--ignore-not-found") == ""
    cluster.deploy("up")
