"""Slurm's option `--container`, which runs OCI bundles."""

import json
from typing import Any

import pytest

from components import conventions as c
from tests.support.containers import put
from tests.support.imagesite import Site, ended, refusal, run
from tests.support.waiting import becomes

HOME = "/home/researcher"
PLACE = f"{HOME}/bundle"
PASS_ARGUMENT = """
srun --quiet "$1" bash -c 'printf "%s." "$1"' sh "$(cat /mnt/jail/home/researcher/argument; echo .)"
"""
LINK_TO_OTHERS = """
find /tmp /var/spool -depth -type d -name "*pmix*" | while read -r folder; do
  mv "$folder" "$folder-moved" && ln -s /home/student/own "$folder"
done
true
"""
"""Script that replaces directories with links to a directory of another user. slurmstepd created
the directories for PMIx (support for MPI)."""
AWAIT_SIGNAL = """
trap 'echo heard; exit' USR1
echo ready
while :; do sleep 0.1; done
"""


def configure(site: Site, place: str = PLACE, **config: Any) -> str:
    given = {"ociVersion": "1.0.2", "root": {"path": "rootfs"}} | config
    put(site.node.worker.container, {f"{c.JAIL}{place}/config.json": json.dumps(given)})
    return f"--container={place}"


@pytest.fixture(scope="module")
def rootfs(running: Site) -> str:
    """Directory of a bundle, without its configuration."""
    there = f"{c.JAIL}{PLACE}"
    running.registry_run(f"mkdir -p {there} && cp -a /srv/base {there}/rootfs")
    running.registry_run(f"chown -R 2000:2000 {there}")
    return PLACE


def test_tasks_on_two_nodes_run_in_a_bundle(site: Site, rootfs: str) -> None:
    options = f"{configure(site)} --nodes=2 --ntasks=4"

    output = run(site, options, "bash -c 'echo $(uname -n) $(readlink /proc/self/ns/mnt); sleep 1'")
    system = run(site, options, "grep ID= /etc/os-release")

    assert len({*output.splitlines()}) == 2, output
    assert system.splitlines() == ["ID=small"] * 4


@pytest.mark.parametrize(
    "argument", ["it's", "a 'b' \"c\"", "$x `true` \\", "two\nlines", "", "x" * 100_000]
)
def test_arguments_reach_the_command_unchanged(site: Site, rootfs: str, argument: str) -> None:
    files = {"argument": argument, "pass": PASS_ARGUMENT}
    put(site.node.worker.container, {f"{c.JAIL}{HOME}/{k}": v for k, v in files.items()})

    output = site.node.user(f"bash {c.JAIL}{HOME}/pass {configure(site)}")

    assert output == f"{argument}.."


def test_bundle_sets_variables_and_the_working_directory(site: Site, rootfs: str) -> None:
    process = {"env": ["COLOUR=blue and green", "PATH=/usr/bin"], "cwd": "/usr/lib"}
    options = configure(site, process=process)
    command = "bash -c 'echo \"$COLOUR, $OWN, $PWD, $SLURM_JOB_NUM_NODES\"'"

    output = site.node.user(f"OWN=mine COLOUR=red srun --quiet {options} {command}")

    assert output == "blue and green, mine, /usr/lib, 1"


def test_bundle_adds_no_variable_except_home_and_slurm_container(site: Site, rootfs: str) -> None:
    def names(options: str) -> set[str]:
        return {line.partition("=")[0] for line in run(site, options, "env").splitlines()}

    assert names(configure(site)) - names("") <= {"HOME", "SLURM_CONTAINER"}


def test_bundle_mounts_are_in_the_container(site: Site, rootfs: str) -> None:
    bind = {"destination": "/data", "source": f"{HOME}", "options": ["rbind", "ro"]}
    memory = {"destination": "/fast", "type": "tmpfs", "options": ["size=64k"]}
    options = configure(site, mounts=[bind, memory])

    output = run(
        site, options, "bash -c 'ls /data/bundle/config.json; echo x >/fast/x; cat /fast/x'"
    )

    assert output.splitlines() == ["/data/bundle/config.json", "x"]


@pytest.mark.parametrize(
    ("access", "expected"), [(True, "Read-only file system"), (False, "written")]
)
def test_bundle_can_make_its_root_directory_read_only(
    site: Site, rootfs: str, access: bool, expected: str
) -> None:
    options = configure(site, root={"path": "rootfs", "readonly": access})
    command = "bash -c 'echo x >/usr/x && echo written || true'"

    assert expected in site.node.user(f"srun --quiet {options} {command} 2>&1")
    assert site.node.root(f"ls {c.JAIL}{PLACE}/rootfs/usr/x 2>&1 || true").count("No such") == 1


