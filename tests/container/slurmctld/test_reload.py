"""The script `reload` gives each node the configuration that slurmctld uses."""

import secrets
import time
from functools import partial

from components import conventions as c
from tests.support.containers import Start, put
from tests.support.slurmctld import (
    FIND_SLURMD,
    Slurmctld,
    start_controller,
    start_worker,
    without_jail,
)
from tests.support.stack import alone
from tests.support.waiting import becomes, eventually

NODE = "cpu-0"
CACHE = f"{c.WORKER_SPOOL}/conf-cache/slurm.conf"
CHANGE = "MaxArraySize=1234\n"
RELOADED = "slurmctld has read its configuration again\n"
START_RELOAD = f": >/tmp/reload; {c.PROGRAMS}/reload >/tmp/reload 2>&1 &"
SAVE = f"""
touch /tmp/before
scontrol update jobid={{job}} comment=changed
until [ {c.CONTROLLER_SPOOL}/state/job_state -nt /tmp/before ]; do sleep 0.1; done
"""
"""Shell script that changes a job and waits until slurmctld has saved its state."""
FREEZE_AFTER_FETCH = f"""(
until slurmd=$({FIND_SLURMD}); do :; done
until [ -s {CACHE} ]; do :; done
kill -STOP $slurmd
) >/dev/null 2>&1 &"""


def test_node_that_starts_during_a_change_gets_the_new_configuration(
    start_container: Start,
) -> None:
    def freeze(worker: Slurmctld) -> None:
        worker.run(FREEZE_AFTER_FETCH, user="root")

    secret, description = secrets.token_hex(64), "CPUs=1 RealMemory=1000 Feature=cpu"
    controller = start_controller(start_container, secret)
    config = alone()
    files = without_jail(config)
    controller.install(config, files)
    controller.start()
    worker = start_worker(start_container, secret, NODE, description, controller, before=freeze)
    process_state = partial(worker.run, f"ps -o stat= -p $({FIND_SLURMD}) | cut -c1")
    becomes("the process state of slurmd", process_state, "T\n")
    node = partial(controller.run, f"scontrol show node {NODE}")
    assert "SlurmdStartTime=None" in node()

    put(controller.container, {f"{c.SLURM_ETC}/slurm.conf": files["slurm.conf"] + CHANGE})
    controller.run(START_RELOAD)
    becomes("the log of the script reload", partial(controller.run, "cat /tmp/reload"), RELOADED)
    worker.run(f"kill -CONT $({FIND_SLURMD})", user="root")
    eventually("the node registers", lambda: "SlurmdStartTime=None" not in node())

    eventually("the node has the change", lambda: CHANGE in worker.run(f"cat {CACHE}"))


def test_job_that_ended_before_a_crash_frees_its_node(start_container: Start) -> None:
    """slurmctld saves its state at most every five seconds, so a crash can lose a job's end.

    The next slurmctld then believes that the job runs, until the node reports its jobs. Without
    `reload`, the node would report them only after up to 20 minutes.
    """
    secret, description = secrets.token_hex(64), "CPUs=1 RealMemory=1000 Feature=cpu"
    controller = start_controller(start_container, secret)
    config = alone()
    controller.install(config, without_jail(config))
    controller.start()
    worker = start_worker(start_container, secret, NODE, description, controller)
    node = partial(controller.run, f"sinfo --noheader --nodes={NODE} --format=%T")
    becomes("the node's state", node, "idle\n")
    controller.run(START_RELOAD)
    becomes("the log of the script reload", partial(controller.run, "cat /tmp/reload"), RELOADED)
    wait = "until [ -e /tmp/end ]; do sleep 0.1; done"
    submit = f"sbatch --parsable --no-requeue --output=/dev/null --wrap='{wait}'"
    job = controller.run(submit).strip()
    controller.wait_for_job(job, "RUNNING")
    controller.run(SAVE.format(job=job))

    worker.run("touch /tmp/end", user="root")
    controller.wait_for_job(job, "COMPLETED")
    controller.run("pkill -KILL -x slurmctld", user="root")
    time.sleep(2)  # `reload` checks every second whether slurmctld runs
    controller.start()

    assert controller.job_state(job) == "RUNNING"
    becomes("the job's state", partial(controller.job_state, job), "NODE_FAIL", 90)
    becomes("the node's state", node, "idle\n")
