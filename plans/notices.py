"""Describe what users and running jobs notice of a deploy, in one sentence for each such change.

Each rule matches resources of the program by their names. `docs/settings.md` describes the effect
of each edit in full.
"""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from components.conventions import CHECKS_PARTITION, CONFINEMENT_REQUIRED
from engine.planning import Op
from plans.connections import allows_less, allows_more, newly_refused, no_longer_refused
from plans.facts import (
    changed_limits,
    changed_refresh,
    changed_steps,
    changed_uids,
    changes_checks,
    changes_data,
    changes_guard,
    changes_image,
    changes_isolation,
    ends_checks,
    file_of,
    grace,
    is_static,
    mount_points,
    removed_associations,
    removed_keys_in_use,
    removed_partitions,
    removed_users,
    replicas,
    reused_uids,
    session_grace,
    share,
    shrinks,
)
from plans.keys import AHEAD, KEY, starts
from plans.protection import loses_data, refusals
from plans.reading import Preview, Step, rolls_pods

NOTHING: Final = "Users and running jobs notice nothing."
UNDESCRIBED: Final = (
    "The preview cannot say what users notice when these resources change: {}. Read"
    " the changes of these resources in this preview."
)


def notices(preview: Preview) -> list[str]:
    """Return the sentences in the order of their rules; only NOTHING if users notice nothing.

    If a refused preview has no sentences, do not return NOTHING: its steps may be incomplete.
    """
    noticed = _of_first_deploy(preview) if _is_first_deploy(preview) else preview
    found = [text for rule in _RULES for text in rule.sentences(noticed)]
    names = sorted(step.name for step in noticed.steps if not _is_described(step))
    found += [UNDESCRIBED.format(", ".join(names))] if names else []
    nothing = [NOTHING] if preview.steps and not refusals(preview) else []
    return list(dict.fromkeys(found)) or nothing


def _is_first_deploy(preview: Preview) -> bool:
    return any(step.name == "namespace" and step.op is Op.CREATE for step in preview.steps)


def _of_first_deploy(preview: Preview) -> Preview:
    """Leave out new resources, because the stack has no users yet who could notice them.

    Keep nodesets. If the Kubernetes cluster already exists, also keep the drivers and Cilium, which
    its other users notice.
    """
    is_new = any(step.op is Op.CREATE and _is_of_a_cloud(step) for step in preview.steps)
    kept = _NODES if is_new else f"{_NODES}|{_CILIUM}|{_DRIVERS}"
    steps = (
        step for step in preview.steps if step.op is not Op.CREATE or re.fullmatch(kept, step.name)
    )
    return replace(preview, steps=tuple(steps))


def _is_described(step: Step) -> bool:
    """Return whether a rule has a sentence about a step, or users notice nothing of it."""
    return any(rule.matches(step) for rule in _RULES) or bool(re.fullmatch(_HARMLESS, step.name))


def _always(_preview: Preview) -> bool:
    return True


@dataclass(frozen=True)
class _Rule:
    """A sentence about changes of resources.

    `pattern` matches the names of the resources, and `matters` the changes. In the sentence, `{0}`
    is the first group of the pattern, and `_facts` defines the other names in braces.
    """

    pattern: str
    matters: Callable[[Step], bool]
    sentence: str
    applies: Callable[[Preview], bool] = _always
    """Whether the sentence is also true when all other steps of the preview are considered."""

    def matches(self, step: Step) -> bool:
        return re.fullmatch(self.pattern, step.name) is not None and self.matters(step)

    def sentences(self, preview: Preview) -> Iterator[str]:
        for step in sorted(preview.steps, key=lambda step: step.name):
            match = re.fullmatch(self.pattern, step.name)
            if match and self.matters(step) and self.applies(preview):
                yield self.sentence.format(*match.groups(), **_facts(step))


