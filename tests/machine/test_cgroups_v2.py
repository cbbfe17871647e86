"""The project works on an ordinary machine with systemd and only cgroup version 2."""

import shlex

from tests.machine.machine import Machine
from tests.support.waiting import PATIENCE

HOUR = 3600
LIGHTER = """
import yaml

with open("Pulumi.dev.yaml") as file:
    stack = yaml.safe_load(file)
config = stack["config"]
config["slurmstack:cluster"]["nodes"] = 1
config["slurmstack:controller"]["standby"] = False
config["slurmstack:accounting"] = {"enabled": False}
config["slurmstack:monitoring"] = {"kind": "none", "exporter": {"enabled": False}}
config["slurmstack:reconciler"]["rollout"] = 1800
with open("Pulumi.dev.yaml", "w") as file:
    yaml.safe_dump(stack, file)
"""
"""Leaves out parts of the development stack, and lets the deploy wait longer for nodes. An emulated
machine is too slow for the whole stack: its API server would not answer in time."""


def test_machine_has_only_cgroup_v2(machine: Machine) -> None:
    assert machine.run("stat --file-system --format=%T /sys/fs/cgroup").strip() == "cgroup2fs"
    assert machine.run("systemctl is-active docker").strip() == "active"


def test_jobs_are_confined(machine: Machine) -> None:
    tests = "tests/container/confinement --lane container -p no:cacheprovider --timeout 3000"

    machine.run(f"{PATIENCE}=5 .venv/bin/python -m pytest {tests}", timeout=3 * HOUR)


def test_commands_on_the_first_page_of_the_readme_work(machine: Machine) -> None:
    machine.run(f".venv/bin/python -c {shlex.quote(LIGHTER)}")
    # On an emulated machine, starts and requests can time out. Each further `make up` continues.
    attempts = " || ".join(["make up"] * 5)
    output = machine.run(attempts, timeout=3 * HOUR)

    assert "2 of 2 nodes are in service" in output
    login = "ssh -F .local/dev/ssh_config login"
    hosts = machine.run(f"{login} srun --nodes=2 hostname </dev/null")
    assert sorted(hosts.split()) == ["cpu-0", "cpu-1"]
    assert machine.run(f"{login} srun --cpus-per-task=1 nproc </dev/null").strip() == "1"
    machine.run("make down", timeout=HOUR)
