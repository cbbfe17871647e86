"""Tests of the commands that prepare the site's own machines, join them to the cluster, and label
them.

These tests are skipped if the SDK of Pulumi's command provider is not installed.
"""

import functools
import json
import shlex
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from components import cluster as clusters
from components import conventions as c
from components.settings import SettingsError, from_config
from tests.support.clouds import (
    METAL,
    Change,
    Values,
    both,
    cluster,
    machine,
    nodeset,
    top,
    without_machine,
)
from tests.support.graph import (
    KUBECONFIG,
    SECRET_SIGNATURE,
    TOKEN,
    Graph,
    Registration,
    before,
    opened,
    record,
    record_cluster,
    record_program,
)
from tests.support.stack import KEY, config
from tests.unit.components import sdk
from tests.unit.components.effects import Effect, effect

COMMAND = "command:remote:Command"
WORKERS = ("gpu-a", "gpu-b", "cpu-a", "cpu-b", "cpu-c", "cpu-d", "spare")
SSH_KEY = "the operator's key"
GraphOf = Callable[..., Graph]
THREE = both(
    cluster(control_planes=["head", "spare", "third"], endpoint="api.example.org"),
    lambda values: values["cluster"]["machines"].append(
        {"name": "third", "address": "192.0.2.30", "host_key": KEY}
    ),
)


def as_it_is(values: Values) -> None:
    """Change nothing."""


@pytest.fixture(scope="module")
def graph_of() -> Iterator[GraphOf]:
    """Return a function that records only the cluster's resources, once for each variant."""
    pytest.importorskip("pulumi_command", reason="pip install '.[metal]'")

    @functools.cache
    def recorded(values: str) -> Graph:
        settings = from_config(config(base=json.loads(values)))

        return record_cluster(settings)

    def graph_of(*edits: Change) -> Graph:
        values = deepcopy(METAL)
        both(*edits)(values)
        return recorded(json.dumps(values))

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("PULUMI_CONFIG", json.dumps({"metal:ssh_key": SSH_KEY}))
        yield graph_of


def commands(graph: Graph) -> dict[str, Registration]:
    return {one.name.removeprefix("metal-"): one for one in graph.of_type(COMMAND)}


def words(graph: Graph, name: str, which: str = "create") -> list[str]:
    """Return the words of a command line."""
    return shlex.split(opened(commands(graph)[name].inputs[which]))


def arguments(graph: Graph, name: str, which: str = "create") -> list[str]:
    """Return the name of the script that a command runs, and the script's arguments."""
    line = words(graph, name, which)
    return line[line.index("-c") + 2 :]


def host(graph: Graph, name: str) -> str:
    address: str = opened(commands(graph)[name].inputs["connection"])["host"]
    return address


def documents(graph: Graph, name: str) -> dict[str, dict[str, Any]]:
    """Return the kubeadm configuration on a command's stdin, by kind."""
    text = opened(commands(graph)[name].inputs["stdin"])
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


# --- Types of the SDK -----------------------------------------------------------------------------


@pytest.mark.parametrize("edit", [as_it_is, THREE], ids=["one control plane", "three"])
def test_inputs_of_commands_match_the_sdk_types(graph_of: GraphOf, edit: Change) -> None:
    asked = commands(graph_of(edit)).values()

    assert asked
    assert [problem for one in asked for problem in sdk.problems(one)] == []


# --- The graph -----------------------------------------------------------------------------------


def test_all_commands_are_in_one_component(graph_of: GraphOf) -> None:
    graph = graph_of()

    expected = {f"prepare-{name}" for name in ("head", *WORKERS)}
    expected |= {f"member-{name}" for name in ("head", *WORKERS)}
    expected |= {f"node-{name}" for name in ("head", *WORKERS)}
    expected |= {f"admit-{name}" for name in WORKERS}
    assert set(commands(graph)) == expected | {"kubeconfig"}
    assert all(one.parent.endswith("::metal") for one in commands(graph).values())
    assert "metal" in {urn.rsplit("::", 1)[1] for urn in graph.outputs_registered}


