"""Tests of the exporter's pod: its rights, environment, mounts and probes."""

from typing import Any

import pytest

from agents.exporter.__main__ import INTERVAL, JOBS, PORT, TOP
from agents.exporter.server import ALIVE, READY
from components import conventions as c
from components.settings import Exporter
from tests.support.graph import CLUSTER_IP, Graph, container, environment, pod, record
from tests.support.stack import config

Spec = dict[str, Any]
POD = "exporter-agent"


def graph(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> Graph:
    return record(monkeypatch, config(lambda values: values.update(fields)))


@pytest.fixture(scope="module")
def default() -> Graph:
    with pytest.MonkeyPatch.context() as monkeypatch:
        return graph(monkeypatch)


def test_exporter_is_one_pod_without_root_or_kubernetes_rights(default: Graph) -> None:
    deployment = default.one(POD).inputs["spec"]
    context = container(default, POD)["securityContext"]

    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    assert context["runAsNonRoot"]
    assert context["runAsUser"] == c.EXPORTER_ID
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert not context["allowPrivilegeEscalation"]
    assert pod(default, POD)["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod(default, POD)


@pytest.mark.parametrize("type_", ["munge", "slurm"])
def test_only_the_sidecar_mounts_the_authentication_key(
    monkeypatch: pytest.MonkeyPatch, type_: str
) -> None:
    found = graph(monkeypatch, auth={"type": type_})
    mounts = {mount["name"] for mount in container(found, POD)["volumeMounts"]}
    (sidecar,) = pod(found, POD)["initContainers"]

    assert sidecar["restartPolicy"] == "Always"
    assert "auth-secret" in {mount["name"] for mount in sidecar["volumeMounts"]}
    assert not mounts & {"auth-secret", "auth-keys", "jwt"}
    assert not [volume for volume in pod(found, POD)["volumes"] if volume["name"] == "jwt"]


@pytest.mark.parametrize("type_", ["munge", "slurm"])
def test_exporter_mounts_slurm_conf_instead_of_fetching_it(
    monkeypatch: pytest.MonkeyPatch, type_: str
) -> None:
    found = graph(monkeypatch, auth={"type": type_})
    paths = {mount["mountPath"] for mount in container(found, POD)["volumeMounts"]}

    assert c.SLURM_ETC in paths
    assert "SLURM_CONF_SERVER" not in str(pod(found, POD))
    (slurmctld,) = pod(found, POD)["hostAliases"]
    assert slurmctld == {"ip": CLUSTER_IP, "hostnames": ["controller.slurm.svc.cluster.local"]}


@pytest.mark.parametrize(
    ("hidden", "user"),
    [
        (["jobs"], c.SLURM_ID),
        (["nodes", "usage"], c.SLURM_ID),
        (["accounts", "users", "usage", "events"], c.EXPORTER_ID),
    ],
)
def test_exporter_runs_as_slurmuser_only_if_privatedata_requires_it(
    monkeypatch: pytest.MonkeyPatch, hidden: list[str], user: int
) -> None:
    found = graph(monkeypatch, slurm={"private_data": hidden})

    assert container(found, POD)["securityContext"]["runAsUser"] == user


def test_settings_set_the_environment_of_the_exporter(
    monkeypatch: pytest.MonkeyPatch, default: Graph
) -> None:
    assert environment(default, POD) == {
        "INTERVAL": f"{INTERVAL:g}",
        "TOP": str(TOP),
        "JOBS": str(JOBS),
        "JAIL": c.JAIL,
        "PORT": str(PORT),
    }, "the settings and the agent have the same defaults"
    found = graph(monkeypatch, monitoring={"exporter": {"interval": 10, "top": 3, "jobs": 0}})
    assert environment(found, POD) == environment(default, POD) | {
        "INTERVAL": "10",
        "TOP": "3",
        "JOBS": "0",
    }


def jail_mounts(found: Graph) -> tuple[dict[str, Spec], dict[str, Spec]]:
    """Return the mounts and volumes of the jail and of its submounts, by name."""
    mounts = {one["name"]: one for one in container(found, POD)["volumeMounts"]}
    volumes = {one["name"]: one for one in pod(found, POD)["volumes"]}
    names = {name for name in mounts | volumes if "jail" in name}
    return {name: mounts[name] for name in names}, {name: volumes[name] for name in names}


def test_exporter_mounts_the_jail_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    found = graph(monkeypatch, jail={"claim": "of-the-lab"})
    mounts, volumes = jail_mounts(found)

    path = environment(found, POD)["JAIL"]
    assert mounts == {"jail": {"name": "jail", "mountPath": path, "readOnly": True}}
    assert volumes["jail"]["persistentVolumeClaim"] == {"claimName": "of-the-lab", "readOnly": True}


def test_exporter_mounts_only_shared_writable_volumes_of_the_jail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nfs = {"server": "nfs.example.org", "path": "/scratch"}
    submounts = [
        {"name": "homes", "path": "/home", "claim": "homes"},
        {"name": "scratch", "path": "/scratch", "nfs": nfs},
        {"name": "data", "path": "/data", "claim": "data", "read_only": True},
        {"name": "room", "path": "/room", "empty": {}},
        {"name": "local", "path": "/local", "host_path": "/srv/local"},
        {"name": "motd", "path": "/motd", "config_map": "motd"},
    ]
    found = graph(monkeypatch, jail={"volumes": submounts})
    mounts, volumes = jail_mounts(found)
    watched = {"jail-homes", "jail-scratch"}

    assert mounts.keys() == volumes.keys() == watched | {"jail"}
    assert all(mount["readOnly"] for mount in mounts.values())
    assert volumes["jail-homes"]["persistentVolumeClaim"] == {
        "claimName": "homes",
        "readOnly": True,
    }
    assert volumes["jail-scratch"]["nfs"] == nfs
    watched_paths = environment(found, POD)["VOLUMES"].split()
    assert watched_paths == [mounts[name]["mountPath"] for name in ("jail-homes", "jail-scratch")]
    assert [path.rpartition("/")[2] for path in watched_paths] == ["homes", "scratch"]
    assert not [path for path in watched_paths if path.startswith(c.JAIL)], (
        "access to a mount inside the jail may hang"
    )


def test_probes_request_the_health_paths_of_the_server(default: Graph) -> None:
    probes = {name: container(default, POD)[f"{name}Probe"] for name in ("readiness", "liveness")}

    assert {name: probe["httpGet"]["path"] for name, probe in probes.items()} == {
        "readiness": READY,
        "liveness": ALIVE,
    }
    assert {probe["httpGet"]["port"] for probe in probes.values()} == {c.EXPORTER_PORT}


def test_settings_may_disable_the_exporter(monkeypatch: pytest.MonkeyPatch) -> None:
    found = graph(monkeypatch, monitoring={"kind": "none", "exporter": {"enabled": False}})

    assert not [one for one in found.resources if one.name.startswith("exporter")]


def test_exporter_and_settings_have_the_same_defaults() -> None:
    settings = Exporter()
    assert (settings.interval, settings.top, settings.jobs) == (INTERVAL, TOP, JOBS)
    assert c.EXPORTER_PORT == PORT
