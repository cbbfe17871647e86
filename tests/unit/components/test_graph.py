"""Tests of the resources that the program registers with Pulumi: their parents, providers,
protection, secrets and order."""

import json
import shlex
from typing import Any

import pulumi
import pytest

from agents.reconciler import observed
from components import conventions as c
from tests.support.graph import CLUSTER_IP, SECRET_SIGNATURE, Graph, before, record, templates
from tests.support.stack import config

COMPONENT = "slurmstack:"
WORKLOADS = ("kubernetes:apps/v1:Deployment", "kubernetes:apps/v1:StatefulSet")


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> Graph:
    return record(monkeypatch)


def pod_specs(graph: Graph) -> dict[str, dict[str, Any]]:
    return {name: template["spec"] for name, template in templates(graph).items()}


def containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [*spec.get("initContainers", ()), *spec["containers"]]


def test_every_component_registers_its_outputs(graph: Graph) -> None:
    components = {r.name for r in graph.resources if r.type.startswith(COMPONENT)}
    registered = {urn.rsplit("::", 1)[1] for urn in graph.outputs_registered}

    assert components <= registered
    assert {"auth", "users", "jail", "controller", "nodeset-cpu", "login"} <= components


def test_only_the_provider_and_slurm_have_no_parent_component(graph: Graph) -> None:
    at_the_top = {
        resource.type
        for resource in graph.resources
        if "slurmstack:" not in resource.parent.removeprefix("urn:pulumi:test::slurmstack::")
    }

    assert at_the_top <= {
        "pulumi:pulumi:Stack",
        "pulumi:providers:kubernetes",
        "slurmstack:slurm:Slurm",
    }


def test_every_kubernetes_object_uses_the_same_explicit_provider(graph: Graph) -> None:
    providers = {
        resource.provider.split("::")[-2]
        for resource in graph.resources
        if resource.type.startswith("kubernetes:")
    }

    assert len(graph.of_type("pulumi:providers:kubernetes")) == 1
    assert providers == {"kubernetes"}


def test_munge_key_and_ssh_host_keys_are_always_secret(graph: Graph) -> None:
    key = json.dumps(graph.one("auth-secret").inputs["stringData"])
    host_key = json.dumps(graph.one("login-host-key").inputs["stringData"])
    node_key = json.dumps(graph.one("node-ssh-secret").inputs["stringData"])

    assert SECRET_SIGNATURE in key
    assert SECRET_SIGNATURE in host_key
    assert SECRET_SIGNATURE in node_key
    for resource in graph.of_type("kubernetes:core/v1:ConfigMap"):
        assert SECRET_SIGNATURE not in json.dumps(resource.inputs), resource.name
        assert "PRIVATE KEY" not in json.dumps(resource.inputs), resource.name


def test_rotation_adds_a_munge_key_and_keeps_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def rotate(values: dict[str, Any]) -> None:
        values["auth"] = {"rotations": ["2026-12-01T03:00:00Z"]}

    before, after = record(monkeypatch), record(monkeypatch, config(rotate))

    changed = [r.name for r in after.resources if r not in before.resources]
    assert sorted(changed) == ["auth-password-1796094000", "auth-secret"], "no pod restarts"
    names = {r.name for r in after.resources}
    assert {r.name for r in before.resources} <= names, "the key in use must stay"


def test_secret_files_are_readable_only_by_root_and_the_group(graph: Graph) -> None:
    """The test leaves out the SSH host key of nodes, which need not be secret
    (images/base/node_sshd_config)."""
    secrets = [
        (name, volume["secret"])
        for name, spec in pod_specs(graph).items()
        for volume in spec.get("volumes", ())
        if "secret" in volume and volume["secret"]["secretName"] != c.NODE_SSH_SECRET
    ]

    assert len(secrets) > 10
    for name, secret in secrets:
        assert not int(secret["defaultMode"]) & 0o037, (name, secret["secretName"])


def test_resource_ids_contain_no_secret(graph: Graph) -> None:
    assert graph.of_type("random:index/randomBytes:RandomBytes") == []
    assert len(graph.of_type("random:index/randomPassword:RandomPassword")) == 5


ASK_KUBERNETES = ("reconciler-agent", "reconciler-after-deploy", "monitoring-server")


def test_every_container_is_unprivileged_and_drops_all_capabilities(graph: Graph) -> None:
    for name, spec in pod_specs(graph).items():
        asks_kubernetes = name in ASK_KUBERNETES
        assert spec["automountServiceAccountToken"] is asks_kubernetes, name
        assert asks_kubernetes == ("serviceAccountName" in spec), name
        for container in containers(spec):
            context = container["securityContext"]
            assert context["privileged"] is False, (name, container["name"])
            assert context["capabilities"]["drop"] == ["ALL"], (name, container["name"])
            assert "securityContext" in container


