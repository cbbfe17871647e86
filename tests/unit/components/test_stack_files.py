"""The stack files that stand beside the program can be deployed as they are."""

import json
from pathlib import Path

import pytest
import yaml

from components.conventions import CHECKS_PARTITION
from components.hostlist import expand
from components.settings import STACK_SCHEMA, LocalCluster, read_stack, stack_schema
from components.slurmconf import config_files, node_checks, script_files
from components.users import authorized_keys
from tests.unit.components.parsed import lines, options, records, words

ROOT = STACK_SCHEMA.parent.parent
FILES = sorted(ROOT.glob("Pulumi.*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_stack_file_names_the_schema_and_has_no_key_outside_it(path: Path) -> None:
    known = stack_schema()["properties"]["config"]["properties"]
    text = path.read_text()

    assert f"$schema={STACK_SCHEMA.relative_to(ROOT)}" in text.splitlines()[0]
    assert set(yaml.safe_load(text)["config"]) <= set(known)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_stack_file_is_valid_and_its_files_are_rendered(path: Path) -> None:
    stack = read_stack(path.name.split(".")[1], ROOT)
    files = {**config_files(stack, ROOT), **script_files(stack, ROOT)}

    assert options(files["slurm.conf"])["ClusterName"] == stack.cluster_name
    assert [
        record["PartitionName"] for record in records(files["slurm.conf"], "PartitionName")
    ] == [
        *(queue.name for queue in stack.queues()),
        *([CHECKS_PARTITION] if stack.long_checks.checks else []),
    ]


def test_the_dev_stack_is_local() -> None:
    assert isinstance(read_stack("dev", ROOT).cluster, LocalCluster)


# --- The example of production -------------------------------------------------------------------


def test_the_example_asks_for_nothing_that_is_on_one_machine_only(tmp_path: Path) -> None:
    stack = read_stack("gpu", ROOT)

    assert stack.cluster.kind == "existing"
    assert stack.protect_data
    assert stack.controller.standby
    assert all(authorized_keys(user, tmp_path).count("\n") == 1 for user in stack.users)


def test_every_gpu_node_of_the_example_is_below_one_switch() -> None:
    files = config_files(read_stack("gpu", ROOT))
    (nodes,) = [record["NodeName"] for record in records(files["slurm.conf"], "NodeName")]
    switches = [words(line) for line in lines(files["topology.conf"])]

    wired = [node for switch in switches for node in expand(switch.get("Nodes", "x"))]
    assert sorted(node for node in wired if node != "x") == sorted(expand(nodes))


def test_the_examples_gpu_nodes_are_looked_at_around_jobs_by_what_they_have() -> None:
    stack = read_stack("gpu", ROOT)
    gpu, cpu = (json.loads(node_checks(nodeset, stack)) for nodeset in stack.nodesets)

    assert gpu["gpu-count"] == {"count": 8}
    assert gpu["infiniband-link"] == {"ports": 8, "min_gbits": 400}
    assert not [name for name in cpu if name.startswith(("gpu-", "infiniband-"))]
    assert {"checks_prolog", "checks_epilog"} <= set(config_files(stack))
