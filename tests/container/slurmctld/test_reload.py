"""The script `reload` gives each node the configuration that slurmctld uses."""

import secrets
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
    becomes("slurmd", partial(worker.run, f"ps -o stat= -p $({FIND_SLURMD}) | cut -c1"), "T\n")
    node = partial(controller.run, f"scontrol show node {NODE}")
    assert "SlurmdStartTime=None" in node()

    put(controller.container, {f"{c.SLURM_ETC}/slurm.conf": files["slurm.conf"] + CHANGE})
    controller.run(f": >/tmp/reload; {c.PROGRAMS}/reload >/tmp/reload 2>&1 &")
    becomes("slurmctld's log", partial(controller.run, "cat /tmp/reload"), RELOADED)
    worker.run(f"kill -CONT $({FIND_SLURMD})", user="root")
    eventually("the node registers", lambda: "SlurmdStartTime=None" not in node())

    eventually("the node has the change", lambda: CHANGE in worker.run(f"cat {CACHE}"))
