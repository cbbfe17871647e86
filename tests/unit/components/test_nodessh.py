"""What ssh is told of nodes."""

from fnmatch import fnmatch
from typing import Any

import pytest

from components.identity.nodessh import ssh_config
from tests.support.graph import record
from tests.support.stack import config


def is_led_by(text: str, host: str) -> bool:
    """Whether the one `Host` block counts for a host name, as ssh_config(5) has it."""
    patterns = text.splitlines()[0].removeprefix("Host ").split()
    refused = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    taken = [pattern for pattern in patterns if not pattern.startswith("!")]
    return any(fnmatch(host, pattern) for pattern in taken) and not any(
        fnmatch(host, pattern) for pattern in refused
    )


@pytest.mark.parametrize(
    ("host", "led"),
    [
        ("cpu-0", True),
        ("gpu-1234", True),
        ("login-1", False),
        ("cpu", False),
        ("cpu-0.example.org", False),
        ("xcpu-0", False),
    ],
)
def test_ssh_to_the_nodes_of_the_nodesets_is_led_into_jobs_and_no_other(
    host: str, led: bool
) -> None:
    assert is_led_by(ssh_config(["gpu", "cpu"]), host) is led


def test_the_order_of_nodesets_does_not_count() -> None:
    assert ssh_config(["gpu", "cpu"]) == ssh_config(["cpu", "gpu"])


def test_without_nodesets_or_by_the_settings_ssh_is_told_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def off(values: dict[str, Any]) -> None:
        values["login"]["ssh_to_nodes"] = False

    told, nothing = (
        str(record(monkeypatch, given).one("node-ssh-secret").inputs)
        for given in (config(), config(off))
    )

    assert ssh_config([]) == ""
    assert "ProxyCommand" in told
    assert "ProxyCommand" not in nothing


def test_login_nodes_and_workers_let_every_user_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
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
