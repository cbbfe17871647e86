"""The files that `ssh -F` uses."""

from pathlib import Path

from local.access import absent, known_hosts, ssh_config


def options(text: str) -> dict[str, str]:
    return dict(line.split(maxsplit=1) for line in text.splitlines())


def test_ssh_config_names_the_login_node_and_its_key() -> None:
    parsed = options(ssh_config(Path("/s"), "researcher", 12222))

    assert (parsed["Host"], parsed["HostName"]) == ("login", "127.0.0.1")
    assert (parsed["Port"], parsed["User"]) == ("12222", "researcher")
    assert parsed["IdentityFile"] == "/s/id_ed25519"
    assert parsed["UserKnownHostsFile"] == "/s/known_hosts"
    assert parsed["StrictHostKeyChecking"] == "yes"


def test_known_hosts_entry_includes_the_port() -> None:
    assert known_hosts(12222, "ssh-ed25519 AAAA") == "[127.0.0.1]:12222 ssh-ed25519 AAAA\n"


def test_unavailable_nodes_are_listed_with_their_slurm_state() -> None:
    states = {"cpu-0": "idle none", "cpu-1": "down* Not responding", "cpu-2": "mix none"}

    assert absent(["cpu-0", "cpu-2"], states) == []
    assert absent(["cpu-1", "cpu-3"], states) == [
        "cpu-1: down* Not responding",
        "cpu-3: Slurm does not list it",
    ]
    assert absent(["cpu-0"], None) == ["cpu-0: Slurm does not answer"]