def test_machine_joins_after_its_preparation_and_the_first_control_plane(graph_of: GraphOf) -> None:
    first = before(graph_of(), "metal-member-cpu-a")

    assert {"metal-prepare-cpu-a", "metal-admit-cpu-a", "metal-member-head"} <= first
    assert "metal-kubeconfig" in first, "a machine needs the cluster's certificate to join"
    assert not {name for name in first if name.endswith("cpu-b")}, (
        "machines do not wait for each other"
    )


def test_refused_change_of_the_endpoint_runs_no_commands(graph_of: GraphOf) -> None:
    """A change of the endpoint would replace the protected certificate key, so the engine refuses
    it. All commands come after this key."""
    graph = graph_of(THREE)

    for name in commands(graph):
        assert "metal-certificate-key" in before(graph, f"metal-{name}"), name


def test_control_planes_join_one_at_a_time(graph_of: GraphOf) -> None:
    graph = graph_of(THREE)

    assert "metal-member-spare" in before(graph, "metal-member-third")
    assert "metal-member-spare" in before(graph, "metal-admit-third")
    assert "metal-member-third" not in before(graph, "metal-member-cpu-a")


def test_charts_are_installed_after_all_nodes_have_their_labels(graph_of: GraphOf) -> None:
    first = before(graph_of(), "equipment-gpu-operator")

    assert {f"metal-node-{name}" for name in ("head", *WORKERS)} <= first


@pytest.mark.parametrize("protect", [True, False])
def test_control_planes_are_protected_by_default(graph_of: GraphOf, protect: bool) -> None:
    graph = graph_of(THREE, top(protect_data=protect))

    kept = {one.name for one in graph.resources if one.protect}
    planes = {f"metal-member-{name}" for name in ("head", "spare", "third")}
    assert kept == ({*planes, "metal-certificate-key"} if protect else set())


def test_kubeconfig_comes_from_the_first_control_plane(graph_of: GraphOf) -> None:
    graph = graph_of()
    (provider,) = graph.of_type("pulumi:providers:kubernetes")

    assert provider.inputs["kubeconfig"] == KUBECONFIG
    sources = {urn.rsplit("::", 1)[1] for urn in provider.property_dependencies["kubeconfig"]}
    assert "metal-kubeconfig" in sources
    assert host(graph, "kubeconfig") == "192.0.2.10"


# --- Connections ----------------------------------------------------------------------------------


def test_ssh_connections_check_the_host_key_of_the_machine(
    graph_of: GraphOf,
) -> None:
    graph = graph_of()
    connection = commands(graph)["member-gpu-a"].inputs["connection"]

    assert connection["4dabf18193072939515e22adb298388d"] == SECRET_SIGNATURE
    assert opened(connection) == {
        "host": "192.0.2.11",
        "port": 2222,
        "user": "ubuntu",
        "hostKey": KEY,
        "privateKey": SSH_KEY,
    }


def test_commands_use_sudo_unless_the_user_is_root(graph_of: GraphOf) -> None:
    graph = graph_of()

    for which in ("create", "delete"):
        assert words(graph, "member-gpu-a", which)[:2] == ["sudo", "--non-interactive"]
        assert words(graph, "member-gpu-b", which)[0] == "flock"


def test_commands_for_the_cluster_run_on_the_first_control_plane(graph_of: GraphOf) -> None:
    graph = graph_of(THREE)

    for name in commands(graph):
        own = not name.startswith(("admit-", "node-", "kubeconfig"))
        assert (host(graph, name) == "192.0.2.10") == (not own or name.endswith("-head")), name


def test_command_lines_contain_no_secret(graph_of: GraphOf) -> None:
    graph = graph_of(THREE)
    key = documents(graph, "member-head")["InitConfiguration"]["certificateKey"]

    for one in commands(graph).values():
        lines = f"{one.inputs['create']}{one.inputs.get('delete')}"
        assert not any(secret in lines for secret in (SSH_KEY, TOKEN, key)), one.name
        assert one.inputs["addPreviousOutputInEnv"] is False


def test_keys_for_joining_are_secret(graph_of: GraphOf) -> None:
    graph = graph_of(THREE)

    for name in ("member-head", "member-spare", "admit-spare"):
        assert commands(graph)[name].inputs["stdin"].get("value"), name