def test_exactly_the_listed_containers_never_run_as_root(graph: Graph) -> None:
    rootless = {
        container["name"]
        for spec in pod_specs(graph).values()
        for container in containers(spec)
        if container["securityContext"]["runAsNonRoot"]
    }

    slurm = {
        "slurmctld",
        "slurmdbd",
        "reload",
        "check",
        c.CONFIG_IN_FORCE,
        "sackd",
        "join",
        "slurmrestd",
    }
    watch = {"prometheus", "alertmanager", "node-exporter", "exporter"}
    others = {"accounts", "reconciler", "guard", "mariadb", "backup", *watch}
    assert rootless == {"munge", *slurm, *others}


def test_kubelet_restarts_a_hung_munged_but_not_the_pod(graph: Graph) -> None:
    """If the kubelet restarted the whole pod, its jobs would have to end first, which may take
    hours. The name of the container is fixed, because the reconciler looks for it."""
    found = {
        name: [one for one in spec.get("initContainers", ()) if one["name"] == observed.MUNGE]
        for name, spec in pod_specs(graph).items()
    }
    assert {"controller-slurmctld", "login-sshd", "nodeset-cpu-slurmd"} <= found.keys()
    assert len(found["nodeset-cpu-slurmd"]) == 1
    for name, (munged,) in ((name, ones) for name, ones in found.items() if ones):
        assert munged["command"][0].endswith("/munged"), name
        assert "readinessProbe" not in munged, "a hung munged must not make its pod unready"
        probe = munged["livenessProbe"]
        shell, option, script = probe["exec"]["command"]
        assert (shell, option) == ("sh", "-c")
        programs = [shlex.split(part) for part in script.split("|")]
        assert [words[0] for words in programs] == ["munge", "unmunge"]
        assert all(f"--socket={c.MUNGE_SOCKET}" in words for words in programs)
        assert (probe["periodSeconds"], probe["timeoutSeconds"]) == (30, 10)
        assert probe["failureThreshold"] == 3
        for one in (probe, munged["startupProbe"]):
            assert one["terminationGracePeriodSeconds"] == 5, name


@pytest.mark.parametrize("maker", ["accounting-slurmdbd", "database-mariadb"])
def test_probes_give_accounting_a_month_to_start(graph: Graph, maker: str) -> None:
    """A restart would interrupt a repair or an upgrade of the database's tables, which would then
    begin again."""
    (one,) = pod_specs(graph)[maker]["containers"]
    startup, readiness = one["startupProbe"], one["readinessProbe"]

    assert startup["failureThreshold"] * startup["periodSeconds"] > 30 * 24 * 3600
    assert startup["exec"] == readiness["exec"]
    assert startup["periodSeconds"] < readiness["periodSeconds"], "each probe starts processes"
    assert "livenessProbe" not in one


def test_startup_probe_of_a_standby_controller_starts_no_process(graph: Graph) -> None:
    containers = pod_specs(graph)["controller-slurmctld"]["containers"]
    (slurmctld,) = (one for one in containers if one["name"] == "slurmctld")

    assert slurmctld["startupProbe"]["tcpSocket"] == {"port": c.SLURMCTLD_PORT}
    assert slurmctld["readinessProbe"]["exec"]["command"][0] == "scontrol"
    assert slurmctld["livenessProbe"]["exec"]["command"][0] == "sinfo"


@pytest.mark.parametrize(
    ("fields", "protect"),
    [({}, True), ({"protect_data": True}, True), ({"protect_data": False}, False)],
)
def test_data_is_protected_by_default(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, bool], protect: bool
) -> None:
    graph = record(monkeypatch, config(lambda values: values.update(fields)))

    claims = graph.of_type("kubernetes:core/v1:PersistentVolumeClaim")
    expected = {"backup-volume", "controller-state", "database-data", "jail-claim"}
    expected |= {"monitoring-data"}
    assert {claim.name for claim in claims} == expected
    for resource in (*claims, graph.one("namespace")):
        assert resource.protect == protect, resource.name


@pytest.mark.parametrize("name", ["nodeset-cpu-slurmd", "login-sshd"])
def test_workers_and_login_start_after_controller_and_filled_jail(graph: Graph, name: str) -> None:
    needed = {"controller-slurmctld", "controller-service", "jail-populate", "jail-homes"}
    assert needed <= before(graph, name), "nodes that shut down still need the controller's Service"


def test_slurmctld_starts_after_slurmdbd_and_slurmdbd_after_the_database(graph: Graph) -> None:
    database = {"database-mariadb", "database-service", "database-secret"}
    slurmdbd = {"accounting-slurmdbd", "accounting-service"}
    assert database <= before(graph, "accounting-slurmdbd")
    assert database | slurmdbd <= before(graph, "controller-slurmctld")


@pytest.mark.parametrize("name", ["accounting-slurmdbd", "controller-slurmctld"])
def test_slurmctld_and_slurmdbd_never_run_twice_at_once(graph: Graph, name: str) -> None:
    spec = graph.one(name).inputs["spec"]

    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_accounts_are_created_after_slurmctld_and_delay_no_pod(
    graph: Graph,
) -> None:
    assert {"controller-service", "accounting-service"} <= before(graph, "accounts-apply")
    for name in pod_specs(graph):
        assert "accounts-apply" not in before(graph, name), name


