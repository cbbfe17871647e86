"""Sentences about what users and jobs notice of a deploy."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from engine.urns import is_provider
from engine.values import UNKNOWN_STRING
from plans.notices import NOTHING, notices
from tests.support.clouds import CLOUDS, METAL
from tests.support.documents import (
    CONFIG_MAP,
    STATEFUL_SET,
    claim,
    key_secret,
    preview,
    removed_key,
    stateful_set,
    step,
)
from tests.support.graph import Graph, record
from tests.support.stack import config, enable_everything

DEPLOYMENT = "kubernetes:apps/v1:Deployment"
JOB = "kubernetes:batch/v1:Job"
SERVICE = "kubernetes:core/v1:Service"
SECRET = "kubernetes:core/v1:Secret"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
GROUP = "nebius:index/mk8SV1NodeGroup:Mk8SV1NodeGroup"
TEMPLATE = "kubernetes:core/v1:PodTemplate"
PASSWORD = "random:index/randomPassword:RandomPassword"
RELEASE = "kubernetes:helm.sh/v3:Release"
NO_FILES: dict[str, Any] = {"data": {}}
CPU = {"slurmstack.dev/nodeset": "cpu"}
REQUEUED = (
    "Slurm requeues jobs that have not ended when their nodes leave; interactive jobs, and jobs"
    " with --no-requeue, are lost."
)
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


def file(name: str, text: str) -> dict[str, Any]:
    return {"data": {name: text}}


def checks(**limits: dict[str, Any]) -> dict[str, Any]:
    return file("checks.json", json.dumps(limits))


def populate(refresh: int = 0, image: str = "lab/jail:1", submounts: str = "") -> dict[str, Any]:
    """Return the inputs of the Job for the jail's system files."""
    variables = {"JAIL_REFRESH": str(refresh), "JAIL_SUBMOUNTS": submounts}
    env = [{"name": name, "value": value} for name, value in variables.items()]
    container = {"name": "populate", "image": image, "env": env}
    return {"spec": {"template": {"spec": {"containers": [container]}}}}