@pytest.mark.parametrize("given", [None, "no/such/file"])
def test_missing_ssh_key_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    pytest.importorskip("pulumi_command", reason="pip install '.[metal]'")
    monkeypatch.delenv("PULUMI_CONFIG", raising=False)
    values = deepcopy(METAL)
    values["cluster"] |= {} if given is None else {"key_file": given}
    caught: list[SettingsError] = []

    def program() -> None:
        try:
            clusters.make(from_config(config(base=values)), "test")
        except SettingsError as error:
            caught.append(error)

    record_program(program)
    (error,) = caught
    assert str(error).startswith("slurmstack:cluster.key_file: ")
    assert "\n" not in str(error)


def test_preview_warns_of_a_missing_key_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("pulumi_command", reason="pip install '.[metal]'")
    values = deepcopy(METAL)
    values["cluster"]["key_file"] = str(tmp_path / "missing")
    said: list[str] = []
    monkeypatch.setattr("pulumi.runtime.is_dry_run", lambda: True)
    monkeypatch.setattr("pulumi.log.warn", said.append)

    def program() -> None:
        clusters.make(from_config(config(base=values)), "test")

    record_program(program)

    (warning,) = said
    assert warning.startswith("slurmstack:cluster.key_file: ")
    assert warning.endswith("set it to a readable file with an SSH private key")


# --- Configuration of kubeadm ---------------------------------------------------------------------


def test_first_control_plane_creates_the_cluster_that_the_settings_describe(
    graph_of: GraphOf,
) -> None:
    configuration = documents(
        graph_of(cluster(release="1.33.2", pods="10.128.0.0/16")), "member-head"
    )

    assert configuration["ClusterConfiguration"]["kubernetesVersion"] == "v1.33.2"
    assert configuration["ClusterConfiguration"]["controlPlaneEndpoint"] == "192.0.2.10:6443"
    assert configuration["ClusterConfiguration"]["networking"] == {
        "dnsDomain": "cluster.local",
        "podSubnet": "10.128.0.0/16",
        "serviceSubnet": "10.96.0.0/12",
    }
    assert configuration["KubeletConfiguration"]["cgroupDriver"] == "systemd"
    registration = configuration["InitConfiguration"]["nodeRegistration"]
    assert registration["name"] == "head"
    assert registration["taints"] == [], "pods that belong to no nodeset run on the control plane"
    assert configuration["InitConfiguration"]["skipPhases"] == []


def test_settings_are_added_to_the_configuration_of_kubeadm(graph_of: GraphOf) -> None:
    added: dict[str, Values] = {
        "ClusterConfiguration": {"imageRepository": "registry.example.org/k8s"},
        "KubeletConfiguration": {"cgroupDriver": "cgroupfs", "failSwapOn": False},
        "KubeProxyConfiguration": {"mode": "nftables"},
        "nodeRegistration": {"ignorePreflightErrors": ["Mem"]},
    }
    graph = graph_of(cluster(kubeadm=added))
    configuration = documents(graph, "member-head")
    joins = documents(graph, "member-cpu-a")["JoinConfiguration"]

    for kind in ("ClusterConfiguration", "KubeletConfiguration", "KubeProxyConfiguration"):
        assert added[kind].items() <= configuration[kind].items()
    for document in (configuration["InitConfiguration"], joins):
        assert document["nodeRegistration"]["ignorePreflightErrors"] == ["Mem"]
    assert arguments(graph, "prepare-cpu-a")[-1] == "keep", "this kubelet accepts swap"
    assert arguments(graph_of(), "prepare-cpu-a") == ["prepare.sh", "1.34.4", "off"]


def test_no_kube_proxy_runs_if_cilium_replaces_it(graph_of: GraphOf) -> None:
    cilium = {"kube_proxy_replacement": True, "api_host": "192.0.2.10"}
    configuration = documents(graph_of(top(network={"cilium": cilium})), "member-head")

    assert configuration["InitConfiguration"]["skipPhases"] == ["addon/kube-proxy"]


