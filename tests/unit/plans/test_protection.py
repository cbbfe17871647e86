"""Plans must not delete or replace protected resources or data. Other changes are allowed."""

from datetime import UTC, datetime
from typing import Any

import pytest

from components.conventions import LABEL_COMPONENT, LABEL_NODESET, LOGIN
from engine.urns import name_of
from plans.protection import refusals
from policy.holding import HOLDS_DATA
from tests.support.clouds import CLOUDS
from tests.support.documents import (
    CLAIM,
    CONFIG_MAP,
    STATEFUL_SET,
    claim,
    key_secret,
    preview,
    removed_key,
    stateful_set,
    step,
)
from tests.support.graph import record
from tests.support.previews import recorded
from tests.support.stack import VALID, config, enable_everything

MOUNTS: dict[str, Any] = {
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "jail"}}]
}
DATABASE = stateful_set({LABEL_COMPONENT: "database"}, **MOUNTS)
WORKERS = stateful_set({LABEL_NODESET: "cpu"}, **MOUNTS)
LOGINS = stateful_set({LABEL_COMPONENT: LOGIN}, **MOUNTS)
OWN_CLAIMS = stateful_set({LABEL_NODESET: "cpu"}, volumeClaimTemplates=[{}])

HELD: list[tuple[str, str, dict[str, Any], str]] = [
    ("any resource", "kubernetes:core/v1:ConfigMap", {"protect": True}, "is protected"),
    ("a claim", CLAIM, {}, "holds data"),
    ("a volume", "kubernetes:core/v1:PersistentVolume", {}, "refers to data"),
    (
        "the namespace",
        "kubernetes:core/v1:Namespace",
        {},
        "contains volumes, which are deleted with it",
    ),
    ("a cloud file system", "aws:fsx/lustreFileSystem:LustreFileSystem", {}, "holds data"),
    ("a database", STATEFUL_SET, {"inputs": DATABASE}, "has its own data"),
    ("a set with volumeClaimTemplates", STATEFUL_SET, {"inputs": OWN_CLAIMS}, "has its own data"),
]


@pytest.mark.parametrize("op", ["delete", "replace"])
@pytest.mark.parametrize(("case", "type_", "old", "why"), HELD, ids=[held[0] for held in HELD])
def test_protected_or_data_resource_is_neither_deleted_nor_replaced(
    op: str, case: str, type_: str, old: dict[str, Any], why: str
) -> None:
    new: dict[str, Any] | None = {} if op == "replace" else None

    (line,) = refusals(preview(step(op, type_, "one", {}, new, **old)))

    assert line.startswith(f"{type_} one: would be {op}d, but {why}; ")
    assert "\n" not in line


def test_refusal_says_what_a_deploy_would_do() -> None:
    def refusal(**old: Any) -> str:
        (line,) = refusals(preview(step("replace", CLAIM, "jail-claim", {}, {}, **old)))
        return line

    assert "`make up` would refuse this change" in refusal(protect=True)
    assert "three times by hand: first with slurmstack:protect_data: false as" in refusal(
        protect=True
    )
    assert "jail-claim (users' homes and files): would be replaced, but" in refusal(protect=True)
    assert (
        "`make up` would carry out this change, because protect_data does not protect this"
        in refusal()
    )
    assert "revert the edit, or take a backup and deploy the edit by hand" in refusal()
    assert "holds data (settings whose edit can cause this: jail.storage_class);" in refusal()


@pytest.mark.parametrize(
    ("before", "after", "refusal"),
    [
        (
            "ClusterName=lab\nAuthType=auth/munge\n",
            "ClusterName=lab2\nAuthType=auth/munge\n",
            (
                "cluster_name: lab2: this setting cannot change after the first deploy, because the"
                " queue and the accounting records use the old name; set it back to lab"
            ),
        ),
        (
            "ClusterName=lab\nAuthType=auth/munge\n",
            "ClusterName=lab\nAuthType=auth/slurm\n",
            (
                "auth.type: slurm: this setting cannot change after the first deploy, because the"
                " running daemons use the old type; set it back to munge"
            ),
        ),
    ],
)
def test_parameter_that_slurmctld_cannot_change_is_refused(
    before: str, after: str, refusal: str
) -> None:
    old, new = ({"data": {"slurm.conf": text}} for text in (before, after))

    assert refusals(preview(step("update", CONFIG_MAP, "config-candidate", old, new))) == [refusal]
    assert refusals(preview(step("update", CONFIG_MAP, "config-candidate", old, old))) == []


def test_smaller_volume_is_refused() -> None:
    larger = step("update", CLAIM, "jail-claim", claim("5Gi"), claim("10Gi"))
    smaller = step("update", CLAIM, "jail-claim", claim("10Gi"), claim("5Gi"))
    assert refusals(preview(smaller)) == [
        "jail.size: 5GiB: a volume cannot shrink; set the size back to 10GiB"
    ]
    assert refusals(preview(larger)) == []


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("2097152Mi", "1048576Mi", ("1TiB", "2TiB")),
        ("1536Gi", "512Mi", ("512MiB", "1536GiB")),
        ("2000", "1k", ("1k", "2000")),
    ],
)
def test_size_of_a_smaller_volume_has_the_units_of_settings(
    before: str, after: str, shown: tuple[str, str]
) -> None:
    (line,) = refusals(preview(step("update", CLAIM, "other", claim(before), claim(after))))

    assert line == f"other: {shown[0]}: a volume cannot shrink; set the size back to {shown[1]}"


