"""Valid base configurations for tests that break or edit one setting."""

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

from components.settings import Accounting, Settings, from_config
from local.paths import ROOT

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f test"
"""A public key; its private key is not secret (the bytes 0 to 31)."""

FILES = sorted(
    # Skip the stack files that killed cluster tests have left behind.
    path
    for path in ROOT.glob("Pulumi.*.yaml")
    if not path.name.startswith("Pulumi.test-")
)
"""The stack files next to the program."""

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
_LIMITS: dict[str, Any] = {
    "priority": 5,
    "min_prio_thresh": 1,
    "grp_jobs": 100,
    "grp_jobs_accrue": 50,
    "grp_submit_jobs": 1000,
    "grp_tres": {"cpu": 100, "mem": "1TiB", "gres/gpu": 8},
    "grp_tres_mins": {"cpu": 600_000},
    "grp_tres_run_mins": {"gres/gpu:h100": 6000},
    "grp_wall": "30-0",
    "max_tres_per_job": {"cpu": 64},
    "max_tres_per_node": {"cpu": 32},
    "max_tres_mins_per_job": {"cpu": 60_000},
    "max_wall": "2-00:00:00",
}
_OF_ASSOCIATIONS: dict[str, Any] = {
    "max_jobs": 10,
    "max_jobs_accrue": 5,
    "max_submit_jobs": 100,
    "qos": ["normal", "high"],
    "default_qos": "high",
}
FULL: dict[str, Any] = {
    "cluster_name": "full",
    "cluster": {"kind": "existing", "kubeconfig": "lab.yaml", "context": "lab", "domain": "lab"},
    "namespace": "hpc",
    "registry": "registry.example.org:5000/hpc",
    "pull_secrets": ["registry"],
    "placement": {
        "default": {"node_selector": {"pool": "system"}},
        "controller": {
            "node_selector": {"pool": "control"},
            "tolerations": [
                {"key": "control", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "seconds": 60},
            ],
            "priority_class": "high",
            "cpus": 2,
            "memory": "4GiB",
        },
    },
    "secrets": {"oncall": {"key": {"secure": "v1:abc"}}},
    "protect_data": True,
    "containers": {
        "enabled": True,
        "cache": "/local/%u",
        "site_cache": "/images",
        "cache_size": "500GiB",
        "image_size": "50GiB",
        "fresh_for": 600,
        "allowed": ["nvcr.io/*"],
        "registries": [
            {"name": "docker.io", "mirrors": ["mirror.example.org/hub"], "insecure": False}
        ],
        "credentials_secret": "registries",
        "mounts": ["/data:/data:ro"],
        "environment": {"NCCL_DEBUG": "WARN"},
        "mount_home": False,
        "remap_root": True,
        "entrypoint": True,
        "writable": False,
    },
    "jail": {
        "size": "2TiB",
        "storage_class": "shared",
        "refresh": 1,
        "volumes": [
            {"name": "homes", "path": "/home", "claim": "homes"},
            {
                "name": "sets",
                "path": "/sets",
                "nfs": {"server": "nfs.example.org", "path": "/sets"},
                "read_only": True,
                "login": False,
            },
            {"name": "fast", "path": "/scratch", "empty": {"size": "1TiB", "medium": "disk"}},
            {"name": "local", "path": "/local", "host_path": "/srv/local"},
            {"name": "site", "path": "/opt/site", "config_map": "site"},
            {"name": "keys", "path": "/opt/keys", "secret": "keys"},
        ],
    },
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
                {"name": "old", "path": "/old", "nfs": {"server": "192.0.2.7", "path": "/old"}},
            ],
            "pod": {
                "image": "registry.example.org/worker:1",
                "resources": {"rdma/hca": 1},
                "hugepages": {"hugepages-2Mi": "4GiB"},
                "environment": {"NCCL_DEBUG": "INFO"},
                "annotations": {"k8s.v1.cni.cncf.io/networks": "ib0"},
                "init_containers": [
                    {
                        "name": "tune",
                        "image": "registry.example.org/tune:1",
                        "command": ["/tune"],
                        "environment": {"LEVEL": "2"},
                        "user": 1000,
                        "capabilities": ["NET_ADMIN"],
                    },
                ],
            },
            "limits": {"core": "1GiB", "open_files": 65536, "locked_memory": "unlimited"},
            "isolation": {
                "no_new_privileges": True,
                "private_devices": True,
                "devices": ["vfio"],
                "tmp": "8GiB",
                "var_tmp": "1GiB",
                "shm": "64GiB",
                "overlay": True,
                "shared": ["/home"],
            },
            "checks": {"gpu-xid": {"xids": [79]}, "infiniband-link": {"ports": 8}},
        },
        {
            "name": "slices",
            "roll": {"share": 0.5, "in_maintenance": True},
            "keep_machine": True,
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
            "memory_per_gpu": "32GiB",
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
        "private_data": ["jobs", "nodes", "users"],
        "cgroups": "required",
        "propagated_limits": ["NOFILE"],
        "extra": {"slurm.conf": ["KillWait=60"]},
    },
    "health": {
        "enabled": True,
        "interval": 30,
        "node_states": ["idle", "mixed"],
        "checks": {"disk": {"max_percent": 90, "effect": "report"}, "munge": False},
        "script": {**_SCRIPT},
    },
    "auth": {"type": "munge", "rotations": ["2026-12-01T03:00:00Z"]},
    "rest": {"replicas": 2, "jwks": "keys.json", "user_claim": "name"},
    "login": {
        "replicas": 2,
        "service": "NodePort",
        "node_port": 32222,
        "home_keys": False,
        "ssh_to_nodes": False,
        "drain_grace": 600,
        "forwarding": {"tcp": False, "agent": False, "x11": False},
        "limits": {"cpus": 2.5, "memory": "8GiB", "processes": 500},
        "motd": {"text": "Welcome.", "state": False},
    },
    "long_checks": {
        "checks": [
            {
                "name": "nccl",
                "enabled": True,
                "schedule": "0 2 * * 0",
                "nodesets": ["gpu"],
                "threshold": 400.5,
                "fall": 0.1,
                "history": 30,
                "least": 10,
            },
            {"name": "cpu-memory"},
        ],
        "at_once": 4,
        "wait": 7200,
        "keep": 200,
        "size": "2GiB",
        "storage_class": "fast",
    },
    "directory": {
        "uris": ["ldaps://ldap.example.org", "ldap://other.example.org:3389"],
        "base": "dc=example,dc=org",
        "bind_dn": "cn=reader,dc=example,dc=org",
        "password_secret": "ldap-reader",
        "ca": "ca.pem",
        "kind": "rfc2307bis",
        "user_filter": "(memberOf=cn=hpc,dc=example,dc=org)",
        "key_attribute": "sshKey",
    },
    "accounting": {
        "enabled": True,
        "database": {"size": "50GiB", "storage_class": "fast", "buffer_pool": "8GiB"},
        "gather_interval": 60,
        "energy": "gpu",
        "store_scripts": True,
        "store_environments": True,
        "purge": {
            "events": "12months",
            "jobs": "24months",
            "reservations": "24months",
            "steps": "90days",
            "suspensions": "36hours",
            "transactions": "12months",
            "usage": "24months",
        },
        "archive": {"size": "1TiB", "storage_class": "slow"},
        "enforce": ["associations", "safe"],
        "accounts": [
            {
                "name": "physics",
                "parent": "science",
                "description": "Physics",
                "organization": "University",
                "fairshare": 10,
                **_LIMITS,
                **_OF_ASSOCIATIONS,
                "users": [
                    {
                        "name": "ada",
                        "default": True,
                        "fairshare": "parent",
                        **_LIMITS,
                        **_OF_ASSOCIATIONS,
                        "qos": ["high"],
                        "partitions": [
                            {
                                "name": "main",
                                "fairshare": 5,
                                **_LIMITS,
                                **_OF_ASSOCIATIONS,
                                "qos": ["high"],
                            }
                        ],
                    },
                    {"name": "bob"},
                ],
            },
            {"name": "science", "users": [{"name": "ada"}]},
        ],
        "default_account": "others",
        "qos": [
            {
                "name": "high",
                "flags": ["DenyOnLimit"],
                "preempt": ["normal"],
                "preempt_mode": "requeue",
                "preempt_exempt_time": "00:10:00",
                "grace_time": 60,
                "usage_factor": 2.0,
                "usage_threshold": 0.5,
                "limit_factor": 1.5,
                **_LIMITS,
                "max_jobs_per_account": 10,
                "max_jobs_per_user": 10,
                "max_jobs_accrue_per_account": 10,
                "max_jobs_accrue_per_user": 10,
                "max_submit_jobs_per_account": 10,
                "max_submit_jobs_per_user": 10,
                "max_tres_per_account": {"cpu": 10},
                "max_tres_per_user": {"cpu": 10},
                "max_tres_run_mins_per_account": {"cpu": 10},
                "max_tres_run_mins_per_user": {"cpu": 10},
                "min_tres_per_job": {"gres/gpu": 1},
            },
        ],
        "operators": ["ada"],
        "administrators": ["bob"],
        "remove_with_jobs": ["account old", "user eve account physics", "qos slow"],
        "backup": {
            "enabled": True,
            "schedule": "30 2 * * 1-5",
            "keep": {"last": 5, "daily": 14, "weekly": 8, "monthly": 24},
            "size": "50GiB",
            "storage_class": "slow",
            "password_secret": "dumps",
            "restore": "latest",
        },
    },
    "backup": {
        "schedule": "30 1 * * *",
        "keep": {"last": 5, "daily": 14, "weekly": 8, "monthly": 24},
        "size": "500GiB",
        "storage_class": "slow",
        "password_secret": "sets",
        "exclude": ["/tmp", "*.core"],
        "largest_file": "2TiB",
        "upload": 50000,
        "cpus": 1.5,
        "memory": "4GiB",
    },
    "monitoring": {
        "kind": "bundled",
        "bundled": {
            "retention": 90,
            "size": "100GiB",
            "storage_class": "fast",
            "webhook": "https://hooks.example.org/alerts?to=hpc",
            "grafana": {"enabled": True, "image": "registry.example.org/grafana:11"},
        },
        "dcgm_namespace": "gpu-operator",
        "scrape_from": ["observability"],
        "exporter": {"enabled": True, "interval": 60, "top": 20, "jobs": 5000},
        "logs": {
            "endpoint": "https://loki.example.org/otlp",
            "headers_secret": "loki",
            "ca": "ca.pem",
            "level": "warn",
        },
    },
    "policy": {
        "registries": ["docker.io/grafana"],
        "host_paths": ["/srv"],
        "exceptions": {"non-root": {"nodeset-*": "slurmd starts jobs as their users"}},
    },
    "network": {"policies": True, "guard": True, "refuse": ["10.0.0.0/16", "fd00:1::/64"]},
    "reconciler": {
        "interval": 30,
        "share": 0.05,
        "maintenance": ["lab.example.org/maintenance"],
        "conditions": {"DiskPressure": "disk-pressure"},
        "hardware": ["gpu-xid"],
        "ladder": ["recheck", "restart"],
        "ladders": {"gpu-xid": ["recheck", "reboot", "replace"]},
        "back_off": 600,
        "replace": ["replace-machine", "--now"],
        "replace_secret": "cloud",
        "replace_servers": ["https://api.cloud.example.org"],
        "replace_age": 7200,
        "remember": 172_800,
        "rollout": 1800,
    },
    "users": [
        {"name": "ada", "uid": 2000, "ssh_keys": [KEY], "ssh_key_files": ["ada.pub"]},
        {"name": "bob", "uid": 2001, "shell": "/bin/sh"},
    ],
    "groups": [{"name": "lab", "gid": 5000, "members": ["ada", "bob"]}],
}
"""Every key of a stack on an existing cluster, except the topology's blocks and
`login.source_ranges`."""


