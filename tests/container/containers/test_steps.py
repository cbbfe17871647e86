"""Containers of jobs with several tasks, steps or nodes."""

from components import conventions as c
from tests.support import ociimages
from tests.support.imagesite import Site, ended, refusal, run
from tests.support.ociimages import Entry
from tests.support.waiting import becomes, eventually


def test_tasks_on_a_node_share_one_container(site: Site, image: str) -> None:
    output = run(
        site,
        f"--nodes=2 --ntasks=8 --container-image={image}",
        "bash -c 'echo $(uname -n) $(readlink /proc/self/ns/mnt); sleep 1'",
    )

    found = {tuple(line.split()) for line in output.splitlines()}
    assert len(found) == 2, output
    assert len({name for name, _ in found}) == 2, output


def test_unnamed_container_runs_only_the_tasks(site: Site, image: str) -> None:
    """If any other process remained, slurmstepd would delay the end of the step by a second."""
    search = "grep --no-messages --text --count start-containe[r] /proc/[0-9]*/cmdline || true"
    options = f"--ntasks=3 --container-image={image}"

    found = {
        name: run(site, f"{options} {name}", f"bash -c 'sleep 2; {search}'").splitlines()
        for name in ("", "--container-name=mine")
    }

    alone, named = ([line for line in each if line.endswith(":1")] for each in found.values())
    assert alone == []
    assert len(named) == 3, "each task sees the process that keeps the named container"


def test_batch_script_runs_in_an_image(site: Site, image: str) -> None:
    script = f"#!/bin/bash\n#SBATCH --container-image={image}\n. /etc/os-release; echo $ID $1\n"
    site.node.user(f"printf %s '{script}' >/tmp/script")

    job = site.node.user("sbatch --parsable --output=/home/researcher/%j.txt /tmp/script argument")

    assert ended(site, job) == "small argument"


def test_step_options_override_those_of_the_batch_script(site: Site, image: str) -> None:
    other = site.push(
        "steps/other:1",
        ociimages.layout([site.base, ociimages.layer([Entry("etc/os-release", "ID=other\n")])]),
    )
    script = (
        f"#!/bin/bash\n#SBATCH --container-image={image} --container-readonly\n"
        'cd /tmp; write="touch /new && echo written || echo read-only"\n'
        'srun --quiet bash -c "cat /etc/os-release; $write" 2>/dev/null\n'
        f"srun --quiet --container-image={other} --container-writable "
        'bash -c "cat /etc/os-release; $write" 2>/dev/null\n'
    )
    site.node.user(f"printf %s '{script}' >/tmp/script")

    job = site.node.user("sbatch --parsable --output=/home/researcher/%j.txt /tmp/script")

    assert ended(site, job).splitlines() == ["ID=small", "read-only", "ID=other", "written"]


def test_sbatch_options_override_those_in_the_script(site: Site, image: str) -> None:
    script = "#!/bin/bash\n#SBATCH --container-image=/nowhere\n. /etc/os-release; echo $ID\n"
    site.node.user(f"printf %s '{script}' >/tmp/script")

    job = site.node.user(
        f"sbatch --parsable --output=/home/researcher/%j.txt --container-image={image} /tmp/script"
    )

    assert ended(site, job) == "small"


def test_steps_of_salloc_run_in_its_image(site: Site, image: str) -> None:
    commands = (
        'srun --quiet bash -c "cat /etc/os-release; touch /new 2>&- || echo read-only"; '
        'srun --quiet --container-writable bash -c "touch /new && echo written"'
    )

    output = site.node.user(
        f"salloc --quiet --container-image={image} --container-readonly sh -c '{commands}'"
    )

    assert output.splitlines() == ["ID=small", "read-only", "written"]


def test_steps_without_container_options_run_outside_the_container(site: Site, image: str) -> None:
    job = site.node.submit(
        f"srun --quiet --container-image={image} grep ID=small /etc/os-release; "
        "srun --quiet grep --count ID=debian /etc/os-release"
    )

    assert ended(site, job).splitlines() == ["ID=small", "1"]


