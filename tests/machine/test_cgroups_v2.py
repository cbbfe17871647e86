"""An ordinary machine: systemd, and version 2 of cgroups alone."""

from tests.machine.machine import Machine
from tests.support.waiting import PATIENCE

HOUR = 3600


def test_it_is_a_machine_with_version_2_of_cgroups_alone(machine: Machine) -> None:
    assert machine.run("stat --file-system --format=%T /sys/fs/cgroup").strip() == "cgroup2fs"
    assert machine.run("systemctl is-active docker").strip() == "active"


def test_the_first_page_of_the_readme_does_what_it_says(machine: Machine) -> None:
    said = machine.run("make up", timeout=2 * HOUR)

    assert "2 of 2 nodes are in service" in said
    login = "ssh -F .local/dev/ssh_config login"
    assert machine.run(f"{login} srun --nodes=2 hostname </dev/null").split() == ["cpu-0", "cpu-1"]
    assert machine.run(f"{login} srun --cpus-per-task=1 nproc </dev/null").strip() == "1"
    machine.run("make down", timeout=HOUR)


def test_jobs_are_confined(machine: Machine) -> None:
    tests = "tests/cluster/confinement --lane cluster -p no:cacheprovider --timeout 3000"

    machine.run(f"{PATIENCE}=5 .venv/bin/python -m pytest {tests}", timeout=3 * HOUR)