def test_accounts_job_fails_at_its_first_refused_change(graph: Graph) -> None:
    job = graph.one("accounts-apply").inputs["spec"]

    (rule,) = job["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"
    assert rule["onExitCodes"]["values"] == [3]
    (container,) = job["template"]["spec"]["containers"]
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_database_password_is_only_in_its_secret(graph: Graph) -> None:
    for name, spec in pod_specs(graph).items():
        secrets = {v["secret"]["secretName"] for v in spec.get("volumes", ()) if "secret" in v}
        knows = name in ("accounting-slurmdbd", "backup-dump", "database-mariadb")
        assert ("database-password" in secrets) == knows, name
    assert "StoragePass" not in graph.one("accounting-config").inputs["data"]["slurmdbd.conf"]


def test_disabled_accounting_creates_no_accounting_resources(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    off = config(lambda values: values.update(accounting={"enabled": False}))

    without = record(monkeypatch, off)

    names = {resource.name for resource in without.resources}
    prefixes = ("accounting-", "accounts-", "backup-", "database-")
    assert not [name for name in names if name.startswith(prefixes)]
    assert "controller-slurmctld" in names
    (slurmrestd,) = pod_specs(without)["rest-slurmrestd"]["containers"]
    assert "slurmdbd" not in str(slurmrestd)


def test_external_database_replaces_the_database_of_the_stack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {"host": "db.lab", "port": 3307, "password_secret": "slurmdbd"}
    graph = record(
        monkeypatch, config(lambda values: values.update(accounting={"external": given}))
    )

    assert not [one for one in graph.resources if one.name.startswith("database")]
    volumes = pod_specs(graph)["accounting-slurmdbd"]["volumes"]
    assert "slurmdbd" in [v["secret"]["secretName"] for v in volumes if "secret" in v]
    conf = graph.one("accounting-config").inputs["data"]["slurmdbd.conf"]
    assert {"StorageHost=db.lab", "StoragePort=3307"} <= set(conf.splitlines())
    egress = graph.one("network-accounting").inputs["spec"]["egress"]
    assert {"ports": [{"protocol": "TCP", "port": 3307}]} in egress


def dumps(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> Graph:
    return record(monkeypatch, config(lambda values: values.update(accounting={"backup": fields})))


def test_dumps_run_one_at_a_time_and_have_a_deadline(graph: Graph) -> None:
    spec = graph.one("backup-dump").inputs["spec"]

    assert (spec["schedule"], spec["timeZone"]) == ("17 3 * * *", "Etc/UTC")
    assert spec["concurrencyPolicy"] == "Forbid"
    assert spec["jobTemplate"]["spec"]["activeDeadlineSeconds"] > 0
    (container,) = pod_specs(graph)["backup-dump"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]


STORES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"persistentVolumeClaim": {"claimName": "accounting-backup"}}),
    ({"claim": "lab"}, {"persistentVolumeClaim": {"claimName": "lab"}}),
    (
        {"nfs": {"server": "nfs.lab", "path": "/dumps"}},
        {"nfs": {"server": "nfs.lab", "path": "/dumps"}},
    ),
]


@pytest.mark.parametrize(("fields", "source"), STORES, ids=["own volume", "claim", "NFS"])
def test_dumps_go_to_the_volume_in_the_settings(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], source: dict[str, Any]
) -> None:
    graph = dumps(monkeypatch, **fields)

    (volume,) = [v for v in pod_specs(graph)["backup-dump"]["volumes"] if v["name"] == "backup"]
    assert volume == {"name": "backup", **source}
    ours = [one for one in graph.resources if one.name == "backup-volume"]
    assert bool(ours) == (not fields), "a volume in the settings replaces the stack's volume"