def _facts(step: Step) -> dict[str, object]:
    return {
        "name": step.name,
        "before": replicas(step.old) or 0,
        "after": replicas(step.new) or 0,
        "grace": grace(step),
        "session_grace": session_grace(step),
        "share": share(step),
        "partitions": ", ".join(removed_partitions(step)),
        "users": ", ".join(removed_users(step)),
        "moved": ", ".join(changed_uids(step)),
        "reused": ", ".join(reused_uids(step)),
        "refresh": changed_refresh(step),
        "mounted": ", ".join(mount_points(step, added=True)),
        "unmounted": ", ".join(mount_points(step, added=False)),
        "steps": ", ".join(changed_steps(step)),
        "limits": ", ".join(changed_limits(step)),
        "since": f"{datetime.fromtimestamp(starts(step.name) or 0, UTC):%Y-%m-%dT%H:%M:%SZ}",
        "refused": ", ".join(newly_refused(step)),
        "reachable": ", ".join(no_longer_refused(step)),
        "kept": ", ".join(removed_associations(step, with_jobs=False)),
        "cancelled": ", ".join(removed_associations(step, with_jobs=True)),
    }


def _restarts(step: Step) -> bool:
    return rolls_pods(step) or step.op is Op.REPLACE


def _changes(step: Step) -> bool:
    return step.op is Op.UPDATE


def _is(*ops: Op) -> Callable[[Step], bool]:
    return lambda step: step.op in ops


def _changes_file(name: str) -> Callable[[Step], bool]:
    return lambda step: step.op is Op.UPDATE and file_of(step.old, name) != file_of(step.new, name)


def _is_of_a_cloud(step: Step) -> bool:
    return not step.type.startswith(("kubernetes:", "random:"))


def _grows(step: Step) -> bool:
    return step.op is Op.UPDATE and (replicas(step.new) or 0) > (replicas(step.old) or 0)


def _removes_static_nodes(step: Step) -> bool:
    return is_static(step) and (shrinks(step) or step.op is Op.DELETE)


def _loses_queue(preview: Preview) -> bool:
    return any(step.name == "controller-state" and loses_data(step) for step in preview.steps)


def _cancels_jobs(preview: Preview) -> bool:
    return any(removed_associations(step, with_jobs=True) for step in preview.steps)


def _ends_jobs(preview: Preview) -> bool:
    return any(re.fullmatch(_NODES, step.name) and _loses_nodes(step) for step in preview.steps)


def _loses_nodes(step: Step) -> bool:
    """Return whether the step ends nodes although they may have jobs."""
    return shrinks(step) or step.op in (Op.REPLACE, Op.DELETE)


def _is_too_soon(step: Step) -> bool:
    """Return whether a new key takes effect before all pods have it."""
    return step.op is Op.CREATE and (starts(step.name) or 0) < time.time() + AHEAD


def _is_in_time(step: Step) -> bool:
    return step.op is Op.CREATE and not _is_too_soon(step)


def _keeps_files_of_jail(step: Step) -> bool:
    """Return whether the jail's image changes, but the jail keeps its system files."""
    return step.op is Op.REPLACE and changes_image(step) and not changed_refresh(step)


def _adds_policies(preview: Preview) -> bool:
    """Return whether pods get policies of a kind that they do not have yet."""
    return any(
        re.fullmatch(_DEFAULT_POLICY, step.name) and step.op is Op.CREATE for step in preview.steps
    )


