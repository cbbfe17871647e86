"""Slurm refuses a user's actions on another user's job and on the cluster."""

import json
import re
from collections.abc import Callable

import pytest

from tests.cluster.escape.commands import OTHERS_JOB, THE_CLUSTER, THE_SYSTEM
from tests.cluster.escape.victim import NODE, Outcomes, Victim, changes, parsed
from tests.support.cluster import Cluster

COMMANDS = {**OTHERS_JOB, **THE_CLUSTER, **THE_SYSTEM}
PLACES = ("login", "job")


@pytest.fixture(scope="package")
def outputs(cluster: Cluster, victim: Victim, shared: str) -> Callable[[str], Outcomes]:
    """Return a function that runs all commands in a place once, and returns their output."""
    cluster.run(
        f"cd {shared} && mkdir etc && cp /run/slurm/conf/* etc && echo mine >payload &&"
        " sed -i 's/^SlurmUser=.*/SlurmUser=researcher/' etc/slurm.conf"
    )
    filled = {
        name: command.text.format(job=victim.job, node=NODE, folder=shared, other="games")
        for name, command in COMMANDS.items()
    }
    cache: dict[str, Outcomes] = {}

    def ask(place: str) -> Outcomes:
        if place not in cache:
            before = victim.state()
            prefix = "" if place == "login" else f"srun --nodelist={NODE} --mem=100 "
            quoted = json.dumps(filled).replace("'", "'\\''")
            cache[place] = parsed(cluster.run(f"{prefix}python3 {shared}/commands.py '{quoted}'"))
            cache[place]["harm"] = changes(before, victim.state())
        return cache[place]

    return ask


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", COMMANDS)
def test_command_against_others_or_the_cluster_is_refused(
    outputs: Callable[[str], Outcomes], victim: Victim, place: str, name: str
) -> None:
    answer = outputs(place)[name]

    assert re.search(COMMANDS[name].refusal.format(job=victim.job), answer), answer
    assert "uid=" not in answer
    assert victim.secret not in answer


@pytest.mark.parametrize("place", PLACES)
def test_refused_commands_change_nothing(outputs: Callable[[str], Outcomes], place: str) -> None:
    assert outputs(place)["harm"] == ""