def test_batch_script_runs_in_a_bundle(site: Site, rootfs: str) -> None:
    script = f"#!/bin/bash\n#SBATCH {configure(site)}\n. /etc/os-release; echo $ID $1\n"
    site.node.user(f"printf %s '{script}' >/tmp/script")

    job = site.node.user(f"sbatch --parsable --output={HOME}/%j.txt /tmp/script argument")

    assert ended(site, job) == "small argument"


@pytest.mark.parametrize(("command", "code"), [("exit 3", "3"), ("kill -9 $BASHPID", "137")])
def test_step_returns_the_exit_code_of_the_command(
    site: Site, rootfs: str, command: str, code: str
) -> None:
    step = f"srun --quiet {configure(site)} bash -c '{command}' 2>/dev/null; echo $?"

    assert site.node.user(step) == code


def test_signals_reach_the_command(site: Site, rootfs: str) -> None:
    put(site.node.worker.container, {f"{c.JAIL}{HOME}/wait": AWAIT_SIGNAL})
    job = site.node.submit(f"srun --quiet {configure(site)} bash {HOME}/wait")
    becomes("the step's output", lambda: site.node.output(job), "ready")

    site.node.user(f"scancel --signal=USR1 {job}.0")

    assert ended(site, job).splitlines() == ["ready", "heard"]


def test_refuses_an_image_together_with_a_bundle(site: Site, rootfs: str, image: str) -> None:
    step = f"srun {configure(site)} --container-image={image} echo it ran 2>&1 || true"

    assert "it ran" not in site.node.user(step)


@pytest.mark.parametrize(
    ("place", "content", "expected"),
    [
        ("/nowhere", None, "image bundle:/nowhere: No such file or directory"),
        (f"{HOME}/empty", None, "config.json: No such file or directory: expected an OCI bundle"),
        (f"{HOME}/broken", "{", "expected JSON"),
    ],
)
def test_error_about_an_unusable_bundle_has_one_line(
    site: Site, place: str, content: str | None, expected: str
) -> None:
    if place != "/nowhere":
        site.node.user(f"mkdir -p {c.JAIL}{place}")
    if content is not None:
        site.node.user(f"printf %s '{content}' >{c.JAIL}{place}/config.json")

    assert expected in refusal(site, f"--container={place}")


def test_slurmstepd_opens_no_file_of_a_bundle_as_root(site: Site, rootfs: str) -> None:
    """config.json is a FIFO: slurmstepd would block if it opened the file."""
    fifo = f"{c.JAIL}{HOME}/fifo"
    site.node.user(f"rm -rf {fifo}; mkdir {fifo}; mkfifo {fifo}/config.json")

    step = f"timeout 60 srun --quiet --container={HOME}/fifo true 2>&1 || true"

    assert "/fifo/config.json: expected a file" in site.node.user(step)
    assert run(site, configure(site), "true") == ""


def test_hooks_of_a_bundle_do_not_run(site: Site, rootfs: str) -> None:
    hook = {"path": "/bin/touch", "args": ["touch", f"{HOME}/hooked"]}
    hooks = {kind: [hook] for kind in ("prestart", "createRuntime", "startContainer", "poststop")}

    run(site, configure(site, hooks=hooks), "true")

    assert site.node.root(f"ls {c.JAIL}{HOME} | grep hooked; true") == ""


def test_temporary_files_of_a_bundle_are_removed_after_the_step(site: Site, rootfs: str) -> None:
    run(site, configure(site), "true")

    assert site.node.root("ls --almost-all /tmp | grep oci; true") == ""


def test_slurmstepd_removes_nothing_outside_its_directories(site: Site, rootfs: str) -> None:
    """After a step, slurmstepd removes PMIx's directories and their contents as root."""
    there = f"{c.JAIL}/home/student/own"
    site.node.root(f"install -d -o student -m 700 {there}; touch {there}/file")
    put(site.node.worker.container, {f"{c.JAIL}{PLACE}/rootfs/script": LINK_TO_OTHERS})

    tools = {"destination": "/usr", "source": "/usr", "type": "bind", "options": ["rbind"]}

    run(site, configure(site, mounts=[tools]), "bash /script 2>/dev/null")

    assert site.node.root(f"ls {there}") == "file"