def populated(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return step("replace", JOB, "jail-populate", before, after)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            rolled("nodeset-cpu-slurmd"),
            "The nodes of nodeset cpu are replaced, only a part of them at the same time",
        ),
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
            "The maximum number of nodes on demand of nodeset cpu changes from 3 to 5.",
        ),
        (
            step("update", TEMPLATE, "nodeset-cpu-template", on_demand(3), on_demand(3, a="b")),
            "idle nodes at once, busy nodes when their jobs have ended",
        ),
        (step("delete", TEMPLATE, "nodeset-cpu-template", on_demand(3)), "cpu is removed"),
        (rolled("login-sshd"), "Login nodes are replaced one by one"),
        (resized("login-sshd", 3, 2), "The last login nodes are removed"),
        (rolled("controller-slurmctld", DEPLOYMENT), "slurmctld restarts"),
        (step("update", CONFIG_MAP, "config-candidate", BEFORE, AFTER), "read the new config"),
        (rolled("accounting-slurmdbd", DEPLOYMENT), "Accounting restarts"),
        (rolled("database-mariadb"), "Accounting restarts"),
        (
            step("create", CONFIG_MAP, "controller-topology", None, {}),
            "topology from another source",
        ),
        (step("delete", CONFIG_MAP, "controller-topology", BEFORE), "topology from another source"),
        (step("update", CONFIG_MAP, "accounts-wanted", BEFORE, AFTER), "Accounts, limits or QOS"),
        (step("update", CONFIG_MAP, "users-accounts", BEFORE, AFTER), "Users or groups change"),
        (step("update", CONFIG_MAP, "users-keys", BEFORE, AFTER), "SSH keys of users change"),
        (step("update", CONFIG_MAP, "directory-config", BEFORE, AFTER), "sssd restarts"),
        (step("update", CONFIG_MAP, "login-config", BEFORE, AFTER), "sessions continue."),
        (step("update", SERVICE, "login-service", BEFORE, AFTER), "address or port of the login"),
        (step("update", SECRET, "login-host-key", BEFORE, AFTER), "another host key"),
        (rolled("rest-slurmrestd", DEPLOYMENT), "slurmrestd restarts"),
        (
            step(
                "update",
                CONFIG_MAP,
                "nodeset-a-b-isolation",
                NO_FILES,
                {"data": {"node.conf": "1"}},
            ),
            "The isolation of jobs on nodeset a-b changes",
        ),
        (
            step("update", CONFIG_MAP, "nodeset-cpu-isolation", NO_FILES, checks(disk={})),
            "The health checks of nodeset cpu change",
        ),
        (
            step("update", CONFIG_MAP, "nodeset-cpu-isolation", checks(disk={}), NO_FILES),
            "nodes of nodeset cpu no longer run the stack's health checks",
        ),
        (
            step(
                "update",
                CONFIG_MAP,
                "nodeset-cpu-isolation",
                NO_FILES,
                {"data": {"confinement-required": "yes"}},
            ),
            "nodes of nodeset cpu that cannot confine jobs",
        ),
        (step("create", CONFIG_MAP, "directory-config", None, AFTER), "users of the directory"),
        (step("delete", CONFIG_MAP, "directory-config", BEFORE), "no longer know"),
        (step("create", RELEASE, "cilium-release", None, AFTER), "Cilium becomes"),
        (step("update", RELEASE, "cilium-release", BEFORE, AFTER), "Open connections continue"),
        (step("delete", RELEASE, "cilium-release", BEFORE), "pods have no network"),
        (step("update", SECRET, "secret-oncall", BEFORE, AFTER), "The Secret oncall changes"),
        (step("update", CONFIG_MAP, "config-scripts", BEFORE, AFTER), "Nodes use the new scripts"),
        (
            step("update", CONFIG_MAP, "user-images-config", BEFORE, AFTER),
            "users' container images",
        ),
        (step("delete", POLICY, "network-default", BEFORE), "that they refused become possible"),
        (step("update", POLICY, "network-default", BEFORE, AFTER), "no longer allow fails"),
        (step("update", CONFIG_MAP, "jail-server-config", BEFORE, AFTER), "The jail's NFS server"),
        (step("update", GROUP, "gpu", BEFORE, AFTER), "Machines, networks or disks of the cloud"),
        (populated(populate(), populate(refresh=1)), "The jail's system files change"),
    ],
)
def test_change_that_users_notice_has_a_sentence(change: dict[str, Any], sentence: str) -> None:
    text, *more = notices(preview(change))
    assert sentence in text
    assert not more or more == [REQUEUED]


NODES_LEAVE = [
    resized("nodeset-cpu-slurmd", 5, 2),
    step("replace", STATEFUL_SET, "nodeset-cpu-slurmd", stateful_set(CPU), stateful_set(CPU)),
    step("delete", STATEFUL_SET, "nodeset-cpu-slurmd", stateful_set(CPU)),
]


@pytest.mark.parametrize("change", NODES_LEAVE, ids=lambda change: change["op"])
def test_nodes_that_leave_have_a_sentence_about_lost_jobs(change: dict[str, Any]) -> None:
    assert REQUEUED in notices(preview(change))


@pytest.mark.parametrize(
    "change", [resized("nodeset-cpu-slurmd", 2, 5), rolled("nodeset-cpu-slurmd")]
)
def test_new_and_updated_nodes_lose_no_jobs(change: dict[str, Any]) -> None:
    assert REQUEUED not in notices(preview(change))


def workers(grace: int, replicas: int = 2, conf: str = "CPUs=8", **spec: Any) -> dict[str, Any]:
    """Return the inputs of a nodeset or of login nodes."""
    variables = [{"name": "DRAIN_GRACE", "value": str(grace)}, {"name": "NODE_CONF", "value": conf}]
    inputs = stateful_set(CPU, replicas)
    inputs["spec"]["template"]["spec"]["containers"][0]["env"] = variables
    inputs["spec"]["template"]["spec"] |= spec
    return inputs


