"""What users and running jobs notice of a deploy, in a sentence for each change that matters.

Rules name the program's resources. `docs/settings.md` describes each edit in full.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from components.conventions import ANNOTATION_NODES
from engine.planning import Op
from plans.costs import at
from plans.protection import loses_data
from plans.reading import Preview, Step, rolls_pods

NOTHING: Final = "Users and running jobs notice nothing."
UNDESCRIBED: Final = "No rule describes what users notice of these changes: {}. Read their steps."


def notices(preview: Preview) -> list[str]:
    """Return the sentences in the order of their rules; only NOTHING if no change matters."""
    rules = _FIRST if _is_first_deploy(preview) else _RULES
    found = [text for rule in rules for text in rule.sentences(preview)]
    if rules is _RULES:
        names = sorted(step.name for step in preview.steps if not _is_described(step))
        found += [UNDESCRIBED.format(", ".join(names))] if names else []
    return list(dict.fromkeys(found)) or ([NOTHING] if preview.steps else [])


def _is_first_deploy(preview: Preview) -> bool:
    return any(step.name == "namespace" and step.op is Op.CREATE for step in preview.steps)


def _is_described(step: Step) -> bool:
    """Return whether users notice nothing of a step, or a rule has a sentence about it."""
    if any(rule.matches(step) for rule in _RULES):
        return True
    return re.fullmatch(_HARMLESS, step.name) is not None and not loses_data(step)


@dataclass(frozen=True)
class _Rule:
    """Resources by their name, the changes that matter, and the sentence about them.

    `{0}` in the sentence is the first group of the pattern.
    """

    pattern: str
    matters: Callable[[Step], bool]
    sentence: str

    def matches(self, step: Step) -> bool:
        return re.fullmatch(self.pattern, step.name) is not None and self.matters(step)

    def sentences(self, preview: Preview) -> Iterator[str]:
        for step in sorted(preview.steps, key=lambda step: step.name):
            match = re.fullmatch(self.pattern, step.name)
            if match and self.matters(step):
                yield self.sentence.format(*match.groups(), **_counts(step))


def _restarts(step: Step) -> bool:
    return rolls_pods(step) or step.op is Op.REPLACE


def _changes(step: Step) -> bool:
    return step.op is Op.UPDATE


def _is(*ops: Op) -> Callable[[Step], bool]:
    return lambda step: step.op in ops


def _is_of_a_cloud(step: Step) -> bool:
    return not step.type.startswith(("kubernetes:", "random:"))


def _replicas(inputs: Mapping[str, Any] | None) -> int | None:
    found = at(inputs or {}, "spec", "replicas")
    if found is None:
        found = at(inputs or {}, "metadata", "annotations", ANNOTATION_NODES)
    try:
        return None if found is None else int(found)
    except ValueError:  # unknown in this preview
        return None


def _counts(step: Step) -> dict[str, int]:
    before, after = _replicas(step.old) or 0, _replicas(step.new) or 0
    return {"before": before, "after": after}


def _grows(step: Step) -> bool:
    counts = _counts(step)
    return step.op is Op.UPDATE and counts["after"] > counts["before"]


def _shrinks(step: Step) -> bool:
    counts = _counts(step)
    return step.op is Op.UPDATE and counts["after"] < counts["before"]


def _is_too_soon(step: Step) -> bool:
    """Return whether a new key takes effect before all pods have it."""
    since = int(step.name.rpartition("-")[2])
    return step.op is Op.CREATE and since < time.time() + _AHEAD


_AHEAD: Final = 180
"""Seconds until a new key is in every pod (docs/settings.md, `auth.rotations`)."""
_NODESET: Final = r"nodeset-(.+)-slurmd"
_ON_DEMAND: Final = r"nodeset-(.+)-template"
_RULES: Final = (
    _Rule(
        r"nodeset-(.+)-(?:slurmd|template)",
        _is(Op.DELETE),
        "Nodeset {0} is removed; its nodes drain first.",
    ),
    _Rule(
        _ON_DEMAND,
        _restarts,
        "Nodes on demand of nodeset {0} are replaced: idle nodes at once, others after their jobs.",
    ),
    _Rule(_ON_DEMAND, _shrinks, "Nodeset {0} has at most {after} nodes on demand, not {before}."),
    _Rule(_ON_DEMAND, _grows, "Nodeset {0} has at most {after} nodes on demand, not {before}."),
    _Rule(_ON_DEMAND, _is(Op.CREATE), "Nodeset {0} is added with at most {after} nodes on demand."),
    _Rule(
        _NODESET,
        _restarts,
        "The nodes of nodeset {0} are replaced one by one, each after its jobs or its drain_grace.",
    ),
    _Rule(
        _NODESET,
        _shrinks,
        "Nodeset {0} shrinks from {before} to {after} nodes; leaving nodes drain first.",
    ),
    _Rule(_NODESET, _grows, "Nodeset {0} grows from {before} to {after} nodes."),
    _Rule(_NODESET, _is(Op.CREATE), "Nodeset {0} is added with {after} nodes."),
    _Rule(
        "login-sshd",
        _restarts,
        "Login nodes are replaced one by one, each after its sessions or login.drain_grace.",
    ),
    _Rule(
        "login-sshd",
        _shrinks,
        "The last login nodes are removed, each after its sessions or login.drain_grace.",
    ),
    _Rule(
        "controller-slurmctld",
        _restarts,
        "slurmctld restarts: Slurm's commands wait a few seconds; jobs and the queue continue.",
    ),
    _Rule(
        "config-candidate",
        _changes,
        "slurmctld and the nodes read the new configuration of Slurm; running jobs continue.",
    ),
    _Rule(
        "accounting-slurmdbd|database-mariadb",
        _restarts,
        "Accounting restarts: sacct and sacctmgr wait, and slurmctld keeps its records meanwhile.",
    ),
    _Rule(
        "accounts-wanted",
        _changes,
        "Accounts, limits or QOS change in Slurm; running jobs continue.",
    ),
    _Rule(
        "users-accounts",
        _changes,
        "Users or groups change; nodes and login nodes know them within about a minute.",
    ),
    _Rule(
        "users-keys",
        _changes,
        "SSH keys of users change; login nodes know them within about a minute.",
    ),
    _Rule(
        "directory-config",
        _changes,
        "sssd restarts everywhere; for a second or two, pods do not know the directory's users.",
    ),
    _Rule(
        "login-config",
        _changes,
        "Login nodes read new settings within about a minute; sessions continue.",
    ),
    _Rule(
        "login-config",
        lambda step: any("limits" in change.path for change in step.changes),
        "New limits of login nodes also apply to present sessions, which may exceed them.",
    ),
    _Rule(
        "login-service",
        _is(Op.UPDATE, Op.REPLACE, Op.DELETE),
        "The address or port of the login nodes may change; sessions continue.",
    ),
    _Rule(
        "login-host-key.*",
        _is(Op.UPDATE, Op.REPLACE, Op.DELETE),
        "The login nodes get another host key: users' SSH clients refuse to connect until they"
        " accept it.",
    ),
    _Rule(
        "rest-slurmrestd",
        lambda step: _restarts(step) or step.op is Op.DELETE,
        "slurmrestd restarts or ends: its clients must repeat requests.",
    ),
    _Rule(
        "rest-service",
        _is(Op.UPDATE, Op.REPLACE, Op.DELETE),
        "The address of slurmrestd may change.",
    ),
    _Rule(
        "nodeset-(.+)-isolation",
        _changes,
        "Jobs of nodeset {0} that start a minute later have another isolation; running jobs keep"
        " theirs.",
    ),
    _Rule(
        "config-scripts",
        _changes,
        "Nodes use new scripts within about a minute, for jobs that start or end later.",
    ),
    _Rule(
        "user-images-config",
        _changes,
        "Other images of users may be refused or allowed, for jobs that start later.",
    ),
    _Rule(
        "network-.+",
        _is(Op.DELETE),
        "Network policies are removed: connections that they refused become possible.",
    ),
    _Rule(
        "network-.+|hosts",
        _is(Op.CREATE, Op.UPDATE, Op.REPLACE),
        "Network policies or names change: a connection that they no longer allow fails.",
    ),
    _Rule(
        "jail-server-(?:config|ganesha)",
        lambda step: _changes(step) or _restarts(step),
        "The jail's server restarts: programs wait for seconds, and no open file is lost.",
    ),
    _Rule(
        "jwt-.+",
        _is(Op.UPDATE, Op.REPLACE, Op.DELETE),
        "The key of tokens changes: users must request new tokens.",
    ),
    _Rule(
        "secrets-(.+)",
        _changes,
        "The Secret {0} changes; programs read it by themselves, or at their next start.",
    ),
    _Rule(
        ".+",
        _is_of_a_cloud,
        "Machines, networks or disks of the cloud change: read their steps. A machine that is"
        " replaced or removed takes its node away, which drains first.",
    ),
    _Rule(
        r"auth-password-\d+",
        _is_too_soon,
        "A time in auth.rotations is in the past, or less than three minutes in the future: pods"
        " get the new key at different moments, and Slurm's commands fail for minutes; choose a"
        " later time.",
    ),
    _Rule(
        "auth-password-.+",
        _is(Op.CREATE),
        "All pods switch to a new authentication key at the time in auth.rotations.",
    ),
    _Rule(
        "jail-populate",
        _is(Op.REPLACE),
        "The jail's system files or mount points change; jobs and users' own files stay.",
    ),
)
_FIRST: Final = tuple(rule for rule in _RULES if rule.pattern in (_NODESET, _ON_DEMAND))
"""Rules for a first deploy: the stack has no users yet who notice other changes."""
_HARMLESS: Final = "|".join(
    (
        # Monitoring, checks and repairs
        *("dashboard-.+", "exporter-.+", "grafana-.+", "logs-.+", "machines-.+", "monitoring-.+"),
        *("longchecks-.+", "ondemand-.+", "rebooter-.+", "reconciler-.+"),
        # Copies of data, and volumes that grow
        *("backup-.+", "snapshots-.+", "database-data", "controller-state", "jail-claim"),
        *("jail-server-volume", "jail-volume", "accounting-archive"),
        # Parts of a change that has its own sentence
        *("accounting-config", "accounting-service", "accounting-slurmdbd", "accounts-apply"),
        *("accounts-wanted", "auth-.+", "config-check", "controller-config(-in-force)?"),
        *("controller-placeholder-.+", "controller-service", "controller-slurmctld"),
        *("database-(mariadb|password|secret|service)", "jail-homes", "jail-origin"),
        *("jail-populate", "jail-server-service", "jwt-.+"),
        *("login-sshd", "namespace", "node-ssh-.+", "nodeset-.+", "rest-slurmrestd"),
    )
)
"""Names of resources whose other changes users do not notice."""
