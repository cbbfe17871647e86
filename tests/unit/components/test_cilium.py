"""Tests of Cilium's Helm release: its inputs, its values, and the resources that depend on it."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from components.network import cilium
from components.settings import Cilium, SettingsError, from_config
from tests.support.graph import Graph, record
from tests.support.stack import config
from tests.unit.components import charts
from tests.unit.components.bases import LOCAL, NETWORKED

Values = dict[str, Any]
RELEASE = "kubernetes:helm.sh/v3:Release"
DEFAULT: Values = {}
WHOLE: Values = NETWORKED["network"]["cilium"]
AWS: Values = {"chained": "aws-cni", "encryption": "wireguard"}
VARIANTS: dict[str, Values] = {
    "default": DEFAULT,
    "all settings": WHOLE,
    "chained to aws-cni": AWS,
    "chained to another plugin": {"chained": "k8s-pod-network", "mtu": 8900},
    "ipsec": {"encryption": "ipsec", "ipsec_secret": "cilium-ipsec-keys"},
    "no kube-proxy": {"kube_proxy_replacement": True, "api_host": "api.lab"},
    "pod range and devices": {"pod_cidr": "10.244.0.0/16", "devices": ["eth0", "bond+"]},
}


@pytest.fixture(scope="module")
def graph() -> Iterator[Graph]:
    def edit(values: Values) -> None:
        values["cluster"] = {"kind": "existing"}
        values["network"] = {"policies": "cilium", "cilium": {"mtu": 9000}}

    with pytest.MonkeyPatch.context() as monkeypatch:
        yield record(monkeypatch, config(edit))


def rendered(variant: Values, *, guard: bool = True) -> Values:
    return cilium.values(Cilium.model_validate(variant), guard)


# --- The graph -----------------------------------------------------------------------------------


def test_release_pins_a_version_of_the_official_chart(graph: Graph) -> None:
    (release,) = graph.of_type(RELEASE)
    (component,) = graph.of_type("slurmstack:cilium:Cilium")
    (provider,) = graph.of_type("pulumi:providers:kubernetes")

    assert release.parent == component.urn
    assert component.urn in graph.outputs_registered
    assert release.provider.startswith(provider.urn)
    inputs = {name: release.inputs[name] for name in ("name", "chart", "namespace", "version")}
    assert inputs == {
        "name": "cilium",
        "chart": "cilium",
        "namespace": "kube-system",
        "version": Cilium().version,
    }
    assert release.inputs["repositoryOpts"] == {"repo": "https://helm.cilium.io"}
    assert release.inputs["values"]["MTU"] == 9000


def test_slurm_is_created_after_cilium(graph: Graph) -> None:
    (release,) = graph.of_type(RELEASE)
    by_urn = {one.urn: one for one in graph.resources}

    def comes_after(urn: str) -> bool:
        wanted = by_urn[urn].dependencies
        return release.urn in wanted or any(map(comes_after, wanted))

    in_namespace = [one for one in graph.resources if "namespace" in one.inputs.get("metadata", {})]
    assert len([one for one in in_namespace if one.name.startswith("network-cilium-")]) > 1
    assert [one.name for one in in_namespace if not comes_after(one.urn)] == []


def test_with_cilium_all_network_policies_are_ciliumnetworkpolicies(graph: Graph) -> None:
    found = graph.of_type("kubernetes:cilium.io/v2:CiliumNetworkPolicy")

    assert {one.inputs["metadata"]["name"] for one in found} >= {"default", "login", "worker"}
    assert not graph.of_type("kubernetes:networking.k8s.io/v1:NetworkPolicy")


def test_stack_without_network_settings_installs_no_cilium(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = record(monkeypatch)

    assert not [one for one in graph.resources if "cilium" in one.type.lower()]


@pytest.mark.parametrize(
    ("network", "key"),
    [
        (
            {"cilium": {}},
            (
                "network.cilium: a local cluster installs its own network plugin; remove "
                "network.cilium"
            ),
        ),
        ({"policies": "cilium"}, "network.policies: cilium: a local cluster has no Cilium; "),
        ({"policies": "both"}, "network.policies: both: a local cluster has no Cilium; "),
    ],
)
def test_local_cluster_refuses_cilium_settings(network: Values, key: str) -> None:
    login = {"service": "NodePort", "node_port": 32222}

    with pytest.raises(SettingsError, match=re.escape(f"slurmstack:{key}")):
        from_config(config(base={**LOCAL, "login": login, "network": network}))


@pytest.mark.parametrize(("given", "expected"), [(True, "kubernetes"), (False, "none")])
def test_network_policies_may_be_a_boolean_in_the_settings(given: bool, expected: str) -> None:
    settings = from_config(config(lambda values: values.update(network={"policies": given})))

    assert settings.network.policies == expected


# --- The values ----------------------------------------------------------------------------------


def at(values: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path, or None."""
    found: Any = values
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


