"""Accounts, users and QOS that the settings request from agents/accounts."""

import json
from typing import Any

import pytest

from agents.accounts.fields import ACCOUNT, QOS, USER
from agents.accounts.things import Wanted
from components.slurmconf import config_files, wanted_accounts
from tests.support.parsed import options
from tests.support.stack import FULL, VALID, settings


def wanted(base: dict[str, Any] = VALID, **accounting: Any) -> Wanted:
    def edit(values: dict[str, Any]) -> None:
        values["accounting"] = {**values.get("accounting", {}), **accounting}

    return Wanted.model_validate_json(wanted_accounts(settings(edit, base)))


def test_users_without_an_account_get_the_default_account() -> None:
    assert wanted().accounts == {"users": {}}
    assert wanted().users == {"researcher": {"users": {}}, "student": {"users": {}}}


def test_default_account_exists_only_if_a_user_needs_it() -> None:
    both_users = [{"name": "researcher"}, {"name": "student"}]

    assert wanted(accounts=[{"name": "lab", "users": both_users}]).accounts == {"lab": {}}


def test_only_fields_that_the_settings_contain_are_requested() -> None:
    lab = {"name": "lab", "fairshare": 5, "users": [{"name": "student", "default": True}]}

    found = wanted(accounts=[lab])

    assert found.accounts["lab"] == {"fairshare": "5"}
    assert found.users["student"] == {"lab": {"defaultaccount": "lab"}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"max_wall": "2-0"}, {"maxwall": "172800"}),
        ({"max_wall": "1-02:30"}, {"maxwall": "95400"}),
        ({"max_wall": "04:00:00"}, {"maxwall": "14400"}),
        ({"max_wall": "90"}, {"maxwall": "5400"}),
        ({"max_wall": "00:00:30"}, {"maxwall": "60"}),
        ({"max_wall": "UNLIMITED"}, {"maxwall": ""}),
        ({"grp_tres": {"cpu": 4, "mem": "2GiB"}}, {"grptres:cpu": "4", "grptres:mem": "2048"}),
        ({"qos": ["normal", "high"]}, {"qoslevel": "high,normal"}),
        ({"description": "The Lab"}, {"description": "the lab"}),
        ({"fairshare": "parent"}, {"fairshare": "parent"}),
        ({"max_jobs": 0}, {"maxjobs": "0"}),
    ],
)
def test_account_values_are_normalized(given: dict[str, Any], expected: dict[str, str]) -> None:
    found = wanted(accounts=[{"name": "lab", **given}], qos=[{"name": "high"}])

    assert found.accounts["lab"] == expected


def test_admin_level_is_requested_once_per_user() -> None:
    accounts = [{"name": name, "users": [{"name": "student"}]} for name in ("lab", "hall")]

    found = wanted(accounts=accounts, operators=["student"], administrators=["researcher"])

    assert found.users["student"] == {"lab": {"adminlevel": "operator"}, "hall": {}}
    assert found.users["researcher"] == {"users": {"adminlevel": "administrator"}}


def test_agent_knows_every_requested_field() -> None:
    found = wanted(FULL)

    groups = [
        (ACCOUNT, found.accounts.values()),
        (QOS, found.qos.values()),
        (USER, (fields for of in found.users.values() for fields in of.values())),
    ]
    for known, things in groups:
        for fields in things:
            assert {field.partition(":")[0] for field in fields} <= known.keys()


def test_same_settings_render_the_same_text() -> None:
    text = wanted_accounts(settings(base=FULL))

    assert text == wanted_accounts(settings(base=FULL))
    assert json.loads(text)["cluster"] == "full"


DIRECTORY = {"uris": ["ldaps://ldap.example.org"], "base": "dc=example,dc=org"}


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        ({}, "associations,limits,qos"),
        ({"directory": DIRECTORY}, None),
        ({"directory": DIRECTORY, "accounting": {"enforce": ["limits"]}}, "limits"),
        ({"accounting": {"enforce": ["safe", "qos"]}}, "qos,safe"),
        ({"accounting": {"enforce": []}}, None),
        ({"accounting": {"enabled": False}}, None),
    ],
)
def test_limits_are_enforced_unless_they_lock_out_users(
    edit: dict[str, Any], expected: str | None
) -> None:
    config = settings(lambda values: values.update(edit))

    found = options(config_files(config)["slurm.conf"])

    assert found.get("AccountingStorageEnforce") == expected
