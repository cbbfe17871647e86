"""The configuration that Docker gets for node containers."""

import dataclasses
import ipaddress
import socket
from pathlib import Path

import pytest
from docker.errors import APIError

from local import containers
from local.configuration import Node
from local.containers import NodeContainer, Port, named_rights, require_free
from local.errors import LocalError

NETWORK = ipaddress.IPv4Network("172.30.5.0/24")
API = Port(16443, 6443, "api_port")
SSH = Port(12222, 32222, "ssh_port")
WANTED = NodeContainer(
    stack="dev",
    directory=Path("/stack"),
    image="slurmstack/node:1",
    node=Node(0, NETWORK),
    files={"node.env": b"API_PORT=6443\n"},
    ports=(API, SSH),
)


def test_ports_are_published_on_loopback_only() -> None:
    published = WANTED.configuration({})["HostConfig"]["PortBindings"]
    assert published == {
        "6443/tcp": [{"HostIp": "127.0.0.1", "HostPort": "16443"}],
        "32222/tcp": [{"HostIp": "127.0.0.1", "HostPort": "12222"}],
    }


def test_node_container_has_a_fixed_address_and_a_data_volume() -> None:
    configuration = WANTED.configuration({})
    network = configuration["NetworkingConfig"]["EndpointsConfig"]["slurmstack-dev"]
    assert network["IPAMConfig"] == {"IPv4Address": "172.30.5.10"}
    [volume] = [m for m in configuration["HostConfig"]["Mounts"] if m["Type"] == "volume"]
    assert (volume["Source"], volume["Target"]) == ("slurmstack-dev-node-0", "/var")


def test_containers_and_volumes_have_the_label_of_the_stack() -> None:
    configuration = WANTED.configuration({})
    [volume] = [m for m in configuration["HostConfig"]["Mounts"] if m["Type"] == "volume"]
    assert configuration["Labels"]["slurmstack.dev/stack"] == "dev"
    assert volume["VolumeOptions"]["Labels"] == {"slurmstack.dev/stack": "dev"}


def test_container_has_the_requested_rights() -> None:
    assert WANTED.configuration({"Privileged": True})["HostConfig"]["Privileged"] is True


@pytest.mark.parametrize(
    "change",
    [
        {"image": "slurmstack/node:2"},
        {"files": {"node.env": b"API_PORT=6444\n"}},
        {"files": {}},
        {"ports": (API,)},
        {"ports": (dataclasses.replace(API, number=1), SSH)},
        {"directory": Path("/elsewhere")},
        {"node": Node(0, ipaddress.IPv4Network("172.30.6.0/24"))},
    ],
)
def test_each_changed_input_changes_the_digest_of_the_node(change: dict[str, object]) -> None:
    other = dataclasses.replace(WANTED, **change)  # type: ignore[arg-type]
    assert other.content != WANTED.content


def test_same_inputs_give_the_same_digest_of_the_node() -> None:
    assert dataclasses.replace(WANTED).content == WANTED.content


def test_capability_that_the_machine_lacks_is_not_requested() -> None:
    everything = (1 << 41) - 1
    sys_resource = 24  # capabilities(7)
    had = named_rights(everything & ~(1 << sys_resource))["CapAdd"]
    assert "SYS_RESOURCE" not in had
    assert set(named_rights(everything)["CapAdd"]) - set(had) == {"SYS_RESOURCE"}
    assert {"SYS_ADMIN", "MKNOD", "AUDIT_READ"} <= set(had)


def test_capability_bounding_set_is_read_from_the_process_status(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("CapEff:\t0000000000000000\nCapBnd:\t000001fffeffffff\n")
    assert containers.bounding_set(status) == 0x1FFFEFFFFFF


def test_container_start_is_retried_only_if_a_capability_is_refused() -> None:
    refused = APIError("500", explanation="unable to apply caps: operation not permitted")
    other = APIError("500", explanation="port is already allocated")
    assert containers._lacks_capability(refused)
    assert not containers._lacks_capability(other)


def test_error_names_a_port_in_use_and_its_key() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        number = listener.getsockname()[1]
        with pytest.raises(LocalError) as failure:
            require_free(Port(number, 32222, "ssh_port"), "dev")
    message = str(failure.value)
    assert str(number) in message
    assert "slurmstack:cluster.ssh_port" in message
    assert "Pulumi.dev.yaml" in message
    assert "\n" not in message


def test_free_port_passes_the_check() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        number = listener.getsockname()[1]
    require_free(Port(number, 6443, "api_port"), "dev")
