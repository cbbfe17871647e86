"""Tests of the ssh configuration for connections to nodes (`ssh <node>`)."""

from fnmatch import fnmatch
from typing import Any

import pytest

from components.identity.nodessh import ssh_config
from tests.support.graph import record
from tests.support.stack import config


def matches_host(text: str, host: str) -> bool:
    """Return whether the `Host` block matches a host name, as ssh_config(5) defines."""
    patterns = text.splitlines()[0].removeprefix("Host ").split()
    refused = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    included = [pattern for pattern in patterns if not pattern.startswith("!")]
    return any(fnmatch(host, pattern) for pattern in included) and not any(
        fnmatch(host, pattern) for pattern in refused
    )


@pytest.mark.parametrize(
    ("host", "matches"),
    [
        ("cpu-0", True),
        ("gpu-1234", True),
        ("login-1", False),
        ("cpu", False),
        ("cpu-0.example.org", False),
        ("xcpu-0", False),
    ],
)
def test_host_block_matches_only_nodes_of_nodesets(host: str, matches: bool) -> None:
    assert matches_host(ssh_config(["gpu", "cpu"]), host) is matches


def test_order_of_nodesets_does_not_change_the_configuration() -> None:
    assert ssh_config(["gpu", "cpu"]) == ssh_config(["cpu", "gpu"])


def test_configuration_is_empty_without_nodesets_or_if_disabled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def off(values: dict[str, Any]) -> None:
        values["login"]["ssh_to_nodes"] = False

    enabled, disabled = (
        str(record(monkeypatch, given).one("node-ssh-secret").inputs)
        for given in (config(), config(off))
    )

    assert ssh_config([]) == ""
    assert "ProxyCommand" in enabled
    assert "ProxyCommand" not in disabled


def test_every_user_may_read_the_ssh_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = record(monkeypatch)
    for workload in ("login-sshd", "nodeset-cpu-slurmd"):
        spec = graph.one(workload).inputs["spec"]["template"]["spec"]
        (volume,) = (one for one in spec["volumes"] if one["name"] == "node-ssh")
        (mount,) = (
            one for one in spec["containers"][0]["volumeMounts"] if one["name"] == "node-ssh"
        )

        assert volume["secret"] == {"secretName": "node-ssh", "defaultMode": 0o444}
        assert mount["mountPath"] == "/usr/lib/slurmstack/node-ssh"
        assert mount["readOnly"]
