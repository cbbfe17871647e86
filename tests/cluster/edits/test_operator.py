"""Deploys without changes, deploys that the program must refuse, and an interrupted deploy."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from components import conventions as c
from local.paths import ROOT
from tests.cluster.errors import error_line
from tests.support.cluster import Cluster, local_cluster, write_stack
from tests.support.commands import execute
from tests.support.waiting import eventually


@pytest.fixture
def nothing_changed(cluster: Cluster) -> Iterator[None]:
    """Check that the test leaves state and cluster unchanged."""

    def picture() -> dict[str, Any]:
        state = json.loads(cluster.state_file.read_text())["checkpoint"]["latest"]
        resources = {resource["urn"]: resource for resource in state["resources"]}
        kinds = "statefulsets,services,configmaps,secrets,persistentvolumeclaims,jobs"
        # Leave out the ConfigMap that the reconciler may change at any time.
        return resources | {
            one["metadata"]["uid"]: written(one)
            for one in cluster.objects(kinds)
            if one["metadata"]["name"] != c.MEMORY_CONFIG
        }

    before = picture()
    yield
    assert picture() == before


def written(one: dict[str, Any]) -> object:
    """Return a value that every change of the object changes, except a change of its status.

    Probes may change the status at any time.
    """
    if "status" not in one:
        return one["metadata"]["resourceVersion"]
    metadata = {key: value for key, value in one["metadata"].items() if key != "resourceVersion"}
    metadata["managedFields"] = [
        each for each in metadata.get("managedFields", []) if each.get("subresource") != "status"
    ]
    return {key: value for key, value in one.items() if key != "status"} | {"metadata": metadata}


@pytest.mark.usefixtures("nothing_changed")
def test_second_deploy_without_edits_changes_nothing(cluster: Cluster) -> None:
    cluster.deploy("preview", "--expect-no-changes")
    cluster.deploy("up", "--expect-no-changes")


def test_preview_shows_an_edit_but_does_not_apply_it(cluster: Cluster) -> None:
    def grow(values: dict[str, Any]) -> None:
        values["nodesets"][0]["replicas"] = 3

    with cluster.edited(grow):
        shown = cluster.deploy("preview").stdout
        refused = cluster.deploy("preview", "--expect-no-changes", check=False)

    assert "spec.replicas" in shown
    assert refused.returncode != 0
    assert set(cluster.nodes()) == {"cpu-0", "cpu-1"}


REFUSED: list[tuple[str, Callable[[dict[str, Any]], object], str]] = [
    ("an unknown key", lambda v: v.update(nodeset=[]), "did you mean 'nodesets'?"),
    ("negative replicas", lambda v: v["nodesets"][0].update(replicas=-1), "replicas: -1"),
    ("memory without a unit", lambda v: v["nodesets"][0].update(memory=1024), "with its unit"),
    ("two nodesets with one name", lambda v: v["nodesets"].append(v["nodesets"][0]), "named 'cpu'"),
    ("a name that is not a DNS label", lambda v: v["nodesets"][0].update(name="C_0"), "DNS label"),
    ("an invalid SSH key", lambda v: v["users"][0].update(ssh_keys=["x"]), "OpenSSH public key"),
]


@pytest.mark.usefixtures("nothing_changed")
@pytest.mark.parametrize(("what", "edit", "expected"), REFUSED, ids=[case[0] for case in REFUSED])
def test_bad_settings_are_refused_before_any_change(
    cluster: Cluster, what: str, edit: Callable[[dict[str, Any]], object], expected: str
) -> None:
    with cluster.edited(edit):
        answer = cluster.deploy("up", check=False)

    assert expected in error_line(answer)


@pytest.mark.usefixtures("nothing_changed")
def test_a_wrong_passphrase_is_refused(cluster: Cluster) -> None:
    env = {**os.environ, "PULUMI_CONFIG_PASSPHRASE": "wrong"}

    assert "passphrase" in error_line(cluster.deploy("up", check=False, env=env))


REFUSED_STACK = "test-refused"


@pytest.fixture
def other_stack() -> Iterator[Callable[[dict[str, Any]], object]]:
    """Return a function that writes a stack file with the given `cluster`, but deploys nothing."""

    def has_no_users(values: dict[str, Any]) -> None:
        # Leave out the dev stack's user, because only a deploy creates this user's key.
        values["users"] = []

    yield lambda setting: write_stack(REFUSED_STACK, cluster=setting, edit=has_no_users)
    execute([sys.executable, "-m", "local", "down", "--stack", REFUSED_STACK])
    Cluster(REFUSED_STACK).stack_file.unlink()


def test_error_names_the_unreachable_cluster(
    other_stack: Callable[[dict[str, Any]], object], cluster: Cluster, tmp_path: Path
) -> None:
    kubeconfig = yaml.safe_load((cluster.directory / "kubeconfig").read_text())
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        server = f"https://127.0.0.1:{closed.getsockname()[1]}"
    kubeconfig["clusters"][0]["cluster"]["server"] = server
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    other_stack({"kind": "existing", "kubeconfig": str(tmp_path / "kubeconfig")})
    env = {
        **os.environ,
        "PULUMI_BACKEND_URL": f"file://{tmp_path}",
        "PULUMI_CONFIG_PASSPHRASE": "test",
    }

    answer = execute(
        [sys.executable, "-m", "engine", "up", "--yes", "--stack", REFUSED_STACK],
        check=False,
        env=env,
    )

    assert server.removeprefix("https://") in error_line(answer)


def test_error_names_the_used_port_and_its_settings_key(
    other_stack: Callable[[dict[str, Any]], object],
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        other_stack(local_cluster(1, api_port=port, ssh_port=port + 1))
        answer = execute(
            [sys.executable, "-m", "local", "up", "--stack", REFUSED_STACK], check=False
        )

    line = error_line(answer)
    assert str(port) in line
    assert "api_port" in line


def test_error_names_the_missing_docker_engine() -> None:
    env = {**os.environ, "DOCKER_HOST": "unix:///nonexistent/docker.sock"}

    answer = execute([sys.executable, "-m", "images.build"], check=False, env=env)

    assert "Docker" in error_line(answer)


def test_next_deploy_completes_an_interrupted_deploy(cluster: Cluster) -> None:
    def grow(values: dict[str, Any]) -> None:
        values["nodesets"][0]["replicas"] = 3
        values["partitions"] = [{"name": "main", "nodesets": ["cpu"], "default": True}]
        values["partitions"] += [{"name": "second", "nodesets": ["cpu"]}]

    with cluster.edited(grow):
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "local.deploy", "up"),
                *("--stack", cluster.stack, "--engine", "embedded"),
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        # Interrupt the deploy when it prints this name. Only the reload of slurmctld is
        # then missing.
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "controller-config-in-force" in line:
                break
        os.killpg(process.pid, signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
        assert process.returncode != 0, "".join(lines) + rest
        assert "Traceback" not in rest

        cluster.deploy("up")
        cluster.deploy("preview", "--expect-no-changes")
        eventually("cpu-2 is idle", lambda: cluster.nodes().get("cpu-2") == "idle")
        assert "second" in cluster.run("sinfo --noheader --format=%R").split()

    cluster.deploy("up")
    cluster.wait_for_nodes("cpu-0", "cpu-1", timeout=180)
