"""Sentences about what users and jobs notice of a deploy."""

import time
from typing import Any

import pytest

from engine.urns import is_provider
from plans.notices import NOTHING, notices
from tests.support.graph import record
from tests.support.stack import config, enable_everything
from tests.unit.plans.documents import CONFIG_MAP, STATEFUL_SET, preview, stateful_set, step

DEPLOYMENT = "kubernetes:apps/v1:Deployment"
JOB = "kubernetes:batch/v1:Job"
SERVICE = "kubernetes:core/v1:Service"
SECRET = "kubernetes:core/v1:Secret"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
GROUP = "nebius:index/mk8SV1NodeGroup:Mk8SV1NodeGroup"
TEMPLATE = "kubernetes:core/v1:PodTemplate"
CPU = {"slurmstack.dev/nodeset": "cpu"}
BEFORE, AFTER = {"data": {"a": "1"}}, {"data": {"a": "2"}}


def rolled(name: str, type_: str = STATEFUL_SET) -> dict[str, Any]:
    return step("update", type_, name, stateful_set(CPU), stateful_set({**CPU, "a": "b"}))


def resized(name: str, before: int, after: int) -> dict[str, Any]:
    return step("update", STATEFUL_SET, name, stateful_set(CPU, before), stateful_set(CPU, after))


def on_demand(most: int, **labels: str) -> dict[str, Any]:
    annotations = {"slurmstack.dev/nodes": str(most)}
    return {
        "metadata": {"labels": CPU, "annotations": annotations},
        "template": {"metadata": {"labels": labels}},
    }


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (rolled("nodeset-cpu-slurmd"), "The nodes of nodeset cpu are replaced one by one"),
        (resized("nodeset-cpu-slurmd", 2, 5), "Nodeset cpu grows from 2 to 5 nodes."),
        (resized("nodeset-a-b-slurmd", 5, 2), "Nodeset a-b shrinks from 5 to 2 nodes"),
        (step("delete", STATEFUL_SET, "nodeset-cpu-slurmd", stateful_set(CPU)), "cpu is removed"),
        (
            step("create", STATEFUL_SET, "nodeset-cpu-slurmd", None, stateful_set(CPU, 3)),
            "Nodeset cpu is added with 3 nodes.",
        ),
        (
            step("create", TEMPLATE, "nodeset-cpu-template", None, on_demand(3)),
            "Nodeset cpu is added with at most 3 nodes on demand.",
        ),
        (
            step("update", TEMPLATE, "nodeset-cpu-template", on_demand(3), on_demand(5)),
            "Nodeset cpu has at most 5 nodes on demand, not 3.",
        ),
        (
            step("update", TEMPLATE, "nodeset-cpu-template", on_demand(3), on_demand(3, a="b")),
            "idle nodes at once, others after their jobs",
        ),
        (step("delete", TEMPLATE, "nodeset-cpu-template", on_demand(3)), "cpu is removed"),
        (rolled("login-sshd"), "Login nodes are replaced one by one"),
        (resized("login-sshd", 3, 2), "The last login nodes are removed"),
        (rolled("controller-slurmctld", DEPLOYMENT), "slurmctld restarts"),
        (step("update", CONFIG_MAP, "config-candidate", BEFORE, AFTER), "read the new config"),
        (rolled("accounting-slurmdbd", DEPLOYMENT), "Accounting restarts"),
        (rolled("database-mariadb"), "Accounting restarts"),
        (step("update", CONFIG_MAP, "accounts-wanted", BEFORE, AFTER), "Accounts, limits or QOS"),
        (step("update", CONFIG_MAP, "users-accounts", BEFORE, AFTER), "Users or groups change"),
        (step("update", CONFIG_MAP, "users-keys", BEFORE, AFTER), "SSH keys of users change"),
        (step("update", CONFIG_MAP, "directory-config", BEFORE, AFTER), "sssd restarts"),
        (step("update", CONFIG_MAP, "login-config", BEFORE, AFTER), "sessions continue."),
        (step("update", SERVICE, "login-service", BEFORE, AFTER), "address or port of the login"),
        (step("update", SECRET, "login-host-key", BEFORE, AFTER), "another host key"),
        (rolled("rest-slurmrestd", DEPLOYMENT), "slurmrestd restarts"),
        (step("update", CONFIG_MAP, "nodeset-a-b-isolation", BEFORE, AFTER), "nodeset a-b that"),
        (step("update", CONFIG_MAP, "config-scripts", BEFORE, AFTER), "Nodes use new scripts"),
        (step("update", CONFIG_MAP, "user-images-config", BEFORE, AFTER), "images of users"),
        (step("delete", POLICY, "network-default", BEFORE), "that they refused become possible"),
        (step("update", POLICY, "network-default", BEFORE, AFTER), "no longer allow fails"),
        (step("update", CONFIG_MAP, "jail-server-config", BEFORE, AFTER), "The jail's server"),
        (step("update", GROUP, "gpu", BEFORE, AFTER), "Machines, networks or disks of the cloud"),
        (step("replace", JOB, "jail-populate", BEFORE, AFTER), "The jail's system files"),
    ],
)
def test_change_that_users_notice_has_a_sentence(change: dict[str, Any], sentence: str) -> None:
    (text,) = notices(preview(change))
    assert sentence in text