@pytest.mark.parametrize(
    ("name", "after", "sentence"),
    [
        (
            "nodeset-cpu-slurmd",
            workers(60, priority=1),
            "A node is replaced when its jobs have ended.",
        ),
        ("nodeset-cpu-slurmd", workers(90, 1), "drain for at most the old drain_grace (60 s)."),
        ("nodeset-cpu-slurmd", workers(60, 1), "drain for at most drain_grace (60 s)."),
        ("login-sshd", workers(90), "waits at most 60 s (the old login.drain_grace)"),
        ("login-sshd", workers(60, priority=1), "waits at most 60 s (login.drain_grace)"),
        ("login-sshd", workers(60, 1), "waits at most 60 s (login.drain_grace)"),
    ],
)
def test_existing_pods_are_replaced_according_to_the_old_drain_grace(
    name: str, after: dict[str, Any], sentence: str
) -> None:
    found = notices(preview(step("update", STATEFUL_SET, name, workers(60), after)))
    assert any(sentence in text for text in found)


@pytest.mark.parametrize(("conf", "conditional"), [("", True), ("CPUs=8", False)])
def test_static_nodes_with_jobs_do_not_leave(conf: str, conditional: bool) -> None:
    before, after = workers(60, 2, conf), workers(60, 1, conf)

    found = notices(preview(step("update", STATEFUL_SET, "nodeset-cpu-slurmd", before, after)))

    sentence = (
        "If the leaving nodes of the static nodeset cpu have jobs, the deploy fails, and no node"
        " leaves."
    )
    assert (sentence in found) == conditional
    assert (REQUEUED in found) != conditional


def test_nodes_on_demand_with_jobs_do_not_leave() -> None:
    """The nodes are static (slurm.conf lists them), so the deploy fails while they have jobs."""
    template = workers(60, conf="")["spec"]["template"]
    removed = step(
        "delete", TEMPLATE, "nodeset-cpu-template", {**on_demand(3), "template": template}
    )

    assert "have jobs, the deploy fails, and no node leaves." in notices(preview(removed))[1]


@pytest.mark.parametrize(
    "after", [workers(60), workers(60, initContainers=[{"name": "guard", "env": []}])]
)
def test_changed_packet_filter_has_a_sentence(after: dict[str, Any]) -> None:
    refused = [{"name": "REFUSED_PORTS", "value": "6443"}]
    before = workers(60, initContainers=[{"name": "guard", "env": refused, "image": "a"}])
    same = workers(60, initContainers=[{"name": "guard", "env": refused, "image": "b"}])

    def texts(new: dict[str, Any]) -> str:
        return str(notices(preview(step("update", STATEFUL_SET, "login-sshd", before, new))))

    assert "The packet filter of users' pods changes (network.guard" in texts(after)
    assert "packet filter" not in texts(same), "another image of the guard changes no rule"


def test_removed_nodeset_changes_no_packet_filter() -> None:
    before = workers(60, initContainers=[{"name": "guard", "env": [{"name": "A", "value": "b"}]}])

    texts = notices(preview(step("delete", STATEFUL_SET, "nodeset-cpu-slurmd", before)))

    assert "packet filter" not in str(texts)


@pytest.mark.parametrize(
    ("roll", "sentence"),
    [
        (
            '{"share": 0.07}',
            "at most 7 % of them (or one node) at the same time. A node is replaced when",
        ),
        ('{"share": 0.2, "in_maintenance": true}', "replaced, only in a maintenance reservation"),
        (
            UNKNOWN_STRING,
            "only a part of them at the same time (setting reconciler.share). A node is replaced",
        ),
    ],
)
def test_update_of_a_nodeset_names_the_share_of_nodes(roll: str, sentence: str) -> None:
    after = {
        **stateful_set({**CPU, "a": "b"}),
        "metadata": {"annotations": {"slurmstack.dev/roll": roll}},
    }

    (text,) = notices(
        preview(step("update", STATEFUL_SET, "nodeset-cpu-slurmd", stateful_set(CPU), after))
    )

    assert sentence in text


def replaced(type_: str, name: str, **data: Any) -> dict[str, Any]:
    return step("replace", type_, name, {"namespace": "a", **data}, {"namespace": "b", **data})


