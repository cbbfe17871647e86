"""The files that `ssh -F` uses."""

from pathlib import Path
from typing import Any

import pytest

from local.access import Entry, absent, entry_of, known_hosts, main, ssh_config
from local.errors import LocalError
from tests.support.clouds import EKS
from tests.support.stack import VALID, settings

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


def test_ssh_uses_the_operators_own_user_and_keys_in_a_cloud() -> None:
    entry = entry_of("lab", settings(base=EKS), DEPLOYED)
    parsed = options(ssh_config(Path("/s"), entry))

    assert (parsed["HostName"], parsed["Port"]) == ("login.example.org", "22")
    assert not {"User", "IdentityFile", "IdentitiesOnly"} & parsed.keys()


def test_known_hosts_entry_includes_the_port() -> None:
    entry = Entry("127.0.0.1", 12222)
    assert known_hosts(entry, "ssh-ed25519 AAAA") == "[127.0.0.1]:12222 ssh-ed25519 AAAA\n"


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({}, "has no login node yet; deploy it first: make up STACK=lab"),
        ({"login_address": None, "login_port": 32222}, "ssh -p 32222 USER@NODE"),
    ],
)
def test_missing_address_is_reported_with_the_next_step(
    outputs: dict[str, Any], message: str
) -> None:
    with pytest.raises(LocalError) as error:
        entry_of("lab", settings(base=VALID), outputs)
    assert message in str(error.value)


def test_deploy_without_a_known_address_succeeds_and_leads_to_the_nodes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    existing = settings(base={**VALID, "cluster": {"kind": "existing"}})
    monkeypatch.setattr("local.access.read_stack", lambda *_: existing)
    deployed = {"login_address": None, "login_port": 32222}
    monkeypatch.setattr("local.access.outputs.read", lambda _: deployed)

    assert main(["--stack", "lab"]) == 0
    assert "ssh -p 32222 USER@NODE" in capsys.readouterr().out


def test_unavailable_nodes_are_listed_with_their_slurm_state() -> None:
    states = {"cpu-0": "idle none", "cpu-1": "down* Not responding", "cpu-2": "mix none"}

    assert absent(["cpu-0", "cpu-2"], states) == []
    assert absent(["cpu-1", "cpu-3"], states) == [
        "cpu-1: down* Not responding",
        "cpu-3: Slurm does not list it",
    ]
    assert absent(["cpu-0"], None) == ["cpu-0: Slurm does not answer"]
