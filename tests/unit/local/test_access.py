"""The files and commands with which users log in through ssh."""

from pathlib import Path
from typing import Any

import pytest

from agents.drains import COST, ROLL
from local.access import Entry, absent, entry_of, login_command, main, ssh_config, write_access
from local.errors import LocalError
from tests.support.clouds import EKS
from tests.support.stack import KEY, VALID, settings

EXISTING = {**VALID, "cluster": {"kind": "existing"}}
DEPLOYED = {
    "login_address": "login.example.org",
    "login_port": 22,
    "login_host_key": "ssh-ed25519 A",
}


def options(text: str) -> dict[str, str]:
    return dict(line.split(maxsplit=1) for line in text.splitlines())


def test_ssh_config_names_the_login_node_and_its_key() -> None:
    entry = Entry("127.0.0.1", 12222, "researcher", Path("/s/id_ed25519"))
    parsed = options(ssh_config(Path("/s"), entry))

    assert (parsed["Host"], parsed["HostName"]) == ("login", "127.0.0.1")
    assert (parsed["Port"], parsed["User"]) == ("12222", "researcher")
    assert parsed["IdentityFile"] == "/s/id_ed25519"
    assert parsed["UserKnownHostsFile"] == "/s/known_hosts"
    assert parsed["StrictHostKeyChecking"] == "yes"


def test_ssh_to_a_cloud_uses_the_operators_user_and_keys() -> None:
    entry = entry_of("lab", settings(base=EKS), DEPLOYED)
    parsed = options(ssh_config(Path("/s"), entry))

    assert (parsed["HostName"], parsed["Port"]) == ("login.example.org", "22")
    assert not {"User", "IdentityFile", "IdentitiesOnly"} & parsed.keys()


@pytest.mark.parametrize("entry", [Entry("192.0.2.1", 22), Entry("::1", 32222), Entry(None, 1)])
def test_ssh_finds_the_host_key_at_any_address_and_port(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, entry: Entry
) -> None:
    found = {"login_address": entry.address, "login_port": entry.port, "login_host_key": KEY}
    monkeypatch.setattr("local.access.outputs.read", lambda _: found)
    monkeypatch.setattr("local.access.stack_directory", lambda _: tmp_path)

    _, config = write_access("lab", settings(base=EXISTING))

    name = options(config.read_text())["HostKeyAlias"]
    assert (tmp_path / "known_hosts").read_text() == f"{name} {KEY}\n"


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({}, "has no login node yet; deploy the stack with `make up STACK=lab`"),
        (
            {"login_address": None, "login_port": 22},
            "had no address yet at the last deploy; deploy the stack again with `make up STACK=",
        ),
    ],
)
def test_missing_login_node_is_reported_with_the_next_step(
    outputs: dict[str, Any], message: str
) -> None:
    with pytest.raises(LocalError) as error:
        entry_of("lab", settings(base={**EXISTING, "login": {}}), outputs)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("service", "address", "command"),
    [
        ("LoadBalancer", "login.example.org", "ssh -F conf USER@login"),
        ("NodePort", "192.0.2.10", "ssh -F conf USER@login"),
        (
            "NodePort",
            None,
            (
                "ssh -F conf USER@NODE, where NODE is an address that `$(make -s kubeconfig"
                " STACK=lab) get nodes --output=wide` lists"
            ),
        ),
        (
            "ClusterIP",
            None,
            (
                "$(make -s kubeconfig STACK=lab) -n slurm port-forward service/login 2222:22; "
                "in another terminal: ssh -F conf -p 2222 USER@127.0.0.1"
            ),
        ),
    ],
)
def test_login_command_depends_on_the_type_of_the_login_service(
    service: str, address: str | None, command: str
) -> None:
    stack = settings(base={**EXISTING, "login": {"service": service}})
    assert login_command("lab", stack, Entry(address, 22), Path("conf")) == command


def test_login_command_names_a_node_if_the_address_is_unknown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("local.access.read_stack", lambda *_: settings(base=EXISTING))
    monkeypatch.setattr("local.access.ROOT", tmp_path)
    monkeypatch.setattr("local.access.stack_directory", lambda _: tmp_path)
    deployed = {**DEPLOYED, "login_address": None, "login_port": 32222}
    monkeypatch.setattr("local.access.outputs.read", lambda _: deployed)

    assert main(["--stack", "lab"]) == 0
    assert "ssh -F ssh_config USER@NODE" in capsys.readouterr().out
    assert options((tmp_path / "ssh_config").read_text())["Port"] == "32222"


def test_unavailable_nodes_are_listed_with_their_slurm_state() -> None:
    states = {"cpu-0": "idle none", "cpu-1": "down* Not responding", "cpu-2": "mix none"}

    assert absent(["cpu-0", "cpu-2"], states) == []
    assert absent(["cpu-1", "cpu-3"], states) == [
        "cpu-1: down* Not responding",
        "cpu-3: Slurm does not list this node",
    ]
    assert absent(["cpu-0"], None) == ["cpu-0: slurmctld does not answer"]


@pytest.mark.parametrize(
    "state",
    [
        "idle~ none",
        "mix# none",
        "alloc+ none",
        "plnd none",
        (
            f"drain~ {COST}with this node, on-demand nodes would cost more than "
            "'on_demand.ceiling': 20 per hour; wait until other on-demand nodes stop, or raise "
            "this limit"
        ),
        f"drng {ROLL}: gets new settings when its jobs have ended",
    ],
)
def test_nodes_that_return_by_themselves_are_not_reported_missing(state: str) -> None:
    assert absent(["cpu-0"], {"cpu-0": state}) == []


@pytest.mark.parametrize("state", ["drng new disk", "idle* none", "down~ slurmstack:start:quota"])
def test_nodes_that_do_not_return_by_themselves_are_reported_missing(state: str) -> None:
    assert absent(["cpu-0"], {"cpu-0": state}) == [f"cpu-0: {state}"]