def test_replaced_volume_of_the_controller_loses_the_queue() -> None:
    texts = notices(
        preview(
            replaced(CLAIM, "controller-state"),
            replaced(DEPLOYMENT, "controller-slurmctld"),
        )
    )

    assert texts == [
        "slurmctld's volume is deleted: the queue is lost, and Slurm cancels all running jobs."
    ]


def test_changed_namespace_loses_volumes_but_keeps_keys() -> None:
    texts = notices(
        preview(
            replaced("kubernetes:core/v1:Namespace", "namespace"),
            replaced(CLAIM, "jail-claim"),
            replaced(CLAIM, "backup-volume"),
            replaced(SECRET, "login-host-key", stringData="[secret]"),
            replaced(SECRET, "jwt-secret", stringData="[secret]"),
        )
    )

    assert [text.split(":")[0] for text in texts] == [
        "The namespace is deleted with all pods and volumes in it; a new namespace is empty.",
        "The jail's volume is deleted",
        "backup-volume is deleted or replaced",
    ]


@pytest.mark.parametrize(
    ("name", "sentence"), [("login-host-key", "host key"), ("jwt-secret", "tokens")]
)
def test_new_contents_of_a_key_have_a_sentence(name: str, sentence: str) -> None:
    change = replaced(SECRET, name, stringData="[secret]")
    change["diffReasons"] = ["stringData"]

    (text,) = notices(preview(change))

    assert sentence in text


def test_sentence_does_not_promise_that_jobs_continue_if_nodes_leave() -> None:
    candidate = step("update", CONFIG_MAP, "config-candidate", BEFORE, AFTER)

    together = notices(preview(candidate, resized("nodeset-cpu-slurmd", 5, 2)))

    assert "slurmctld and the nodes read the new configuration of Slurm." in together
    assert not any("running jobs continue" in text for text in together)


def test_removed_partition_with_jobs_fails_the_deploy() -> None:
    before = file("slurm.conf", "PartitionName=main Nodes=cpu\nPartitionName=long Nodes=cpu\n")
    after = file("slurm.conf", "PartitionName=main Nodes=cpu\n")

    texts = notices(preview(step("update", CONFIG_MAP, "config-candidate", before, after)))

    assert texts[1:] == [
        (
            "Partitions are removed: long. If one of them has jobs, the deploy fails before Slurm"
            " changes."
        ),
        (
            "To remove a partition with jobs, set its `state: drain` first; remove it when its jobs"
            " have ended."
        ),
    ]


def test_removed_partition_of_long_checks_gets_no_drain_advice() -> None:
    before = file("slurm.conf", "PartitionName=slurmstack-checks Nodes=cpu\n")

    texts = notices(
        preview(step("update", CONFIG_MAP, "config-candidate", before, file("slurm.conf", "")))
    )

    assert "Partitions are removed: slurmstack-checks." in texts[1]
    assert "drain" not in str(texts)


def test_removed_users_are_named() -> None:
    before = file("passwd", "ada:*:1:1:ada:/home/ada:/bin/sh\nbob:*:2:2:bob:/home/bob:/bin/sh\n")
    after = file("passwd", "ada:*:1:1:ada:/home/ada:/bin/sh\n")

    texts = notices(preview(step("update", CONFIG_MAP, "users-accounts", before, after)))

    assert texts[1:] == [
        (
            "These users are removed, and can no longer log in: bob. Their homes stay. If another"
            " user later gets one of their uids, this user owns their files."
        )
    ]


def passwd(**uids: int) -> dict[str, Any]:
    lines = (f"{name}:*:{uid}:{uid}:{name}:/home/{name}:/bin/sh\n" for name, uid in uids.items())
    return file("passwd", "".join(lines))


def test_sentence_says_that_homes_of_users_keep_the_old_uid() -> None:
    before, after = passwd(ada=1, bob=2, eve=3), passwd(ada=4, bob=2, eve=3, dan=5)

    texts = notices(preview(step("update", CONFIG_MAP, "users-accounts", before, after)))

    assert texts[1:] == [
        (
            "These users get another uid: ada. Their homes, files and running jobs keep the old"
            " uid, so these users cannot read their homes. Set the old uids back; or end the users'"
            " jobs and sessions before the deploy, and change the owner of their files as root"
            " after the deploy (docs/settings.md, `users[].uid`)."
        )
    ]


