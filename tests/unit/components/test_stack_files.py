"""Tests of the stack files in the repository: all can be deployed unchanged."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from agents.hostlist import expand
from agents.reconciler.wanted import Wanted
from components.conventions import CHECKS_PARTITION
from components.identity.users import authorized_keys
from components.settings import STACK_SCHEMA, LocalCluster, read_stack, stack_schema
from components.settings.clusters import NebiusCluster
from components.slurmconf import config_files, node_checks, script_files, wanted_nodes
from local.paths import ROOT
from tests.support.clouds import CLOUDS, EKS, METAL
from tests.support.parsed import lines, options, records, words
from tests.support.stack import FILES, KEY


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_stack_file_refers_to_the_schema_and_matches_it(path: Path) -> None:
    known = stack_schema()["properties"]["config"]["properties"]
    text = path.read_text()

    assert f"$schema={STACK_SCHEMA.relative_to(ROOT)}" in text.splitlines()[0]
    assert set(yaml.safe_load(text)["config"]) <= set(known)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_stack_file_is_valid_and_renders_slurm_conf(path: Path) -> None:
    stack = read_stack(path.name.split(".")[1], ROOT)
    files = {**config_files(stack, ROOT), **script_files(stack, ROOT)}

    assert options(files["slurm.conf"])["ClusterName"] == stack.cluster_name
    assert [
        record["PartitionName"] for record in records(files["slurm.conf"], "PartitionName")
    ] == [
        *(queue.name for queue in stack.queues()),
        *([CHECKS_PARTITION] if stack.long_checks.checks else []),
    ]


def test_dev_stack_runs_on_a_local_cluster() -> None:
    assert isinstance(read_stack("dev", ROOT).cluster, LocalCluster)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a copy of the project. Its only local file is a public key, such as `make up`
    creates."""
    project = tmp_path / "project"
    (project / ".local/dev").mkdir(parents=True)
    (project / ".local/dev/id_ed25519.pub").write_text(KEY)
    for path in ROOT.iterdir():
        if path.name != ".local":
            (project / path.name).symlink_to(path)
    return project


def engine(*words: str, project: Path) -> subprocess.CompletedProcess[str]:
    """Run the embedded engine with no credentials and no network access."""
    home = project.parent
    return subprocess.run(
        [sys.executable, "-m", "engine", *words],
        cwd=project,
        env={
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "PULUMI_BACKEND_URL": f"file://{home}",
            "PULUMI_CONFIG_PASSPHRASE": "none",
            # Send requests to a port on which no proxy listens, so that each request to the
            # internet fails at once.
            "https_proxy": "http://127.0.0.1:9",
            "http_proxy": "http://127.0.0.1:9",
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_new_stack_can_be_previewed_without_credentials(path: Path, project: Path) -> None:
    stack = path.name.split(".")[1]
    kind = read_stack(stack, ROOT).cluster.kind
    if kind in CLOUDS:
        pytest.importorskip(f"pulumi_{kind}", reason=f"pip install '.[{kind}]'")

    done = engine("preview", "--stack", stack, project=project)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "controller-slurmctld create" in done.stdout


def test_preview_refuses_a_stack_without_a_file(project: Path) -> None:
    done = engine("preview", "--stack", "nosuch", project=project)

    assert done.returncode != 0
    assert "no stack 'nosuch': Pulumi.nosuch.yaml does not exist; existing" in done.stderr
    assert "is required" not in done.stderr


@pytest.mark.parametrize(
    ("values", "package", "made"),
    [
        (EKS, "eks", "eks:index:ManagedNodeGroup eks-group-gpu create"),
        (METAL, "command", "command:remote:Command metal-member-gpu-a create"),
    ],
    ids=["eks", "metal"],
)
def test_new_eks_or_metal_stack_can_be_previewed(
    project: Path, values: dict[str, Any], package: str, made: str
) -> None:
    extra = values["cluster"]["kind"]
    pytest.importorskip(f"pulumi_{package}", reason=f"pip install '.[{extra}]'")
    config = {f"slurmstack:{key}": value for key, value in values.items()}
    (project / "Pulumi.lab.yaml").write_text(yaml.safe_dump({"config": config}))

    done = engine("preview", "--stack", "lab", project=project)

    assert done.returncode == 0, done.stdout + done.stderr
    assert made in done.stdout
    assert "controller-slurmctld create" in done.stdout


def test_embedded_engine_refers_cloud_stacks_to_the_pulumi_command(project: Path) -> None:
    pytest.importorskip("pulumi_nebius", reason="pip install '.[nebius]'")

    done = engine("up", "--yes", "--stack", "gpu", project=project)

    assert done.returncode != 0
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert line.endswith("deploy this stack with the `pulumi` command")


# --- Examples for production ----------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), [("cpu", "existing"), ("gpu", "nebius")])
def test_example_stack_uses_a_registry_and_no_local_key_files(
    name: str, kind: str, tmp_path: Path
) -> None:
    stack = read_stack(name, ROOT)

    assert stack.cluster.kind == kind
    assert stack.protect_data
    assert stack.registry
    assert all(authorized_keys(user, tmp_path).count("\n") == 1 for user in stack.users)


def test_cloud_example_has_three_gpu_types_and_a_standby_controller() -> None:
    stack = read_stack("gpu", ROOT)
    assert isinstance(stack.cluster, NebiusCluster)

    gpus = {nodeset.name: nodeset.gpus.type for nodeset in stack.nodesets if nodeset.gpus}
    assert set(gpus.values()) == {"h100", "h200", "b200"}
    assert all(stack.cluster.machines[name].fabric for name in gpus)
    assert {nodeset.name for nodeset in stack.nodesets} - set(gpus) == {"cpu"}
    assert stack.controller.standby


def test_every_gpu_node_of_the_example_has_exactly_one_switch() -> None:
    files = config_files(read_stack("gpu", ROOT))
    (nodes,) = [record["NodeName"] for record in records(files["slurm.conf"], "NodeName")]
    switches = [words(line) for line in lines(files["topology.conf"])]

    wired = [node for switch in switches for node in expand(switch.get("Nodes", "x"))]
    assert sorted(node for node in wired if node != "x") == sorted(expand(nodes))


def test_gpu_nodes_of_the_example_have_checks_for_their_hardware() -> None:
    stack = read_stack("gpu", ROOT)
    checks = {nodeset.name: json.loads(node_checks(nodeset, stack)) for nodeset in stack.nodesets}
    gpu, cpu = checks["h100"], checks["cpu"]

    assert gpu["gpu-count"] == {"count": 8}
    assert gpu["infiniband-link"] == {"ports": 8, "min_gbits": 400}
    assert not [name for name in cpu if name.startswith(("gpu-", "infiniband-"))]
    assert {"checks_prolog", "checks_epilog"} <= set(config_files(stack))


def test_last_repairs_of_gpu_faults_are_reboot_and_replace() -> None:
    stack = read_stack("gpu", ROOT)
    wanted = Wanted.model_validate_json(wanted_nodes(stack))
    checks = {
        name
        for nodeset in stack.nodesets
        if nodeset.gpus
        for name in json.loads(node_checks(nodeset, stack))
        if name.startswith("gpu-")
    }

    assert {"gpu-count", "gpu-ecc", "gpu-xid"} <= checks
    for name in checks:
        ladder = wanted.ladder_of(name)
        assert ladder[-2:] == ("reboot", "replace"), name
        assert ladder[:2] == ("recheck", "restart"), "the first repairs keep the machine"
    # The example names no command that replaces machines, so the step `replace` only deletes the
    # Node object.
    assert wanted.replace == ()