def test_dumps_to_a_bucket_need_credential_files_but_no_volume(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bucket = {"endpoint": "http://s3.lab", "bucket": "dumps", "prefix": "hpc", "secret": "keys"}
    graph = dumps(monkeypatch, s3=bucket)

    assert not [one for one in graph.resources if one.name == "backup-volume"]
    pod = pod_specs(graph)["backup-dump"]
    assert "keys" in [v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v]
    (container,) = pod["containers"]
    variables = {one["name"]: one for one in container["env"]}
    assert variables["RESTIC_REPOSITORY"]["value"] == "s3:http://s3.lab/dumps/hpc/test"
    assert all("valueFrom" not in one for one in container["env"])
    egress = graph.one("network-accounting-backup").inputs["spec"]["egress"]
    assert {"ports": [{"protocol": "TCP", "port": 80}]} in egress


def test_restore_ends_before_slurmdbd_starts(monkeypatch: pytest.MonkeyPatch, graph: Graph) -> None:
    assert "restore" not in str(pod_specs(graph)["accounting-slurmdbd"])

    specs = pod_specs(dumps(monkeypatch, restore="latest"))

    *_, loader = specs["accounting-slurmdbd"]["initContainers"]
    assert loader["name"] == "restore"
    assert "restartPolicy" not in loader, "slurmdbd waits until the restore has ended"
    volumes = {volume["name"] for volume in specs["accounting-slurmdbd"]["volumes"]}
    assert {mount["name"] for mount in loader["volumeMounts"]} <= volumes
    # The dump runs on the same Kubernetes node, because some volumes can be attached to only one
    # node at a time.
    assert "podAffinity" in specs["backup-dump"]["affinity"]


def test_workloads_have_fixed_names_that_users_and_dns_see(graph: Graph) -> None:
    names = {r.inputs["metadata"]["name"] for r in graph.resources if r.type in WORKLOADS}

    slurm = {"accounting", "controller", "placeholder", "login", "rest", "reconciler"}
    watch = {"exporter", "monitoring"}
    assert names == {"database", *slurm, *watch, "cpu", "big"}


def test_slurm_hosts_resolve_each_other_by_short_name(graph: Graph) -> None:
    hosts = graph.one("hosts")
    assert hosts.inputs["spec"]["clusterIP"] == "None"
    assert hosts.inputs["spec"]["publishNotReadyAddresses"]
    workloads = {
        r.inputs["metadata"]["name"]: r.inputs for r in graph.resources if r.type in WORKLOADS
    }
    # These pods need no host name, because clients connect to them only through Services, or not at
    # all.
    services = {"accounting", "database", "exporter", "monitoring", "rest"}
    for name in workloads.keys() - services - {"reconciler", "placeholder"}:
        workload = workloads[name]
        pod = workload["spec"]["template"]
        domain = workload["spec"].get("serviceName", pod["spec"].get("subdomain"))
        assert domain == hosts.inputs["metadata"]["name"]
        assert pod["spec"]["dnsConfig"]["searches"] == ["hosts.slurm.svc.cluster.local"]
        assert hosts.inputs["spec"]["selector"].items() <= pod["metadata"]["labels"].items()


def test_clients_of_slurm_daemons_need_no_dns(graph: Graph) -> None:
    slurmdbd = {"ip": CLUSTER_IP, "hostnames": ["accounting.slurm.svc.cluster.local"]}
    for name in ("nodeset-big-slurmd", "nodeset-cpu-slurmd", "login-sshd", "rest-slurmrestd"):
        pod = graph.one(name).inputs["spec"]["template"]["spec"]
        expected = {"ip": CLUSTER_IP, "hostnames": ["controller.slurm.svc.cluster.local"]}
        assert pod["hostAliases"] == [expected, slurmdbd]
    assert (
        slurmdbd
        in graph.one("controller-slurmctld").inputs["spec"]["template"]["spec"]["hostAliases"]
    )


def test_slurmd_gets_the_name_of_its_kubernetes_node(monkeypatch: pytest.MonkeyPatch) -> None:
    static = {"kind": "static"}
    found = record(monkeypatch, config(lambda values: values["nodesets"][0].update(static)))
    workers = [name for name in pod_specs(found) if name.startswith("nodeset-")]

    assert len(workers) == 2, "one static and one dynamic nodeset"
    for name in workers:
        (slurmd,) = pod_specs(found)[name]["containers"]
        (machine,) = (one for one in slurmd["env"] if one["name"] == "MACHINE")
        assert machine["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_grace_period_of_a_workers_pod_includes_the_drain_grace(graph: Graph) -> None:
    spec = pod_specs(graph)["nodeset-cpu-slurmd"]

    assert spec["terminationGracePeriodSeconds"] > 60


KINDS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"nfs": {"server": "nfs.lab", "path": "/jail", "options": ["nfsvers=4.2", "hard"]}},
        {
            "nfs": {"server": "nfs.lab", "path": "/jail"},
            "mountOptions": ["nfsvers=4.2", "hard"],
        },
    ),
    (
        {
            "csi": {
                "driver": "csi.lab",
                "handle": "vol-1",
                "attributes": {"pool": "fast"},
                "node_stage_secret": "ceph",
                "node_publish_secret": "mount",
            }
        },
        {
            "csi": {
                "driver": "csi.lab",
                "volumeHandle": "vol-1",
                "volumeAttributes": {"pool": "fast"},
                "nodeStageSecretRef": {"name": "ceph", "namespace": "slurm"},
                "nodePublishSecretRef": {"name": "mount", "namespace": "slurm"},
            }
        },
    ),
    ({"host_path": "/srv/jail"}, {"hostPath": {"path": "/srv/jail", "type": "Directory"}}),
]


@pytest.mark.parametrize(("jail", "source"), KINDS, ids=["nfs", "csi", "host_path"])
@pytest.mark.parametrize("protect", [True, False])
def test_existing_volume_is_bound_to_the_claim_of_the_jail(
    monkeypatch: pytest.MonkeyPatch, jail: dict[str, Any], source: dict[str, Any], protect: bool
) -> None:
    graph = record(
        monkeypatch,
        config(lambda values: values.update(jail={"size": "1TiB", **jail}, protect_data=protect)),
    )

    volume, claim = graph.one("jail-volume"), graph.one("jail-claim")
    bound = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    assert volume.inputs["metadata"]["name"] == "slurm-jail"
    assert volume.inputs["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "capacity": {"storage": "1048576Mi"},
        "claimRef": {**bound, "name": "jail", "namespace": "slurm"},
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "",
        **source,
    }
    assert claim.inputs["spec"]["storageClassName"] == ""
    assert claim.inputs["spec"]["volumeName"] == "slurm-jail"
    assert (volume.protect, claim.protect) == (protect, protect)