def test_sentence_says_whose_files_a_reused_uid_owns() -> None:
    before, after = passwd(ada=1, bob=2, eve=3), passwd(ada=3, bob=2, dan=1)

    texts = notices(preview(step("update", CONFIG_MAP, "users-accounts", before, after)))

    assert texts[-1] == (
        "These users get a uid that belonged to another user, and therefore own the other user's"
        " old files:"
        " ada (uid 3, before: uid of eve), dan (uid 1, before: uid of ada). Choose unused uids, or"
        " change the owner of the old files before the deploy."
    )


def wanted(*accounts: str, cancelled: tuple[str, ...] = (), **users: str) -> dict[str, Any]:
    """Return a ConfigMap with accounts, and with each user's account."""
    return file(
        "wanted.json",
        json.dumps(
            {
                "accounts": {name: {} for name in accounts},
                "users": {name: {account: {}} for name, account in users.items()},
                "remove_with_jobs": cancelled,
            }
        ),
    )


def test_removed_account_with_jobs_fails_the_deploy() -> None:
    before = wanted("lab", "old", ada="lab", bob="old", eve="lab")
    after = wanted("lab", ada="lab")

    texts = notices(preview(step("update", CONFIG_MAP, "accounts-wanted", before, after)))

    assert texts[1] == (
        "Slurm removes these entries: account old, user eve account lab. If jobs use one of these"
        " entries, the deploy fails, and accounts, limits and QOS stay as they are."
    )


def test_account_that_is_removed_with_its_jobs_cancels_them() -> None:
    before, after = wanted("lab", "old"), wanted("lab", cancelled=("account old",))

    texts = notices(preview(step("update", CONFIG_MAP, "accounts-wanted", before, after)))

    assert texts == ["Slurm removes these entries, and cancels their jobs: account old."]


def limits(**given: Any) -> dict[str, Any]:
    return file("wanted.json", json.dumps(given))


def test_changed_limits_are_named_with_both_values() -> None:
    before = limits(
        qos={"high": {"maxtresperuser:cpu": "64", "maxwall": "3600"}, "low": {"priority": "1"}},
        accounts={"lab": {"grptres:mem": "1024", "grptresmins:mem": "1"}},
        users={"ada": {"lab": {"maxjobs": "5"}}},
        partitions={"ada": {"lab": {"main": {"maxjobs": "7"}}}},
    )
    after = limits(
        qos={"high": {"maxtresperuser:cpu": "32"}, "low": {"priority": "1"}, "new": {"a": "1"}},
        accounts={"lab": {"grptres:mem": "2048", "grptresmins:mem": "1"}},
        users={"ada": {"lab": {"maxjobs": "6"}}},
        partitions={"ada": {"lab": {"main": {"maxjobs": "8"}}}},
    )

    texts = notices(preview(step("update", CONFIG_MAP, "accounts-wanted", before, after)))

    assert texts[1:] == [
        (
            "These values change in Slurm: account lab grptres:mem from 1024 MiB to 2048 MiB,"
            " qos high maxtresperuser:cpu from 64 to 32, qos high maxwall from 3600 s to none,"
            " user ada account lab maxjobs from 5 to 6,"
            " user ada account lab partition main maxjobs from 7 to 8."
        )
    ]


def test_many_changed_limits_are_not_named() -> None:
    before, after = (
        limits(qos={f"q{index}": {"priority": value} for index in range(6)}) for value in "12"
    )

    texts = notices(preview(step("update", CONFIG_MAP, "accounts-wanted", before, after)))

    assert texts == ["Accounts, limits or QOS change in Slurm; running jobs continue."]


@pytest.mark.parametrize("after", [{"data": UNKNOWN_STRING}, file("passwd", UNKNOWN_STRING)])
def test_users_file_with_unknown_content_reports_no_removed_user(after: dict[str, Any]) -> None:
    before = file("passwd", "ada:*:1:1:ada:/home/ada:/bin/sh\n")

    assert len(notices(preview(step("update", CONFIG_MAP, "users-accounts", before, after)))) == 1