def test_worker_joins_with_its_own_token_and_the_ca_hash(graph_of: GraphOf) -> None:
    graph = graph_of()
    configuration = documents(graph, "member-cpu-a")["JoinConfiguration"]

    assert configuration["discovery"]["bootstrapToken"] == {
        "apiServerEndpoint": "192.0.2.10:6443",
        # openssl x509 -pubkey | openssl pkey -pubin -outform der | openssl dgst -sha256
        "caCertHashes": ["sha256:a050837d85070582ccf7394b0988847cc312cb88259b894899f6f239cf1791a5"],
        "token": TOKEN,
    }
    assert "controlPlane" not in configuration
    admitted = commands(graph)["member-cpu-a"].property_dependencies["stdin"]
    assert "metal-admit-cpu-a" in {urn.rsplit("::", 1)[1] for urn in admitted}
    assert arguments(graph, "admit-cpu-a") == ["admit.sh", "cpu-a", "2h0m0s", "worker"]


def test_additional_control_plane_joins_with_the_certificate_key(graph_of: GraphOf) -> None:
    graph = graph_of(THREE)
    first = documents(graph, "member-head")["InitConfiguration"]["certificateKey"]
    configuration = documents(graph, "member-spare")["JoinConfiguration"]

    assert configuration["controlPlane"] == {
        "certificateKey": first,
        "localAPIEndpoint": {"advertiseAddress": "192.0.2.17", "bindPort": 6443},
    }
    assert len(bytes.fromhex(first)) == 32
    assert (
        configuration["discovery"]["bootstrapToken"]["apiServerEndpoint"] == "api.example.org:6443"
    )
    waits = documents(graph, "admit-spare")["InitConfiguration"]
    assert waits["certificateKey"] == first
    assert arguments(graph, "admit-spare")[-1] == "control-plane"


# --- Machines and the nodes on them --------------------------------------------------------------


def test_machines_get_only_labels_and_taints_of_their_nodeset(graph_of: GraphOf) -> None:
    sliced = {"type": "h100", "count": 8, "mig": {"1g.10gb": 56}}
    graph = graph_of(nodeset("gpu", gpus=sliced))
    own, mig = c.LABEL_NODESET, "nvidia.com/mig.config"

    assert arguments(graph, "node-gpu-a") == [
        *("label.sh", "gpu-a", f"{own}=gpu", f"{mig}=slurmstack-gpu", "--", f"{own}=gpu"),
    ]
    assert arguments(graph, "node-cpu-a")[2:] == [f"{own}=cpu", f"{mig}-", "--", f"{own}=cpu"]
    assert arguments(graph, "node-spare")[2:] == [f"{own}-", f"{mig}-", "--", f"{own}-"]
    registered = documents(graph, "member-cpu-a")["JoinConfiguration"]["nodeRegistration"]
    assert registered["taints"] == [{"key": own, "value": "cpu", "effect": "NoSchedule"}]


def test_node_of_a_removed_machine_has_the_full_drain_grace(graph_of: GraphOf) -> None:
    graph = graph_of(nodeset("cpu", drain_grace=7200))

    script, name, seconds = arguments(graph, "node-cpu-a", "delete")
    assert (script, name) == ("leave.sh", "cpu-a")
    assert int(seconds) > 7200
    assert arguments(graph, "member-cpu-a", "delete") == ["reset.sh"]


def test_each_nodeset_has_tainted_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps({"metal:ssh_key": SSH_KEY}))
    found: list[clusters.Cluster] = []

    record_program(lambda: found.append(clusters.make(from_config(config(base=METAL)), "test")))

    for name in ("cpu", "gpu"):
        assert found[0].node_classes[name].taints == {c.LABEL_NODESET: name}


def test_cilium_is_installed_after_machines_join_and_before_other_charts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("pulumi_command", reason="pip install '.[metal]'")
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps({"metal:ssh_key": SSH_KEY}))
    graph = record(monkeypatch, config(base={**METAL, "network": {"cilium": {}}}))

    assert {f"metal-node-{name}" for name in ALL} <= before(graph, "cilium-release")
    assert "cilium-release" in before(graph, "equipment-gpu-operator")
    for name in commands(graph):
        # No command on machines may wait for Cilium: a machine becomes Ready only with a network,
        # and Cilium provides the network.
        assert "cilium-release" not in before(graph, f"metal-{name}"), name


# --- Edits ---------------------------------------------------------------------------------------


def joins(name: str, address: str = "192.0.2.40", **more: Any) -> Change:
    """Add a new machine."""
    added = {"name": name, "address": address, "host_key": KEY, **more}
    return lambda values: values["cluster"]["machines"].append(added)


