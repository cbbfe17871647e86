"""A valid stack configuration to start from, for tests that break or edit one thing in it."""

import copy
import json
from collections.abc import Callable
from typing import Any

from components.settings import Settings, from_config

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f test"
"""A public key whose private half is no secret: it is the bytes 0 to 31."""

VALID: dict[str, Any] = {
    "cluster_name": "test",
    "cluster": {"kind": "local", "nodes": 2},
    "nodesets": [
        {"name": "cpu", "replicas": 2, "cpus": 2, "memory": "2GiB", "drain_grace": 60},
        {"name": "big", "replicas": 1, "cpus": 8, "memory": "64GiB", "features": ["fast"]},
    ],
    "login": {"service": "NodePort", "node_port": 32222},
    "users": [
        {"name": "researcher", "uid": 2000, "ssh_keys": [KEY]},
        {"name": "student", "uid": 1500},
    ],
}


def config(edit: Callable[[dict[str, Any]], object] = lambda values: None) -> dict[str, str]:
    """Configuration as Pulumi hands it to the program, after `edit` of its values."""
    values = copy.deepcopy(VALID)
    edit(values)
    return as_config(values)


def as_config(values: dict[str, Any]) -> dict[str, str]:
    """Values as Pulumi hands them over: scalars come as their text, everything else as JSON."""
    return {
        f"slurmstack:{key}": value if isinstance(value, str) else json.dumps(value)
        for key, value in values.items()
    }


def settings(edit: Callable[[dict[str, Any]], object] = lambda values: None) -> Settings:
    return from_config(config(edit))