def test_users_do_not_notice_changes_of_monitoring_exporter_and_rest() -> None:
    changes = [
        step("update", CONFIG_MAP, "monitoring-config", BEFORE, AFTER),
        rolled("exporter-agent", DEPLOYMENT),
        resized("rest-slurmrestd", 1, 2),
    ]
    assert notices(preview(*changes)) == [NOTHING]


def test_new_limits_apply_to_open_sessions() -> None:
    change = step("update", CONFIG_MAP, "login-config", {"data": {"limits": "1"}}, {"data": {}})

    assert "The new limits of login nodes also apply to open" in notices(preview(change))[1]


def test_changed_resource_that_no_sentence_describes_is_named() -> None:
    unknown = step("update", CONFIG_MAP, "future-config", BEFORE, AFTER)

    (text,) = notices(preview(unknown))

    assert text == (
        "The preview cannot say what users notice when these resources change: future-config."
        " Read the changes of these resources in this preview."
    )


def test_volume_that_outlives_the_stack_is_not_lost() -> None:
    kept = step("delete", CLAIM, "database-data", BEFORE, retainOnDelete=True)

    assert notices(preview(kept)) == [NOTHING]


def test_first_deploy_changes_nothing_that_users_notice() -> None:
    created = [
        step("create", "kubernetes:core/v1:Namespace", "namespace", None, {}),
        step("create", POLICY, "network-default", None, {}),
        step("create", STATEFUL_SET, "nodeset-cpu-slurmd", None, stateful_set(CPU, 3)),
    ]

    assert notices(preview(*created)) == ["Nodeset cpu is added with 3 nodes."]


CILIUM = (
    "Cilium becomes the network plugin of the Kubernetes cluster; existing pods may have to be"
    " recreated."
)
DRIVERS = "Drivers or device plugins are installed in the whole Kubernetes cluster: gpu-operator."


@pytest.mark.parametrize(
    ("further", "sentences"),
    [
        ([], [CILIUM, DRIVERS]),
        ([step("create", GROUP, "gpu", None, {})], []),
    ],
    ids=["existing", "new"],
)
def test_first_deploy_says_what_changes_for_an_existing_cluster(
    further: list[dict[str, Any]], sentences: list[str]
) -> None:
    created = [
        step("create", "kubernetes:core/v1:Namespace", "namespace", None, {}),
        step("create", POLICY, "network-default", None, {}),
        step("create", STATEFUL_SET, "nodeset-cpu-slurmd", None, stateful_set(CPU, 3)),
        step("create", RELEASE, "cilium-release", None, {}),
        step("create", RELEASE, "equipment-gpu-operator", None, {}),
    ]

    texts = notices(preview(*created, *further))

    assert texts == ["Nodeset cpu is added with 3 nodes.", *sentences]


def test_first_deploy_says_what_it_deletes() -> None:
    texts = notices(
        preview(
            step("create", "kubernetes:core/v1:Namespace", "namespace", None, {}),
            step("delete", CLAIM, "jail-claim", {}),
        )
    )

    assert [text.partition(":")[0] for text in texts] == ["The jail's volume is deleted"]


@pytest.mark.parametrize("name", ["nodeset-cpu-x", "auth-x", "config-x", "users-x", "jwt-x"])
def test_unknown_resource_of_a_known_component_is_named_as_undescribed(name: str) -> None:
    (text,) = notices(preview(step("update", CONFIG_MAP, name, BEFORE, AFTER)))

    assert text.startswith("The preview cannot say")


@pytest.mark.parametrize("values", [*CLOUDS.values(), METAL], ids=[*CLOUDS, "metal"])
def test_every_resource_of_a_cloud_is_described(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]
) -> None:
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps({"metal:ssh_key": "a key"}))

    found = notices(preview(*updates(record(monkeypatch, config(base=values)))))

    assert not [text for text in found if text.startswith("The preview cannot say")]


def updates(graph: Graph) -> list[dict[str, Any]]:
    """Return an update of each resource."""
    return [
        step("update", resource.type, resource.name, BEFORE, AFTER)
        for resource in graph.resources
        if resource.custom and not is_provider(resource.type)
    ]


