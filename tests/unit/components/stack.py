"""Valid stack configurations to start from, for tests that break or edit one thing in them."""

import copy
import json
from collections.abc import Callable, Mapping
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


_SCRIPT = {"text": "#!/bin/sh\nexit 0\n"}
_LUA = "function slurm_job_submit() end function slurm_job_modify() end"
FULL: dict[str, Any] = {
    "cluster_name": "full",
    "cluster": {"kind": "existing", "kubeconfig": "lab.yaml", "context": "lab", "domain": "lab"},
    "namespace": "hpc",
    "registry": "registry.example.org:5000/hpc",
    "pull_secrets": ["registry"],
    "protect_data": True,
    "jail": {"size": "2TiB", "storage_class": "shared", "refresh": 1},
    "controller": {"state_size": "20GiB", "storage_class": "shared", "standby": True},
    "nodesets": [
        {
            "name": "gpu",
            "kind": "static",
            "replicas": 4,
            "cpus": 64,
            "sockets": 2,
            "threads_per_core": 2,
            "cpu_request": 63.5,
            "memory": "512GiB",
            "ephemeral_storage": "1TiB",
            "gpus": {"type": "h100", "count": 8, "resource": "nvidia.com/gpu", "shards": 4},
            "features": ["nvlink"],
            "weight": 100,
            "parameters": {"TmpDisk": 1000},
            "drain_grace": 600,
            "node_selector": {"pool": "gpu"},
            "affinity": {"podAntiAffinity": {}},
            "tolerations": [
                {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "seconds": 60},
            ],
            "priority_class": "high",
            "volumes": [
                {"name": "data", "path": "/mnt/jail/data", "claim": "data", "read_only": True},
                {"name": "models", "path": "/models", "host_path": "/srv/models"},
                {"name": "fast", "path": "/fast", "empty": {"size": "1TiB", "medium": "disk"}},
                {"name": "settings", "path": "/settings", "config_map": "settings"},
                {"name": "licence", "path": "/licence", "secret": "licence"},
            ],
        },
        {
            "name": "slices",
            "kind": "static",
            "replicas": 2,
            "cpus": 16,
            "memory": "64GiB",
            "gpus": {"type": "a100", "count": 1, "mig": {"1g.10gb": 7}},
        },
    ],
    "partitions": [
        {
            "name": "main",
            "nodesets": ["gpu"],
            "default": True,
            "state": "up",
            "max_time": "7-00:00:00",
            "default_time": "01:00:00",
            "min_nodes": 1,
            "max_nodes": 4,
            "memory_per_cpu": "4GiB",
            "priority_tier": 10,
            "priority_job_factor": 100,
            "preempt_mode": "off",
            "grace_time": 60,
            "qos": "normal",
            "allow_qos": ["normal"],
            "allow_accounts": ["physics"],
            "allow_groups": ["lab"],
            "hidden": False,
            "exclusive": False,
            "over_subscribe": "no",
            "parameters": {"LLN": True},
        },
        {"name": "rest", "nodesets": ["gpu", "slices"], "deny_qos": ["high"]},
    ],
    "slurm": {
        "scheduler": {"type": "backfill", "parameters": {"bf_window": 2880}},
        "preemption": {"type": "partition_prio", "mode": "requeue"},
        "timeouts": {
            "message": 60,
            "tcp": 15,
            "slurmctld": 180,
            "slurmd": 180,
            "kill_wait": 30,
            "unkillable_step": 600,
            "inactive": 0,
            "wait": 0,
            "complete": 10,
            "min_job_age": 300,
        },
        "priority": {
            "type": "multifactor",
            "age": 1,
            "association": 2,
            "fairshare": 3,
            "job_size": 4,
            "partition": 5,
            "qos": 6,
            "tres": {"cpu": 7},
            "max_age": "14-0",
            "decay_half_life": "7-0",
            "favor_small": True,
        },
        "max_jobs": 50_000,
        "prolog": {**_SCRIPT},
        "epilog": {**_SCRIPT},
        "task_prolog": {**_SCRIPT},
        "task_epilog": {**_SCRIPT},
        "health_check": {**_SCRIPT, "interval": 60, "node_states": ["idle"]},
        "job_submit_lua": {"text": _LUA},
        "topology": {
            "kind": "tree",
            "switches": [
                {"name": "left", "nodes": "gpu-[0-1]"},
                {"name": "right", "nodes": "gpu-[2-3]", "nodesets": ["slices"]},
                {"name": "top", "switches": ["left", "right"]},
            ],
        },
        "slurmctld_parameters": {"idle_on_node_suspend": True},
        "cgroups": "v2",
        "extra": {"slurm.conf": ["KillWait=60"]},
    },
    "auth": {"type": "munge", "rotations": ["2026-12-01T03:00:00Z"]},
    "rest": {"replicas": 2, "jwks": "keys.json", "user_claim": "name"},
    "login": {"service": "NodePort", "node_port": 32222},
    "users": [
        {"name": "ada", "uid": 2000, "ssh_keys": [KEY], "ssh_key_files": ["ada.pub"]},
        {"name": "bob", "uid": 2001, "shell": "/bin/sh"},
    ],
    "groups": [{"name": "lab", "gid": 5000, "members": ["ada", "bob"]}],
}
"""Every key of an existing cluster's stack, but the topology's blocks."""


def config(
    edit: Callable[[dict[str, Any]], object] = lambda values: None,
    base: Mapping[str, Any] = VALID,
) -> dict[str, str]:
    """Configuration as Pulumi hands it to the program, after `edit` of its values.

    Scalars come as their text, everything else as JSON.
    """
    values = copy.deepcopy(dict(base))
    edit(values)
    return {
        f"slurmstack:{key}": value if isinstance(value, str) else json.dumps(value)
        for key, value in values.items()
    }


def settings(
    edit: Callable[[dict[str, Any]], object] = lambda values: None,
    base: Mapping[str, Any] = VALID,
) -> Settings:
    return from_config(config(edit, base))
