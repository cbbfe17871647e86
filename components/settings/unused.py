"""Warnings about valid settings that other settings disable or replace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from components.settings.slurm import key_of

if TYPE_CHECKING:
    from components.settings.models import Settings
    from components.settings.types import Model

Warnings = Iterator[tuple[str, str]]
"""Keys of the stack file, each with the problem and the remedy."""
_TIER = 1
"""PriorityTier of a partition that sets no tier (source: slurm.conf(5))."""


def unused(settings: Settings) -> Warnings:
    yield from _disabled_containers(settings)
    yield from _disabled_checks(settings)
    yield from _long_checks(settings)
    yield from _preemption(settings)
    yield from _replaced_checks(settings)


def _disabled_containers(settings: Settings) -> Warnings:
    if not settings.containers.enabled:
        for name in _set(settings.containers, "enabled"):
            yield (
                f"containers.{name}",
                (
                    "has no effect, because containers.enabled is false; remove this setting, or "
                    "set containers.enabled to true"
                ),
            )


def _disabled_checks(settings: Settings) -> Warnings:
    health = settings.health
    if health.enabled:
        return
    # Slurm also runs the site's script at this interval and in these node states.
    further = () if health.script else ("interval", "node_states")
    names = ("checks", *further)
    keys = [f"health.{name}" for name in names if name in health.model_fields_set]
    keys += [f"nodesets[{each.name}].checks" for each in settings.nodesets if each.checks]
    for key in keys:
        yield (
            key,
            (
                "has no effect, because health.enabled is false; remove this setting, or set "
                "health.enabled to true"
            ),
        )


def _long_checks(settings: Settings) -> Warnings:
    if not settings.long_checks.checks:
        for name in _set(settings.long_checks, "checks"):
            yield (
                f"long_checks.{name}",
                (
                    "has no effect, because long_checks.checks is empty; remove this setting, or "
                    "add checks to long_checks.checks"
                ),
            )


def _set(model: Model, *others: str) -> list[str]:
    """Return the fields that the stack file has, except those in `others`."""
    return sorted(model.model_fields_set - {*others})


def _preemption(settings: Settings) -> Warnings:
    chosen = settings.slurm.preemption
    if chosen.type == "none" and "mode" in chosen.model_fields_set:
        yield (
            "slurm.preemption.mode",
            (
                f"{chosen.mode}: has no effect, because slurm.preemption.type is 'none'; set "
                "slurm.preemption.type to 'partition_prio' or 'qos', or remove 'mode'"
            ),
        )
    if chosen.type == "partition_prio" and _has_one_tier(settings):
        yield (
            "slurm.preemption.type",
            (
                "partition_prio: all partitions have the same priority_tier, so no job is"
                " preempted; raise priority_tier in one of them, or remove slurm.preemption"
            ),
        )
    qos = settings.accounting.qos
    if chosen.type == "qos" and settings.accounting.enabled and not any(q.preempt for q in qos):
        yield (
            "slurm.preemption.type",
            (
                "qos: no QOS in accounting.qos has the setting 'preempt', so no job is "
                "preempted unless an administrator allows it with sacctmgr; in a QOS of "
                "accounting.qos, list in 'preempt' the QOS whose jobs it may preempt"
            ),
        )


def _has_one_tier(settings: Settings) -> bool:
    """Return whether all partitions have the same tier.

    Return false if the site's own lines of slurm.conf may set tiers.
    """
    queues = settings.queues()
    further = {name.lower() for queue in queues for name in queue.parameters}
    further |= {key_of(line) for line in settings.slurm.extra.get("slurm.conf", ())}
    if further & {"partitionname", "prioritytier", "include"}:
        return False
    return len({_TIER if q.priority_tier is None else q.priority_tier for q in queues}) == 1


def _replaced_checks(settings: Settings) -> Warnings:
    """Warn about a program of the site that Slurm runs in place of the stack's checks."""
    keys = {key_of(line) for line in settings.slurm.extra.get("slurm.conf", ())}
    health = settings.health
    if "healthcheckprogram" in keys and (health.enabled or health.script):
        what = "the stack's checks" if health.enabled else "health.script"
        yield (
            "slurm.extra.slurm.conf",
            (
                f"HealthCheckProgram: Slurm runs this program in place of {what}; remove "
                "this line, and start the program in health.script, which Slurm runs after "
                "the stack's checks"
            ),
        )
