"""For a cluster of kind metal, the engine runs the right scripts on each machine, in order.

A fake `ssh` replaces the machines.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from engine import providers
from local.paths import ROOT
from tests.support.graph import KUBECONFIG, TOKEN
from tests.support.stack import KEY
from tests.unit.engine.programs.sandbox import Outcome, Sandbox

pytest.importorskip("pulumi_command", reason="pip install '.[metal]'")

LOAD = providers.load
SSH_KEY = "-----BEGIN OPENSSH PRIVATE KEY-----"
PROGRAM = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import pulumi
from components import cluster
from components.settings import from_config

settings = from_config(pulumi.runtime.get_config_env())
pulumi.export("kubeconfig", cluster.make(settings, "dev").kubeconfig)
"""
SSH = f"""#!/bin/bash
# Records which host must run which script, and prints what the machine would print.
host="${{@: -2:1}}"
eval "words=(${{!#}})"
while [[ ${{words[0]}} != -c ]]; do words=("${{words[@]:1}}"); done
[[ ! -e $WORLD/$host.gone ]] || {{ echo "connect to host $host: No route to host" >&2; exit 255; }}
echo "$host ${{words[*]:2}}" >>"$WORLD/log"
case ${{words[2]}} in
    kubeconfig.sh) echo '{KUBECONFIG}' ;;
    admit.sh) echo {TOKEN} ;;
esac
"""
Values = dict[str, Any]
CLUSTER: Values = {
    "kind": "metal",
    "control_planes": ["head"],
    "machines": [
        {"name": "head", "address": "192.0.2.1", "host_key": KEY},
        {"name": "cpu-a", "address": "192.0.2.2", "host_key": KEY, "nodeset": "cpu"},
        {"name": "cpu-b", "address": "192.0.2.3", "host_key": KEY, "nodeset": "cpu"},
    ],
}
NODESET = {"name": "cpu", "replicas": 1, "cpus": 4, "memory": "8GiB", "drain_grace": 60}


