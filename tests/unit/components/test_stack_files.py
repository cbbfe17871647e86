"""The stack files that stand beside the program can be deployed as they are."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from components.conventions import CHECKS_PARTITION
from components.hostlist import expand
from components.settings import STACK_SCHEMA, LocalCluster, read_stack, stack_schema
from components.slurmconf import config_files, script_files
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


def run(script: str, folder: Path, nvidia_smi: str, node: str = "State=IDLE") -> list[str]:
    """Runs a script of the example beside fake commands: its exit code, and what was updated."""
    fakes = {
        "scontrol": f'case "$1" in update) echo "$@" >>{folder}/updates;; *) echo "{node}";; esac',
        "hostname": "echo gpu-0",
        "nvidia-smi": nvidia_smi,
    }
    for name, text in {**fakes, "script": script.removeprefix("#!/bin/sh\n")}.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    code = subprocess.run(
        [folder / "script"],
        env={"PATH": f"{folder}:{os.defpath}", "SLURM_JOB_GPUS": "0,1"},
        stdout=subprocess.DEVNULL,
        check=False,
    ).returncode
    updates = folder / "updates"
    return [str(code), *(updates.read_text().splitlines() if updates.exists() else [])]


DRAIN = "update nodename=gpu-0 state=drain reason=health check: 7 of 8 GPUs"


@pytest.mark.parametrize(
    ("nvidia_smi", "node", "outcome"),
    [
        ("seq 8", "State=IDLE", ["0"]),
        ("seq 7", "State=IDLE", ["0", DRAIN]),
        ("seq 7", "State=MIXED+DRAIN Reason=foreign", ["0"]),
        ("seq 7; exit 1", "State=IDLE", ["0"]),
        ("exit 127", "State=IDLE", ["0"]),
    ],
)
def test_the_examples_health_check_drains_a_node_that_lost_a_gpu_and_no_other(
    nvidia_smi: str, node: str, outcome: list[str], tmp_path: Path
) -> None:
    script = script_files(read_stack("gpu", ROOT))["health_check"]

    assert run(script, tmp_path, nvidia_smi, node) == outcome


@pytest.mark.parametrize(
    ("nvidia_smi", "outcome"),
    [
        ('[ "$1" = --id=0,1 ]', ["0"]),
        ("echo 4711", ["1"]),
        ("exit 9", ["0"]),
        ("exit 127", ["0"]),
    ],
)
def test_the_examples_prolog_fails_where_a_gpu_is_still_held(
    nvidia_smi: str, outcome: list[str], tmp_path: Path
) -> None:
    script = config_files(read_stack("gpu", ROOT))["prolog"]

    assert run(script, tmp_path, nvidia_smi) == outcome