@dataclass(frozen=True)
class Means:
    """The chart values that one variant of the settings must give."""

    variant: str
    expected: Values


@pytest.mark.parametrize(
    "means",
    [
        Means(
            "default",
            {
                "routingMode": "tunnel",
                "tunnelProtocol": "vxlan",
                "ipam.mode": "kubernetes",
                "kubeProxyReplacement": False,
                "encryption": None,
                "hostFirewall.enabled": False,
                "bandwidthManager.enabled": False,
                "hubble.enabled": True,
                "hubble.relay.enabled": False,
                "MTU": None,
                "devices": None,
                "cni": None,
            },
        ),
        Means(
            "all settings",
            {
                "routingMode": "native",
                "ipv4NativeRoutingCIDR": "10.244.0.0/16",
                "autoDirectNodeRoutes": True,
                "tunnelProtocol": None,
                "ipam.mode": "cluster-pool",
                "ipam.operator.clusterPoolIPv4PodCIDRList": ["10.244.0.0/16"],
                "kubeProxyReplacement": True,
                "k8sServiceHost": "10.0.0.5",
                "k8sServicePort": 443,
                "bandwidthManager": {"enabled": True, "bbr": True},
                "bpf.masquerade": True,
                "encryption": {"enabled": True, "type": "wireguard"},
                "hostFirewall.enabled": True,
                "devices": ["bond+"],
                "MTU": 9000,
                "hubble.ui.enabled": True,
            },
        ),
        Means(
            "chained to aws-cni",
            {
                "cni.chainingMode": "aws-cni",
                "cni.chainingTarget": None,
                "cni.exclusive": False,
                "endpointRoutes.enabled": True,
                "enableIPv4Masquerade": False,
                "routingMode": "native",
                "ipam": None,
            },
        ),
        Means(
            "chained to another plugin",
            {"cni.chainingMode": None, "cni.chainingTarget": "k8s-pod-network", "ipam": None},
        ),
        Means("ipsec", {"encryption.ipsec.secretName": "cilium-ipsec-keys"}),
        Means("no kube-proxy", {"k8sServiceHost": "api.lab", "k8sServicePort": 6443, "bpf": None}),
    ],
    ids=lambda means: means.variant,
)
def test_each_setting_becomes_values_of_the_chart(means: Means) -> None:
    values = rendered(VARIANTS[means.variant])

    assert {path: at(values, path) for path in means.expected} == means.expected


def test_cilium_shows_service_addresses_to_packet_filters_in_pods() -> None:
    """In user pods, a packet filter (images/guard) blocks the Service address of Kubernetes' API.
    Cilium must not replace this address before the filter sees it."""
    assert at(rendered(WHOLE), "socketLB.hostNamespaceOnly") is True
    assert at(rendered(WHOLE, guard=False), "socketLB") is None
    assert at(rendered(DEFAULT), "socketLB") is None


# --- The chart (skipped without a local copy) -----------------------------------------------------


def chart() -> Mapping[str, str]:
    """Return the chart's files in the default version; skip the test if there is no local copy."""
    return charts.files("cilium", Cilium().version)


def test_copy_of_the_chart_has_the_installed_version() -> None:
    assert f"\nversion: {Cilium().version}\n" in chart()["Chart.yaml"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_values_match_the_schema_of_the_chart(variant: str) -> None:
    schema = json.loads(chart()["values.schema.json"])
    jsonschema = pytest.importorskip("jsonschema")

    jsonschema.Draft7Validator(schema).validate(rendered(VARIANTS[variant]))


@pytest.mark.parametrize("variant", VARIANTS)
def test_chart_defines_the_name_of_every_value(variant: str) -> None:
    files = chart()
    schema = json.loads(files["values.schema.json"])
    unknown = [
        path
        for path in paths(rendered(VARIANTS[variant]))
        # Accept names that occur only in a comment of values.yaml and not in the schema.
        if not is_known(schema, path)
        and not re.search(rf"^ *# {path[-1]}:", files["values.yaml"], re.MULTILINE)
    ]

    assert unknown == []


def paths(values: Values, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from paths(value, (*above, key))
        else:
            yield (*above, key)


def is_known(schema: Values, path: tuple[str, ...]) -> bool:
    for key in path:
        schema = schema.get("properties", {}).get(key, {})
    return bool(schema)