def test_refusal_of_a_smaller_volume_names_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    def claims(size: str, **jail: Any) -> dict[str, dict[str, Any]]:
        def resize(values: dict[str, Any]) -> None:
            values["jail"] = {"size": size, **jail}
            values["controller"] = {"state_size": size}
            values["accounting"] = {
                "database": {"size": size},
                "archive": {"size": size},
                "purge": {"jobs": "24months"},
                "backup": {"size": size},
            }
            values["monitoring"] = {"bundled": {"size": size}}
            values["long_checks"] = {"size": size, "checks": [{"name": "cpu-memory"}]}

        graph = record(monkeypatch, config(resize))
        return {found.name: dict(found.inputs) for found in graph.of_type(CLAIM)}

    found = set()
    servers: list[dict[str, Any]] = [{}, {"server": {"machines": ["10.0.0.0/16"]}}]
    for jail in servers:
        large, small = claims("200GiB", **jail), claims("100GiB", **jail)
        changed = (step("update", CLAIM, name, large[name], small[name]) for name in large)
        found |= set(refusals(preview(*changed)))

    keys = (
        "accounting.archive.size",
        "accounting.backup.size",
        "accounting.database.size",
        "controller.state_size",
        "jail.size",
        "long_checks.size",
        "monitoring.bundled.size",
    )
    assert sorted(found) == [
        f"{key}: 100GiB: a volume cannot shrink; set the size back to 200GiB" for key in keys
    ]


def test_state_says_which_keys_are_in_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    rotated = {**VALID, "auth": {"rotations": ["2025-12-01T03:00:00Z"]}}
    graph = record(monkeypatch, config(base=rotated))

    sources = graph.one("auth-secret").property_dependencies["stringData"]
    assert {name_of(urn) for urn in sources} == {"auth-password", "auth-password-1764558000"}


NOW = 1_800_000_000


@pytest.mark.parametrize(
    ("keys", "removed", "refused"),
    [
        ((-3600,), (-3600,), (-3600,)),
        ((-7200, -3600), (-7200,), ()),
        ((-7200, -3600), (-7200, -3600), (-3600,)),
        # Pods still accept the previous key for five minutes.
        ((-7200, -60), (-7200,), (-7200,)),
        # A change of the Secret needs minutes to arrive in all pods.
        ((-7200, 60), (60,), (60,)),
        ((-7200, 3600), (3600,), ()),
    ],
)
def test_removed_key_in_use_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    keys: tuple[int, ...],
    removed: tuple[int, ...],
    refused: tuple[int, ...],
) -> None:
    monkeypatch.setattr("time.time", lambda: NOW)
    deleted = (removed_key(NOW + ahead) for ahead in removed)
    changes = preview(key_secret(*(NOW + ahead for ahead in keys)), *deleted)

    times = [datetime.fromtimestamp(NOW + ahead, UTC).isoformat() for ahead in refused]
    assert refusals(changes) == [
        f"auth.rotations: {time.replace('+00:00', 'Z')}: pods still use the key of this time;"
        " add the time to the list again. To remove it later, wait until five minutes after the"
        " next time in the list"
        for time in times
    ]


@pytest.mark.parametrize(
    ("type_", "name", "size"),
    [
        (
            "nebius:index/computeV1Filesystem:ComputeV1Filesystem",
            "nebius-files",
            "sizeGibibytes",
        ),
        ("aws:fsx/lustreFileSystem:LustreFileSystem", "eks-lustre", "storageCapacity"),
    ],
)
def test_smaller_file_system_of_a_cloud_is_refused(type_: str, name: str, size: str) -> None:
    old, new = {size: 51200}, {size: 10000.0}

    assert refusals(preview(step("update", type_, name, old, new))) == [
        "jail.size: 10000GiB: a volume cannot shrink; set the size back to 50TiB"
    ]
    assert refusals(preview(step("update", type_, name, new, old))) == []


@pytest.mark.parametrize(
    "values", [config(enable_everything), *(config(base=base) for base in CLOUDS.values())]
)
def test_refusal_says_what_each_volume_of_the_stack_holds(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, str]
) -> None:
    unnamed = {"kubernetes:core/v1:Namespace", "kubernetes:core/v1:PersistentVolume"}
    volumes = [
        step("delete", resource.type, resource.name, {})
        for resource in record(monkeypatch, values).resources
        if resource.type in HOLDS_DATA.keys() - unnamed
    ]

    lines = refusals(preview(*volumes))

    assert len(lines) == len(volumes) > 0
    assert not [line for line in lines if " (" not in line.partition(": would be deleted")[0]]


FREE: list[tuple[str, str, str, dict[str, Any]]] = [
    ("an update of a claim", "update", CLAIM, {"protect": True}),
    ("workers", "delete", STATEFUL_SET, {"inputs": WORKERS}),
    ("login nodes", "replace", STATEFUL_SET, {"inputs": LOGINS}),
    ("a Deployment", "replace", "kubernetes:apps/v1:Deployment", {}),
    ("a retained claim", "delete", CLAIM, {"retainOnDelete": True}),
]


@pytest.mark.parametrize(("case", "op", "type_", "old"), FREE, ids=[free[0] for free in FREE])
def test_change_that_loses_no_data_is_allowed(
    case: str, op: str, type_: str, old: dict[str, Any]
) -> None:
    new: dict[str, Any] | None = None if op == "delete" else {}

    assert not refusals(preview(step(op, type_, "one", {}, new, **old)))


def test_new_resources_are_never_refused() -> None:
    assert not refusals(preview(step("create", CLAIM, "one", new={})))


def test_each_refusal_is_one_line() -> None:
    assert [line.partition(":")[0] for line in refusals(recorded("protected"))] == ["random"] * 2
    assert len(refusals(recorded("kubernetes"))) == 2