def test_slurm_commands_work_in_a_container(site: Site, image: str) -> None:
    """The image lacks Slurm and its libraries. Steps inherit the image of the batch script."""
    commands = "cd /tmp; srun --quiet cat /etc/os-release; squeue --noheader --me --format=%T"
    job = site.node.user(
        f"sbatch --parsable --output=/home/researcher/%j.txt --container-image={image} "
        f"--wrap '{commands}; command -v srun'"
    )

    output = ended(site, job).splitlines()

    assert output == ["ID=small", "RUNNING", f"{c.PROGRAMS}/clients/srun"]


def test_slurm_commands_of_container_root_act_as_the_user(site: Site, image: str) -> None:
    """Only `squeue --me` prints nothing, because it looks for jobs of root."""
    commands = (
        "cd /tmp; srun --quiet id -u; squeue --noheader --me --format=%T; "
        "squeue --noheader --jobs=$SLURM_JOB_ID --format=%T,%U; "
        "scontrol update JobId=$SLURM_JOB_ID Comment=mine && echo updated; "
        "sbatch --parsable --output=/home/researcher/%j.txt --wrap true"
    )
    job = site.node.user(
        f"sbatch --parsable --output=/home/researcher/%j.txt --container-image={image} "
        f"--container-remap-root --wrap '{commands}'"
    )

    *output, second = ended(site, job).splitlines()

    assert output == ["0", "RUNNING,2000", "updated"]
    assert second.isdigit()
    assert ended(site, second) == ""


def test_later_steps_reuse_a_named_container(site: Site, image: str) -> None:
    job = site.job()
    step = f"--jobid={job} --overlap --container-name=mine"

    run(site, f"{step} --container-image={image}", "bash -c 'echo first >/made'")
    assert run(site, f"{step}:auto", "bash -c 'cat /made; echo second >>/made'") == "first"
    assert run(site, step, "cat /made").splitlines() == ["first", "second"]


def test_step_joins_a_running_container(site: Site, image: str) -> None:
    job = site.job()
    step = f"--jobid={job} --overlap --container-name=mine"
    site.node.user(
        f"srun --quiet {step} --container-image={image} bash -c 'touch /up; sleep 1000' "
        ">/dev/null 2>&1 & sleep 0"
    )
    link = "readlink /proc/self/ns/mnt"

    def step_runs() -> bool:
        steps = f"squeue --noheader --steps --jobs={job} --format=%i"
        return f"{job}.0" in site.node.user(steps).split()

    # Otherwise, an attempt to join could become step 0.
    eventually("step 0 runs", step_runs)
    first = eventually("another step joins", lambda: try_to(site, f"{step}:exec", link))
    second = run(site, step, link)
    refused = refusal(site, f"{step}:no_exec")
    site.node.user(f"scancel {job}.0")
    becomes("whether step 0 runs", step_runs, wanted=False)
    run(site, f"{step}:no_exec", "true")

    assert first == second
    assert "omit :no_exec to join it" in refused


def test_step_that_joins_reports_options_without_effect(site: Site, image: str) -> None:
    step = f"--jobid={site.job()} --overlap --container-name=mine"
    site.node.user(
        f"srun --quiet {step} --container-image={image} sleep 1000 >/dev/null 2>&1 & sleep 0"
    )
    eventually("the step runs", lambda: try_to(site, f"{step}:exec", "uname -n"))

    same = run(site, f"{step} --container-image={image}", "id -u 2>&1")
    other = run(
        site, f"{step} --container-image={image}2 --container-readonly", "bash -c 'id -u' 2>&1"
    )

    assert same == "2000"
    warning = (
        "container: the container mine already runs, so these options have no effect: "
        f"--container-image={image}2, --container-readonly"
    )
    assert sorted(other.splitlines()) == ["2000", warning]


def test_step_that_joins_enters_the_namespaces_of_the_container(site: Site, image: str) -> None:
    job = site.job()
    step = f"--jobid={job} --overlap --container-name=mine"
    site.node.user(
        f"srun --quiet {step} --container-image={image} --container-unshare=net sleep 1000 "
        ">/dev/null 2>&1 & sleep 0"
    )
    link = "readlink /proc/self/ns/net"

    first = eventually("the step runs", lambda: try_to(site, f"{step}:exec", link))
    other = run(site, f"{step} --container-unshare=uts", f"{link} 2>&1").splitlines()

    assert first != run(site, f"--jobid={job} --overlap", link)
    assert first in other
    assert any(line.endswith("no effect: --container-unshare=uts") for line in other)