def test_every_resource_of_the_program_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = updates(record(monkeypatch, config(enable_everything)))

    assert len(changes) > 100
    assert not [
        text for text in notices(preview(*changes)) if text.startswith("The preview cannot say")
    ]


def test_plan_without_changes_has_no_sentence() -> None:
    assert notices(preview()) == []


def test_each_sentence_appears_only_once() -> None:
    both = preview(rolled("database-mariadb"), rolled("accounting-slurmdbd", DEPLOYMENT))
    assert len(notices(both)) == 1


def test_removal_of_a_used_authentication_key_has_a_sentence() -> None:
    past, later = int(time.time()) - 3600, int(time.time()) + 3600
    changes = [removed_key(later), key_secret(past, later)]

    assert notices(preview(*changes)) == [NOTHING]
    (text,) = notices(preview(*changes, removed_key(past)))
    assert text == (
        "A key of auth.rotations that is in use is removed: pods return to an older key at"
        " different moments, and Slurm's commands fail for minutes."
    )


@pytest.mark.parametrize(("ahead", "soon"), [(-60, True), (60, True), (600, False)])
def test_key_rotation_that_is_too_soon_has_a_sentence(ahead: int, soon: bool) -> None:
    key = f"auth-password-{int(time.time()) + ahead}"

    found = notices(
        preview(step("create", "random:index/randomPassword:RandomPassword", key, None, {}))
    )

    assert any("less than three minutes in the future" in text for text in found) == soon
    assert any("All pods switch" in text for text in found) != soon


def test_sentence_contains_the_time_of_a_key_rotation() -> None:
    created = step("create", PASSWORD, "auth-password-4102444800", None, {})

    assert notices(preview(created)) == [
        (
            "All pods switch to a new authentication key at 2100-01-01T00:00:00Z; jobs and users'"
            " commands continue without interruption."
        )
    ]


@pytest.mark.parametrize(
    ("after", "sentences"),
    [
        (
            populate(refresh=1, image="lab/jail:2"),
            [
                (
                    "The jail's system files change (jail.refresh: 0 to 1); running programs keep"
                    " the old files, and users' files stay."
                )
            ],
        ),
        (
            populate(image="lab/jail:2"),
            [
                (
                    "The jail keeps its system files; to get the files of the new image, raise"
                    " jail.refresh by one."
                )
            ],
        ),
        (populate(image="mirror/lab/jail:1"), [NOTHING]),
        (populate(image=UNKNOWN_STRING), [NOTHING]),
        (
            populate(submounts="/data /home"),
            ["The jail gets mount points: /data, /home. New pods mount volumes there."],
        ),
    ],
)
def test_sentence_says_what_changes_in_the_jail(
    after: dict[str, Any], sentences: list[str]
) -> None:
    assert notices(preview(populated(populate(), after))) == sentences


def test_sentence_names_mount_points_that_pods_no_longer_use() -> None:
    assert notices(preview(populated(populate(submounts="/data"), populate()))) == [
        (
            "New pods no longer mount volumes at these paths in the jail: /data. The files on the"
            " volumes stay."
        )
    ]