def of(*names: str, parts: tuple[str, ...] = ("prepare", "admit", "member", "node")) -> set[str]:
    return {f"metal-{part}-{name}" for part in parts for name in names}


ALL = ("head", *WORKERS)
NEW_KEY = KEY.replace("AAAAIA", "AAAAIB")
MIG = {"type": "h100", "count": 8, "mig": {"1g.10gb": 56}}
EDITS: list[tuple[str, Change, dict[str, set[str]]]] = [
    # Each row: name of the edit, the edit, and its expected effect on the commands.
    ("nothing", as_it_is, {}),
    ("an additional machine", joins("new", nodeset="cpu"), {"created": of("new")}),
    ("a machine of a nodeset removed", both(without_machine("cpu-d"), nodeset("cpu", replicas=3)),
     {"deleted": of("cpu-d")}),
    ("a machine without a nodeset removed", without_machine("spare"), {"deleted": of("spare")}),
    ("machines in another order", lambda values: values["cluster"]["machines"].reverse(), {}),
    ("fewer nodes than machines", nodeset("cpu", replicas=1), {}),
    ("another machine of the same name", machine("cpu-d", address="192.0.2.41"),
     {"replaced": of("cpu-d", parts=("admit", "member")),
      "updated": of("cpu-d", parts=("prepare",))}),
    ("a reinstalled machine", machine("cpu-d", host_key=NEW_KEY),
     {"replaced": of("cpu-d", parts=("admit",)),
      "updated": of("cpu-d", parts=("prepare", "member"))}),
    ("another port and user for SSH", machine("cpu-d", port=2022, user="admin"),
     {"updated": of("cpu-d", parts=("prepare", "member"))}),
    ("another nodeset", both(machine("cpu-d", nodeset="gpu"), nodeset("cpu", replicas=3)),
     {"updated": of("cpu-d", parts=("member", "node"))}),
    ("another nodeset for the control plane",
     both(machine("head", nodeset="cpu"), nodeset("gpu", replicas=2)),
     {"updated": of("head", parts=("member", "node"))}),
    ("a longer drain grace", nodeset("gpu", drain_grace=9000),
     {"updated": of("gpu-a", "gpu-b", parts=("node",))}),
    ("GPUs divided into MIG slices", nodeset("gpu", gpus=MIG),
     {"updated": {*of("gpu-a", "gpu-b", parts=("node",)), "equipment-gpu-operator"},
      "created": {"equipment-mig"}}),
    ("a newer Kubernetes release", cluster(release="1.34.5"),
     {"updated": of(*ALL, parts=("prepare",)) | {"metal-member-head"},
      "replaced": {"metal-kubeconfig"}}),
    ("additional kubeadm settings", cluster(kubeadm={"KubeletConfiguration": {"maxPods": 50}}),
     {"updated": {"metal-member-head"}}),
    ("control planes in another order",
     both(THREE, cluster(control_planes=["third", "head", "spare"])),
     {"updated": {*of("head", "third", parts=("member",)),
                  *of(*WORKERS, parts=("admit",)), *of(*ALL, "third", parts=("node",))},
      "created": of("head", parts=("admit",)), "deleted": of("third", parts=("admit",)),
      "replaced": {"metal-kubeconfig"}}),
    ("a lost machine", machine("cpu-d", lost=True), {}),
    ("another address of the control plane", machine("head", address="192.0.2.50"),
     {"refused": {"metal-certificate-key"}}),
    ("another endpoint", cluster(endpoint="api.example.org"),
     {"refused": {"metal-certificate-key"}}),
    ("another control plane", cluster(control_planes=["spare"]),
     {"refused": {"metal-certificate-key"}}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("edit", "expected"), [edit[1:] for edit in EDITS], ids=[edit[0] for edit in EDITS]
)
def test_edit_changes_exactly_the_expected_commands(
    graph_of: GraphOf, edit: Change, expected: dict[str, set[str]]
) -> None:
    three = "third" in str(graph_of(edit).resources)
    given = graph_of(THREE) if three else graph_of()

    found = effect(given, graph_of(edit))
    assert found == Effect(**{kind: frozenset(names) for kind, names in expected.items()})
