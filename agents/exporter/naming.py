"""Map Slurm's states, reasons and causes to small sets of words. All functions are pure."""

import re
from functools import lru_cache

from agents import drains

# --- Nodes ---------------------------------------------------------------------------------------

_SHOWN_FIRST = (
    ("FUTURE", "future"),
    ("DOWN", "down"),
    ("FAIL", "fail"),
    ("DRAIN", "drained"),
    ("REBOOT_ISSUED", "rebooting"),
    ("POWERING_UP", "powering_up"),
    ("POWER_UP", "powering_up"),
    ("POWERING_DOWN", "powering_down"),
    ("POWER_DOWN", "powering_down"),
    ("POWERED_DOWN", "powered_down"),
    ("INVALID_REG", "invalid"),
    ("NOT_RESPONDING", "not_responding"),
    ("BLOCKED", "blocked"),
    ("COMPLETING", "completing"),
    ("ALLOCATED", "allocated"),
    ("MIXED", "mixed"),
    ("MAINTENANCE", "maintenance"),
    ("RESERVED", "reserved"),
    ("PLANNED", "planned"),
    ("IDLE", "idle"),
)
"""Flags of a node's state, with their words. The first flag that is set decides, because the list
starts with the most important flags."""
_IN_USE = frozenset({"ALLOCATED", "COMPLETING", "MIXED"})
NODE_STATES = tuple(sorted({*dict(_SHOWN_FIRST).values(), "draining", "unknown"}))


def node_state(states: frozenset[str], memory_of_jobs: int = 0) -> str:
    """Return a node's state as one of NODE_STATES.

    A drained node that is down has the state `down`. Another metric shows why it was drained. A
    node with only suspended jobs is IDLE in Slurm, but the jobs keep their memory.
    """
    if memory_of_jobs:
        states |= {"MIXED"}
    for flag, word in _SHOWN_FIRST:
        if flag in states:
            return "draining" if flag == "DRAIN" and states & _IN_USE else word
    return "unknown"


FOREIGN = "foreign"
_NAMED = tuple(
    source.removeprefix(drains.OWN)
    for source in (drains.CHECK, drains.LONGCHECK, drains.KUBERNETES)
)
_CAUSE = re.compile(r"([a-z0-9][a-z0-9-]{0,39}?)(?:-\d+)?")
"""Pattern of the cause in a drain reason. The pattern leaves out a number at the end: `place-3`
becomes `place`."""


def cause(reason: str) -> str:
    """Return the cause in a drain reason, such as the name of a check. If slurmstack did not set
    the reason, return `foreign`.

    Never returns the rest of the reason, because it may contain any text.
    """
    if not drains.is_own(reason):
        return FOREIGN
    said = reason.removeprefix(drains.OWN)
    for source in _NAMED:
        said = said.removeprefix(source)
    found = _CAUSE.fullmatch(said.partition(":")[0].strip())
    return found[1] if found else FOREIGN


# --- Jobs ----------------------------------------------------------------------------------------

PENDING, RUNNING, SUSPENDED = "pending", "running", "suspended"
JOB_STATES = (
    *("boot_fail", "cancelled", "completed", "completing", "configuring", "deadline", "failed"),
    *("node_fail", "out_of_memory", PENDING, "preempted", "requeued", "requeue_fed"),
    *("requeue_hold", "resizing", "resv_del_hold", "revoked", RUNNING, "signaling"),
    *("special_exit", "stage_out", "stopped", SUSPENDED, "timeout", "unknown"),
)
"""States of job_state_string in slurm_protocol_defs.c, 24.11."""
FAILED = frozenset({"boot_fail", "failed", "node_fail"})
HAVE = frozenset({"completing", "configuring", RUNNING, "signaling", "stopped"})
"""States in which a job has all its allocated resources. A suspended job has all except CPUs."""


def job_state(state: str) -> str:
    """Return a job's state as one of JOB_STATES."""
    word = state.lower()
    return word if word in JOB_STATES else "unknown"


_REASONS = (
    ("JobHeld", "held"),
    ("JobHoldMaxRequeue", "held"),
    ("Dependency", "dependency"),
    ("BeginTime", "begin_time"),
    ("Priority", "priority"),
    ("Resources", "resources"),
    ("ReqNodeNotAvail", "nodes_unavailable"),
    ("NodeDown", "nodes_unavailable"),
    ("BadConstraints", "constraints"),
    ("Constraints", "constraints"),
    ("Licenses", "licenses"),
    ("Reservation", "reservation"),
    ("Partition", "partition"),
    ("JobArrayTaskLimit", "array_limit"),
    ("Invalid", "not_allowed"),
    ("AccountNotAllowed", "not_allowed"),
    ("QOSNotAllowed", "not_allowed"),
    ("Assoc", "limit"),
    ("QOS", "limit"),
    ("Max", "limit"),
    ("AccountingPolicy", "limit"),
    ("None", "none"),
)
"""Prefixes of reasons, and their words. Slurm 24.11 has some 200 reasons (see
job_state_reason.c)."""
PENDING_REASONS = tuple(sorted({*dict(_REASONS).values(), "other"}))
NOT_YET = frozenset({"held", "dependency", "begin_time"})
"""Reasons for which a job would not start even on an empty cluster."""


@lru_cache(maxsize=1024)
def pending_reason(reason: str) -> str:
    """Return the reason why a job waits, as one of PENDING_REASONS."""
    return next((word for start, word in _REASONS if reason.startswith(start)), "other")


def label(name: str) -> str:
    """Return a label for a name that users can choose.

    The label of an e-mail address is the part before the @. The label of an empty name is `none`.
    """
    return (name.partition("@")[0] if "@" in name[1:] else name) or "none"


_OF_ADDRESS = re.compile(r"(.+?)@.*?(_[0-9]+)?", re.DOTALL)


def reservation(name: str) -> str:
    """Return a reservation's name as a label.

    Slurm names an unnamed reservation after the first of its accounts or users, with a number
    (source: _generate_resv_name in reservation.c, Slurm 24.11). So `ada@example.org_7` becomes
    `ada_7`.
    """
    found = _OF_ADDRESS.fullmatch(name)
    return found[1] + (found[2] or "") if found else name
