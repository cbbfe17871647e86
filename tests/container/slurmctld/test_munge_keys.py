"""No message is lost, although pods start to use a new munge key at different moments."""

import secrets
import time
from collections.abc import Mapping
from functools import partial

import pytest

from components import conventions as c
from tests.support.containers import Start, put
from tests.support.slurmctld import (
    Slurmctld,
    prepare,
    start_controller,
    start_worker,
    without_jail,
)
from tests.support.stack import alone
from tests.support.waiting import becomes, eventually

NODE = "cpu-0"
SIGN = "munge --no-input"
VERIFY = (
    "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/slurm-wlm/munge_keys.so"
    " unmunge --no-output --metadata=/dev/null"
)
LOG = "/tmp/munged.log"
MINUTE = 60


def use(container: Slurmctld, keys: Mapping[int, str]) -> None:
    """Restart munged with the script that pods use; `keys` maps start times to keys."""
    put(container.container, {f"{c.AUTH_SECRET_DIR}/{since}": key for since, key in keys.items()})
    container.run(
        f"pkill -x munged; rm -rf {c.MUNGE_RUN} && ln -s {c.MUNGE_OWN}/socket {c.MUNGE_RUN};"
        f" install -d -o munge {c.MUNGE_OWN};"
        " setpriv --reuid munge --regid munge --clear-groups"
        f" {c.PROGRAMS}/munged >{LOG} 2>&1 </dev/null &",
        user="root",
    )
    eventually("munged signs", lambda: container.run(f"{SIGN} 2>/dev/null || true"))


@pytest.mark.parametrize("first", ["the controller", "the node"])
def test_jobs_run_while_only_one_side_uses_the_new_key(start_container: Start, first: str) -> None:
    old, new = secrets.token_hex(64), secrets.token_hex(64)

    def keys(side: str) -> dict[int, str]:
        """Return the keys of one side.

        The side `first` already signs with the new key. The other side begins to sign with the new
        key in a minute.
        """
        return {0: old, int(time.time()) + (-MINUTE if side == first else MINUTE - 1): new}

    controller = start_controller(start_container, old)
    config = alone()
    controller.install(config, without_jail(config))
    use(controller, keys("the controller"))
    controller.start()
    start_worker(
        start_container,
        old,
        NODE,
        "CPUs=1 RealMemory=1000 Feature=cpu",
        controller,
        before=lambda node: use(node, keys("the node")),
    )

    state = partial(controller.run, f"sinfo --noheader --nodes={NODE} --format=%T")
    becomes("the node's state", state, "idle\n")
    job = controller.run("sbatch --parsable --output=/dev/null --wrap=true").strip()

    controller.wait_for_job(job, "COMPLETED")


def test_no_credential_is_refused_when_the_key_changes(start_container: Start) -> None:
    container = prepare(start_container("controller"), secrets.token_hex(64))
    moment = int(time.time()) + 5
    use(container, {0: secrets.token_hex(64), moment: secrets.token_hex(64)})
    container.run(f"{SIGN} >/tmp/of-the-first-key")

    container.run(
        f"while [ $(date +%s) -lt {moment + 2} ]; do {SIGN} | {VERIFY} || exit 1; sleep 0.05; done"
    )

    assert f"key {moment} replaces key 0\n" in container.run(f"cat {LOG}")
    container.run(f"{VERIFY} </tmp/of-the-first-key")


def test_credentials_of_former_keys_expire(start_container: Start) -> None:
    container = prepare(start_container("controller"), secrets.token_hex(64))
    now, former = int(time.time()), secrets.token_hex(64)
    use(container, {0: former})
    container.run(f"{SIGN} >/tmp/of-the-former-key && {VERIFY} </tmp/of-the-former-key")
    container.run(f"{SIGN} >/tmp/of-the-former-key")
    container.run("pkill -x munged; while pgrep -x munged; do sleep 0.1; done", user="root")

    use(container, {now - 5 * MINUTE: secrets.token_hex(64)})

    refused = container.run(f"{VERIFY} </tmp/of-the-former-key 2>&1 || true")
    assert refused == "unmunge: Error: Invalid credential\n"
