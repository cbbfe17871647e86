"""Warnings about valid settings that Slurm or Kubernetes would ignore or never satisfy."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from components.conventions import JAIL, JAIL_SHELLS
from components.settings.accounts import granted
from components.settings.slurm import LEVELS, key_of
from components.settings.types import cron_times, known_names
from components.settings.unused import Warnings, unused
from components.settings.volumes import system_folder

if TYPE_CHECKING:
    from components.settings.accounts import Limits
    from components.settings.models import Settings

_LIMITS: Final = ("grp_", "max_", "min_tres_")
"""Prefixes of the fields of accounts, users and QOS that set limits."""
_ENFORCING: Final = frozenset({"limits", "safe"})
"""Values of `accounting.enforce` with which Slurm enforces limits; safe includes limits
(source: slurm.conf(5), AccountingStorageEnforce)."""


def warned(settings: Settings) -> Warnings:
    yield from _unenforced_limits(settings)
    yield from _unknown_labels(settings)
    yield from _memory_above_the_nodes(settings)
    yield from _suspended_jobs_keep_all_memory(settings)
    yield from _volumes_outside_the_jail(settings)
    yield from _no_default_partition(settings)
    yield from _unknown_levels(settings)
    yield from _unusable_qos(settings)
    yield from _limits_of_unknown_gres(settings)
    yield from _missing_shells(settings)
    yield from _indistinguishable_slices(settings)
    yield from _short_histories(settings)
    yield from unused(settings)


def _unenforced_limits(settings: Settings) -> Warnings:
    accounting = settings.accounting
    enforced = settings.enforced()
    limited = [place for place, limits in _limited(settings) if _has_limits(limits)]
    if not limited or not accounting.enabled or _ENFORCING & {*enforced}:
        return
    shown = ", ".join(enforced) or "no rules"
    if settings.directory and "enforce" not in accounting.model_fields_set:
        shown += ", the default with directory"
    yield (
        "accounting.enforce",
        (
            f"{shown}: Slurm ignores the limits of {', '.join(limited)};"
            " add 'limits' to accounting.enforce"
        ),
    )


def _limited(settings: Settings) -> Iterator[tuple[str, Limits]]:
    """Yield all objects that may have limits, with their places."""
    for account in settings.accounting.accounts:
        place = f"accounts[{account.name}]"
        yield place, account
        for user in account.users:
            yield f"{place}.users[{user.name}]", user
            for partition in user.partitions:
                yield f"{place}.users[{user.name}].partitions[{partition.name}]", partition
    for qos in settings.accounting.qos:
        yield f"qos[{qos.name}]", qos


def _has_limits(limits: Limits) -> bool:
    chosen = (name for name in limits.model_fields_set if name.startswith(_LIMITS))
    return any(getattr(limits, name) is not None for name in chosen)


def _unknown_labels(settings: Settings) -> Warnings:
    """Warn about labels in a `node_selector` that no machine has.

    The deploy can only know the labels of machines that it sets up itself.
    """
    if not settings.cluster.makes_machines:
        return
    selectors = {
        **{f"nodesets[{each.name}]": each.node_selector for each in settings.nodesets},
        **{f"placement.{name}": each.node_selector for name, each in settings.placement.items()},
    }
    for place, selector in selectors.items():
        for label, value in selector.items():
            # The cloud, Kubernetes or a driver may set a label with a domain.
            if "/" not in label:
                yield (
                    f"{place}.node_selector.{label}",
                    (
                        f"'{value}': the deploy gives no machine this label, so the pods "
                        "stay pending; add the label to machines with kubectl, or remove "
                        "the label from node_selector"
                    ),
                )


def _memory_above_the_nodes(settings: Settings) -> Warnings:
    memory = {nodeset.name: nodeset.memory for nodeset in settings.nodesets}
    for partition in settings.partitions:
        largest = max(memory[name] for name in partition.nodesets)
        for field in ("memory_per_cpu", "memory_per_gpu"):
            given = getattr(partition, field)
            if given and given > largest:
                yield (
                    f"partitions[{partition.name}].{field}",
                    (
                        f"{given / 1024:g}GiB: is more than the memory of the partition's largest"
                        f" node, {largest / 1024:g}GiB, so a job starts only if it requests less"
                        f" memory; lower {field}"
                    ),
                )


def _suspended_jobs_keep_all_memory(settings: Settings) -> Warnings:
    """Warn if preemption suspends jobs that have all memory of their CPUs.

    Slurm's plugin cons_tres frees only the CPUs of a suspended job, not its memory.
    """
    chosen = settings.slurm.preemption
    modes: dict[str, str | None] = {}
    if chosen.type != "none":
        modes["slurm.preemption.mode"] = chosen.mode
    if chosen.type == "qos":
        for qos in settings.accounting.qos:
            modes[f"accounting.qos[{qos.name}].preempt_mode"] = qos.preempt_mode
    else:
        for partition in settings.partitions:
            modes[f"partitions[{partition.name}].preempt_mode"] = partition.preempt_mode
    whole = ", ".join(each.name for each in settings.queues() if each.memory_per_cpu is None)
    for key, mode in modes.items():
        if mode == "suspend" and whole:
            yield (
                key,
                (
                    f"suspend: suspended jobs keep their memory. In the partitions {whole}, jobs"
                    " without a memory request get all memory of their CPUs, so a full node has"
                    " no memory for the job that preempts them; set memory_per_cpu in these"
                    " partitions, or use requeue"
                ),
            )


def _volumes_outside_the_jail(settings: Settings) -> Warnings:
    """Warn about volumes of nodesets that no job sees, unless a program of the site may use them.

    The worker's own programs use volumes in system folders. A site's image may have further
    programs that use other volumes.
    """
    scripts = (settings.slurm.prolog, settings.slurm.epilog, settings.health.script)
    for nodeset in settings.nodesets:
        for volume in nodeset.volumes:
            path = volume.path
            is_used = any(one and (one.text is None or path in one.text) for one in scripts)
            if volume.in_jail() or is_used or nodeset.pod.image or system_folder(path):
                continue
            yield (
                f"nodesets[{nodeset.name}].volumes[{volume.name}].path",
                (
                    f"'{path}': jobs see only paths below {JAIL}; write {JAIL}{path}, or use"
                    " jail.volumes"
                ),
            )


def _no_default_partition(settings: Settings) -> Warnings:
    # A Lua script, or the site's own line of slurm.conf, may choose the partition of a job.
    further = " ".join(_slurm_conf(settings)).lower()
    is_chosen = settings.slurm.job_submit_lua or "default=yes" in further
    if settings.partitions and not (is_chosen or any(each.default for each in settings.partitions)):
        yield (
            "partitions",
            (
                f"{', '.join(each.name for each in settings.partitions)}: none of these "
                "partitions has 'default: true', so Slurm refuses jobs that name no "
                "partition; add 'default: true' to one of them"
            ),
        )


def _unknown_levels(settings: Settings) -> Warnings:
    """Warn about levels of the topology that look like misspelled labels."""
    for label in settings.slurm.topology.labels:
        # The cloud, Kubernetes or a driver may set a label with a domain.
        if label in LEVELS or "/" in label:
            continue
        close = difflib.get_close_matches(label, LEVELS, n=1, cutoff=0.75)
        if close or settings.cluster.makes_machines:
            remedy = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(LEVELS)}"
            yield (
                "slurm.topology.labels",
                (
                    f"'{label}': is not the name of a level, so the deploy reads it as the "
                    "key of a label; nodes without this label have no place in the "
                    f"topology; {remedy}"
                ),
            )


def _unusable_qos(settings: Settings) -> Warnings:
    """Warn about a QOS that no account, user or partition may use, if Slurm enforces QOS."""
    accounting = settings.accounting
    if not accounting.enabled or "qos" not in settings.enforced():
        return
    used = {name for _, names in granted(accounting.accounts) for name in names}
    used |= {each.qos for each in settings.partitions if each.qos}
    for qos in accounting.qos:
        if qos.name not in used:
            yield (
                f"accounting.qos[{qos.name}]",
                (
                    "no account, user or partition has this QOS in its setting 'qos', so Slurm"
                    " refuses jobs that request it, unless an administrator allows it with"
                    " sacctmgr; add it to accounting.accounts[].qos"
                ),
            )


def _limits_of_unknown_gres(settings: Settings) -> Warnings:
    """Warn about limits of a gres (generic resource) that no node has.

    slurmdbd may still accept such a limit: its database keeps each gres that a node once had.
    """
    known = settings.tres()
    if any(key_of(line) == "accountingstoragetres" for line in _slurm_conf(settings)):
        return
    for place, limits in _limited(settings):
        for field in sorted(limits.model_fields_set):
            value = getattr(limits, field)
            for name in value if isinstance(value, dict) else ():
                if name.startswith("gres/") and name not in known:
                    yield (
                        f"accounting.{place}.{field}.{name}",
                        (
                            "no node has this resource, so Slurm may refuse the limit;"
                            f" {known_names(name, known)}"
                        ),
                    )


def _slurm_conf(settings: Settings) -> tuple[str, ...]:
    return settings.slurm.extra.get("slurm.conf", ())


def _missing_shells(settings: Settings) -> Warnings:
    """Warn about shells that are neither in the jail's image nor on one of the site's volumes."""
    volumes = tuple(f"{volume.path}/" for volume in settings.jail.volumes)
    for user in settings.users:
        if user.shell not in JAIL_SHELLS and not user.shell.startswith(volumes):
            yield (
                f"users[{user.name}].shell",
                (
                    f"{user.shell}: the jail's image does not have this shell, so the user cannot"
                    " log in unless you install the shell in the jail; install it, or use"
                    " /bin/bash"
                ),
            )


def _indistinguishable_slices(settings: Settings) -> Warnings:
    """Warn about several MIG profiles on nodes if their image cannot distinguish the profiles."""
    for nodeset in settings.nodesets:
        mig = nodeset.gpus.mig if nodeset.gpus else {}
        if len(mig) > 1 and nodeset.pod.image is None:
            yield (
                f"nodesets[{nodeset.name}].gpus.mig",
                (
                    f"{', '.join(mig)}: only NVIDIA's library distinguishes the profiles, and the"
                    " stack's image does not use it; set pod.image to an image with the package"
                    " slurm-wlm-nvml-plugin, or use one profile"
                ),
            )


def _short_histories(settings: Settings) -> Warnings:
    """Warn if the kept snapshots cover less than a day, because snapshots are too frequent."""
    snapshots = settings.snapshots
    if snapshots is None:
        return
    hourly, daily = cron_times(snapshots.schedule)
    if hourly > 1 and snapshots.keep < daily:
        yield (
            "snapshots.schedule",
            (
                f"'{snapshots.schedule}': makes {daily} snapshots a day, but snapshots.keep is"
                f" {snapshots.keep}, so the kept snapshots cover less than a day; run the schedule"
                " less often, or raise snapshots.keep"
            ),
        )
