"""The configuration of nodes, parsed and compared as data."""

import base64
import ipaddress
import itertools
import json
from typing import Any, Literal

import pytest
import yaml

from local import configuration
from local.certificates import Pair
from local.configuration import (
    MAX_NODES,
    POD_RANGE,
    SERVICE_RANGE,
    Node,
    choose_network,
    node_files,
    requests,
    routed_networks,
)
from local.errors import LocalError

NETWORK = ipaddress.IPv4Network("172.30.5.0/24")
FIRST = Node(0, NETWORK)
SECOND = Node(1, NETWORK)


def arguments(node: Node, program: str) -> dict[str, str]:
    files = node_files(node)
    [path] = [path for path in files if path.startswith("programs/") and path.endswith(program)]
    words = files[path].splitlines()
    return dict(word.removeprefix("--").split("=", 1) for word in words[words.index(program) + 1 :])


def document(node: Node, name: str) -> Any:
    return json.loads(node_files(node)[name])


def test_only_the_first_node_runs_the_control_plane() -> None:
    control_plane = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
    programs = [
        {program for _, program in configuration.programs(node)} for node in (FIRST, SECOND)
    ]
    assert programs == [control_plane | {"kubelet", "kube-proxy"}, {"kubelet", "kube-proxy"}]


def test_every_possible_node_has_its_own_address_and_pod_network() -> None:
    nodes = [Node(ordinal, NETWORK) for ordinal in range(MAX_NODES)]
    assert len({node.address for node in nodes}) == MAX_NODES
    assert all(ipaddress.ip_address(node.address) in NETWORK for node in nodes)
    assert all(node.pods.subnet_of(ipaddress.IPv4Network(str(POD_RANGE))) for node in nodes)
    for one, other in itertools.combinations(nodes, 2):
        assert not one.pods.overlaps(other.pods)


def test_node_has_routes_to_pods_of_all_other_nodes() -> None:
    lines = [line.split() for line in node_files(SECOND)["routes"].splitlines()]
    ways = {line[2]: line[4] for line in lines}
    others = (Node(ordinal, NETWORK) for ordinal in range(MAX_NODES) if ordinal != 1)
    assert ways == {str(node.pods): node.address for node in others}


@pytest.mark.parametrize("runtime", ["crun", "runc"])
def test_node_gets_the_chosen_runtime(runtime: Literal["crun", "runc"]) -> None:
    assert f"RUNTIME={runtime}" in node_files(Node(0, NETWORK, runtime))["node.env"].splitlines()


def test_pod_network_does_not_masquerade_addresses() -> None:
    network = document(FIRST, "cni/10-pods.conflist")["plugins"][0]
    assert network["ipMasq"] is False, (
        "Slurm reads a node's address from its connection, so the source address must not change"
    )
    assert network["ipam"]["ranges"] == [[{"subnet": "10.244.0.0/24"}]]


def test_kubelet_refuses_anonymous_requests() -> None:
    kubelet = document(SECOND, "kubelet.yaml")
    assert kubelet["authentication"]["anonymous"] == {"enabled": False}
    assert kubelet["authorization"] == {"mode": "Webhook"}


def test_kubelet_accepts_cgroup_v1_and_keeps_its_oom_score() -> None:
    kubelet = document(SECOND, "kubelet.yaml")
    assert kubelet["failCgroupV1"] is False
    assert kubelet["cgroupDriver"] == "cgroupfs"
    assert kubelet["oomScoreAdj"] == 0
    assert document(SECOND, "kube-proxy.yaml")["oomScoreAdj"] == 0


def test_api_server_refuses_anonymous_requests() -> None:
    given = arguments(FIRST, "kube-apiserver")
    assert given["anonymous-auth"] == "false"
    assert given["authorization-mode"] == "Node,RBAC"
    assert given["enable-admission-plugins"] == "NodeRestriction"
    assert given["advertise-address"] == FIRST.address


def test_control_plane_programs_use_only_tls() -> None:
    for program in ("etcd", "kube-apiserver"):
        values = arguments(FIRST, program).values()
        assert not [value for value in values if value.startswith("http:")]


def test_every_file_in_program_arguments_exists() -> None:
    files = node_files(FIRST)
    issued = {f"pki/{name}.{kind}" for name in requests(FIRST) for kind in ("crt", "key")}
    shared = {
        *("pki/ca.crt", "pki/ca.key", "pki/service-account.key", "pki/service-account.pub"),
        *("pki/front-proxy-ca.crt", "pki/front-proxy-client.crt", "pki/front-proxy-client.key"),
    }
    kubeconfigs = {f"{name}.kubeconfig" for name in configuration.CLIENTS}
    existing = {*files, *issued, *shared, *kubeconfigs}
    for _, program in configuration.programs(FIRST):
        for value in arguments(FIRST, program).values():
            if value.startswith(f"{configuration.CONFIG}/"):
                assert value.removeprefix(f"{configuration.CONFIG}/") in existing


def test_worker_gets_no_certificate_of_the_control_plane() -> None:
    assert set(requests(SECOND)) == {"kubelet", "kube-proxy"}
    assert requests(SECOND)["kubelet"].name == "system:node:node-1"
    assert requests(SECOND)["kubelet"].groups == ("system:nodes",)


def test_api_server_certificate_is_valid_on_machine_and_in_pods() -> None:
    request = requests(FIRST)["kube-apiserver"]
    assert set(request.addresses) == {"127.0.0.1", FIRST.address, "10.96.0.1"}
    assert "kubernetes.default.svc" in request.hosts


def test_kubeconfig_has_context_certificates_and_server() -> None:
    pair = Pair(b"certificate", b"key")
    value = configuration.kubeconfig("https://127.0.0.1:16443", b"authority", pair, "here")
    config = yaml.safe_load(configuration.yaml_text(value))
    [cluster], [user], [context] = config["clusters"], config["users"], config["contexts"]
    assert config["current-context"] == context["name"]
    assert context["context"] == {"cluster": cluster["name"], "user": user["name"]}
    assert cluster["cluster"]["server"] == "https://127.0.0.1:16443"
    assert base64.b64decode(cluster["cluster"]["certificate-authority-data"]) == b"authority"
    assert base64.b64decode(user["user"]["client-key-data"]) == b"key"


def test_rendered_files_of_a_node_are_always_the_same() -> None:
    assert node_files(FIRST) == node_files(Node(0, NETWORK))


@pytest.mark.parametrize(
    "taken",
    [
        [],
        ["172.30.0.0/24", "172.30.1.0/24"],
        ["172.30.0.0/16"],
        ["10.0.0.0/8", "172.30.0.128/25"],
    ],
)
def test_new_docker_network_overlaps_no_existing_network(taken: list[str]) -> None:
    networks = [ipaddress.IPv4Network(text) for text in taken]
    chosen = choose_network(networks)
    assert chosen.prefixlen == 24
    assert not any(chosen.overlaps(network) for network in networks)
    assert not chosen.overlaps(ipaddress.IPv4Network(str(POD_RANGE)))
    assert not chosen.overlaps(ipaddress.IPv4Network(str(SERVICE_RANGE)))


def test_error_reports_that_no_network_is_free() -> None:
    with pytest.raises(LocalError, match=r"^172\.30\.0\.0/15: .* remove unused networks"):
        choose_network([ipaddress.IPv4Network("172.16.0.0/12")])


def test_default_route_is_ignored_when_routes_are_read() -> None:
    table = (
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
        "docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
    )
    assert routed_networks(table) == [ipaddress.IPv4Network("172.17.0.0/16")]