def try_to(site: Site, options: str, command: str) -> str:
    return site.node.user(f"srun --quiet {options} {command} 2>/dev/null || true")


def test_full_writable_layer_ends_neither_the_job_nor_the_node(site: Site, image: str) -> None:
    fill = "head -c 64M /dev/zero >/big; head -c 64M /dev/zero >/usr/bin/cat"
    script = f"{{ {fill}; rm /big /usr/bin/cat; echo fine >/small; head /small; }} 2>&1"
    step = f"--nodelist=cpu-0 --container-image={image}"

    site.node.isolate(tmp="32MiB")
    try:
        output = run(site, step, f"bash -c '{script}'").splitlines()
    finally:
        site.node.isolate()

    assert len(output) == 3, output
    assert all(line.endswith("No space left on device") for line in output[:2])
    assert output[2] == "fine"
    assert run(site, step, "cat /etc/os-release") == "ID=small"
    state = site.node.controller.run("sinfo --noheader --nodes=cpu-0 --format=%T,%E")
    assert state.split(",")[1].strip() == "none"


def test_step_on_a_full_disk_is_refused_with_one_line(site: Site, image: str) -> None:
    site.node.isolate(tmp="16MiB")
    try:
        step = f"--jobid={site.job('--nodelist=cpu-0')} --overlap"
        site.node.user(f"srun {step} bash -c 'head -c 64M /dev/zero >/tmp/big' 2>/dev/null || true")
        line = refusal(site, f"{step} --container-image={image}")
    finally:
        site.node.isolate()

    assert "cannot write /tmp/.containers/" in line
    assert line.endswith("No space left on device")


def test_task_in_an_image_reaches_the_pmix_server_of_slurmstepd(site: Site, image: str) -> None:
    """PMIx libraries of different versions use different variables. The image has no munge, so the
    security mode must be `native`; otherwise, a library prints warnings."""
    script = (
        "ls $PMIX_SERVER_TMPDIR && echo $PMIX_RANK $PMIX_SECURITY_MODE; "
        "for uri in $PMIX_SERVER_URI2 $PMIX_SERVER_URI21 $PMIX_SERVER_URI3 $PMIX_SERVER_URI4 "
        "$PMIX_SERVER_URI41; do : <>/dev/tcp/127.0.0.1/${uri##*:} && echo connected; done"
    )

    output = run(site, f"--mpi=pmix --container-image={image}", f"bash -c '{script}'")

    assert output.splitlines() == ["0 native", *["connected"] * 5]


def test_named_container_exists_only_in_its_job(site: Site, image: str) -> None:
    run(site, f"--container-name=mine --container-image={image}", "true")

    output = site.node.user("srun --quiet --container-name=mine true 2>&1 || true")

    assert "the job has no such container" in output


def test_create_mode_refuses_an_existing_container(site: Site, image: str) -> None:
    job = site.job()
    step = f"--jobid={job} --overlap --container-image={image}"
    run(site, f"{step} --container-name=mine:create", "true")

    output = site.node.user(f"srun --quiet {step} --container-name=mine:create true 2>&1 || true")

    assert "the container already exists" in output


def test_each_array_task_has_its_own_container(site: Site, image: str) -> None:
    job = site.node.user(
        f"sbatch --parsable --array=1-4 --output=/home/researcher/%A.%a.txt "
        f"--container-image={image} --wrap 'test ! -e /mark && touch /mark && echo new'"
    )
    ended(site, job)

    output = site.node.root(f"cat {c.JAIL}/home/researcher/{job}.[1-4].txt")

    assert output.splitlines() == ["new"] * 4


def test_end_of_a_job_removes_its_containers(site: Site, image: str) -> None:
    run(site, f"--container-image={image}", "touch /made")

    eventually("nothing is left", site.node.is_clean)