def test_other_changes_are_not_noticed() -> None:
    changes = [
        step("update", CONFIG_MAP, "monitoring-config", BEFORE, AFTER),
        rolled("exporter-agent", DEPLOYMENT),
        resized("rest-slurmrestd", 1, 2),
    ]
    assert notices(preview(*changes)) == [NOTHING]


def test_new_limits_concern_present_sessions() -> None:
    change = step("update", CONFIG_MAP, "login-config", {"data": {"limits": "1"}}, {"data": {}})

    assert "New limits of login nodes also apply to present sessions" in notices(preview(change))[1]


def test_change_without_a_rule_is_named() -> None:
    unknown = step("update", CONFIG_MAP, "future-config", BEFORE, AFTER)
    lost = step("delete", CLAIM, "database-data", BEFORE)

    (text,) = notices(preview(unknown, lost))

    assert text == (
        "No rule describes what users notice of these changes: database-data, future-config."
        " Read their steps."
    )


def test_nobody_notices_changes_of_a_first_deploy() -> None:
    created = [
        step("create", "kubernetes:core/v1:Namespace", "namespace", None, {}),
        step("create", POLICY, "network-default", None, {}),
        step("create", STATEFUL_SET, "nodeset-cpu-slurmd", None, stateful_set(CPU, 3)),
    ]

    assert notices(preview(*created)) == ["Nodeset cpu is added with 3 nodes."]


def test_every_resource_of_the_program_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = record(monkeypatch, config(enable_everything))

    changes = [
        step("update", resource.type, resource.name, BEFORE, AFTER)
        for resource in graph.resources
        if resource.custom and not is_provider(resource.type)
    ]

    assert len(changes) > 100
    assert not [text for text in notices(preview(*changes)) if text.startswith("No rule")]


def test_plan_without_changes_has_no_sentence() -> None:
    assert notices(preview()) == []


def test_a_sentence_appears_once() -> None:
    both = preview(rolled("database-mariadb"), rolled("accounting-slurmdbd", DEPLOYMENT))
    assert len(notices(both)) == 1


@pytest.mark.parametrize(("ahead", "soon"), [(-60, True), (60, True), (600, False)])
def test_rotation_that_is_too_soon_has_a_sentence(ahead: int, soon: bool) -> None:
    key = f"auth-password-{int(time.time()) + ahead}"

    found = notices(
        preview(step("create", "random:index/randomPassword:RandomPassword", key, None, {}))
    )

    assert any("less than three minutes in the future" in text for text in found) == soon
    assert any("All pods switch" in text for text in found)