def config(
    edit: Callable[[dict[str, Any]], object] | None = None,
    base: Mapping[str, Any] = VALID,
) -> dict[str, str]:
    """Return the configuration as Pulumi passes it to the program, with values changed by `edit`.

    Strings stay as they are; all other values become JSON.
    """
    values = dict(base)
    if edit:
        values = copy.deepcopy(values)
        edit(values)
    return {
        f"slurmstack:{key}": value if isinstance(value, str) else json.dumps(value)
        for key, value in values.items()
    }


def settings(
    edit: Callable[[dict[str, Any]], object] | None = None,
    base: Mapping[str, Any] = VALID,
) -> Settings:
    return from_config(config(edit, base))


def alone(
    edit: Callable[[dict[str, Any]], object] | None = None,
    base: Mapping[str, Any] = VALID,
) -> Settings:
    """Return settings without accounting, because slurmctld would not start without slurmdbd."""
    return without_accounting(settings(edit, base))


def without_accounting(given: Settings) -> Settings:
    return given.model_copy(update={"accounting": Accounting(enabled=False)})


def enable_everything(values: dict[str, Any]) -> None:
    """Enable every component and every connection that components can open."""
    values["cluster"] = {"kind": "existing"}
    values["accounting"] = {
        "backup": {
            "s3": {"endpoint": "https://s3.example.org:9000", "bucket": "dumps", "secret": "s3"},
            "password_secret": "dumps",
        }
    }
    values["backup"] = {
        "s3": {"endpoint": "https://s3.example.org:9001", "bucket": "sets", "secret": "s3"},
        "password_secret": "sets",
        "restore": "latest",
    }
    values["jail"] = {"server": {"machines": ["10.0.0.0/24"]}}
    values["snapshots"] = {"jail": "fast"}
    values["directory"] = {
        "uris": ["ldaps://ldap.example.org", "ldaps://10.1.2.3"],
        "base": "dc=example,dc=org",
    }
    values["long_checks"] = {"checks": [{"name": "cpu-memory"}]}
    values["monitoring"] = {
        "bundled": {"webhook": "https://hooks.example.org/1", "grafana": {"enabled": True}},
        "dcgm_namespace": "gpu-operator",
        "logs": {"endpoint": "http://collector.logging:4318"},
    }
    values["network"] = {"policies": "both", "refuse": ["10.9.0.0/16"]}
    values["reconciler"] = {"ladders": {"gpu-xid": ["reboot"]}}
    burst = {"name": "burst", "replicas": 2, "cpus": 4, "memory": "8GiB", "on_demand": {}}
    shared = {"name": "shared", "replicas": 1, "cpus": 4, "memory": "8GiB"}
    shared["shared_with_pods"] = True
    values["nodesets"] = [*values["nodesets"], burst, shared]
    values["bridge"] = {"users": [{"namespace": "lab", "user": "grace", "uid": 3001}]}