def isolation(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return notices(preview(step("update", CONFIG_MAP, "nodeset-cpu-isolation", before, after)))


def test_new_generation_of_the_jail_does_not_change_the_checks() -> None:
    before, after = (checks(jail={"generation": number}, disk={}) for number in (0, 1))

    assert isolation(before, after) == [NOTHING]


@pytest.mark.parametrize("after", [NO_FILES, checks()])
def test_sentence_reports_that_health_checks_are_disabled(after: dict[str, Any]) -> None:
    assert isolation(checks(jail={"generation": 0}), after) == [
        (
            "Within about a minute, nodes of nodeset cpu no longer run the stack's health checks; a"
            " broken node may get jobs."
        )
    ]


@pytest.mark.parametrize("after", [{"data": UNKNOWN_STRING}, file("checks.json", UNKNOWN_STRING)])
def test_sentence_does_not_report_unknown_health_checks_as_disabled(after: dict[str, Any]) -> None:
    assert "The health checks" in isolation(checks(disk={}), after)[0]


STEPS = "Each node of nodeset cpu runs at most 128 steps of one job (before: 64) at the same time."
ISOLATED = (
    "The isolation of jobs on nodeset cpu changes for jobs that start at least a minute after"
    " the deploy; running jobs keep the old isolation."
)


@pytest.mark.parametrize(
    ("after", "sentences"),
    [
        ("overlay=no\nsteps=128\nnode_steps=64\n", [STEPS]),
        (
            "overlay=no\nsteps=128\nnode_steps=256\n",
            [STEPS.replace("4) at", "4), 256 steps of all jobs (before: 64) at")],
        ),
        ("overlay=yes\nsteps=64\nnode_steps=64\n", [ISOLATED]),
        ("overlay=yes\nsteps=128\nnode_steps=64\n", [ISOLATED, STEPS]),
        ("overlay=no\n", [NOTHING]),
    ],
)
def test_changed_limits_of_steps_do_not_change_the_isolation(
    after: str, sentences: list[str]
) -> None:
    before = "overlay=no\nsteps=64\nnode_steps=64\n"

    assert isolation(file("node.conf", before), file("node.conf", after)) == sentences


LESS = "Network policies change: a connection that they no longer allow fails."
MORE = "Network policies allow additional connections."


def policy(*ports: int, refused: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    world = {"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": list(refused)}}]}
    reached = [{"ports": [{"protocol": "TCP", "port": port} for port in ports]}] if ports else []
    return {"spec": {"egress": [world, *reached], **more}}


def cilium(*ports: int, refused: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    to_ports = [{"ports": [{"protocol": "TCP", "port": str(port)} for port in ports]}]
    world = {"toCIDRSet": [{"cidr": "0.0.0.0/0", "except": list(refused)}]}
    reached = [{"toEntities": ["all"], "toPorts": to_ports}] if ports else []
    return {"spec": {"egress": [world, *reached], **more}}


@pytest.mark.parametrize("rules", [policy, cilium])
def test_changed_policy_says_which_connections_it_affects(
    rules: Callable[..., dict[str, Any]],
) -> None:
    def texts(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
        return notices(preview(step("update", POLICY, "network-worker", before, after)))

    refused = rules(refused=("10.0.0.0/16", "10.2.0.0/16"))
    assert texts(rules(refused=("10.2.0.0/16",)), refused) == [
        "Users' programs can no longer reach: 10.0.0.0/16."
    ]
    assert texts(refused, rules(refused=("10.2.0.0/16",))) == [
        "Network policies no longer prevent users' programs from reaching: 10.0.0.0/16."
    ]
    assert texts(rules(443), rules(443, 636)) == [MORE]
    assert texts(rules(443), rules(443, 443)) == [NOTHING]
    assert texts(rules(443, 636), rules(443)) == [LESS]
    assert texts(rules(443), rules(636)) == [LESS, MORE]
    assert texts(rules(443), {"spec": UNKNOWN_STRING}) == [LESS]


def test_new_deny_rule_is_reported_as_fewer_allowed_connections() -> None:
    before, after = cilium(443), cilium(443, egressDeny=[{"toEntities": ["world"]}])

    for old, new, sentence in ((before, after, LESS), (after, before, MORE)):
        change = step("update", POLICY, "network-cilium-worker", old, new)
        assert notices(preview(change)) == [sentence]


def test_first_network_policies_are_reported_as_refusing_connections() -> None:
    created, more = (
        step("create", POLICY, name, None, policy(443))
        for name in ("network-default", "network-snapshots")
    )

    assert notices(preview(created, more)) == [
        "Network policies are added: connections that they do not allow fail."
    ]
    assert notices(preview(more)) == [NOTHING], (
        "a policy for a new component affects no existing connection"
    )


def test_change_to_another_kind_of_policy_reports_no_removal() -> None:
    deleted = step("delete", POLICY, "network-default", policy())
    created = step("create", POLICY, "network-cilium-default", None, cilium())

    assert notices(preview(deleted, created)) == [
        "Network policies are added: connections that they do not allow fail."
    ]


def test_refused_preview_does_not_say_that_users_notice_nothing() -> None:
    shrunk = step("update", CLAIM, "jail-claim", claim("2Ti"), claim("1Ti"))

    assert notices(preview(shrunk)) == []
