"""The command `python3 -m agents.accounts` handles its input, and has the right messages and exit
codes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agents.accounts import __main__ as command
from agents.accounts.sacctmgr import CommandError, observe
from agents.accounts.things import Mark, Thing
from components import conventions as c


class Slurm:
    """Fake of Slurm's commands: answers queries from tables and records all other commands."""

    def __init__(self, **rows: list[str]) -> None:
        self.rows = {"cluster": ["test"], **rows}
        self.commands: list[str] = []
        self.heard = ""
        self.reconfigured = 0

    def __call__(self, words: Sequence[str]) -> str:
        if words[0] == "squeue":
            return "\n".join(self.rows.get("jobs", []))
        if words[:2] == ("scontrol", "reconfigure"):
            self.reconfigured += 1
            return ""
        if words[0] == "scontrol":
            return self.heard
        if "comment=slurmstack: heard" in " ".join(words):
            self.heard = words[-1]
            return ""
        if "show" in words:
            return "\n".join(self.rows.get(words[words.index("show") + 1], []))
        self.commands.append(" ".join(words))
        return ""


def run(slurm: Any, tmp_path: Path, *options: str, **fields: Any) -> int:
    path = tmp_path / "wanted.json"
    path.write_text(json.dumps({"cluster": "test", **fields}))
    return command.main([f"--wanted={path}", *options], slurm, lambda _: None)


def association(account: str, user: str = "", comment: str = "", partition: str = "") -> str:
    """Return sacctmgr's row for an association with a share of 1 and no limits."""
    parent = "" if user else "root"
    return "|".join(["test", account, user, partition, parent, "", "1", *[""] * 17, comment])


OURS = {
    "association": [association("lab", comment="[slurmstack: parent]")],
    "account": ["lab|lab|lab"],
}


def test_refusal_exits_with_the_code_that_fails_the_job() -> None:
    assert command.REFUSED == c.ACCOUNTS_REFUSED


@pytest.mark.parametrize("text", ["", "{}", '{"cluster": "test", "acounts": {}}'])
def test_invalid_input_file_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = tmp_path / "wanted.json"
    path.write_text(text)

    assert command.main([f"--wanted={path}"], Slurm(), lambda _: None) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_command_waits_until_the_cluster_is_registered(tmp_path: Path) -> None:
    slurm = Slurm(cluster=[])
    waited = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            slurm.rows["cluster"] = ["test"]

    path = tmp_path / "wanted.json"
    path.write_text('{"cluster": "test"}')

    assert command.main([f"--wanted={path}"], slurm, sleep) == 0
    assert len(waited) == 3


def test_failed_query_prints_one_line_and_nothing_is_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def silent(words: Sequence[str]) -> str:
        raise CommandError(f"{words[0]}: Connection refused")

    assert run(silent, tmp_path) == 1
    message = (
        "error: cannot make Slurm's accounts match the settings: sacctmgr: Connection refused; "
        "correct the cause, then run the command again\n"
    )
    assert capsys.readouterr().err == message


def test_refused_removal_of_an_account_with_jobs_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm = Slurm(**OURS, jobs=["7|ada|lab|normal|main"])

    assert run(slurm, tmp_path, accounts={"new": {}}) == 3
    assert slurm.commands == []
    assert "refused: account lab: cannot be removed: 1 job uses it" in capsys.readouterr().err


def test_accepted_change_that_slurm_does_not_show_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm = Slurm()

    assert run(slurm, tmp_path, accounts={"new": {}}) == 1
    assert set(slurm.commands) == {
        "sacctmgr --immediate add account new cluster=test comment=[slurmstack: parent]"
    }
    assert (
        "Slurm accepted these changes of accounts, but does not show them: + account new"
        in capsys.readouterr().err
    )


class Obedient(Slurm):
    """Fake of Slurm's commands that carries out `add`: later queries show the new account."""

    def __call__(self, words: Sequence[str]) -> str:
        if "add" in words:
            self.rows |= OURS
        return super().__call__(words)


def test_slurmctld_saves_new_accounts_immediately(tmp_path: Path) -> None:
    """`scontrol reconfigure` makes slurmctld save the accounts. Without a saved copy, a restarted
    slurmctld needs slurmdbd."""
    slurm = Obedient()

    assert run(slurm, tmp_path, accounts={"lab": {}}) == 0
    assert slurm.reconfigured == 1

    assert run(slurm, tmp_path, accounts={"lab": {}}) == 0
    assert slurm.reconfigured == 1


def test_comments_may_contain_the_column_separator() -> None:
    row = association("lab", comment="[slurmstack:] of | the lab")

    found = observe(Slurm(association=[row], account=["lab|lab|a | b"]), "test")

    state = found.things[Thing("account", "lab")]
    assert (state.mark, state.comment) == (Mark(), "of | the lab")
    assert state.fields["description"] == "a | b"


def test_row_with_a_wrong_number_of_columns_is_an_error() -> None:
    with pytest.raises(CommandError, match="columns"):
        observe(Slurm(association=["test|lab"], account=["lab|lab|lab"]), "test")