_NODESET: Final = r"nodeset-(.+)-slurmd"
_ON_DEMAND: Final = r"nodeset-(.+)-template"
_NODES: Final = r"nodeset-(.+)-(?:slurmd|template)"
_CILIUM: Final = "cilium-release"
_POLICY: Final = "network-.+"
_DEFAULT_POLICY: Final = "network-(?:cilium-)?default"
"""Policy for all pods. If this policy does not exist, no other policy of its kind exists."""
_DRIVERS: Final = "equipment-(?!class-)(.+)"
_JAIL: Final = "jail-(?:claim|volume|server-volume)"
_RULES: Final = (
    _Rule(
        "namespace",
        loses_data,
        "The namespace is deleted with all pods and volumes in it; a new namespace is empty.",
    ),
    _Rule(
        "controller-state",
        loses_data,
        "slurmctld's volume is deleted: the queue is lost, and Slurm cancels all running jobs.",
    ),
    _Rule(
        _JAIL,
        loses_data,
        "The jail's volume is deleted: users' homes and files are lost, unless the storage retains"
        " them.",
    ),
    _Rule(
        f"(?!(?:namespace|controller-state|{_JAIL})$).+",
        loses_data,
        "{name} is deleted or replaced: its data is lost, unless the storage retains this data.",
    ),
    _Rule(
        _NODES,
        _is(Op.DELETE),
        "Nodeset {0} is removed; before that, its nodes drain for at most {grace}.",
    ),
    _Rule(
        _ON_DEMAND,
        _restarts,
        "Nodes on demand of nodeset {0} are replaced: idle nodes at once, busy nodes when their"
        " jobs have ended.",
    ),
    _Rule(
        _ON_DEMAND,
        shrinks,
        "The maximum number of nodes on demand of nodeset {0} changes from {before} to {after}.",
    ),
    _Rule(
        _ON_DEMAND,
        _grows,
        "The maximum number of nodes on demand of nodeset {0} changes from {before} to {after}.",
    ),
    _Rule(_ON_DEMAND, _is(Op.CREATE), "Nodeset {0} is added with at most {after} nodes on demand."),
    _Rule(
        _NODESET,
        rolls_pods,
        "The nodes of nodeset {0} are replaced, {share}. A node is replaced when its jobs have"
        " ended.",
    ),
    _Rule(
        _NODESET,
        _is(Op.REPLACE),
        "All nodes of nodeset {0} are replaced at the same time, when their jobs have ended or"
        " after {grace}.",
    ),
    _Rule(
        _NODESET,
        shrinks,
        "Nodeset {0} shrinks from {before} to {after} nodes; before that, the leaving nodes drain"
        " for at most {grace}.",
    ),
    _Rule(
        _NODESET,
        lambda step: _loses_nodes(step) and not _removes_static_nodes(step),
        "Slurm requeues jobs that have not ended when their nodes leave; interactive jobs, and jobs"
        " with --no-requeue, are lost.",
    ),
    _Rule(
        _NODES,
        _removes_static_nodes,
        "If the leaving nodes of the static nodeset {0} have jobs, the deploy fails, and"
        " no node leaves.",
    ),
    _Rule(_NODESET, _grows, "Nodeset {0} grows from {before} to {after} nodes."),
    _Rule(_NODESET, _is(Op.CREATE), "Nodeset {0} is added with {after} nodes."),
    _Rule(
        "login-sshd",
        rolls_pods,
        "Login nodes are replaced one by one. Each node waits at most {session_grace} for its open"
        " sessions; then it ends the remaining sessions.",
    ),
    _Rule(
        "login-sshd",
        _is(Op.REPLACE, Op.DELETE),
        "All login nodes are replaced at the same time. Each node waits at most {session_grace} for"
        " its open sessions; then it ends the remaining sessions.",
    ),
    _Rule(
        "login-sshd",
        shrinks,
        "The last login nodes are removed. Each of them waits at most {session_grace} for its open"
        " sessions; then it ends the remaining sessions.",
    ),
    _Rule(
        f"{_NODES}|login-sshd",
        changes_guard,
        "The packet filter of users' pods changes (network.guard, network.refuse). Existing pods"
        " keep the old filter until they are replaced.",
    ),
    _Rule(
        "controller-slurmctld",
        _restarts,
        "slurmctld restarts: Slurm's commands wait a few seconds; jobs and the queue continue.",
        applies=lambda preview: not _loses_queue(preview),
    ),
    _Rule(
        "config-candidate",
        _changes,
        "slurmctld and the nodes read the new configuration of Slurm; running jobs continue.",
        applies=lambda preview: not _ends_jobs(preview),
    ),
    _Rule(
        "config-candidate",
        _changes,
        "slurmctld and the nodes read the new configuration of Slurm.",
        applies=_ends_jobs,
    ),
    _Rule(
        "config-candidate",
        lambda step: bool(removed_partitions(step)),
        "Partitions are removed: {partitions}. If one of them has jobs, the deploy fails before"
        " Slurm changes.",
    ),
    _Rule(
        "config-candidate",
        lambda step: bool({*removed_partitions(step)} - {CHECKS_PARTITION}),
        "To remove a partition with jobs, set its `state: drain` first; remove it when its jobs"
        " have ended.",
    ),
    _Rule(
        "controller-topology",
        _is(Op.CREATE, Op.DELETE),
        "Slurm gets its topology from another source: for some minutes, Slurm may give a new job"
        " nodes that are far from each other; running jobs continue.",
    ),
    _Rule(
        "accounting-slurmdbd|database-mariadb",
        _restarts,
        "Accounting restarts: sacct and sacctmgr wait for some seconds. slurmctld keeps new records"
        " of jobs and sends them afterwards.",
    ),
    _Rule(
        "accounts-wanted",
        _changes,
        "Accounts, limits or QOS change in Slurm; running jobs continue.",
        applies=lambda preview: not _cancels_jobs(preview),
    ),
    _Rule(
        "accounts-wanted",
        lambda step: bool(changed_limits(step)),
        "These values change in Slurm: {limits}.",
    ),
    _Rule(
        "accounts-wanted",
        lambda step: bool(removed_associations(step, with_jobs=False)),
        "Slurm removes these entries: {kept}. If jobs use one of these entries, the"
        " deploy fails, and accounts, limits and QOS stay as they are.",
    ),
    _Rule(
        "accounts-wanted",
        lambda step: bool(removed_associations(step, with_jobs=True)),
        "Slurm removes these entries, and cancels their jobs: {cancelled}.",
    ),
    _Rule(
        "users-accounts",
        _changes,
        "Users or groups change; nodes and login nodes know the new ones within about a minute.",
    ),
    _Rule(
        "users-accounts",
        lambda step: bool(removed_users(step)),
        "These users are removed, and can no longer log in: {users}. Their homes stay. If another"
        " user later gets one of their uids, this user owns their files.",
    ),
    _Rule(
        "users-accounts",
        lambda step: bool(changed_uids(step)),
        "These users get another uid: {moved}. Their homes, files and running jobs keep the old"
        " uid, so these users cannot read their homes. Set the old uids back; or end the users'"
        " jobs and sessions before the deploy, and change the owner of their files as root after"
        " the deploy (docs/settings.md, `users[].uid`).",
    ),
    _Rule(
        "users-accounts",
        lambda step: bool(reused_uids(step)),
        "These users get a uid that belonged to another user, and therefore own the other"
        " user's old files: {reused}. Choose unused uids, or change the owner of the old"
        " files before the deploy.",
    ),
    _Rule(
        "users-keys",
        _changes,
        "SSH keys of users change; login nodes accept the new keys within about a minute.",
    ),
    _Rule(
        "directory-config",
        _changes,
        "sssd restarts in all pods (sssd looks up users in the directory). For a second or two, the"
        " pods do not know these users.",
    ),
    _Rule("directory-config", _is(Op.CREATE), "New pods also know the users of the directory."),
    _Rule(
        "directory-config",
        _is(Op.DELETE),
        "New pods no longer know the directory's users, so these users cannot log in there.",
    ),
    _Rule(
        "login-config",
        _changes,
        "Login nodes read new settings within about a minute; sessions continue.",
    ),
    _Rule(
        "login-config",
        lambda step: any("limits" in change.path for change in step.changes),
        "The new limits of login nodes also apply to open sessions, even if a session already"
        " exceeds them.",
    ),
    _Rule(
        "login-service",
        _is(Op.UPDATE, Op.REPLACE, Op.DELETE),
        "The address or port of the login nodes may change; sessions continue.",
    ),
    _Rule(
        "login-host-key",
        changes_data,
        "The login nodes get another host key: users' SSH clients refuse to connect until the users"
        " accept the new key.",
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
        changes_isolation,
        "The isolation of jobs on nodeset {0} changes for jobs that start at least a minute after"
        " the deploy; running jobs keep the old isolation.",
    ),
    _Rule(
        "nodeset-(.+)-isolation",
        lambda step: bool(changed_steps(step)),
        "Each node of nodeset {0} runs at most {steps} at the same time.",
    ),
    _Rule(
        "nodeset-(.+)-isolation",
        ends_checks,
        "Within about a minute, nodes of nodeset {0} no longer run the stack's health checks; a"
        " broken node may get jobs.",
    ),
    _Rule(
        "nodeset-(.+)-isolation",
        changes_checks,
        "The health checks of nodeset {0} change within about a minute. A node that fails a check"
        " is drained; its jobs continue.",
    ),
    _Rule(
        "nodeset-(.+)-isolation",
        _changes_file(CONFINEMENT_REQUIRED),
        "slurm.cgroups changes. If the new value is `required`, nodes of nodeset {0} that cannot"
        " confine jobs are drained within about a minute. With any other value, such nodes are"
        " resumed. Running jobs keep their confinement.",
    ),
    _Rule(
        "config-scripts",
        _changes,
        "Nodes use the new scripts of the site (task prolog and epilog, health check) within about"
        " a minute.",
    ),
    _Rule(
        "user-images-config",
        _changes,
        "The rules for users' container images change (setting containers) for jobs that start"
        " later.",
    ),
    _Rule(
        _DEFAULT_POLICY,
        _is(Op.DELETE),
        "Network policies are removed: connections that they refused become possible.",
        applies=lambda preview: not _adds_policies(preview),
    ),
    _Rule(
        _DEFAULT_POLICY,
        _is(Op.CREATE),
        "Network policies are added: connections that they do not allow fail.",
    ),
    _Rule(
        _POLICY,
        lambda step: bool(newly_refused(step)),
        "Users' programs can no longer reach: {refused}.",
    ),
    _Rule(
        _POLICY,
        lambda step: bool(no_longer_refused(step)),
        "Network policies no longer prevent users' programs from reaching: {reachable}.",
    ),
    _Rule(
        _POLICY,
        allows_less,
        "Network policies change: a connection that they no longer allow fails.",
    ),
    _Rule(_POLICY, allows_more, "Network policies allow additional connections."),
    _Rule(
        "hosts",
        _is(Op.CREATE, Op.UPDATE, Op.REPLACE),
        "The names of pods change: connections to an old name may fail.",
    ),
    _Rule(
        _CILIUM,
        _is(Op.CREATE),
        "Cilium becomes the network plugin of the Kubernetes cluster; existing pods may have to be"
        " recreated.",
    ),
    _Rule(
        _CILIUM,
        _is(Op.UPDATE, Op.REPLACE),
        "Helm replaces Cilium's own pods one by one. Open connections continue, but each node"
        " accepts no new connections for some seconds.",
    ),
    _Rule(
        _CILIUM,
        _is(Op.DELETE),
        "Cilium is uninstalled: without another network plugin, pods have no network.",
    ),
    _Rule(
        _DRIVERS,
        _is(Op.CREATE),
        "Drivers or device plugins are installed in the whole Kubernetes cluster: {0}.",
    ),
    _Rule(
        _DRIVERS,
        _is(Op.UPDATE, Op.REPLACE, Op.DELETE),
        "Drivers or device plugins of the whole Kubernetes cluster change: {0}. Until they run"
        " again, nodes may lack GPUs or network devices.",
    ),
    _Rule(
        "jail-server-(?:config|ganesha)",
        lambda step: _changes(step) or _restarts(step),
        "The jail's NFS server restarts: programs that use the jail wait for some seconds, and no"
        " open file is lost.",
    ),
    _Rule(
        "bridge-agent",
        _is(Op.DELETE),
        "Slurm no longer schedules pods. Pods that still run keep their jobs, but these jobs do not"
        " end by themselves, and Kubernetes does not remove the pods: delete all pods first.",
    ),
    _Rule(
        "jwt-secret",
        changes_data,
        "The key that signs users' tokens changes: users must request new tokens.",
    ),
    _Rule(
        "secret-(.+)",
        _changes,
        "The Secret {0} changes: some programs read the new value by themselves, other"
        " programs only after a restart.",
    ),
    _Rule(
        ".+",
        _is_of_a_cloud,
        "Machines, networks or disks of the cloud change: read these changes in this preview. If a"
        " machine is"
        " replaced or removed, its Slurm node drains first, and then leaves.",
    ),
    _Rule(
        KEY,
        _is(Op.DELETE),
        "A key of auth.rotations that is in use is removed: pods return to an older key at"
        " different moments, and Slurm's commands fail for minutes.",
        applies=lambda preview: bool(removed_keys_in_use(preview)),
    ),
    _Rule(
        KEY,
        _is_too_soon,
        "A time in auth.rotations is in the past, or less than three minutes in the future: pods"
        " get the new key at different moments, and Slurm's commands fail for minutes; choose a"
        " later time.",
    ),
    _Rule(
        KEY,
        _is_in_time,
        "All pods switch to a new authentication key at {since}; jobs and users' commands continue"
        " without interruption.",
    ),
    _Rule(
        "jail-populate",
        lambda step: step.op is Op.REPLACE and bool(changed_refresh(step)),
        "The jail's system files change (jail.refresh: {refresh}); running programs keep the old"
        " files, and users' files stay.",
    ),
    _Rule(
        "jail-populate",
        _keeps_files_of_jail,
        "The jail keeps its system files; to get the files of the new image, raise jail.refresh by"
        " one.",
    ),
    _Rule(
        "jail-populate",
        lambda step: step.op is Op.REPLACE and bool(mount_points(step, added=True)),
        "The jail gets mount points: {mounted}. New pods mount volumes there.",
    ),
    _Rule(
        "jail-populate",
        lambda step: step.op is Op.REPLACE and bool(mount_points(step, added=False)),
        "New pods no longer mount volumes at these paths in the jail: {unmounted}. The files on the"
        " volumes stay.",
    ),
)
_HARMLESS: Final = "|".join(
    (
        # Monitoring, checks and repairs
        *("dashboard-.+", "exporter-.+", "grafana-.+", "logs-.+", "machines-.+", "monitoring-.+"),
        *("bridge-.+", "longchecks-.+", "ondemand-.+", "rebooter-.+", "reconciler-.+"),
        # Copies of data, and volumes that grow
        *("backup-.+", "snapshots-.+", "database-data", "controller-state", "jail-claim"),
        *("jail-server-volume", "jail-volume", "accounting-archive"),
        # Parts of a change that has its own sentence
        *("accounting-config", "accounting-service", "accounting-slurmdbd", "accounts-apply"),
        *("accounts-wanted", "auth-secret", KEY, "config-(candidate|check|scripts)"),
        *("controller-config(-in-force)?", "auth-password", "equipment-class-.+"),
        *("controller-placeholder-.+", "controller-service", "controller-slurmctld"),
        *("database-(mariadb|password|secret|service)", "jail-homes", "jail-origin"),
        *("jail-populate", "jail-server-service", "jwt-(password|secret)"),
        *("login-config", "login-host-key(-seed)?", "login-sshd", "metal-certificate-key"),
        *("namespace", _POLICY, "node-ssh-(secret|seed)", "nodeset-.+-(isolation|slurmd|template)"),
        *("rest-slurmrestd", "secret-.+", "user-images-config", "users-(accounts|keys)"),
    )
)
"""Names of resources. Users do not notice a change of such a resource that no rule describes."""
