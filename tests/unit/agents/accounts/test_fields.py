"""The agent converts values that Slurm shows to the form of the settings, and back."""

from collections.abc import Sequence

import pytest
from pydantic import BaseModel

from agents.accounts import fields
from agents.accounts.fields import ValueUnknownError, read, write
from agents.accounts.sacctmgr import CommandError, commands, do
from agents.accounts.things import Action, Mark, Thing
from components.settings.accounts import Account, AccountUser, Qos


@pytest.mark.parametrize(
    ("field", "shown", "expected"),
    [
        ("maxjobs", "", {}),
        ("maxjobs", "0", {"maxjobs": "0"}),
        ("fairshare", "parent", {"fairshare": "parent"}),
        ("usagefactor", "1.500000", {"usagefactor": "1.5"}),
        ("maxwall", "2-01:00:30", {"maxwall": "176430"}),
        ("gracetime", "00:01:30", {"gracetime": "90"}),
        ("flags", "NoReserve,DenyOnLimit", {"flags": "denyonlimit,noreserve"}),
        ("grptres", "cpu=4,gres/gpu:h100=8", {"grptres:cpu": "4", "grptres:gres/gpu:h100": "8"}),
        ("grptres", "mem=1500M", {"grptres:mem": "1500"}),
        ("grptres", "mem=5G", {"grptres:mem": "5120"}),
        ("grptres", "mem=2T", {"grptres:mem": "2097152"}),
    ],
)
def test_values_that_slurm_shows_are_parsed(
    field: str, shown: str, expected: dict[str, str]
) -> None:
    assert read(field, shown) == expected


@pytest.mark.parametrize(
    ("field", "shown"),
    [("maxwall", "soon"), ("maxwall", "90"), ("grptres", "cpu=4K"), ("grptres", "mem=much")],
)
def test_value_that_cannot_be_parsed_is_an_error(field: str, shown: str) -> None:
    with pytest.raises(ValueUnknownError, match=shown.rpartition("=")[2]):
        read(field, shown)


@pytest.mark.parametrize(
    ("kind", "changes", "expected"),
    [
        ("account", {"maxjobs": "3", "fairshare": "5"}, ["fairshare=5", "maxjobs=3"]),
        ("account", {"maxwall": "176430"}, ["maxwall=2-01:00:30"]),
        ("account", {"maxjobs": "", "maxwall": ""}, ["maxjobs=-1", "maxwall=-1"]),
        ("account", {"qoslevel": "", "defaultqos": ""}, ["defaultqos=-1", "qoslevel="]),
        ("account", {"grptres:cpu": "3", "grptres:mem": ""}, ["grptres=cpu=3,mem=-1"]),
        ("qos", {"flags": "", "preempt": ""}, ["flags=-1", "preempt="]),
        ("qos", {"gracetime": "90"}, ["gracetime=90"]),
    ],
)
def test_fields_are_written_as_arguments_of_sacctmgr(
    kind: str, changes: dict[str, str], expected: list[str]
) -> None:
    assert write(kind, changes) == expected


@pytest.mark.parametrize(
    ("model", "known"),
    [
        (Account, fields.ACCOUNT),
        (AccountUser, fields.USER),
        (Qos, fields.QOS),
    ],
    ids=["account", "user of an account", "QOS"],
)
def test_agent_knows_every_field_of_the_settings(
    model: type[BaseModel], known: dict[str, object]
) -> None:
    named = set(model.model_fields) - {"name", "users", "default", "partitions"}
    if "qos" in named:
        named = named - {"qos"} | {"qos_level"}

    assert {name.replace("_", "") for name in named} == known.keys() - {
        "adminlevel",
        "defaultaccount",
    }


def test_user_and_association_fields_are_set_by_separate_commands() -> None:
    """A single command would change the association in every account of the user."""
    thing = Thing("user", "ada", "lab")
    changes = {"maxjobs": "3", "defaultaccount": "lab"}

    issued = commands(Action("~", thing, changes, comment=Mark().text("")), "test")

    assert [any("maxjobs" in word for word in command) for command in issued] == [True, False]
    assert [any("defaultaccount" in word for word in command) for command in issued] == [
        False,
        True,
    ]
    assert "partition=" in issued[0]
    assert "cluster=test" in issued[0]


def test_default_account_is_restored_even_if_slurm_refuses_the_removal() -> None:
    thing = Thing("user", "ada", "lab", "gpu")
    ran: list[str] = []

    def run(command: Sequence[str]) -> str:
        ran.append(" ".join(command))
        if "delete" in command:
            raise CommandError("Job(s) active")
        return ""

    with pytest.raises(CommandError, match="Job"):
        do(Action("-", thing, interim="sub"), "hpc", run)

    assert [line.rpartition("=")[2] for line in ran] == ["sub", "gpu", "lab"]