def test_existing_claim_of_the_jail_is_mounted_and_not_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = record(monkeypatch, config(lambda values: values.update(jail={"claim": "lab-jail"})))

    claims = graph.of_type("kubernetes:core/v1:PersistentVolumeClaim")
    found = sorted(claim.name for claim in claims)
    assert found == ["backup-volume", "controller-state", "database-data", "monitoring-data"]
    for name, spec in pod_specs(graph).items():
        jails = [volume for volume in spec.get("volumes", ()) if volume["name"] == "jail"]
        for jail in jails:
            assert jail["persistentVolumeClaim"]["claimName"] == "lab-jail", name
    assert "jail-origin" in before(graph, "jail-populate")


def test_refused_move_of_the_jail_changes_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = {"jail": {"server": {"machines": ["10.0.0.0/16"]}}, "snapshots": {"jail": "snaps"}}
    graph = record(monkeypatch, config(lambda values: values.update(wanted)))

    for name in ("network", "snapshots", "jail-server-config", "jail-server-volume", "jail-claim"):
        assert "jail-origin" in before(graph, name), name


VOLUMES: list[dict[str, Any]] = [
    {"name": "inner", "path": "/data/inner", "empty": {"size": "1GiB"}, "login": False},
    {"name": "homes", "path": "/home", "nfs": {"server": "nfs", "path": "/homes"}},
    {"name": "data", "path": "/data", "claim": "data", "read_only": True},
]


@pytest.fixture
def submounted(monkeypatch: pytest.MonkeyPatch) -> Graph:
    return record(monkeypatch, config(lambda values: values.update(jail={"volumes": VOLUMES})))