class Lab:
    """A stack on three machines."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.cluster = deepcopy(CLUSTER)
        self.protect = True
        sandbox.write(PROGRAM, preamble="")

    def deploy(self, run: Callable[[], Outcome]) -> Outcome:
        key = self.sandbox.root / "key"
        key.write_text(SSH_KEY)
        values = {
            "cluster_name": "lab",
            "registry": "registry.example.org/hpc",
            "protect_data": self.protect,
            "nodesets": [NODESET],
            "cluster": {**self.cluster, "key_file": str(key)},
        }
        config = {f"slurmstack:{name}": value for name, value in values.items()}
        self.sandbox.config(json.dumps({"config": config}))
        return run()

    def up(self) -> list[str]:
        """Deploy successfully, and return the scripts that ran, in order."""
        outcome = self.deploy(self.sandbox.up)
        assert outcome.code == 0, outcome.errors
        return self.ran()

    def ran(self) -> list[str]:
        """Return the scripts that ran since the last call, such as `1 reset.sh`.

        The number is the last byte of the host's address.
        """
        log = self.sandbox.root / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [line.removeprefix("192.0.2.") for line in lines]

    def machine(self, name: str) -> Values:
        (found,) = [one for one in self.cluster["machines"] if one["name"] == name]
        assert isinstance(found, dict)
        return found

    def drop(self, name: str) -> None:
        self.cluster["machines"].remove(self.machine(name))


@pytest.fixture
def lab(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setattr(providers, "load", LOAD)
    ssh = sandbox.root / "bin/ssh"
    ssh.parent.mkdir()
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(ssh.parent), prepend=":")
    monkeypatch.setenv("WORLD", str(sandbox.root))
    return Lab(sandbox)


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    """Return a mapping in which the fixture `running` keeps the state of a created cluster, so that
    only the first test creates the cluster."""
    return {}


@pytest.fixture
def running(lab: Lab, made: dict[str, str]) -> Lab:
    """Return the lab after its cluster was created."""
    file = lab.sandbox.state_file
    if not made:
        lab.up()
        made["state"] = file.read_text()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(made["state"])
    return lab


def scripts(lines: list[str]) -> list[str]:
    return [" ".join(line.split()[:2]) for line in lines]


def test_cluster_is_created_once_and_machines_join_in_order(lab: Lab) -> None:
    ran = scripts(lab.up())

    assert sorted(ran) == sorted(
        [f"{n} {s}.sh" for n in (1, 2, 3) for s in ("prepare", "member")]
        + ["1 kubeconfig.sh", *["1 admit.sh"] * 2, *["1 label.sh"] * 3]
    )
    for number in (2, 3):
        assert ran.index("1 member.sh") < ran.index("1 admit.sh") < ran.index(f"{number} member.sh")
        assert ran.index(f"{number} prepare.sh") < ran.index(f"{number} member.sh")
    assert ran[-1] == "1 label.sh"


def test_second_deploy_without_changes_contacts_no_machine(running: Lab) -> None:
    assert running.deploy(lambda: running.sandbox.preview(expect_no_changes=True)).code == 0
    assert running.up() == []


def test_preview_contacts_no_machine_and_needs_no_key(lab: Lab, tmp_path: Path) -> None:
    def preview() -> Outcome:
        (lab.sandbox.root / "key").unlink()
        return lab.sandbox.preview()

    assert lab.deploy(preview).code == 0
    assert lab.ran() == []


def test_state_contains_keys_kubeconfig_and_tokens_only_encrypted(running: Lab) -> None:
    state = running.sandbox.state_file.read_text()

    assert "metal-member-cpu-a" in state
    for secret in (SSH_KEY, TOKEN, "certificate-authority-data"):
        assert secret not in state


def test_new_machine_joins_without_changes_to_other_machines(running: Lab) -> None:
    new = {"name": "cpu-c", "address": "192.0.2.4", "host_key": KEY, "nodeset": "cpu"}
    running.cluster["machines"].append(new)

    ran = running.up()
    label, taint = "slurmstack.dev/nodeset=cpu nvidia.com/mig.config-", "slurmstack.dev/nodeset=cpu"
    assert {line for line in ran if not line.startswith("4 ")} == {
        "1 admit.sh cpu-c 2h0m0s worker",
        f"1 label.sh cpu-c {label} -- {taint}",
    }
    assert scripts(ran)[-2:] == ["4 member.sh", "1 label.sh"]


def test_removed_machine_is_drained_deleted_and_then_reset(running: Lab) -> None:
    running.drop("cpu-b")

    assert running.up() == ["1 leave.sh cpu-b 360", "3 reset.sh"]


def test_machine_with_new_address_joins_after_the_old_machine_left(running: Lab) -> None:
    running.machine("cpu-b")["address"] = "192.0.2.9"

    ran = scripts(running.up())
    order = ["1 leave.sh", "3 reset.sh", "9 member.sh", "1 label.sh"]
    assert [line for line in ran if line in order] == order
    assert set(ran) - set(order) == {"1 admit.sh", "9 prepare.sh"}


def test_reinstalled_machine_joins_again(running: Lab) -> None:
    running.machine("cpu-b")["host_key"] = KEY.replace("AAAAIA", "AAAAIB")

    ran = scripts(running.up())
    assert ran.index("1 admit.sh") < ran.index("3 member.sh")
    assert set(ran) == {"1 admit.sh", "3 prepare.sh", "3 member.sh"}


def test_lost_machine_is_removed_without_connecting_to_it(running: Lab) -> None:
    (running.sandbox.root / "192.0.2.3.gone").touch()
    running.machine("cpu-b")["lost"] = True
    assert running.up() == []
    running.drop("cpu-b")

    assert running.up() == ["1 leave.sh cpu-b 360"]


def test_next_deploy_continues_a_failed_join(lab: Lab) -> None:
    gone = lab.sandbox.root / "192.0.2.3.gone"
    gone.touch()
    outcome = lab.deploy(lab.sandbox.up)
    assert outcome.code != 0
    assert any("192.0.2.3: No route to host; ssh failed" in error for error in outcome.errors)
    lab.ran()
    gone.unlink()

    assert {"3 prepare.sh", "3 member.sh"} <= set(scripts(lab.up()))


def test_protect_data_prevents_replacing_or_removing_a_control_plane(running: Lab) -> None:
    running.machine("head")["address"] = "192.0.2.9"
    assert running.deploy(running.sandbox.up).code != 0
    assert not {"1 reset.sh", "9 member.sh"} & set(scripts(running.ran()))

    running.cluster["machines"][0] = {**CLUSTER["machines"][0], "name": "other"}
    running.cluster["control_planes"] = ["other"]
    outcome = running.deploy(running.sandbox.up)
    assert outcome.code != 0
    assert any("protected" in error for error in outcome.errors)
    assert not [line for line in running.ran() if "reset" in line or "leave" in line]


def test_destroy_resets_the_control_plane_last(lab: Lab) -> None:
    lab.protect = False
    lab.up()

    assert lab.deploy(lab.sandbox.destroy).code == 0
    ran = scripts(lab.ran())
    assert sorted(ran) == ["1 leave.sh"] * 3 + ["1 reset.sh", "2 reset.sh", "3 reset.sh"]
    assert ran[-1] == "1 reset.sh"
