"""The option `--container-save`, which saves a container as an image."""

from components import conventions as c
from tests.support.imagesite import Site, run
from tests.support.waiting import eventually

SAVED = "/home/researcher/saved.sqsh"


def test_saved_container_can_run_as_an_image(site: Site, image: str) -> None:
    options = f"--ntasks=3 --container-image={image} --container-save={SAVED}"
    run(site, options, "bash -c 'echo $SLURM_PROCID >/made-$SLURM_PROCID; sleep $SLURM_PROCID'")

    output = run(site, f"--container-image={SAVED}", "bash -c 'cat /made-*; echo $COLOUR; pwd'")

    assert output.splitlines() == ["0", "1", "2", "red and green", "/data"]


def test_saving_a_container_keeps_the_steps_exit_code(site: Site, image: str) -> None:
    options = f"--container-image={image} --container-save={SAVED}"

    output = site.node.user(f"srun --quiet {options} bash -c 'exit 7' 2>/dev/null; echo $?")

    assert output == "7"


def test_cancelled_step_saves_no_container(site: Site, image: str) -> None:
    site.node.root(f"rm -f {c.JAIL}{SAVED}")
    options = f"--container-image={image} --container-save={SAVED}"
    job = site.node.submit(f'srun {options} bash -c "touch /home/researcher/up; sleep 1000"')
    up = f"ls {c.JAIL}/home/researcher/up 2>/dev/null || true"
    eventually("the step runs", lambda: site.node.root(up))

    site.node.user(f"scancel {job}; rm {c.JAIL}/home/researcher/up")

    eventually("the job ends", site.node.is_clean)
    assert not site.node.root(f"ls {c.JAIL}{SAVED} 2>/dev/null || true")


def test_hanging_save_ends_with_the_job(site: Site, image: str) -> None:
    """The job puts a FIFO in place of a file that the save reads. The FIFO blocks the save."""
    script = "cd /tmp/.containers/step-*; rm image; mkfifo image"
    job = site.node.submit(
        f"srun --container-image={image} --container-save={SAVED} "
        f'--container-mounts=/usr/bin/mkfifo:/usr/bin/mkfifo bash -c "{script}"'
    )
    saves = "pgrep --full 'slurm-image.save' || true"
    eventually("the save hangs", lambda: site.node.root(saves))

    site.node.user(f"scancel {job}")

    eventually("the job ends", site.node.is_clean)


def test_save_follows_no_link_of_another_user(site: Site, image: str) -> None:
    shared = "/home/shared"
    site.node.root(f"install -d -m 1777 {c.JAIL}{shared}; echo mine >{c.JAIL}/home/researcher/file")
    link = f"ln -sf /home/researcher/file {c.JAIL}{shared}/.out.sqsh.unfinished"
    site.node.user(f"{link}; ln -sf /home/researcher/file {c.JAIL}{shared}/out.sqsh", "student")

    options = f"--container-image={image} --container-save={shared}/out.sqsh"
    site.node.user(f"srun --quiet {options} true 2>&1 || true")

    assert site.node.root(f"cat {c.JAIL}/home/researcher/file") == "mine"
    site.node.root(f"rm -r {c.JAIL}{shared} {c.JAIL}/home/researcher/file")


def test_unwritable_save_target_is_reported_in_one_line(site: Site, image: str) -> None:
    options = f"--container-image={image} --container-save=/etc/saved.sqsh"

    output = site.node.user(f"srun --quiet {options} true 2>&1 || true")

    (line,) = (line for line in output.splitlines() if "container: " in line)
    assert "Permission denied" in line
    assert "Traceback" not in output