def jail_mounts(spec: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return the mounts of additional jail volumes in order: the path in the jail, and whether the
    mount is writable."""
    (container,) = spec["containers"]
    known = {volume["name"] for volume in spec["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    environment = {one["name"]: one.get("value", "") for one in container.get("env", ())}
    shown = [one.partition("=") for one in environment.get("JAIL_MOUNTS", "").split()]
    places = [(source, target or source) for source, _, target in shown]
    places += [(path, path.removeprefix("/mnt/jail")) for path in mounts if "/mnt/jail/" in path]
    found = [(mounts[source], target) for source, target in places]
    assert {mount["name"] for mount, _ in found} <= known
    return [
        (target, "readOnly" not in mount)
        for mount, target in found
        if mount["name"].startswith("jail-")
    ]


def test_nodes_mount_outer_jail_volumes_before_inner_ones(submounted: Graph) -> None:
    specs = pod_specs(submounted)
    outer, inner, homes = [("/data", False)], [("/data/inner", True)], [("/home", True)]

    assert jail_mounts(specs["nodeset-cpu-slurmd"]) == outer + inner + homes
    assert jail_mounts(specs["login-sshd"]) == outer + homes
    assert jail_mounts(specs["jail-homes"]) == homes, "the Job creates home directories there"
    assert jail_mounts(specs["jail-populate"]) == [], "users own the content of these volumes"


def test_user_pods_mount_nothing_at_paths_that_users_control(submounted: Graph) -> None:
    """If users put a symbolic link into such a path, the container runtime would follow the link in
    the pod's own root."""
    specs = pod_specs(submounted)
    for name in ("nodeset-cpu-slurmd", "nodeset-big-slurmd", "login-sshd"):
        (container,) = specs[name]["containers"]
        paths = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert [path for path in paths if path.startswith("/mnt/jail/")] == [], name


@pytest.mark.parametrize("name", ["jail-populate", "jail-homes"])
def test_kubernetes_does_not_retry_jail_jobs_that_need_an_operator(graph: Graph, name: str) -> None:
    spec = graph.one(name).inputs["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    (rule,) = spec["podFailurePolicy"]["rules"]

    assert rule["action"] == "FailJob"
    assert rule["onExitCodes"] == {
        "containerName": container["name"],
        "operator": "In",
        "values": [c.JAIL_REFUSED],
    }


def test_jail_has_a_mount_point_for_each_volume(submounted: Graph) -> None:
    (container,) = pod_specs(submounted)["jail-populate"]["containers"]

    variables = {one["name"]: one["value"] for one in container["env"]}
    assert variables["JAIL_SUBMOUNTS"].split() == ["/data", "/data/inner", "/home"]


def test_two_runs_of_the_program_give_the_same_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = record(monkeypatch), record(monkeypatch, anew=True)

    assert sorted(first.resources, key=lambda r: (r.type, r.name)) == sorted(
        second.resources, key=lambda r: (r.type, r.name)
    )


def test_placeholder_pod_has_the_size_and_images_of_the_controller(graph: Graph) -> None:
    def needs(spec: dict[str, Any]) -> list[Any]:
        return [(one["image"], one["resources"]) for one in containers(spec)]

    controller, placeholder = (
        pod_specs(graph)[name] for name in ("controller-slurmctld", "controller-placeholder-pod")
    )

    assert needs(placeholder) == needs(controller)
    assert "volumes" not in placeholder
    assert graph.one("controller-placeholder-priority").inputs["value"] < 0


def test_standby_controller_needs_no_placeholder_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = record(monkeypatch, config(lambda values: values.update(controller={"standby": True})))

    assert not [resource.name for resource in graph.resources if "placeholder" in resource.name]


def test_edit_of_partitions_does_not_restart_slurmctld(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def edit(values: dict[str, Any]) -> None:
        values["partitions"] = [{"name": "main", "nodesets": ["cpu", "big"], "default": True}]
        values["partitions"] += [{"name": "second", "nodesets": ["cpu"]}]

    before, after = record(monkeypatch), record(monkeypatch, config(edit))

    changed = {
        new.name for old, new in zip(_sorted(before), _sorted(after), strict=True) if old != new
    }
    assert changed == {
        *("config-candidate", "config-check"),
        *("controller-config", "controller-config-in-force", "reconciler-after-deploy"),
    }


def test_controller_gets_a_configuration_only_after_its_check(graph: Graph) -> None:
    assert "config-check" in before(graph, "controller-config")


@pytest.mark.parametrize(
    "refused",
    [
        {"auth": {"type": "slurm"}},
        {"slurm": {"prolog": {"text": "#!/bin/sh\nexit 0\n"}}, "health": {"interval": 90}},
        {"accounting": {"qos": [{"name": "long"}]}},
    ],
    ids=["auth.type", "scripts", "qos"],
)
def test_running_daemons_get_an_edited_configuration_only_after_its_check(
    monkeypatch: pytest.MonkeyPatch, refused: dict[str, Any]
) -> None:
    old = record(monkeypatch)
    new = record(monkeypatch, config(lambda values: values.update(refused)))

    known = {resource.name: resource for resource in old.resources}
    changed = {one.name for one in new.resources if known.get(one.name) != one}
    early = {name for name in changed if "config-check" not in before(new, name)}
    assert early <= {"config-candidate", "config-check"}
    assert changed > early


def test_resize_changes_only_the_nodeset_and_the_reconcilers_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def grow(values: dict[str, Any]) -> None:
        values["nodesets"][0]["replicas"] = 3

    before, after = record(monkeypatch), record(monkeypatch, config(grow))

    changed = [
        new.name for old, new in zip(_sorted(before), _sorted(after), strict=True) if old != new
    ]
    assert changed == ["nodeset-cpu-slurmd", "reconciler-after-deploy", "reconciler-nodesets"]
    assert after.one("nodeset-cpu-slurmd").inputs["spec"]["replicas"] == 3


def _sorted(graph: Graph) -> list[Any]:
    return sorted(graph.resources, key=lambda resource: (resource.type, resource.name))


# --- The reconciler ------------------------------------------------------------------------------


def rules(graph: Graph, name: str) -> dict[str, set[str]]:
    """Return the verbs that a role allows, by resource."""
    return {
        resource: set(rule["verbs"])
        for rule in graph.one(name).inputs["rules"]
        for resource in rule["resources"]
    }


def test_reconciler_has_only_the_rights_that_it_needs(graph: Graph) -> None:
    assert rules(graph, "reconciler-cluster-role") == {
        "nodes": {"get", "list", "patch"},
        "nodes/status": {"patch"},
    }
    assert rules(graph, "reconciler-role") == {
        "pods": {"delete", "list"},
        "statefulsets": {"list"},
        "events": {"create"},
        "configmaps": {"get", "patch"},
        "poddisruptionbudgets": {"get", "patch"},
        "jobs": {"patch"},
    }
    rules_of = graph.one("reconciler-role").inputs["rules"]
    named = [rule for rule in rules_of if "resourceNames" in rule]
    assert {rule["resources"][0]: rule["resourceNames"] for rule in named} == {
        "configmaps": [graph.one("reconciler-memory").inputs["metadata"]["name"]],
        "poddisruptionbudgets": [graph.one("reconciler-busy-nodes").inputs["metadata"]["name"]],
        "jobs": [graph.one("reconciler-after-deploy").inputs["metadata"]["name"]],
    }


def test_only_the_reconciler_writes_the_budget_of_nodes_with_jobs(graph: Graph) -> None:
    budget = graph.one("reconciler-busy-nodes").inputs

    assert "spec" not in budget
    (agent,) = pod_specs(graph)["reconciler-agent"]["containers"]
    assert {"name": "BUDGET", "value": budget["metadata"]["name"]} in agent["env"]


def label_topology(values: dict[str, Any]) -> None:
    for nodeset in values["nodesets"]:
        nodeset["kind"] = "static"
    values["slurm"] = {"topology": {"kind": "tree", "labels": ["zone"]}}


def test_reconciler_writes_the_topology_that_slurmctld_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = record(monkeypatch, config(label_topology))
    written = graph.one("controller-topology").inputs

    assert "data" not in written, "only the reconciler writes the content"
    name = written["metadata"]["name"]
    (allowed,) = (
        rule["resourceNames"]
        for rule in graph.one("reconciler-role").inputs["rules"]
        if rule["resources"] == ["configmaps"]
    )
    assert name in allowed
    (agent,) = pod_specs(graph)["reconciler-agent"]["containers"]
    assert {"name": "TOPOLOGY", "value": name} in agent["env"]
    pod = pod_specs(graph)["controller-slurmctld"]
    (volume,) = (one for one in pod["volumes"] if one["name"] == "topology")
    assert volume["configMap"]["name"] == name
    for container in pod["containers"]:
        mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        assert mounts[c.TOPOLOGY]["readOnly"]
        assert c.CONTROLLER_RUN in mounts


def test_stack_without_topology_labels_has_no_topology_configmap(graph: Graph) -> None:
    assert "controller-topology" not in {one.name for one in graph.resources}


@pytest.mark.parametrize(
    ("reconciler", "deletes"),
    [
        ({"ladder": ["replace"]}, True),
        ({"ladders": {"gpu-xid": ["recheck", "replace"]}}, True),
        ({"ladder": ["replace"], "replace": ["replace-it"]}, False),
    ],
)
def test_reconciler_may_delete_nodes_only_if_a_ladder_replaces_machines(
    monkeypatch: pytest.MonkeyPatch, reconciler: dict[str, Any], deletes: bool
) -> None:
    graph = record(monkeypatch, config(lambda values: values.update(reconciler=reconciler)))

    assert ("delete" in rules(graph, "reconciler-cluster-role")["nodes"]) is deletes


def test_command_that_replaces_machines_reads_its_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    replace = {"replace": ["replace-it"], "replace_secret": "cloud"}
    graph = record(monkeypatch, config(lambda values: values.update(reconciler=replace)))

    # The Job at the end of a deploy also needs the Secret, because it may replace machines.
    for name in ("reconciler-agent", "reconciler-after-deploy"):
        pod = pod_specs(graph)[name]
        (volume,) = (one for one in pod["volumes"] if one["name"] == "replace")
        assert volume["secret"]["secretName"] == "cloud"
        (mount,) = (one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "replace")
        assert mount["mountPath"] == "/etc/slurmstack/replace"
        assert mount["readOnly"]


def test_names_of_cluster_wide_objects_begin_with_the_stacks_namespace(graph: Graph) -> None:
    group, admission = "rbac.authorization.k8s.io/v1", "admissionregistration.k8s.io/v1"
    limits = f"{admission}:ValidatingAdmissionPolicy"
    for kind in (f"{group}:ClusterRole", f"{group}:ClusterRoleBinding", limits, f"{limits}Binding"):
        found = graph.of_type(f"kubernetes:{kind}")
        assert found, kind
        for one in found:
            assert one.inputs["metadata"]["name"].startswith("slurm-")


def test_admission_policy_limits_only_requests_of_the_reconciler(graph: Graph) -> None:
    spec = graph.one("reconciler-limits").inputs["spec"]
    user = "system:serviceaccount:slurm:reconciler"

    (condition,) = spec["matchConditions"]
    assert condition["expression"] == f"request.userInfo.username == '{user}'"
    assert spec["failurePolicy"] == "Fail"
    changes = {"CREATE", "UPDATE", "DELETE"}
    nodes = {(resource, one) for resource in ("nodes", "nodes/status") for one in changes}
    pods = {("pods", "UPDATE"), ("pods", "DELETE")}
    others = {("poddisruptionbudgets", "UPDATE"), ("jobs", "UPDATE")}
    assert judged(spec) == {*nodes, *pods, *others}
    binding = graph.one("reconciler-limits-binding").inputs["spec"]
    name = graph.one("reconciler-limits").inputs["metadata"]["name"]
    assert binding == {"policyName": name, "validationActions": ["Deny"]}


def judged(policy: dict[str, Any]) -> set[tuple[str, str]]:
    """Return the pairs of resource and operation to which an admission policy applies."""
    return {
        (resource, operation)
        for rule in policy["matchConstraints"]["resourceRules"]
        for resource in rule["resources"]
        for operation in rule["operations"]
    }


def test_reconciler_may_change_pods_only_if_nodes_keep_their_machines(
    monkeypatch: pytest.MonkeyPatch, graph: Graph
) -> None:
    def keep(values: dict[str, Any]) -> None:
        values["nodesets"][0]["keep_machine"] = True

    def rights(graph: Graph) -> list[str]:
        rules = graph.one("reconciler-role").inputs["rules"]
        (verbs,) = (rule["verbs"] for rule in rules if rule["resources"] == ["pods"])
        return sorted(verbs)

    kept = record(monkeypatch, config(keep))

    assert rights(graph) == ["delete", "list"]
    assert rights(kept) == ["delete", "list", "patch"]
    limits = [one.one("reconciler-limits").inputs["spec"] for one in (graph, kept)]
    assert limits[0] == limits[1], "the policy does not depend on keep_machine"


def test_reconciler_gets_rights_only_after_the_policy_limits_them(graph: Graph) -> None:
    limits = {"reconciler-limits", "reconciler-limits-binding"}

    for name in ("reconciler-rights", "reconciler-cluster-rights", "reconciler-agent"):
        assert limits <= before(graph, name), name


def limits_of(graph: Graph) -> tuple[dict[str, str], list[str]]:
    """Return the variables of the reconciler's policy, and the messages of its validations."""
    spec = graph.one("reconciler-limits").inputs["spec"]
    messages = [one["message"] for one in spec["validations"]]
    return {one["name"]: one["expression"] for one in spec["variables"]}, messages


def test_reconciler_policy_limits_machines_only_by_labels_of_this_project(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def select(values: dict[str, Any], **labels: str) -> None:
        for nodeset in values["nodesets"]:
            nodeset["node_selector"] = {"example.org/pool": "hpc", **labels}

    def ours(values: dict[str, Any]) -> None:
        select(values, **{c.LABEL_NODESET: "hpc"})

    theirs, _ = limits_of(record(monkeypatch, config(select)))
    limited, _ = limits_of(record(monkeypatch, config(ours)))
    assert theirs["is_ours"] == "true"
    assert limited["is_ours"].startswith(f'[{{"{c.LABEL_NODESET}": "hpc"}}].exists(')


def test_policy_refuses_reboots_if_no_ladder_contains_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def reboot(values: dict[str, Any]) -> None:
        values["reconciler"] = {"ladders": {"gpu-xid": ["recheck", "reboot"]}}

    refused = (
        "the reconciler may not request a reboot, because no list of repairs has the step reboot;"
        " add the step to reconciler.ladder or reconciler.ladders"
    )
    assert refused in limits_of(record(monkeypatch))[1]
    assert refused not in limits_of(record(monkeypatch, config(reboot)))[1]


def test_reconciler_is_one_pod_that_starts_after_its_rights_exist(graph: Graph) -> None:
    spec = graph.one("reconciler-agent").inputs["spec"]

    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    rights = {"reconciler-rights", "reconciler-cluster-rights", "reconciler-memory"}
    assert rights <= before(graph, "reconciler-agent")


def test_job_checks_nodes_after_everything_else_is_deployed(graph: Graph) -> None:
    assert {"nodeset-cpu-slurmd", "nodeset-big-slurmd", "reconciler-agent"} <= before(
        graph, "reconciler-after-deploy"
    )
    job = graph.one("reconciler-after-deploy").inputs
    assert job["metadata"]["name"] == c.AFTER_DEPLOY
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["agents.reconciler", "--after-deploy"]
    assert job["spec"]["activeDeadlineSeconds"] > 900, "the deadline must exceed the rollout"


def test_rebooter_runs_only_if_a_ladder_needs_it(graph: Graph) -> None:
    assert not [one.name for one in graph.resources if one.name.startswith("rebooter")]


def test_rebooter_may_only_reboot_and_read_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ladders = {"gpu-xid": ["recheck", "reboot"]}
    graph = record(
        monkeypatch, config(lambda values: values.update(reconciler={"ladders": ladders}))
    )

    assert rules(graph, "rebooter-cluster-role") == {"nodes": {"get"}}
    spec = pod_specs(graph)["rebooter-agent"]
    (container,) = spec["containers"]
    context = container["securityContext"]
    assert context["privileged"] is False
    assert context["capabilities"] == {"drop": ["ALL"], "add": ["SYS_BOOT"]}
    assert spec["hostPID"]
    assert "volumes" not in spec
    assert [name for name, one in pod_specs(graph).items() if one.get("hostPID")] == [
        "rebooter-agent"
    ]


def test_pods_of_daemonsets_do_not_prevent_a_reboot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ladders = {"gpu-xid": ["recheck", "reboot"]}
    graph = record(
        monkeypatch, config(lambda values: values.update(reconciler={"ladders": ladders}))
    )
    everywhere = [
        one.inputs["spec"]["template"]["metadata"]["labels"][c.LABEL_COMPONENT]
        for one in graph.of_type("kubernetes:apps/v1:DaemonSet")
    ]

    assert len(everywhere) == 2
    assert all(f",{c.LABEL_COMPONENT}!={one}" in observed.OURS for one in everywhere)


def test_only_workers_tolerate_the_taint_of_the_reconciler(graph: Graph) -> None:
    toleration = {"key": "slurmstack.dev/unhealthy", "operator": "Exists"}

    for name in ("nodeset-cpu-slurmd", "nodeset-big-slurmd"):
        assert toleration in pod_specs(graph)[name]["tolerations"]
    assert toleration not in pod_specs(graph)["login-sshd"].get("tolerations", ())


def test_invalid_settings_end_the_program_with_a_one_line_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def break_it(values: dict[str, Any]) -> None:
        values["nodesets"][0]["replicas"] = -1

    with pytest.raises(pulumi.RunError, match="replicas: -1") as caught:
        record(monkeypatch, config(break_it))

    assert "\n" not in str(caught.value)
