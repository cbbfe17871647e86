"""An error in a stack's settings is one line with the key, the value and the remedy."""

import copy
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from components.settings import SettingsError, from_config, read_stack
from components.settings.slurmnames import SETTINGS
from tests.support.clouds import EKS as CLOUD_EKS
from tests.support.clouds import METAL as CLOUD_METAL
from tests.support.clouds import NEBIUS as CLOUD_NEBIUS
from tests.support.stack import FULL, KEY, VALID, config, settings
from tests.unit.components.bases import CILIUM, LOCAL, NETWORKED
from tests.unit.components.fields import drop, fields, named, pattern, put

Values = dict[str, Any]

_BLOCK = {
    "kind": "block",
    "blocks": [{"name": "one", "nodes": "gpu-[0-1]"}, {"name": "two", "nodes": "gpu-[2-3]"}],
    "block_sizes": [2, 4],
}
BLOCKS: Values = {**FULL, "slurm": {**FULL["slurm"], "topology": _BLOCK}}
_LABELS = {"kind": "tree", "labels": ["zone", "example.org/rack"]}
LABELLED: Values = {**FULL, "slurm": {**FULL["slurm"], "topology": _LABELS}}
STORAGES: dict[str, Values] = {
    kind: {**FULL, "jail": {kind: value}}
    for kind, value in {
        "nfs": {"server": "nfs", "path": "/jail", "options": ["hard"]},
        "csi": {
            "driver": "csi.lab",
            "handle": "vol-1",
            "attributes": {"pool": "fast"},
            "options": ["hard"],
            "node_stage_secret": "ceph",
            "node_publish_secret": "mount",
        },
        "host_path": "/srv/jail",
        "claim": "jail",
        "server": {"storage_class": "block", "machines": ["10.0.0.0/16"]},
    }.items()
}
SNAPPED: Values = {
    **FULL,
    "snapshots": {"jail": "fast", "state": "fast", "schedule": "0 4 * * *", "keep": 14},
}
BALANCED: Values = {
    **FULL,
    "login": {"service": "LoadBalancer", "source_ranges": ["192.0.2.0/24", "2001:db8::/32"]},
}
_IPSEC = {"encryption": "ipsec", "ipsec_secret": "cilium-ipsec-keys"}

NEBIUS: Values = {
    **FULL,
    "cluster": {
        "kind": "nebius",
        "project": "project-e00lab",
        "subnet": "vpcsubnet-e00lab",
        "version": "1.34",
        "api_from": ["192.0.2.0/24"],
        "machines": {
            "gpu": {
                "platform": "gpu-h100-sxm",
                "preset": "8gpu-128vcpu-1600gb",
                "fabric": "fabric-6",
                "disk": "2TiB",
                "spot": True,
                "autoscaling": {"min": 1, "max": 8},
            },
            "slices": {"platform": "gpu-h100-sxm", "preset": "1gpu-20vcpu-200gb"},
        },
        "system": {"replicas": 3, "platform": "cpu-d3", "preset": "16vcpu-64gb"},
        "file_system_type": "WEKA",
    },
    "operators": {"install": True, "driver": True},
}
EKS: Values = {
    **NEBIUS,
    "cluster": {
        "kind": "eks",
        "region": "eu-central-1",
        "zones": ["eu-central-1a", "eu-central-1b"],
        "network": "10.64.0.0/18",
        "api_from": ["192.0.2.0/24"],
        "machines": {
            "gpu": {
                "type": "p5.48xlarge",
                "disk": "2TiB",
                "efa": 32,
                "reservation": {"id": "cr-0123456789abcdef0", "kind": "block"},
            },
            "slices": {"type": "p4d.24xlarge"},
        },
        "system": {"type": "m7i.2xlarge"},
        "file_system": "lustre",
        "throughput": 500,
    },
}
OF_EXISTING = {f"cluster.{key}" for key in ("kind", "kubeconfig", "context", "domain", "node")}
_NODESET = {"name": "cpu", "replicas": 2, "cpus": 12, "memory": "48GiB"}
METAL: Values = {
    "cluster_name": "lab",
    "registry": "registry.example.org/hpc",
    "nodesets": [_NODESET],
    "cluster": {
        "kind": "metal",
        "release": "1.33.2",
        "control_planes": ["a", "b", "c"],
        "endpoint": "api.example.org",
        "pods": "10.128.0.0/16",
        "services": "10.96.0.0/16",
        "key_file": "~/.ssh/id_ed25519",
        "kubeadm": {"KubeletConfiguration": {"maxPods": 50}},
        "machines": [
            {
                "name": "a",
                "address": "192.0.2.1",
                "port": 2222,
                "user": "ubuntu",
                "host_key": KEY,
                "nodeset": "cpu",
                "lost": False,
            },
            {"name": "b", "address": "192.0.2.2", "host_key": KEY},
            {"name": "c", "address": "192.0.2.3", "host_key": KEY, "nodeset": "cpu"},
        ],
    },
}
OF_METAL = ("release", "control_planes", "endpoint", "pods", "services", "key_file", "kubeadm")
OF_EKS = {"reservation", "region", "zones", "network", "file_system", "throughput", "type", "efa"}
"""Keys below `cluster` that exist only for EKS."""

EXTERNAL: Values = {
    **FULL,
    "accounting": {
        "external": {
            "host": "db.lab",
            "port": 3307,
            "name": "acct",
            "user": "slurm",
            "password_secret": "slurmdbd",
            "tls_ca": "ca.pem",
        }
    },
}

_ASSOCIATIONS = (*("accounts[0]", "accounts[0].users[0]", "accounts[0].users[0].partitions[0]"),)
_HAVE_LIMITS = (*_ASSOCIATIONS, "qos[0]")
_COUNTS = [
    *(
        f"accounting.{place}.{field}"
        for place in _HAVE_LIMITS
        for field in (
            *("priority", "min_prio_thresh", "grp_jobs", "grp_jobs_accrue", "grp_submit_jobs"),
            *(("max_jobs", "max_jobs_accrue", "max_submit_jobs") if place != "qos[0]" else ()),
        )
    ),
    *(
        f"accounting.qos[0].max_{what}_per_{scope}"
        for what in ("jobs", "jobs_accrue", "submit_jobs")
        for scope in ("account", "user")
    ),
]
_AMOUNTS = [
    *(
        f"accounting.{place}.{field}"
        for place in _HAVE_LIMITS
        for field in (
            *("grp_tres", "grp_tres_mins", "grp_tres_run_mins"),
            *("max_tres_per_job", "max_tres_per_node", "max_tres_mins_per_job"),
        )
    ),
    *(
        f"accounting.qos[0].max_{what}_per_{scope}"
        for what in ("tres", "tres_run_mins")
        for scope in ("account", "user")
    ),
    "accounting.qos[0].min_tres_per_job",
]
"""Keys whose values are mappings of trackable resources (TRES)."""
OPERATED: Values = {
    **FULL,
    "monitoring": {
        "kind": "operator",
        "operator": {
            "labels": {"release": "prometheus"},
            "dashboard_labels": {"grafana_dashboard": "yes"},
        },
    },
}
"""A stack that uses an existing Prometheus Operator."""
STORES: Values = {
    "claim": "dumps",
    "nfs": {"server": "nfs.lab", "path": "/dumps"},
    "s3": {
        "endpoint": "https://s3.lab:9000",
        "bucket": "dumps",
        "prefix": "hpc/slurm",
        "region": "lab-1",
        "secret": "s3",
        "ca": "ca.pem",
    },
}
"""Stores of backups, by their kind."""
DUMPS: dict[str, Values] = {
    kind: {**FULL, "accounting": {"backup": {kind: value}}} for kind, value in STORES.items()
}
SETS: dict[str, Values] = {
    kind: {**FULL, "backup": {"password_secret": "sets", kind: value}}
    for kind, value in STORES.items()
}

ELASTIC: Values = {
    **VALID,
    "nodesets": [
        {
            **_NODESET,
            "on_demand": {
                "min": 1,
                "idle": 300,
                "start": 600,
                "keep": ["cpu-0"],
                "schedule": [{"days": ["mon"], "begin": "08:00", "end": "18:00", "min": 2}],
                "price": 2.5,
            },
        }
    ],
    "partitions": [],
    "on_demand": {"ceiling": 10},
}
"""A stack with nodes on demand."""

BRIDGED: Values = {
    **VALID,
    "nodesets": [{**_NODESET, "shared_with_pods": True}],
    "partitions": [],
    "users": [{"name": "alice", "uid": 2001}],
    "bridge": {
        "scheduler": "slurm-bridge",
        "namespaces": ["lab"],
        "default_memory": "1GiB",
        "partition": "main",
        "users": [
            {
                "namespace": "lab",
                "service_account": "trainer",
                "user": "alice",
                "accounts": ["physics"],
            }
        ],
        "replicas": 2,
    },
}
"""A stack in which Slurm schedules pods."""

NUMBERS: dict[str, tuple[int, int | None]] = {
    "bridge.replicas": (1, 3),
    "cluster.nodes": (1, 9),
    "cluster.machines.gpu.autoscaling.min": (0, 10_000),
    "cluster.machines.gpu.autoscaling.max": (1, 10_000),
    "cluster.machines.gpu.efa": (1, 32),
    "cluster.system.replicas": (1, 100),
    "cluster.machines[0].port": (1, 65535),
    "cluster.api_port": (1, 65535),
    "cluster.ssh_port": (1, 65535),
    "jail.refresh": (0, None),
    "backup.upload": (1, None),
    "containers.fresh_for": (0, 31_536_000),
    "snapshots.keep": (1, 1000),
    "nodesets[0].replicas": (0, 10_000),
    "nodesets[0].on_demand.min": (0, 10_000),
    "nodesets[0].on_demand.idle": (0, 604_800),
    "nodesets[0].on_demand.start": (30, 50_000),
    "nodesets[0].on_demand.schedule[0].min": (0, 10_000),
    "nodesets[0].cpus": (1, 4096),
    "nodesets[0].sockets": (1, 64),
    "nodesets[0].threads_per_core": (1, 8),
    "nodesets[0].gpus.count": (1, 64),
    "nodesets[0].gpus.shards": (1, 256),
    "nodesets[1].gpus.mig.{1g.10gb}": (1, 448),
    "nodesets[0].weight": (1, 4_294_967_280),
    "nodesets[0].drain_grace": (0, 604_800),
    "nodesets[0].tolerations[1].seconds": (0, 604_800),
    "placement.controller.tolerations[1].seconds": (0, 604_800),
    "nodesets[0].isolation.processes": (16, 4_194_304),
    "nodesets[0].isolation.steps": (8, 65_536),
    "nodesets[0].pod.resources.rdma/hca": (1, None),
    "nodesets[0].pod.init_containers[0].user": (0, 2_147_483_647),
    "nodesets[0].limits.open_files": (1024, 1_073_741_824),
    "partitions[0].min_nodes": (0, 1_000_000),
    "partitions[0].max_nodes": (1, 1_000_000),
    "partitions[0].priority_tier": (0, 65_535),
    "partitions[0].priority_job_factor": (0, 65_535),
    "partitions[0].grace_time": (0, 604_800),
    "slurm.timeouts.message": (1, 600),
    "slurm.timeouts.tcp": (1, 600),
    "slurm.timeouts.slurmctld": (10, 65_533),
    "slurm.timeouts.slurmd": (10, 65_533),
    "slurm.timeouts.kill_wait": (1, 65_533),
    "slurm.timeouts.unkillable_step": (1, 65_533),
    "slurm.timeouts.inactive": (0, 65_533),
    "slurm.timeouts.wait": (0, 65_533),
    "slurm.timeouts.complete": (0, 65_533),
    "slurm.timeouts.min_job_age": (2, 65_533),
    "slurm.priority.age": (0, 4_294_967_295),
    "slurm.priority.association": (0, 4_294_967_295),
    "slurm.priority.fairshare": (0, 4_294_967_295),
    "slurm.priority.job_size": (0, 4_294_967_295),
    "slurm.priority.partition": (0, 4_294_967_295),
    "slurm.priority.qos": (0, 4_294_967_295),
    "slurm.priority.tres.cpu": (0, 4_294_967_295),
    "slurm.max_jobs": (1, 2_000_000),
    "slurm.topology.block_sizes[0]": (1, 65_536),
    "health.interval": (10, 65_533),
    "accounting.gather_interval": (0, 65_533),
    "accounting.external.port": (1, 65_535),
    **dict.fromkeys(_COUNTS, (0, 2147483647)),
    "accounting.qos[0].grace_time": (0, 604_800),
    **{f"backup.keep.{rule}": (0, 10_000) for rule in ("last", "daily", "weekly", "monthly")},
    "accounting.backup.keep.last": (0, 10_000),
    "accounting.backup.keep.daily": (0, 10_000),
    "accounting.backup.keep.weekly": (0, 10_000),
    "accounting.backup.keep.monthly": (0, 10_000),
    "rest.replicas": (1, 16),
    "monitoring.bundled.retention": (1, 3650),
    "monitoring.exporter.interval": (5, 600),
    "monitoring.exporter.jobs": (0, 100_000),
    "monitoring.exporter.top": (0, 1000),
    "reconciler.interval": (5, 3600),
    "reconciler.back_off": (10, 86_400),
    "reconciler.replace_age": (0, 604_800),
    "reconciler.remember": (0, 604_800),
    "reconciler.rollout": (0, 86_400),
    "login.replicas": (1, 64),
    "login.node_port": (30_000, 32_767),
    "login.drain_grace": (0, 604_800),
    "login.limits.processes": (16, 4_194_304),
    "network.cilium.mtu": (1280, 65_520),
    "network.cilium.api_port": (1, 65_535),
    "long_checks.checks[0].history": (3, 1000),
    "long_checks.checks[0].least": (3, 1000),
    "long_checks.at_once": (1, 1000),
    "long_checks.wait": (0, 604_800),
    "long_checks.keep": (10, 10_000),
}
"""Keys of whole numbers, each with its minimum and its maximum. None means no maximum."""

CHOICES: dict[str, str] = {
    "cluster.file_system_type": "'NETWORK_SSD', 'NETWORK_HDD', 'WEKA' or 'VAST'",
    "cluster.file_system": "'lustre' or 'efs'",
    "cluster.throughput": "125, 250, 500 or 1000",
    "cluster.runtime": "'crun' or 'runc'",
    "nodesets[0].kind": "'dynamic' or 'static'",
    "nodesets[0].tolerations[0].operator": "'Exists' or 'Equal'",
    "placement.controller.tolerations[0].operator": "'Exists' or 'Equal'",
    "placement.controller.tolerations[0].effect": "'NoSchedule', 'PreferNoSchedule' or 'NoExecute'",
    "cluster.machines.gpu.reservation.kind": "'on-demand' or 'block'",
    "nodesets[0].tolerations[0].effect": "'NoSchedule', 'PreferNoSchedule' or 'NoExecute'",
    "jail.volumes[2].empty.medium": "'disk' or 'memory'",
    "nodesets[0].volumes[2].empty.medium": "'disk' or 'memory'",
    "partitions[0].state": "'up', 'down', 'drain' or 'inactive'",
    "partitions[0].preempt_mode": "'off', 'cancel', 'requeue' or 'suspend'",
    "partitions[0].over_subscribe": "'no', 'yes' or 'force'",
    "slurm.scheduler.type": "'backfill' or 'builtin'",
    "slurm.preemption.type": "'none', 'partition_prio' or 'qos'",
    "slurm.preemption.mode": "'requeue', 'cancel' or 'suspend'",
    "slurm.priority.type": "'basic' or 'multifactor'",
    "slurm.topology.kind": "'none', 'block' or 'tree'",
    "slurm.cgroups": "'auto', 'required' or 'disabled'",
    "health.node_states[0]": "'any', 'alloc', 'cycle'",
    "slurm.propagated_limits[0]": "'AS', 'CORE', 'CPU'",
    "slurm.private_data[0]": "'accounts', 'events', 'jobs'",
    "accounting.enforce[0]": "'associations', 'limits', 'qos' or 'safe'",
    "accounting.qos[0].flags[0]": "'DenyOnLimit', 'EnforceUsageThreshold'",
    "accounting.qos[0].preempt_mode": "'cancel', 'requeue' or 'suspend'",
    "accounting.energy": "'none', 'gpu', 'ipmi', 'pm_counters', 'rapl' or 'xcc'",
    "auth.type": "'munge' or 'slurm'",
    "monitoring.kind": "'bundled', 'operator' or 'none'",
    "monitoring.logs.level": "'debug', 'info', 'warn', 'error' or 'fatal'",
    "directory.kind": "'rfc2307', 'rfc2307bis' or 'ad'",
    "login.service": "'NodePort', 'LoadBalancer' or 'ClusterIP'",
    "network.cilium.routing": "'tunnel' or 'native'",
    "network.cilium.encryption": "'none', 'wireguard' or 'ipsec'",
    "reconciler.ladder[0]": "'recheck', 'restart', 'reboot' or 'replace'",
    "reconciler.ladders.gpu-xid[0]": "'recheck', 'restart', 'reboot' or 'replace'",
    "long_checks.checks[0].name": "'cpu-memory', 'dcgm', 'gpu-burn'",
}

SWITCHES = (
    "bridge.users[0].may_set_priority",
    "nodesets[0].shared_with_pods",
    "nodesets[0].pods_only",
    "nodesets[1].roll.in_maintenance",
    "nodesets[1].keep_machine",
    "nodesets[1].exclusive_cpus",
    "protect_data",
    "containers.enabled",
    "containers.registries[0].insecure",
    "containers.mount_home",
    "containers.remap_root",
    "containers.entrypoint",
    "containers.writable",
    "controller.standby",
    "cluster.machines.gpu.spot",
    "cluster.machines[0].lost",
    "monitoring.exporter.enabled",
    "monitoring.bundled.grafana.enabled",
    "network.guard",
    "network.cilium.node_routes",
    "network.cilium.kube_proxy_replacement",
    "network.cilium.bandwidth_manager",
    "network.cilium.bbr",
    "network.cilium.host_firewall",
    "network.cilium.hubble.enabled",
    "network.cilium.hubble.relay",
    "network.cilium.hubble.ui",
    "jail.volumes[0].read_only",
    "jail.volumes[0].login",
    "nodesets[0].volumes[0].read_only",
    "nodesets[0].isolation.no_new_privileges",
    "nodesets[0].isolation.private_devices",
    "nodesets[0].isolation.overlay",
    "partitions[0].default",
    "partitions[0].hidden",
    "partitions[0].exclusive",
    "slurm.priority.favor_small",
    "health.enabled",
    "accounting.enabled",
    "accounting.backup.enabled",
    "accounting.store_scripts",
    "accounting.store_environments",
    "accounting.accounts[0].users[0].default",
    "login.home_keys",
    "login.ssh_to_nodes",
    "login.forwarding.tcp",
    "login.forwarding.agent",
    "login.forwarding.x11",
    "login.motd.state",
    "long_checks.checks[0].enabled",
)

LISTS = (
    "bridge.namespaces",
    "bridge.users",
    "bridge.users[0].accounts",
    "cluster.api_from",
    "cluster.zones",
    "cluster.control_planes",
    "pull_secrets",
    "backup.exclude",
    "containers.allowed",
    "containers.registries",
    "containers.registries[0].mirrors",
    "containers.mounts",
    "jail.volumes",
    "jail.nfs.options",
    "jail.csi.options",
    "jail.server.machines",
    "nodesets",
    "nodesets[0].on_demand.keep",
    "nodesets[0].on_demand.schedule",
    "nodesets[0].on_demand.schedule[0].days",
    "nodesets[0].features",
    "nodesets[0].tolerations",
    "placement.controller.tolerations",
    "nodesets[0].volumes",
    "nodesets[0].isolation.devices",
    "nodesets[0].isolation.shared",
    "nodesets[0].pod.init_containers",
    "nodesets[0].pod.init_containers[0].command",
    "nodesets[0].pod.init_containers[0].capabilities",
    "slurm.propagated_limits",
    "partitions",
    "partitions[0].nodesets",
    "partitions[0].allow_qos",
    "partitions[1].deny_qos",
    "partitions[0].allow_accounts",
    "partitions[0].allow_groups",
    "health.node_states",
    "slurm.private_data",
    "slurm.topology.labels",
    "slurm.topology.switches",
    "slurm.topology.switches[2].switches",
    "slurm.topology.switches[1].nodesets",
    "slurm.topology.blocks",
    "slurm.topology.blocks[0].nodesets",
    "slurm.topology.block_sizes",
    "slurm.extra.{slurm.conf}",
    "accounting.enforce",
    "accounting.accounts",
    "accounting.accounts[0].users",
    "accounting.accounts[0].qos",
    "accounting.accounts[0].users[0].qos",
    "accounting.accounts[0].users[0].partitions",
    "accounting.accounts[0].users[0].partitions[0].qos",
    "accounting.qos",
    "accounting.qos[0].flags",
    "accounting.qos[0].preempt",
    "accounting.operators",
    "accounting.administrators",
    "accounting.remove_with_jobs",
    "auth.rotations",
    "login.source_ranges",
    "long_checks.checks",
    "long_checks.checks[0].nodesets",
    "directory.uris",
    "monitoring.scrape_from",
    "network.refuse",
    "policy.registries",
    "policy.host_paths",
    "network.cilium.devices",
    "reconciler.maintenance",
    "reconciler.hardware",
    "reconciler.ladder",
    "reconciler.ladders.gpu-xid",
    "reconciler.replace",
    "reconciler.replace_servers",
    "users",
    "users[0].ssh_keys",
    "users[0].ssh_key_files",
    "groups",
    "groups[0].members",
)

MAPPINGS = (
    "bridge",
    "bridge.users[0]",
    "nodesets[1].roll",
    "secrets",
    "placement",
    "placement.controller",
    "placement.controller.node_selector",
    "placement.controller.tolerations[0]",
    "cluster.machines.gpu.reservation",
    "cluster",
    "cluster.machines",
    "cluster.machines.gpu",
    "cluster.machines.gpu.autoscaling",
    "cluster.machines[0]",
    "cluster.kubeadm",
    "cluster.kubeadm.KubeletConfiguration",
    "cluster.system",
    "operators",
    "containers",
    "containers.registries[0]",
    "containers.environment",
    "jail",
    "jail.nfs",
    "jail.csi",
    "jail.csi.attributes",
    "jail.server",
    "jail.volumes[0]",
    "snapshots",
    "jail.volumes[1].nfs",
    "jail.volumes[2].empty",
    "controller",
    "nodesets[0]",
    "nodesets[0].on_demand",
    "nodesets[0].on_demand.schedule[0]",
    "on_demand",
    "nodesets[0].gpus",
    "nodesets[0].gpus.mig",
    "nodesets[0].parameters",
    "nodesets[0].node_selector",
    "nodesets[0].affinity",
    "nodesets[0].tolerations[0]",
    "nodesets[0].volumes[0]",
    "nodesets[0].volumes[2].empty",
    "nodesets[0].volumes[5].nfs",
    "nodesets[0].isolation",
    "nodesets[0].pod",
    "nodesets[0].pod.resources",
    "nodesets[0].pod.hugepages",
    "nodesets[0].pod.environment",
    "nodesets[0].pod.annotations",
    "nodesets[0].pod.init_containers[0]",
    "nodesets[0].pod.init_containers[0].environment",
    "nodesets[0].limits",
    "partitions[0]",
    "partitions[0].parameters",
    "slurm",
    "slurm.scheduler",
    "slurm.scheduler.parameters",
    "slurm.preemption",
    "slurm.timeouts",
    "slurm.priority",
    "slurm.priority.tres",
    "slurm.prolog",
    "slurm.epilog",
    "slurm.task_prolog",
    "slurm.task_epilog",
    "health",
    "health.checks",
    "health.script",
    "nodesets[0].checks",
    "slurm.job_submit_lua",
    "slurm.topology",
    "slurm.topology.switches[0]",
    "slurm.topology.blocks[0]",
    "slurm.slurmctld_parameters",
    "slurm.extra",
    "accounting",
    "accounting.database",
    "accounting.external",
    "accounting.purge",
    "accounting.archive",
    "accounting.accounts[0]",
    "accounting.accounts[0].users[0]",
    "accounting.qos[0]",
    *_AMOUNTS,
    "backup",
    "backup.keep",
    "backup.nfs",
    "backup.s3",
    "accounting.backup",
    "accounting.backup.keep",
    "accounting.backup.nfs",
    "accounting.backup.s3",
    "auth",
    "rest",
    "login",
    "login.forwarding",
    "login.limits",
    "login.motd",
    "long_checks",
    "long_checks.checks[0]",
    "directory",
    "monitoring",
    "monitoring.bundled",
    "monitoring.bundled.grafana",
    "monitoring.operator",
    "monitoring.operator.labels",
    "monitoring.operator.dashboard_labels",
    "monitoring.exporter",
    "monitoring.logs",
    "network",
    "policy",
    "policy.exceptions",
    "policy.exceptions.non-root",
    "network.cilium",
    "network.cilium.hubble",
    "reconciler",
    "reconciler.conditions",
    "reconciler.ladders",
    "users[0]",
    "groups[0]",
)

_LABEL = "expected a DNS label"
_DOMAIN = "expected a DNS domain"
_OBJECT = "expected a Kubernetes name"
_SECRET = "expected the name of a Secret"
_HOST = "expected a host name or IPv4 address"
_UNIT = "with its unit, such as '512MiB'"
_TIME = "expected a time above zero, in quotes"
_WORD = "expected one word"
_REGION = "expected a region: lower-case words and a number"
_KEY_OF_KUBERNETES = "expected a Kubernetes key"
_USER = "expected a user name"
_PATH = "expected an absolute path, such as '/data'"
_INSIDE = "expected a relative path inside the project"
_SCALAR = "expected a number, true, false, or text that is not empty and has no spaces"
_PARAMETER = "expected a parameter name"
_TEXT = "expected text; put it in quotes"
_CAPABILITY = "expected a capability, such as 'NET_ADMIN'"
_SIZE = "expected a size with its unit, such as '512MiB', or 'unlimited', or 'none'"
_DEVICE = "expected a name in /dev, such as 'fuse'"
_NO_SCRIPT = "expected a script that begins with '#!'"
_RANGE = "expected an address range, such as '10.0.0.0/16'"
_ALL = "contains all addresses; expected a narrower range, such as '10.0.0.0/16'"
_MEANT = "is an address in the middle of a range; did you mean the range '"
_MOMENT = "expected a date and time with a time zone"
_SERVER = "expected a server URL, such as 'ldaps://ldap.example.org'"
_OPTION = "expected a mount option"
_LINE = "expected one line of text that is not empty"
_LINES = "expected text that is not empty and has no control characters"
_AGE = "expected an age: a number from 1 to 9999"
_ACCOUNT = "expected an account or QOS name: at most 40 characters"
_PROJECT = "expected an id of a Nebius project"
_SHARES = "expected a whole number of at least 0, or 'parent'"
_THING = "expected 'account NAME', 'user NAME account NAME', 'qos NAME' or 'user NAME account"
_CRON = "expected five cron fields"
_DUMP = "expected 'latest', or the name of a dump"
_BUCKET = "expected a bucket name: 3 to 63"
_OBJECTS = "expected names separated by '/'"
_URL = "expected an http or https URL, such as 'https://hooks.example.org/1'"
_IMAGE = "expected an image name"
_LABEL_VALUE = "expected a label value"
_DNS = "expected a DNS name, such as 'pypi.org' or '*.pypi.org'"
_CHART = "expected a full chart version, such as '1.19.6'"
_ARM = "has ARM CPUs, but the images require amd64"
_INTERFACE = "expected a network interface, such as 'eth0'"
_MINOR = "expected a minor version of Kubernetes, 1.30 or later"
_RELEASE = "expected a Kubernetes release, 1.31 or later"
_IPV4 = "expected an IPv4 address"
_ENDPOINT = "expected a server URL, such as 'https://s3.example.org'"

_CLASS: dict[object, str] = {"Shared NFS": _OBJECT, 5: _TEXT}
HIDDEN: dict[str, dict[object, str]] = {
    "secrets.oncall.key": {"": "expected text that is not empty", 4711: "expected text"},
    "monitoring.bundled.webhook": {
        "hooks.lab": _URL,
        "ftp://hooks.lab": _URL,
        "https://user:word@hooks.lab/x": _URL,
        "https://hooks.lab/a b": _URL,
        4711: "expected text that is not empty",
    },
    "pull_secrets[0]": {"My Secret": _SECRET, 4711: _SECRET},
    "reconciler.replace_secret": {"My Secret": _SECRET, 4711: _SECRET},
    "nodesets[0].volumes[4].secret": {"A": _SECRET, 4711: _SECRET},
    "jail.csi.node_stage_secret": {"A Secret": _SECRET, 4711: _SECRET},
    "jail.csi.node_publish_secret": {"A Secret": _SECRET, 4711: _SECRET},
    "jail.volumes[5].secret": {"A": _SECRET, 4711: _SECRET},
    "directory.password_secret": {"A Secret": _SECRET, 4711: _SECRET},
    "network.cilium.ipsec_secret": {"My Secret": _SECRET, 4711: _SECRET},
    "accounting.external.password_secret": {"My Secret": _SECRET, 4711: _SECRET},
    "backup.s3.secret": {"My Keys": _SECRET, 4711: _SECRET},
    "backup.password_secret": {"A Secret": _SECRET, 4711: _SECRET},
    "accounting.backup.s3.secret": {"My Keys": _SECRET, 4711: _SECRET},
    "accounting.backup.password_secret": {"A Secret": _SECRET, 4711: _SECRET},
    "monitoring.bundled.alertmanager_secret": {"My Secret": _SECRET, 4711: _SECRET},
    "monitoring.logs.headers_secret": {"My Secret": _SECRET, 4711: _SECRET},
    "containers.credentials_secret": {"My Secret": _SECRET, 4711: _SECRET},
    "accounting.external.host": {"mysql://slurm:word@db.lab": _HOST},
}
"""Keys of credentials, or of values that may contain one, with refused values and the remedy in
each error. These errors do not show the value."""
_HOUR = "expected a time of day from '00:00' to '23:59'; midnight is '00:00'"
WORDS: dict[str, dict[Any, str]] = {
    "nodesets[0].on_demand.schedule[0].begin": {"8:00": _HOUR, "24:00": _HOUR, 800: _TEXT},
    "nodesets[0].on_demand.schedule[0].end": {"8": _HOUR},
    "nodesets[0].on_demand.price": {-1: "expected at least 0", "2 EUR": "expected a number"},
    "on_demand.ceiling": {-1: "expected at least 0"},
    "cluster_name": {"My Cluster": _LABEL, "": _LABEL, "a" * 64: _LABEL, "-a": _LABEL},
    "cluster.kubeconfig": {5: _TEXT},
    "cluster.project": {"my project": _PROJECT, "e00example": _PROJECT},
    "cluster.subnet": {"a subnet": _WORD},
    "cluster.version": {"v1.33": _MINOR, "1.33.1": _MINOR, "1.29": _MINOR, 1.33: _TEXT},
    "cluster.api_from[0]": {"192.0.2.1/24": _MEANT, "0.0.0.0/0": _ALL},
    "cluster.machines.gpu.platform": {"h100": "expected a Nebius platform"},
    "cluster.machines.gpu.preset": {"8gpu": "expected a Nebius preset"},
    "cluster.machines.gpu.fabric": {"Fabric 7": _LABEL},
    "cluster.machines.gpu.disk": {"256GB": _UNIT},
    "cluster.machines.gpu.type": {"p5": "expected an instance type", "g5g.metal": _ARM},
    "cluster.system.platform": {"cpu": "expected a Nebius platform"},
    "cluster.system.preset": {"16": "expected a Nebius preset"},
    "cluster.system.type": {"large": "expected an instance type", "m7g.4xlarge": _ARM},
    "cluster.release": {"1.34": _RELEASE, "v1.34.4": _RELEASE, "1.30.9": _RELEASE, 1.34: _TEXT},
    "cluster.control_planes[0]": {"Node A": _LABEL},
    "cluster.endpoint": {"api.example.org:6443": _HOST},
    "cluster.pods": {"10.244.0.1/16": _MEANT},
    "cluster.services": {"10.96.0.1/12": _MEANT},
    "cluster.key_file": {5: _TEXT},
    "cluster.machines[0].name": {"Node A": _LABEL},
    "cluster.machines[0].address": {"a.example.org": _IPV4, "fd00::1": _IPV4},
    "cluster.machines[0].host_key": {"AAAA": "expected an OpenSSH public key"},
    "cluster.machines[0].user": {"The Admin": _USER},
    "cluster.machines[0].nodeset": {"CPU": _LABEL},
    "cluster.region": dict.fromkeys(("eu central", "eu-central-l"), _REGION),
    "cluster.zones[0]": {"zone a": _WORD},
    "cluster.network": {"10.0.0.1/16": _MEANT},
    "operators.gpu_version": {"latest": _CHART},
    "operators.network_version": {"25.10": _CHART},
    "operators.amd_version": {"": _CHART},
    "cluster.context": {5: _TEXT},
    "cluster.domain": {"cluster..local": _DOMAIN, "a" * 254: _DOMAIN, 5: _TEXT},
    "namespace": {"slurm.hpc": _LABEL, "Slurm": _LABEL},
    "bridge.scheduler": {"Slurm": _LABEL},
    "bridge.namespaces[0]": {"Lab": _LABEL},
    "bridge.default_memory": {"1": _UNIT},
    "bridge.users[0].uid": {999: "expected at least 1000", 60000: "expected less than 60000"},
    "bridge.partition": {"Main": _LABEL},
    "bridge.users[0].namespace": {"Lab": _LABEL},
    "bridge.users[0].service_account": {"Trainer": _OBJECT},
    "bridge.users[0].user": {"Alice": _USER},
    "bridge.users[0].accounts[0]": {"Physics Lab": _ACCOUNT},
    "registry": {
        "https://registry.example.org": "expected a host and a path",
        "": "expected a host and a path",
        "Registry": "expected a host and a path",
    },
    "containers.cache": {
        "cache": "expected a path per user",
        "/local/../%u": "expected a path per user",
        "/local/cache": "add %u, which becomes the user's name",
    },
    "containers.site_cache": {
        "images": "expected a path",
        "/images/../etc": "expected a path",
        "/": "expected a path",
    },
    "containers.cache_size": {"100GB": _UNIT},
    "containers.image_size": {"100": _UNIT},
    "containers.allowed[0]": {
        **dict.fromkeys(("a b", "https://nvcr.io/*"), "expected a pattern of images"),
        "": "expected a pattern",
    },
    "containers.registries[0].name": {"https://docker.io": "expected a host and a path"},
    "containers.registries[0].mirrors[0]": {"Mirror": "expected a host and a path"},
    "containers.mounts[0]": {
        "data:/data": "expected SOURCE:TARGET[:FLAGS]",
        "/a,/b": "expected SOURCE:TARGET[:FLAGS]",
        "/a/../b": "expected SOURCE:TARGET[:FLAGS]",
    },
    "containers.environment.NCCL_DEBUG": {5: _TEXT},
    "jail.size": {1024: _UNIT, "100GB": _UNIT, "0GiB": _UNIT, "100": _UNIT},
    "jail.storage_class": _CLASS,
    "controller.state_size": {"10 GiB": _UNIT, "-1GiB": _UNIT, True: _UNIT},
    "controller.storage_class": _CLASS,
    "nodesets[0].name": {
        "GPU_1": _LABEL,
        "9gpu": "expected a name that begins with a letter",
        "a" * 57: "expected at most 56 characters",
        "controller": "is reserved for another component; choose another name",
        "all": "is Slurm's word for all nodes; choose another name",
        False: _TEXT,
    },
    "nodesets[0].memory": {
        2048: _UNIT,
        "2 gigs": _UNIT,
        "1.5GiB": _UNIT,
        "99999999MiB": "a whole number from 1 to 9999999",
        "٣GiB": _UNIT,
    },
    "nodesets[0].ephemeral_storage": {"1TB": _UNIT},
    "nodesets[0].gpus.type": {"H100": "expected a GPU type", 100: _TEXT},
    "nodesets[0].gpus.resource": {
        "gpu": "expected a Kubernetes resource, such as 'nvidia.com/gpu'",
        "nvidia.com/": "expected a Kubernetes key",
        "NVIDIA/gpu": _DOMAIN,
    },
    "nodesets[0].features[0]": {"NVLink": _LABEL, "a,b": _LABEL, 5: _TEXT},
    "nodesets[0].parameters.TmpDisk": {
        "10 GB": _SCALAR,
        "1#2": _SCALAR,
        "a\\": _SCALAR,
        "a\nState=DOWN": _SCALAR,
        "": _SCALAR,
    },
    "nodesets[0].tolerations[0].key": {
        "a b": "expected a Kubernetes key, such as 'pool'",
        "_/pool": _DOMAIN,
    },
    "nodesets[0].tolerations[0].value": {True: _TEXT, 5: _TEXT},
    "nodesets[0].node_selector.pool": {True: _TEXT, 5: _TEXT},
    "nodesets[0].priority_class": {"High!": _OBJECT},
    "placement.controller.tolerations[0].key": {"a b": "expected a Kubernetes key"},
    "placement.controller.tolerations[0].value": {True: _TEXT, 5: _TEXT},
    "placement.controller.node_selector.pool": {True: _TEXT, 5: _TEXT},
    "placement.controller.priority_class": {"High!": _OBJECT},
    "placement.controller.memory": {"4GB": _UNIT},
    "cluster.machines.gpu.reservation.id": {"p5": "expected the id of a Capacity Reservation"},
    "nodesets[0].volumes[0].name": {"My Data": _LABEL},
    "nodesets[0].volumes[0].path": {"data": _PATH, "/a/../b": _PATH, "/a b": _PATH, "/": _PATH},
    "nodesets[0].volumes[0].claim": {"My Data": _LABEL},
    "nodesets[0].volumes[1].host_path": {"srv": _PATH, "/a:b": _PATH},
    "nodesets[0].volumes[2].empty.size": {100: _UNIT},
    "nodesets[0].volumes[3].config_map": {"A": _OBJECT},
    "nodesets[0].volumes[5].nfs.server": {"nfs:/x": _HOST, "": _HOST, 5: _TEXT},
    "nodesets[0].volumes[5].nfs.path": {"old": _PATH},
    "jail.nfs.server": {"nfs:/jail": _HOST, 5: _TEXT},
    "jail.nfs.path": {"jail": _PATH},
    "jail.nfs.options[0]": {"a b": _OPTION, "": _OPTION, "a,b": _OPTION, 5: _TEXT},
    "jail.csi.driver": {"A driver": _DOMAIN},
    "jail.csi.handle": {"": _LINE, 5: _TEXT},
    "jail.csi.attributes.pool": {5: _TEXT, True: _TEXT},
    "jail.csi.options[0]": {"a b": _OPTION},
    "jail.host_path": {"srv": _PATH, "/": _PATH},
    "jail.claim": {"My Jail": _LABEL},
    "jail.server.storage_class": _CLASS,
    "jail.server.machines[0]": {"10.0.0.1/16": _MEANT, "node-1": _RANGE, 10: _TEXT},
    "jail.volumes[0].name": {"My Homes": _LABEL},
    "jail.volumes[0].path": {"home": _PATH, "/": _PATH, "/a/../b": _PATH, "/a b": _PATH},
    "jail.volumes[0].claim": {"My Homes": _LABEL},
    "jail.volumes[1].nfs.server": {"nfs:/x": _HOST, 5: _TEXT},
    "jail.volumes[1].nfs.path": {"sets": _PATH, "/a b": _PATH},
    "jail.volumes[2].empty.size": {100: _UNIT},
    "jail.volumes[3].host_path": {"srv": _PATH},
    "jail.volumes[4].config_map": {"A": _OBJECT},
    "nodesets[0].isolation.devices[0]": {
        "dri/card0": _DEVICE,
        "..": _DEVICE,
        "": _DEVICE,
        "a b": _DEVICE,
        5: _TEXT,
    },
    "nodesets[0].isolation.tmp": {"8G": _UNIT, 100: _UNIT},
    "nodesets[0].isolation.var_tmp": {"0GiB": _UNIT},
    "nodesets[0].isolation.shm": {"half": _UNIT},
    "nodesets[0].pod.image": {"My Worker": _IMAGE},
    "nodesets[0].pod.hugepages.hugepages-2Mi": {"4GB": _UNIT},
    "nodesets[0].pod.environment.NCCL_DEBUG": {5: _TEXT, True: _TEXT},
    "nodesets[0].pod.annotations.{k8s.v1.cni.cncf.io/networks}": {5: _TEXT},
    "nodesets[0].pod.init_containers[0].name": {"My Tune": _LABEL},
    "nodesets[0].pod.init_containers[0].image": {"My Tune": _IMAGE},
    "nodesets[0].pod.init_containers[0].command[0]": {5: _TEXT},
    "nodesets[0].pod.init_containers[0].environment.LEVEL": {2: _TEXT},
    "nodesets[0].pod.init_containers[0].capabilities[0]": {
        "net_admin": _CAPABILITY,
        "CAP_NET_ADMIN": "expected a name without CAP_, as in Kubernetes: 'NET_ADMIN'",
    },
    "nodesets[0].limits.core": {"1GB": _SIZE, 0: _SIZE},
    "nodesets[0].limits.locked_memory": {"all": _SIZE},
    "partitions[0].memory_per_gpu": {"32 GB": _UNIT},
    "nodesets[0].isolation.shared[0]": {"home": _PATH, "/": _PATH, "/a/../b": _PATH},
    "partitions[0].name": {"Main": _LABEL, 5: _TEXT},
    "partitions[0].nodesets[0]": {5: _TEXT},
    "partitions[0].max_time": {
        43_200: _TIME,
        "soon": _TIME,
        "0": _TIME,
        "1:2:3:4": _TIME,
        "9" * 40: _TIME,
        "48:00": "write '48:00:00' or '00:48:00'",
        "90:5": "write '90:05:00' or '00:90:05'",
    },
    "partitions[0].default_time": {60: _TIME, "-1": _TIME},
    "partitions[0].memory_per_cpu": {4096: _UNIT},
    "partitions[0].qos": {"a,b": _WORD, "": _WORD},
    "partitions[0].allow_qos[0]": {"a b": _WORD},
    "partitions[1].deny_qos[0]": {"a=b": _WORD},
    "partitions[0].allow_accounts[0]": {"a b": _WORD},
    "partitions[0].allow_groups[0]": {"Lab": _USER},
    "partitions[0].parameters.LLN": {"a b": _SCALAR},
    "slurm.scheduler.parameters.bf_window": {"a b": _SCALAR, "'": _SCALAR},
    "slurm.priority.max_age": {604_800: _TIME, "a week": _TIME},
    "slurm.priority.decay_half_life": {True: _TIME},
    "slurm.topology.labels[1]": {"a b": _KEY_OF_KUBERNETES, "": _KEY_OF_KUBERNETES},
    "slurm.topology.switches[0].name": {"a b": _WORD},
    "slurm.topology.switches[0].nodes": {
        "gpu-[0-1": "is not a hostlist; write it in the form 'gpu-[0-3,7]'",
        "gpu-[1-0]": "is descending",
        "": "is not a host name",
        "gpu-[0-99999]": "has more than 65536 hosts",
    },
    "slurm.topology.switches[2].switches[0]": {"a b": _WORD},
    "slurm.topology.switches[1].nodesets[0]": {5: _TEXT},
    "slurm.topology.blocks[0].name": {"": _WORD},
    "slurm.topology.blocks[0].nodes": {"gpu-[a]": "is not a hostlist"},
    "slurm.slurmctld_parameters.idle_on_node_suspend": {"a b": _SCALAR},
    "slurm.extra.{slurm.conf}[0]": {
        "": "expected one line of text",
        "A=1\nB=2": "expected one line of text",
        5: _TEXT,
    },
    "auth.rotations[0]": {
        "2026-12-01": _MOMENT,
        "2026-12-01T03:00:00": _MOMENT,
        "2026-13-01T03:00:00Z": _MOMENT,
        "soon": _MOMENT,
        True: _MOMENT,
    },
    "rest.jwks": {"/etc/keys.json": _INSIDE, "../keys.json": _INSIDE, "": _INSIDE},
    "rest.token_lifetime": {3600: _TIME, "a week": _TIME},
    "rest.user_claim": {"a b": _WORD},
    "snapshots.jail": {"A class": _OBJECT, 5: _TEXT},
    "snapshots.state": {"A class": _OBJECT, 5: _TEXT},
    "snapshots.schedule": {
        "nightly": _CRON,
        "61 * * * *": "minute '",
        5: _TEXT,
    },
    "directory.uris[0]": {
        "ldap.example.org": _SERVER,
        "https://ldap.example.org": _SERVER,
        "ldaps://a b": _SERVER,
        "ldaps://a:0": _SERVER,
        "ldaps://a:70000": _SERVER,
        5: _TEXT,
    },
    "directory.base": {"": _LINE, "dc=a\nldap_uri = ldap://other": _LINE, 5: _TEXT},
    "directory.bind_dn": {"": _LINE, 5: _TEXT},
    "directory.ca": {"/etc/ca.pem": _INSIDE},
    "directory.user_filter": {"": _LINE, 5: _TEXT},
    "directory.key_attribute": {"a b": _WORD},
    "login.source_ranges[0]": {
        "192.0.2.1/24": _MEANT,
        "example.org/24": _RANGE,
        5: _TEXT,
    },
    "login.limits.memory": {8: _UNIT, "32MiB": "expected at least 64MiB"},
    "reconciler.maintenance[0]": {"a b": _KEY_OF_KUBERNETES, 5: _TEXT},
    "reconciler.hardware[0]": {"a b": _WORD, 5: _TEXT},
    "reconciler.conditions.DiskPressure": {"a b": _WORD, 5: _TEXT},
    "reconciler.replace[0]": {"": _LINE, 5: _TEXT},
    "login.motd.text": {"\x1b[31mred": _LINES, " \n": _LINES, 5: _TEXT},
    "monitoring.scrape_from[0]": {"My Namespace": _LABEL, 5: _TEXT},
    "policy.registries[0]": {"https://docker.io": "expected a host and a path"},
    "policy.host_paths[0]": {"srv": _PATH, "/": _PATH},
    "policy.exceptions.non-root.nodeset-*": {"": _LINE, 5: _TEXT},
    "network.policies": {
        "moon": "expected 'kubernetes', 'cilium', 'both' or 'none'",
        2: "expected 'kubernetes', 'cilium', 'both' or 'none'",
    },
    "network.names": {"x": "expected a list, such as [a, b]"},
    "network.names[0]": {
        "10.1.2.3": _DNS,
        "pypi": _DNS,
        "**.lab": _DNS,
        "https://a.lab": _DNS,
        "": _DNS,
        5: _TEXT,
    },
    "network.cilium.version": {"1.19": _CHART, "latest": _CHART, 1.19: _TEXT},
    "network.cilium.chained": {"aws cni": _WORD, 5: _TEXT},
    "network.cilium.pod_cidr": {"10.244.0.1/16": _MEANT, 10: _TEXT},
    "network.cilium.native_cidr": {"10.244.0.1/16": _MEANT, 10: _TEXT},
    "network.cilium.devices[0]": {"eth 0": _INTERFACE, "a" * 16: _INTERFACE, "+": _INTERFACE},
    "network.cilium.api_host": {"https://api.lab": _HOST, 10: _TEXT},
    "network.refuse[0]": {
        "10.0.0.1/16": _MEANT,
        "10.0.0.0/33": _RANGE,
        "fe80::1%eth0/128": _RANGE,
        "0.0.0.0/0": _ALL,
        "example.org": _RANGE,
        "": _RANGE,
        10: _TEXT,
    },
    "users[0].name": {"Ada": _USER, "a" * 33: _USER, "a:b": _USER, "1a": _USER},
    "users[0].ssh_keys[0]": {
        "hunter2": "expected an OpenSSH public key, such as 'ssh-ed25519",
        "ssh-ed25519 AAAA": "copy the whole key",
        "ssh-ed25519 !!!!": "copy the whole key",
        KEY.replace("ssh-ed25519", "ssh-rsa"): "is not a key of this type",
        KEY[:60]: "the key is cut off, or has bytes after its end; copy the whole key",
        KEY[: len("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5")]: "the key is cut off",
        KEY.replace("HR4f test", "HR4fAAAA test"): "has bytes after its end",
        f"{KEY}\n{KEY}": "expected one key on one line",
    },
    "users[0].ssh_key_files[0]": {5: _TEXT},
    "users[0].shell": {"bash": _PATH, "/bin/sh\nroot::0:0": _PATH},
    "accounting.database.size": {"50": _UNIT, 50: _UNIT},
    "accounting.database.storage_class": _CLASS,
    "accounting.database.buffer_pool": {"8": _UNIT},
    "accounting.archive.size": {"1TB": _UNIT},
    "accounting.archive.storage_class": _CLASS,
    "accounting.external.host": {"db lab": _HOST, 5: _TEXT},
    "accounting.external.name": {"a b": _WORD},
    "accounting.external.user": {"a b": _WORD},
    "accounting.external.tls_ca": {"/ca.pem": _INSIDE},
    **{
        f"accounting.purge.{what}": {"2years": _AGE, 12: _TEXT, "0days": _AGE}
        for what in (
            *("events", "jobs", "reservations", "steps"),
            *("suspensions", "transactions", "usage"),
        )
    },
    **{
        f"accounting.{key}": {"Physics": _ACCOUNT, "a b": _ACCOUNT, "": _ACCOUNT, 5: _TEXT}
        for key in (
            *("accounts[0].name", "accounts[0].parent", "default_account", "qos[0].name"),
            *("accounts[0].qos[0]", "accounts[0].users[0].qos[0]", "qos[0].preempt[0]"),
            *("accounts[0].default_qos", "accounts[0].users[0].default_qos"),
            "accounts[0].users[0].partitions[0].qos[0]",
            "accounts[0].users[0].partitions[0].default_qos",
        )
    },
    "accounting.accounts[0].description": {"": _LINE, "a\nb": _LINE},
    "accounting.accounts[0].organization": {"": _LINE},
    "accounting.accounts[0].users[0].name": {"Ada": _USER},
    "accounting.accounts[0].users[0].partitions[0].name": {"Main": _LABEL},
    "accounting.operators[0]": {"Ada": _USER},
    "accounting.administrators[0]": {"Bob": _USER},
    **{
        f"accounting.{place}.fairshare": {"much": _SHARES, True: _SHARES, 0.5: _SHARES}
        for place in _ASSOCIATIONS
    },
    **{
        f"accounting.{place}.{field}": {60: _TIME, "soon": _TIME}
        for place in _HAVE_LIMITS
        for field in ("grp_wall", "max_wall")
    },
    "accounting.qos[0].preempt_exempt_time": {600: _TIME},
    "accounting.remove_with_jobs[0]": {"physics": _THING, "account Physics": _THING, 5: _TEXT},
    "accounting.backup.schedule": {
        "daily": _CRON,
        "3 * * *": _CRON,
        "60 3 * * *": "minute '",
        "0 24 * * *": "hour '",
        "0 0 0 * *": "day of the month '",
        "0 0 * 13 *": "month '",
        "0 0 * * 7": "day of the week '",
        "0 0 * * 5-1": "day of the week '",
        "*/0 * * * *": "minute '",
        "0  3 * * *": _CRON,
        "0,,5 3 * * *": "minute '",
        "0 3 31 2 *": "this schedule never runs, because no February has day 31",
        "0 3 30,31 2 *": "this schedule never runs, because no February has day 30",
        "0 3 31 4,6,9-11/2 *": "this schedule never runs, because no April has day 31",
        3: _TEXT,
    },
    "backup.exclude[0]": {"": _LINE, "/tmp\n/home": _LINE, 5: _TEXT},
    "backup.schedule": {"daily": _CRON, 3: _TEXT},
    "backup.size": {"20": _UNIT},
    "backup.memory": {"2": _UNIT},
    "backup.largest_file": {"2": _UNIT},
    "backup.storage_class": _CLASS,
    "backup.claim": {"My Sets": _LABEL},
    "backup.nfs.server": {"nfs:/x": _HOST, 5: _TEXT},
    "backup.nfs.path": {"sets": _PATH},
    "backup.s3.endpoint": {"s3.lab": _ENDPOINT, "https://s3.lab/sets": _ENDPOINT},
    "backup.s3.bucket": {"ab": _BUCKET, "My_Bucket": _BUCKET},
    "backup.s3.prefix": {"/hpc": _OBJECTS, "": _OBJECTS},
    "backup.s3.region": {"a b": _WORD},
    "backup.s3.ca": {"/ca.pem": _INSIDE},
    "backup.restore": {"Last Night": _LABEL, 5: _TEXT},
    "accounting.backup.size": {"20": _UNIT},
    "accounting.backup.storage_class": _CLASS,
    "accounting.backup.claim": {"My Dumps": _LABEL},
    "accounting.backup.nfs.server": {"nfs:/x": _HOST, 5: _TEXT},
    "accounting.backup.nfs.path": {"dumps": _PATH},
    "accounting.backup.s3.endpoint": {
        "s3.lab": _ENDPOINT,
        "s3://lab": _ENDPOINT,
        "https://s3.lab/dumps": _ENDPOINT,
        "https://user:key@s3.lab": _ENDPOINT,
        "https://s3.lab:70000": _ENDPOINT,
    },
    "accounting.backup.s3.bucket": {"ab": _BUCKET, "My_Bucket": _BUCKET, "a/b": _BUCKET},
    "accounting.backup.s3.prefix": {"/hpc": _OBJECTS, "a b": _OBJECTS, "": _OBJECTS},
    "accounting.backup.s3.region": {"a b": _WORD},
    "accounting.backup.s3.ca": {"/ca.pem": _INSIDE},
    "accounting.backup.restore": {"newest": _DUMP, "1f2e3d": _DUMP, "1F2E3D4C": _DUMP, 5: _TEXT},
    "monitoring.bundled.size": {"2TB": _UNIT},
    "monitoring.bundled.storage_class": _CLASS,
    "monitoring.bundled.grafana.image": {5: _TEXT, "": _IMAGE, "a b": _IMAGE},
    "monitoring.operator.labels.release": {"a b": _LABEL_VALUE, True: _TEXT},
    "monitoring.operator.dashboard_labels.grafana_dashboard": {"a b": _LABEL_VALUE, 1: _TEXT},
    "monitoring.dcgm_namespace": {"GPU": _LABEL},
    "reconciler.replace_servers[0]": {"api.cloud.lab:443": _URL, 5: _TEXT},
    "monitoring.logs.endpoint": {
        "collector:4318": _URL,
        "grpc://collector:4317": _URL,
        "https://user:word@collector.lab": _URL,
        5: _TEXT,
    },
    "monitoring.logs.ca": {"/ca.pem": _INSIDE},
    "long_checks.checks[0].schedule": {
        "nightly": _CRON,
        "61 * * * *": "minute '",
        5: _TEXT,
    },
    "long_checks.size": {"1GB": _UNIT},
    "long_checks.storage_class": _CLASS,
    "groups[0].name": {"The Lab": _USER},
    "groups[0].members[0]": {"Ada": _USER},
}
"""Keys whose values need a certain form, with refused values and the remedy in each error."""

UNKNOWN: dict[str, str] = {
    "nodeset": "did you mean 'nodesets'?",
    "users[0].gid": "the user's own group has the uid as its id; remove gid",
    "users[0].groups": "list the user in groups[].members",
    "cluster.node": "known: context, domain, kind, kubeconfig",
    "cluster.projekt": "did you mean 'project'?",
    "cluster.machines.gpu.presets": "did you mean 'preset'?",
    "cluster.machines.gpu.autoscaling.maximum": "known: max, min",
    "cluster.machines[0].hostkey": "did you mean 'host_key'?",
    "cluster.system.replica": "did you mean 'replicas'?",
    "accounting.accounts[0].partition": "known: default_qos, description",
    "operators.instal": "did you mean 'install'?",
    "jail.sice": "did you mean 'size'?",
    "jail.nfs.export": "known: options, path, server",
    "jail.csi.volumeHandle": "did you mean 'handle'?",
    "jail.server.class": "known: machines, storage_class",
    "snapshots.class": "known: jail, keep, schedule, state",
    "jail.volumes[0].readOnly": "did you mean 'read_only'?",
    "jail.volumes[1].nfs.sever": "did you mean 'server'?",
    "jail.volumes[2].empty.sizes": "did you mean 'size'?",
    "nodesets[0].volumes[5].nfs.export": "known: path, server",
    "controller.stand_by": "did you mean 'standby'?",
    "nodesets[0].replcas": "did you mean 'replicas'?",
    "nodesets[0].gpus.cuont": "did you mean 'count'?",
    "nodesets[0].tolerations[0].tolerationSeconds": "known: effect, key, operator, seconds, value",
    "nodesets[0].volumes[0].readOnly": "did you mean 'read_only'?",
    "nodesets[0].volumes[2].empty.sizes": "did you mean 'size'?",
    "nodesets[0].isolation.pids": "known: devices",
    "nodesets[0].pod.ressources": "did you mean 'resources'?",
    "nodesets[0].limits.nofile": "did you mean 'open_files'?",
    "partitions[0].maxtime": "did you mean 'max_time'?",
    "slurm.schedulers": "did you mean 'scheduler'?",
    "slurm.scheduler.parameter": "did you mean 'parameters'?",
    "slurm.preemption.modes": "did you mean 'mode'?",
    "slurm.timeouts.massage": "did you mean 'message'?",
    "slurm.priority.ages": "did you mean 'age'?",
    "slurm.prolog.txt": "did you mean 'text'?",
    "health.intervall": "did you mean 'interval'?",
    "health.script.path": "known: file, text",
    "slurm.job_submit_lua.path": "known: file, text",
    "slurm.topology.switchs": "did you mean 'switches'?",
    "slurm.topology.switches[0].node": "did you mean 'nodes'?",
    "slurm.topology.blocks[0].nods": "did you mean 'nodes'?",
    "accounting.enable": "did you mean 'enabled'?",
    "accounting.database.bufferpool": "did you mean 'buffer_pool'?",
    "accounting.external.hosts": "did you mean 'host'?",
    "accounting.archive.sizes": "did you mean 'size'?",
    "accounting.account": "did you mean 'accounts'?",
    "accounting.accounts[0].share": "did you mean 'fairshare'?",
    "accounting.accounts[0].users[0].maxwall": "did you mean 'max_wall'?",
    "placement.controller.cpu": "did you mean 'cpus'?",
    "placement.controller.tolerations[0].second": "did you mean 'seconds'?",
    "cluster.machines.gpu.reservation.type": "known: id, kind",
    "accounting.accounts[0].GrpTRES": "did you mean 'grp_tres'?",
    "accounting.qos[0].MaxTRESPerUser": "did you mean 'max_tres_per_user'?",
    "accounting.qos[0].GrpTRES": "did you mean 'grp_tres'?",
    "accounting.purge.job": "did you mean 'jobs'?",
    "backup.schedules": "did you mean 'schedule'?",
    "backup.keep.days": "did you mean 'daily'?",
    "backup.nfs.folder": "known: path, server",
    "backup.s3.buckets": "did you mean 'bucket'?",
    "accounting.backup.schedules": "did you mean 'schedule'?",
    "accounting.backup.keep.days": "did you mean 'daily'?",
    "accounting.backup.nfs.folder": "known: path, server",
    "accounting.backup.s3.buckets": "did you mean 'bucket'?",
    "auth.rotation": "did you mean 'rotations'?",
    "rest.replica": "did you mean 'replicas'?",
    "login.node-port": "did you mean 'node_port'?",
    "login.forwarding.tpc": "did you mean 'tcp'?",
    "login.limits.cpu": "did you mean 'cpus'?",
    "login.motd.states": "did you mean 'state'?",
    "long_checks.check": "did you mean 'checks'?",
    "long_checks.checks[0].thresholds": "did you mean 'threshold'?",
    "directory.uri": "did you mean 'uris'?",
    "monitoring.exporter.tops": "did you mean 'top'?",
    "monitoring.logs.header_secret": "did you mean 'headers_secret'?",
    "network.policy": "did you mean 'policies'?",
    "network.cilium.device": "did you mean 'devices'?",
    "network.cilium.hubble.relays": "did you mean 'relay'?",
    "reconciler.intervall": "did you mean 'interval'?",
    "users[0].id": "did you mean 'uid'?",
    "groups[0].member": "did you mean 'members'?",
}

REQUIRED = (
    "cluster_name",
    "bridge.users",
    "bridge.users[0].namespace",
    "bridge.users[0].user",
    "cluster",
    "cluster.api_from",
    "cluster.project",
    "cluster.region",
    "cluster.zones",
    "cluster.machines.gpu.platform",
    "cluster.machines.gpu.preset",
    "cluster.machines.gpu.type",
    "cluster.machines.gpu.autoscaling.max",
    "cluster.control_planes",
    "cluster.machines[0].name",
    "cluster.machines[0].address",
    "cluster.machines[0].host_key",
    "nodesets[0].name",
    "nodesets[0].replicas",
    "nodesets[0].cpus",
    "nodesets[0].memory",
    "nodesets[0].gpus.type",
    "nodesets[0].gpus.count",
    "jail.nfs.server",
    "jail.nfs.path",
    "jail.csi.driver",
    "jail.csi.handle",
    "jail.volumes[0].name",
    "jail.volumes[0].path",
    "jail.volumes[1].nfs.server",
    "jail.volumes[1].nfs.path",
    "nodesets[0].volumes[0].name",
    "nodesets[0].volumes[0].path",
    "nodesets[0].volumes[5].nfs.server",
    "nodesets[0].volumes[5].nfs.path",
    "nodesets[0].pod.init_containers[0].name",
    "nodesets[0].pod.init_containers[0].image",
    "nodesets[0].pod.init_containers[0].command",
    "partitions[0].name",
    "partitions[0].nodesets",
    "slurm.topology.switches[0].name",
    "slurm.topology.blocks[0].name",
    "accounting.external.host",
    "accounting.external.password_secret",
    "accounting.accounts[0].name",
    "accounting.accounts[0].users[0].name",
    "accounting.accounts[0].users[0].partitions[0].name",
    "cluster.machines.gpu.reservation.id",
    "accounting.qos[0].name",
    "backup.password_secret",
    "backup.nfs.server",
    "backup.nfs.path",
    "backup.s3.endpoint",
    "backup.s3.bucket",
    "backup.s3.secret",
    "accounting.backup.nfs.server",
    "accounting.backup.nfs.path",
    "accounting.backup.s3.endpoint",
    "accounting.backup.s3.bucket",
    "accounting.backup.s3.secret",
    "long_checks.checks[0].name",
    "monitoring.logs.endpoint",
    "directory.uris",
    "directory.base",
    "users[0].name",
    "users[0].uid",
    "groups[0].name",
    "groups[0].gid",
)

_BOTH = {"text": "#!/bin/sh\n", "file": "prolog"}
_LEAF = {"name": "leaf", "nodesets": ["slices"]}
RULES: list[tuple[str, object, str, str, str]] = [
    # Each row begins with the edited key and its new value. The row ends with three texts that the
    # error must contain: a key, the value and the remedy.
    ("nodesets[1].on_demand", {}, "nodesets[1].roll", "",
     (
         "has no effect, because the deploy replaces nodes on demand when they are idle; remove "
         "'roll'"
     )),
    ("nodesets[0].on_demand.min", 3, "nodesets[0].on_demand", "min: 3",
     "min: 3: expected at most 'replicas' of the nodeset, which is 2"),
    ("nodesets[0].on_demand.schedule[0].min", 5, "nodesets[0].on_demand", "min: 5",
     "min: 5: expected at most 'replicas' of the nodeset, which is 2"),
    ("nodesets[0].on_demand.keep[0]", "cpu-2", "nodesets[0].on_demand.keep", "'cpu-2'",
     "did you mean 'cpu-1'?"),
    ("nodesets[0].on_demand.start", "20m", "nodesets[0].on_demand.start", '"20m"',
     "did you mean 1200?"),
    ("secrets", {"registry": {"password": {"secure": "v1:abc"}}}, "pull_secrets[0]", "'registry'",
     "add this entry to secrets.registry"),
    ("reconciler.conditions", {"Ready": "not-ready"}, "reconciler.conditions.Ready",
     "is true for healthy nodes", (
         "remove it: the reconciler always drains nodes that are not ready"
     )),
    ("on_demand.ceiling", 0, "on_demand.ceiling", "0", (
        "set the highest price for an hour, or remove on_demand.ceiling"
    )),
    ("on_demand.ceiling", 2, "nodesets[0].on_demand.price", "2.5", "raise on_demand.ceiling"),
    ("on_demand.ceiling", 4, "on_demand.ceiling", "4", "lower the numbers of nodes"),
    ("nodesets[0].on_demand.schedule[0].days", [], "nodesets[0].on_demand.schedule[0].days", "[]",
     "1 or more items"),
    ("nodesets[0].features", ["on-demand"], "nodesets[0].features", "'on-demand'", "remove it"),
    ("nodesets[0].on_demand", None, "on_demand.ceiling", "10", "remove on_demand.ceiling"),
    ("nodesets[0].on_demand.price", None, "nodesets[0].on_demand.price", "is required",
     "add the price of a node"),
    ("bridge.partition", "mian", "bridge.partition", "'mian'", "did you mean 'main'?"),
    ("bridge.users", [], "bridge.users", "[]", "1 or more items"),
    ("bridge.namespaces", ["web"], "bridge.namespaces[0]", "'web': no rule in 'users' covers",
     "add a rule"),
    ("bridge.namespaces", ["lab", "lab"], "bridge.namespaces", "'lab' occurs twice", "keep one"),
    ("bridge.users[0].user", "alcie", "bridge.users[0].user", "'alcie'", "did you mean 'alice'?"),
    ("bridge.users[0].uid", 2001, "bridge.users[0].uid", "2001", "remove this setting"),
    ("nodesets[0].shared_with_pods", False, "bridge", "no node may run pods",
     "set 'shared_with_pods: true' or 'pods_only: true' in a nodeset"),
    ("bridge.users", [{"namespace": "lab", "user": "alice"}] * 2, "bridge.users",
     "two entries are for lab/* as alice", "keep one"),
    ("cluster.kind", "moon", "cluster.kind", '"moon"',
     "expected 'eks', 'existing', 'local', 'metal' or 'nebius'"),
    ("cluster.machines.gpu.autoscaling.min", 9, "cluster.machines.gpu.autoscaling.min", "9",
     "lower 'min', or raise 'max'"),
    ("cluster.machines.gpu.autoscaling.min", 0, "cluster.machines.gpu.autoscaling.min", "0",
     "expected at least 1"),
    ("cluster.machines.gpu.autoscaling", {"max": 3}, "cluster.machines.gpu.autoscaling.max", "3",
     "raise 'max', or lower 'replicas'"),
    ("cluster.machines.gpus", {"platform": "cpu-d3", "preset": "4vcpu-16gb"},
     "cluster.machines.gpus", "'gpus' is not a nodeset", "did you mean 'gpu'?"),
    ("cluster.machines", {}, "cluster.machines", "'gpu'", "add cluster.machines.gpu"),
    ("cluster.machines.gpu.platform", "cpu-d3", "cluster.machines.gpu.platform", "'cpu-d3'",
     "expected a platform with GPUs"),
    ("cluster.machines.slices.preset", "8gpu-128vcpu-1600gb", "cluster.machines.slices.preset",
     "'8gpu-128vcpu-1600gb'", "expected a preset with 1 GPUs"),
    ("cluster.machines.gpu.preset", "8gpu-32vcpu-1600gb", "cluster.machines.gpu.preset",
     "'8gpu-32vcpu-1600gb'", (
         "'8gpu-32vcpu-1600gb': expected a preset with more than the nodeset's 63.5 CPUs"
     )),
    ("cluster.machines.gpu.preset", "8gpu-128vcpu-500gb", "cluster.machines.gpu.preset",
     "'8gpu-128vcpu-500gb'", "leaves pods at most 492.1 GiB of memory, because kubelet"),
    ("cluster.machines.gpu.preset", "8gpu-128vcpu-512gb", "cluster.machines.gpu.preset",
     "'8gpu-128vcpu-512gb'", "leaves pods at most 503.9 GiB of memory, because kubelet"),
    ("cluster.machines.slices.fabric", "fabric-6", "cluster.machines.slices.fabric", "'fabric-6'",
     "connects only machines with 8 GPUs"),
    ("cluster.machines.gpu.type", "m7i.48xlarge", "cluster.machines.gpu.type", "'m7i.48xlarge'",
     "expected a type with GPUs"),
    ("cluster.network", "10.0.0.0/24", "cluster.network", "'10.0.0.0/24'", "from /16 to /20"),
    ("cluster.network", "fd00::/16", "cluster.network", "'fd00::/16'", "expected an IPv4 range"),
    ("cluster.zones", ["eu-central-1a"], "cluster.zones", "eu-central-1a",
     "expected a list with 2 or more items"),
    ("cluster.zones", ["eu-central-1a", "us-east-1a"], "cluster.zones", "'us-east-1a'",
     "expected a zone of eu-central-1"),
    ("cluster.zones", ["eu-central-1a", "eu-central-1-lab-1a"], "cluster.zones",
     "'eu-central-1-lab-1a'", "from eu-central-1a to eu-central-1h"),
    ("cluster.machines[0].nodeset", "gpu", "cluster.machines[0].nodeset", "'gpu' is not a nodeset",
     "did you mean 'cpu'?"),
    ("cluster.machines[0].name", "b", "cluster.machines", "two machines have the name 'b'",
     "give each a unique name"),
    ("cluster.machines[0].address", "192.0.2.2", "cluster.machines",
     "two machines have the address '192.0.2.2'", "give each a unique address"),
    ("cluster.machines[1].nodeset", "cpu", "cluster.machines", "",
     "add a machine without the setting 'nodeset'"),
    ("cluster.control_planes", ["d"], "cluster.control_planes", "'d' is not a machine",
     "known: a, b, c"),
    ("cluster.control_planes", ["a", "b"], "cluster.control_planes", "2 machines",
     "list one or three machines"),
    ("cluster.control_planes", ["a", "b", "a"], "cluster.control_planes", "'a'", "keep one"),
    ("cluster.control_planes", [], "cluster.control_planes", "[]",
     "expected a list with 1 or more items"),
    ("cluster.endpoint", None, "cluster.endpoint", "3 control planes",
     "set it to a name or address that leads to all of them"),
    ("cluster.pods", "10.128.0.0/25", "cluster.pods", "'10.128.0.0/25'", "from /8 to /24"),
    ("cluster.pods", "10.128.0.0/24", "cluster.pods", "is enough for only 1 of 3 machines",
     "choose a larger range"),
    ("cluster.pods", "192.0.0.0/16", "cluster.pods", "contains the address of machine 'a'",
     "choose another range"),
    ("cluster.pods", "fd00::/16", "cluster.pods", "'fd00::/16'", "expected an IPv4 range"),
    ("cluster.services", "10.0.0.0/8", "cluster.services", "'10.0.0.0/8'", "from /12 to /28"),
    ("cluster.services", "10.128.4.0/22", "cluster.services", "overlaps cluster.pods",
     "choose another range"),
    ("cluster.services", "192.0.2.0/24", "cluster.services", "contains the address of machine 'a'",
     "choose another range"),
    ("cluster.kubeadm", {"InitConfiguration": {}}, "cluster.kubeadm.InitConfiguration",
     "InitConfiguration", "expected 'ClusterConfiguration'"),
    ("cluster.kubeadm", {"ClusterConfiguration": {"networking": {}}},
     "cluster.kubeadm.ClusterConfiguration", "", "use cluster.pods"),
    ("cluster.kubeadm", {"nodeRegistration": {"taints": []}},
     "cluster.kubeadm.nodeRegistration", "", "use cluster.machines[].nodeset"),
    ("cluster.zones", ["eu-central-1a"] * 2, "cluster.zones", "'eu-central-1a'", "keep one"),
    ("operators.install", "perhaps", "operators.install", '"perhaps"', "expected true or false"),
    ("operators.driver", "perhaps", "operators.driver", '"perhaps"', "expected true or false"),
    ("nodesets[0].gpus", {"type": "mi300x", "count": 8, "resource": "amd.com/gpu",
                          "mig": {"1g.10gb": 8}}, "nodesets[0].gpus.mig", "amd.com", (
                              "remove gpus.mig"
                          )),
    ("cluster.api_port", 12222, "cluster.ssh_port", "12222",
     "choose another port"),
    ("login", {}, "login.service", "LoadBalancer", "set login.service to 'NodePort'"),
    ("login", {"service": "NodePort"}, "login.node_port", "", (
        "set login.node_port to a port from 30000 to 32767"
    )),
    ("login.service", "ClusterIP", "login.node_port", "32222", (
        "set login.service to 'NodePort', or remove login.node_port"
    )),
    ("login.source_ranges", ["192.0.2.0/24"], "login.source_ranges", "192.0.2.0/24",
     "set login.service to 'LoadBalancer', or remove login.source_ranges"),
    ("login.limits.cpus", 0.05, "login.limits.cpus", "0.05", "expected at least 0.1"),
    ("login.limits.cpus", 4097, "login.limits.cpus", "4097", "expected at most 4096"),
    ("login.limits.cpus", True, "login.limits.cpus", "true", "expected a number"),
    ("long_checks.checks[0].threshold", -1, "long_checks.checks[0].threshold", "-1",
     "expected at least 0"),
    ("long_checks.checks[0].threshold", True, "long_checks.checks[0].threshold", "true",
     "expected a number"),
    ("long_checks.checks[0].fall", 0, "long_checks.checks[0].fall", "0", "expected more than 0"),
    ("long_checks.checks[0].fall", 1, "long_checks.checks[0].fall", "1", "expected less than 1"),
    ("long_checks.checks[0].least", 31, "long_checks.checks[0].least", "31",
     "lower 'least', or raise 'history'"),
    ("long_checks.checks[0].history", 201, "long_checks.checks[0].history", "201",
     "lower 'history', or raise 'keep'"),
    ("long_checks.checks[1].name", "nccl", "long_checks.checks", "'nccl'", "remove one of them"),
    ("long_checks.checks[0].nodesets", ["cpus"], "long_checks.checks[0].nodesets", "'cpus'",
     "is not a nodeset"),
    ("long_checks.checks[0].nodesets", ["slices"], "long_checks.checks[0].nodesets", "'slices'",
     "remove this nodeset from the check"),
    ("partitions[1].name", "slurmstack-checks", "partitions", "'slurmstack-checks'",
     "is reserved for long checks; choose another name"),
    ("users", [*FULL["users"], {"name": "slurmstack-checks", "uid": 2002}], "users",
     "'slurmstack-checks'", "is reserved for long checks; choose another name"),
    ("directory.bind_dn", None, "directory.password_secret", "",
     "has no effect without directory.bind_dn; add directory.bind_dn, or remove this setting"),
    ("directory.password_secret", None, "directory.password_secret", "",
     "remove bind_dn"),
    ("policy.exceptions", {"non-rot": {"login-sshd": "b"}}, "policy.exceptions.non-rot",
     "is not a policy", "did you mean 'non-root'?"),
    ("cluster.machines.gpu.type", "p5.4xlarge", "cluster.machines.gpu.type", "'p5.4xlarge'",
     "choose a larger type, or lower gpus.count"),
    ("directory.user_filter", "a=b", "directory.user_filter", "'a=b'",
     "expected one filter in balanced parentheses"),
    ("directory.user_filter", "(&(a=b)", "directory.user_filter", "'(&(a=b)'",
     "expected one filter in balanced parentheses"),
    ("directory.uris", [], "directory.uris", "[]", "a list with 1 or more items"),
    ("jail", {"claim": "mine", "size": "10MiB"}, "jail.size", "10 MiB",
     "remove jail.size"),
    ("jail", {"nfs": STORAGES["nfs"]["jail"]["nfs"], "claim": "x"}, "jail.nfs",
     "cannot be combined with 'claim'", "keep only one of"),
    ("jail.size", "1MiB", "jail.size", "1MiB", "expected at least 1GiB"),
    ("nodesets[0].memory", "127MiB", "nodesets[0].memory", "127MiB", "expected at least 128MiB"),
    ("jail", {"storage_class": "a", "host_path": "/x"}, "jail.storage_class",
     "", "keep only one of these settings"),
    ("jail", {"claim": "x", "server": {"machines": ["10.0.0.0/16"]}}, "jail.claim",
     "", "keep only one of these settings"),
    ("snapshots", {"keep": 5}, "snapshots.jail", "",
     "set snapshots.jail or snapshots.state"),
    ("jail.server.machines", ["fd00::/112"], "jail.server.machines", "fd00::/112",
     "expected a prefix length of at most /99"),
    ("jail", {"server": {}}, "jail.server.machines", "",
     "add the address ranges of the Kubernetes nodes"),
    ("jail.volumes[0].secret", "s", "jail.volumes[0].name", "claim and secret",
     "set exactly one of claim, host_path, nfs, empty, config_map, secret"),
    ("jail.volumes[0].claim", None, "jail.volumes[0].name", "no source",
     "set exactly one of claim"),
    ("jail.volumes[0].name", "a" * 59, "jail.volumes[0].name", "'aaaa", "at most 58 characters"),
    ("jail.volumes[0].name", "jail", "jail.volumes[0].name", "'jail'", "choose another"),
    ("jail.volumes[0].name", "sets", "jail.volumes", "'sets'", "give each a unique name"),
    ("jail.volumes[0].path", "/sets", "jail.volumes", "'/sets'", "give each a unique path"),
    *(("jail.volumes[0].path", f"{path}/x", "jail.volumes[0].path", f"'{path}/x'",
       f"would hide files of the system in {path}; choose a path outside {path}")
      for path in ("/bin", "/dev", "/etc", "/lib", "/proc", "/run", "/sys", "/usr", "/var")),
    ("jail.volumes[2].path", "/home", "jail.volumes[2].path", "'/home'", "set 'claim' instead"),
    ("nodesets[0].volumes[1].name", "jail-homes", "nodesets[0].volumes", "'jail-homes'",
     "choose another name"),
    ("nodesets[0].volumes[1].path", "/mnt/jail/home", "nodesets[0].volumes", "'/mnt/jail/home'",
     "choose another path"),
    ("nodesets[1].name", "gpu", "nodesets", "'gpu'", "give each a unique name"),
    ("backup.cpus", 0, "backup.cpus", "0", "expected at least 0.1"),
    ("backup.cpus", 2000, "backup.cpus", "2000", "expected at most 1024"),
    ("backup.cpus", "two", "backup.cpus", '"two"', "expected a number"),
    ("placement.controller.cpus", 0, "placement.controller.cpus", "0", "expected more than 0"),
    ("placement.controller.cpus", "two", "placement.controller.cpus", '"two"', "expected a number"),
    ("placement.default.cpus", 2, "placement.default.cpus", "2", "set it for each"),
    ("placement.default.memory", "1GiB", "placement.default.memory", "1024",
     "set it for each"),
    ("placement.worker", {}, "placement.worker", '"worker"', "expected 'default', 'accounting'"),
    ("nodesets[0].cpu_request", 65, "nodesets[0].cpu_request", "65", (
        "65: expected at most 'cpus' of the nodeset, which is 64"
    )),
    ("nodesets[0].cpu_request", 0, "nodesets[0].cpu_request", "0", "expected more than 0"),
    ("nodesets[0].cpu_request", "two", "nodesets[0].cpu_request", '"two"', "expected a number"),
    ("nodesets[0].cpu_request", True, "nodesets[0].cpu_request", "true", "expected a number"),
    ("nodesets[0].exclusive_cpus", True, "nodesets[0].cpu_request", "63.5", "remove 'cpu_request'"),
    ("nodesets[0].sockets", 3, "nodesets[0].cpus", "64", "change one of these numbers"),
    ("nodesets[0].features", ["a", "a"], "nodesets[0].features", "'a'", "remove one"),
    ("nodesets[0].features", ["gpu"], "nodesets[0].features", "'gpu'", "remove it from 'features'"),
    ("nodesets[0].gpus.mig", {"1g.10gb": 1}, "nodesets[0].gpus.shards", "4", "remove gpus.shards"),
    ("nodesets[0].gpus.mig", {"big": 1}, "nodesets[0].gpus.mig.big", '"big"', "a MIG profile"),
    ("nodesets[1].gpus.mig", {"1g.10gb": 2, "3g.40gb": 2}, "nodesets[1].gpus.mig",
     "",
     "expected at most 7, because gpus.count is 1 and each GPU has 7; lower the numbers"),
    ("nodesets[0].tolerations[0].operator", "Exists", "nodesets[0].tolerations[0].value", "'yes'",
     "set 'operator' to 'Equal', or remove 'value'"),
    ("nodesets[0].tolerations[0].value", None, "nodesets[0].tolerations[0].operator", "Equal",
     "add both, or set 'operator' to 'Exists'"),
    ("nodesets[0].tolerations[1].effect", "NoSchedule", "nodesets[0].tolerations[1].seconds", "60",
     "set 'effect' to 'NoExecute', or remove 'seconds'"),
    ("nodesets[0].volumes[0].secret", "s", "nodesets[0].volumes[0].name", "claim and secret",
     "set exactly one of claim, host_path, nfs, empty, config_map, secret"),
    ("nodesets[0].volumes[0].claim", None, "nodesets[0].volumes[0].name", "no source",
     "set exactly one of claim, host_path"),
    ("nodesets[0].volumes[0].name", "jail", "nodesets[0].volumes[0].name", "'jail'",
     "is a volume that every worker has; choose another name"),
    ("nodesets[0].volumes[0].path", "/mnt/jail", "nodesets[0].volumes[0].path", "'/mnt/jail'",
     "every worker itself uses /mnt/jail; choose another path"),
    ("nodesets[0].volumes[0].path", "/dev/x", "nodesets[0].volumes[0].path", "'/dev/x'",
     "every worker itself uses /dev; choose another path"),
    *(("nodesets[0].volumes[0].path", f"/mnt/jail{path}", "nodesets[0].volumes[0].path",
       f"'/mnt/jail{path}'", "a volume there would hide files of the system")
      for path in ("/usr", "/usr/lib", "/etc/x", "/tmp")),
    ("nodesets[0].volumes[0].path", "/mnt", "nodesets[0].volumes[0].path", "'/mnt'",
     "would hide /mnt/jail, which every worker uses; choose another"),
    ("nodesets[0].volumes[1].name", "data", "nodesets[0].volumes", "'data'", "a unique name"),
    ("nodesets[0].volumes[1].path", "/fast", "nodesets[0].volumes", "'/fast'", "a unique path"),
    ("nodesets[0].isolation.overlay", False, "nodesets[0].isolation.shared", "['/home']",
     "set 'overlay' to true, or remove 'shared'"),
    ("nodesets[0].isolation.private_devices", False, "nodesets[0].isolation.devices", "['vfio']",
     "set 'private_devices' to true, or remove 'devices'"),
    ("nodesets[0].isolation.tmp", "500GiB", "nodesets[0].isolation", "578560 MiB",
     "lower these sizes"),
    ("nodesets[0].pod.resources.gpu", 1, "nodesets[0].pod.resources.gpu", '"gpu"',
     "such as 'nvidia"),
    ("nodesets[0].pod.hugepages.pages", "1GiB", "nodesets[0].pod.hugepages.pages", '"pages"',
     "expected a page size, such as 'hugepages-2Mi'"),
    ("containers.allowed", [], "containers.allowed", "[]",
     (
         "an empty list would permit all images; add patterns such as 'nvcr.io/*', or set "
         "containers.enabled to false"
     )),
    ("containers.environment.SLURM_JOB_ID", "1", "containers.environment.SLURM_JOB_ID",
     "is reserved by Slurm", "choose another"),
    ("containers.environment.A-B", "1", "containers.environment.A-B", "expected a variable name",
     "such as"),
    ("containers.environment.A", "1\n2", "containers.environment.A", "",
     "remove these characters"),
    ("containers.registries", [{"name": "r.lab"}, {"name": "r.lab"}], "containers.registries",
     "registry 'r.lab' is listed twice", "remove one"),
    *(("nodesets[0].pod.environment." + name, "x", "nodesets[0].pod.environment." + name,
       f'"{name}"', remedy)
      for name, remedy in (
          ("A-B", "expected a variable name, such as 'NCCL_DEBUG'"),
          ("NODE_NAME", "is reserved; remove it: the stack sets it to the pod's name"),
          ("LIMITS", "is reserved; use limits"),
          ("PYTHONPATH", "remove it here, and set it in the jobs"),
          ("LD_PRELOAD", "remove it here, and set it in the jobs"),
      )),
    ("nodesets[0].pod.annotations.{slurmstack.dev/x}", "x",
     "nodesets[0].pod.annotations.slurmstack.dev/x", '"slurmstack.dev/x"', "choose another prefix"),
    ("nodesets[0].pod.resources.{nvidia.com/gpu}", 1, "nodesets[0].pod.resources",
     "'nvidia.com/gpu'", "remove it from pod.resources"),
    ("nodesets[0].pod.annotations.a b", "x", "nodesets[0].pod.annotations.a b", '"a b"',
     _KEY_OF_KUBERNETES),
    ("nodesets[0].pod.init_containers",
     [{"name": "a", "image": "r/a:1", "command": ["/a"]}] * 2,
     "nodesets[0].pod.init_containers", "'a'", "give each a unique name"),
    ("nodesets[0].parameters.Gres", "gpu:1", "nodesets[0].parameters.Gres", "gpu:1", "use gpus"),
    ("nodesets[0].parameters.tmpdisk", 1, "nodesets[0].parameters", "'tmpdisk'", "keep one"),
    ("nodesets[0].parameters.a-b", 1, "nodesets[0].parameters.a-b", '"a-b"', _PARAMETER),
    ("nodesets[0].node_selector.a b", "x", "nodesets[0].node_selector.a b", '"a b"',
     "expected a Kubernetes key"),
    ("partitions[1].name", "main", "partitions", "'main'", "give each a unique name"),
    ("partitions[1].default", True, "partitions",
     "", "keep it in only one partition"),
    ("partitions[0].nodesets", [], "partitions[0].nodesets", "[]", "a list with 1 or more items"),
    ("partitions[0].nodesets", ["gpus"], "partitions[0].nodesets", "'gpus'", "did you mean 'gpu'?"),
    ("partitions[0].nodesets", ["x\ny"], "partitions[0].nodesets", r"'x\ny'", "known: gpu, slices"),
    ("partitions[0].default_time", "8-0", "partitions[0].default_time", "'8-0'",
     "'8-0': expected at most max_time of the partition, which is 7-00:00:00"),
    ("partitions[0].deny_qos", ["low"], "partitions[0].deny_qos", "low",
     "keep only one"),
    ("partitions[0]", {"name": "x", "nodesets": ["gpu"], "exclusive": True,
                       "over_subscribe": "force"},
     "partitions[0].over_subscribe", "force", "remove one of the two settings"),
    ("partitions[0].parameters.Nodes", "ALL", "partitions[0].parameters.Nodes", "ALL",
     "use nodesets"),
    ("partitions[0].parameters.a-b", 1, "partitions[0].parameters.a-b", '"a-b"', _PARAMETER),
    ("partitions[0].allow_groups", ["lap"], "partitions[0].allow_groups", "'lap'", "mean 'lab'?"),
    ("slurm.preemption.type", "none", "partitions[0].preempt_mode", "off",
     "set slurm.preemption.type to 'partition_prio', or remove this setting"),
    ("slurm.timeouts.unkillable_step", 299, "slurm.timeouts.unkillable_step", "299",
     "expected at least 300, which is five times message (60)"),
    ("slurm.priority", {"age": 9}, "slurm.priority.age", "9",
     "has no effect, because slurm.priority.type is 'basic'"),
    ("slurm.priority.tres", {"gpu": 1}, "slurm.priority.tres.gpu", '"gpu"', "'cpu', 'mem' or"),
    ("slurm.scheduler.parameters.a-b", 1, "slurm.scheduler.parameters.a-b", '"a-b"', _PARAMETER),
    ("slurm.slurmctld_parameters.1a", 1, "slurm.slurmctld_parameters.1a", '"1a"', _PARAMETER),
    ("slurm.prolog", {}, "slurm.prolog.text", "", "expected exactly one of 'text' and 'file'"),
    ("slurm.prolog", _BOTH, "slurm.prolog.text", "", "expected exactly one of 'text' and 'file'"),
    *((f"slurm.{name}", {"file": "../x"}, f"slurm.{name}.file", '"../x"', _INSIDE)
      for name in ("prolog", "epilog", "task_prolog", "task_epilog", "job_submit_lua")),
    ("slurm.prolog.text", "echo", "slurm.prolog.text", "'echo'", _NO_SCRIPT),
    ("slurm.prolog.text", 5, "slurm.prolog.text", "5", _TEXT),
    ("slurm.epilog.text", "", "slurm.epilog.text", "''", _NO_SCRIPT),
    ("slurm.task_prolog.text", " #!/bin/sh", "slurm.task_prolog.text", "' #!/bin/sh'", _NO_SCRIPT),
    ("slurm.task_epilog.text", "#\n", "slurm.task_epilog.text", r"'#\n'", _NO_SCRIPT),
    ("health.script.text", "exit", "health.script.text", "'exit'", _NO_SCRIPT),
    ("slurm.job_submit_lua.text", "return 1", "slurm.job_submit_lua.text", "'return 1'",
     "the script lacks the function slurm_job_submit, which slurmctld calls"),
    ("health.script", {"file": "/x"}, "health.script.file", '"/x"', _INSIDE),
    ("health.node_states", [], "health.node_states", "[]", "1 or more items"),
    ("health.node_states", ["alloc"], "health.node_states", "['alloc']", "add 'any' or 'idle'"),
    *((f"{place}checks", {name: choice}, f"{place}checks.{key}", shown, expected)
      for place in ("health.", "nodesets[0].")
      for name, choice, key, shown, expected in (
          ("disc", {}, "disc", "unknown check", "did you mean 'disk'?"),
          ("disk", True, "disk", "true", "expected false to disable the check, or a mapping"),
          ("disk", "off", "disk", '"off"', "expected false to disable the check, or a mapping"),
          ("disk", {"effect": "kill"}, "disk.effect", '"kill"', "'drain' or 'report'"),
          ("disk", {"effect": ["drain"]}, "disk.effect", '["drain"]', "'drain' or 'report'"),
          ("disk", {"max_procent": 5}, "disk.max_procent", "unknown key", "did you mean 'max_per"),
          ("disk", {"max_percent": "5"}, "disk.max_percent", '"5"', "a number, at least 0"),
          ("disk", {"max_percent": -1}, "disk.max_percent", "-1", "a number, at least 0"),
          ("disk", {"max_percent": True}, "disk.max_percent", "true", "a number, at least 0"),
          ("disk", {"paths": "/"}, "disk.paths", '"/"', 'a list, such as ["/", "/tmp"]'),
          ("disk", {"paths": ["tmp"]}, "disk.paths", '["tmp"]', 'absolute path instead of "tmp"'),
          ("gpu-xid", {"xids": ["79"]}, "gpu-xid.xids", '["79"]', 'a whole number instead of "79"'),
          ("gpu-xid", {"xids": 79}, "gpu-xid.xids", "79", "a list, such as [46, 48]"),
          ("kernel-log", {"patterns": ["a", "(b"]}, "kernel-log.patterns", '["a", "(b"]',
           'expected a regular expression instead of "(b" (missing ), unterminated subpattern'),
          ("gpu-busy", {"shared": 1}, "gpu-busy.shared", "1", "true or false"),
          ("gpu-count", {"count": None}, "gpu-count.count", "null", "a number, at least 0"),
      )),
    ("slurm.job_submit_lua", {"text": "slurm_job_submit"}, "slurm.job_submit_lua.text",
     "'slurm_job_submit'", "the script lacks the function slurm_job_modify, which slurmctld calls"),
    (
        "slurm.topology.kind",
        "none",
        "slurm.topology.switches",
        "kind is 'none'",
        "remove 'switches'",
    ),
    ("slurm.topology", {**FULL["slurm"]["topology"], "block_sizes": [2]},
     "slurm.topology.block_sizes", "kind is 'tree'", "remove 'block_sizes'"),
    ("slurm.topology", {"kind": "tree"}, "slurm.topology.switches", "is required",
     "kind is 'tree'; add 'switches', or 'labels' instead"),
    ("slurm.topology", {"kind": "block"}, "slurm.topology.blocks", "is required",
     "kind is 'block'; add 'blocks', or 'labels' instead"),
    ("slurm.topology", {"labels": ["zone"]}, "slurm.topology.labels", "kind is 'none'",
     "remove 'labels'"),
    ("slurm.topology", {**FULL["slurm"]["topology"], "labels": ["zone"]}, "slurm.topology.labels",
     "", "cannot be combined with 'switches'; remove one"),
    ("slurm.topology", {**_BLOCK, "labels": ["zone"]}, "slurm.topology.labels", "",
     "cannot be combined with 'blocks'; remove one"),
    ("slurm.topology", {**_LABELS, "labels": ["zone", "topology.kubernetes.io/zone"]},
     "slurm.topology.labels", "'topology.kubernetes.io/zone'", "keep only one of them"),
    ("slurm.topology", {**_LABELS, "labels": [f"level-{i}" for i in range(9)]},
     "slurm.topology.labels", "level-0", "at most 8"),
    ("slurm", {"topology": _LABELS, "extra": {"topology.conf": ["A=1"]}},
     "slurm.extra.topology.conf", "has no effect, because slurm.topology.labels", "remove one"),
    ("slurm.topology", {**_BLOCK, "blocks": [_BLOCK["blocks"][0]] * 2}, "slurm.topology.blocks",
     "'one'", "give each a unique name"),
    ("slurm.topology", {**_BLOCK, "block_sizes": [2, 6]}, "slurm.topology.block_sizes", "6",
     "expected the first size, 2, multiplied by 1, 2, 4, 8 or"),
    ("slurm.topology", {**_BLOCK, "block_sizes": [4]}, "slurm.topology.blocks", "'one' has 2 nodes",
     "add nodes to the block, or lower this number"),
    ("slurm.topology", {"kind": "block", "blocks": [{"name": "one"}]},
     "slurm.topology.blocks[0].name", "'one'", "has no nodes; set 'nodes' or 'nodesets'"),
    ("slurm.topology.switches[0].switches", ["top"], "slurm.topology.switches[0].name", "'left'",
     "set either 'switches', or at least one of 'nodes' and 'nodesets'"),
    ("slurm.topology.switches[2].switches", ["lost"], "slurm.topology.switches", "'lost'",
     "is not a switch; add a switch with this name"),
    ("slurm.topology.switches[2].switches", ["top"], "slurm.topology.switches", "'top'",
     "is below itself, directly or through other switches; remove 'top' from the list"),
    # 'a' is below the cycle of 'b' and 'c'.
    ("slurm.topology.switches",
     [{"name": "a", "nodes": "gpu-0"}, {"name": "b", "switches": ["a", "c"]},
      {"name": "c", "switches": ["b"]}],
     "slurm.topology.switches", "'b'",
     "is below itself, directly or through other switches; remove 'b' from the list"),
    ("slurm.topology.switches[2].switches", ["left", "left"], "slurm.topology.switches", "'left'",
     "list it only once"),
    ("slurm.topology.switches[1].name", "left", "slurm.topology.switches", "'left'", "unique name"),
    ("slurm.topology.switches[0].nodesets", ["gpus"], "slurm.topology.switches", "'gpus'",
     "did you mean 'gpu'?"),
    ("slurm.topology.switches[0].nodes", "gpu-9", "slurm.topology.switches", "'gpu-9'",
     "is not a node; did you mean 'gpu-"),
    ("slurm.topology.switches[0].nodes", "gpu-2", "slurm.topology.switches", "'gpu-2'",
     "keep the node in only one of them"),
    ("nodesets[0].kind", "dynamic", "slurm.topology.switches", "'gpu-0'", "kind: static"),
    ("slurm.extra", {"slrum.conf": []}, "slurm.extra.slrum.conf", '"slrum.conf"', "'slurm.conf'"),
    *(("slurm.extra.{slurm.conf}", [f"{key}=x"], "slurm.extra.slurm.conf", f"'{key.lower()}'",
       f"is reserved for the stack; {remedy}")
      for key, remedy in (("AuthType", "use auth.type"), ("CredType", "use auth.type"),
                          ("SlurmdSpoolDir", "remove it"), ("SlurmdUser", "remove it"))),
    ("jail.nfs.options", ["hard", "ro"], "jail.nfs.options", "'ro'", "remove 'ro'"),
    ("jail.csi.options", ["ro"], "jail.csi.options", "'ro'", "remove 'ro'"),
    ("nodesets[0].volumes[2].empty", {"size": "513GiB", "medium": "memory"},
     "nodesets[0].volumes[2].empty.size", "525312 MiB",
     "lower this size"),
    ("slurm.extra.{slurm.conf}", ["ClusterName=x"], "slurm.extra.slurm.conf", "'clustername'",
     "use cluster_name"),
    ("slurm.extra.{slurm.conf}",
     ["CommunicationParameters=EnableIPv6 # block_null_hash,block_zero_hash"],
     "slurm.extra.slurm.conf", "EnableIPv6", "block_null_hash and block_zero_hash"),
    ("slurm.extra.{slurm.conf}", ["CommunicationParameters=EnableIPv6,block_null_hash"],
     "slurm.extra.slurm.conf", "EnableIPv6", "block_zero_hash"),
    ("slurm.extra.{slurm.conf}", ["SelectTypeParameters=CR_Core # memory"],
     "slurm.extra.slurm.conf", "CR_Core", "CR_Core_Memory"),
    ("slurm",
     {"task_prolog": {"text": "#!/bin/sh\n"}, "extra": {"slurm.conf": ["TaskProlog=/opt/x"]}},
     "slurm.extra.slurm.conf", "'TaskProlog=/opt/x'",
     "replaces slurm.task_prolog, which then never runs; remove one of them"),
    ("slurm.extra.{slurm.conf}", ["A=1", "a = 2"], "slurm.extra.slurm.conf", "'a'", "keep one"),
    ("auth.rotations", ["2026-12-01T03:00:00Z"] * 2, "auth.rotations", "2026-12-01T03:00:00Z",
     "expected a list of times without duplicates, the oldest first"),
    ("accounting", {"enabled": False, "energy": "gpu"}, "accounting.energy", "",
     "remove this setting, or remove 'enabled: false'"),
    ("accounting", {"database": {"size": "1GiB"}, **EXTERNAL["accounting"]},
     "accounting.database", "", (
         "cannot be combined with accounting.external, because slurmdbd uses only one database; "
         "keep only one of the two settings"
     )),
    ("accounting", {"archive": {}}, "accounting.archive", "", (
        "add accounting.purge, or remove accounting.archive"
    )),
    *(
        (f"accounting.qos[0].{field}", value, f"accounting.qos[0].{field}", str(value), remedy)
        for field in ("usage_factor", "usage_threshold", "limit_factor")
        for value, remedy in (
            (-0.5, "expected at least 0"),
            (2_000_000, "expected at most 1000000"),
        )
    ),
    ("accounting.accounts[0].grp_tres", {"gpu": 1}, "accounting.accounts[0].grp_tres.gpu", "gpu",
     "expected a TRES (trackable resource), such as 'cpu', 'mem', 'node' or 'gres/gpu'"),
    ("accounting.accounts[0].grp_tres", {"mem": 1024}, "accounting.accounts[0].grp_tres.mem",
     "1024", _UNIT),
    ("accounting.accounts[0].grp_tres", {"cpu": -1}, "accounting.accounts[0].grp_tres.cpu", "-1",
     "expected at least 0"),
    ("accounting.accounts[0].name", "root", "accounting.accounts[0].name", "'root'",
     "Slurm reserves this name for the root of the account tree"),
    ("accounting.default_account", "root", "accounting.default_account", "'root'",
     "Slurm reserves this name for the root of the account tree"),
    ("accounting.accounts[1].name", "physics", "accounting.accounts", "'physics'",
     "give each a unique name"),
    ("accounting.accounts[0].parent", "sciences", "accounting.accounts[0].parent", "'sciences'",
     "did you mean 'science'?"),
    ("accounting.accounts[1].parent", "physics", "accounting.accounts", "'physics'",
     (
         "is its own parent, directly or through other accounts; set 'parent' of this account to "
         "another account"
     )),
    ("accounting.accounts[0].users[1].name", "ada", "accounting.accounts[0].users", "'ada'",
     "keep one"),
    ("accounting.accounts[1].users[0].default", True, "accounting.accounts", "'ada'",
     "keep 'default: true' in only one of these accounts"),
    ("accounting.accounts[0].qos", ["low"], "accounting.accounts[0].default_qos", "'high'",
     "add it to 'qos'"),
    ("accounting.accounts[0].users[0].qos", ["high", "hihg"], "accounting.accounts[0].users[0].qos",
     "'hihg'", "did you mean 'high'?"),
    ("accounting.accounts[1].default_qos", "low", "accounting.accounts[1].default_qos", "'low'",
     "is not a QOS"),
    ("accounting.qos[0].preempt", ["low"], "accounting.qos[0].preempt", "'low'", "is not a QOS"),
    ("accounting.qos[0].preempt", ["high"], "accounting.qos", "'high'",
     (
         "preempts itself, directly or through other QOS; change 'preempt' of this QOS, or of a "
         "QOS that it preempts"
     )),
    ("accounting.accounts[0].users[0].partitions[0].name", "mian",
     "accounting.accounts[0].users[0].partitions[0].name", "'mian'", "did you mean 'main'?"),
    ("accounting.accounts[0].users[0].partitions", [{"name": "main"}, {"name": "main"}],
     "accounting.accounts[0].users[0].partitions", "'main'", "is listed twice; keep one"),
    ("namespace", "kube-system", "namespace", "'kube-system'", (
        "choose a namespace that only this stack uses"
    )),
    ("users[1].name", "slurm", "users[1].name", "'slurm'", "choose another name"),
    ("groups[0].name", "sudo", "groups[0].name", "'sudo'", "choose another name"),
    ("partitions[0].name", "default", "partitions[0].name", "'default'",
     "choose another name. To make a partition the default, set 'default: true' in it"),
    ("partitions[0].min_nodes", 5, "partitions[0].min_nodes", "5", "at most max_nodes"),
    ("health.checks.disk", {"max_percent": 0.9}, "health.checks.disk.max_percent", "0.9",
     "expected a percentage from 1 to 100; did you mean 90?"),
    ("health.checks.disk", {"max_percent": 0}, "health.checks.disk.max_percent", "0",
     "expected a percentage from 1 to 100"),
    ("nodesets[0].checks.memory", {"min_percent": 101}, "nodesets[0].checks.memory.min_percent",
     "101", "expected a percentage from 0 to 99"),
    ("health.checks.memory", {"min_percent": 100}, "health.checks.memory.min_percent", "100",
     "expected a percentage from 0 to 99"),
    ("nodesets[0].checks.gpu-count", {"count": 9}, "nodesets[0].checks.gpu-count.count", "9",
     "nodes of nodeset 'gpu' have only 8 GPUs, so the check would drain these nodes"),
    ("health.checks.gpu-count", {"count": 9}, "health.checks.gpu-count.count", "9",
     "nodes of nodeset 'gpu' have only 8 GPUs, so the check would drain these nodes"),
    ("directory.base", "example.org", "directory.base", "example.org",
     "did you mean 'dc=example,dc=org'?"),
    ("directory.base", "dc=lab?sub", "directory.base", "dc=lab?sub", "a distinguished name"),
    ("reconciler.hardware", ["gpu-xids"], "reconciler.hardware", "'gpu-xids'", "mean 'gpu-xid'?"),
    ("reconciler.ladders", {"maintenance": ["recheck"]}, "reconciler.ladders.maintenance", "",
     "is neither a check nor a problem that the reconciler can repair"),
    ("reconciler.ladders", {"gpu-xids": ["recheck"]}, "reconciler.ladders.gpu-xids", "",
     "did you mean 'gpu-xid'?"),
    ("nodesets[0].affinity", {"nodeAfinity": {}}, "nodesets[0].affinity.nodeAfinity",
     "nodeAfinity", "expected 'nodeAffinity'"),
    ("nodesets[0].drain_grace", "2h", "nodesets[0].drain_grace", "2h", "did you mean 7200?"),
    ("jail.nfs.server", "2001:db8::1", "jail.nfs.server", "2001:db8::1", "without scheme, port"),
    ("jail.nfs.server", "nfs.lab:/export", "jail.nfs.server", "nfs.lab:/export",
     "did you mean 'nfs.lab'?"),
    ("accounting.accounts[0].users[1]", "ada", "accounting.accounts[0].users[1]", "ada",
     "such as {name: ada}"),
    ("accounting.operators", ["bob"], "accounting.operators", "'bob'",
     "keep the user in only one of the two lists"),
    ("accounting.remove_with_jobs", ["account physics"], "accounting.remove_with_jobs",
     "'account physics'", "remove it from that setting, or from remove_with_jobs"),
    ("accounting.qos[0].min_tres_per_job", {"mem": "1GiB", "cpu": 65},
     "accounting.qos[0].min_tres_per_job.cpu", "65",
     "lower the minimum, or raise the maximum"),
    ("accounting.operators", ["eve"], "accounting.operators", "'eve'", "known: ada, bob"),
    ("partitions[0].qos", "hihg", "partitions[0].qos", "'hihg'", "did you mean 'high'?"),
    ("accounting.backup", {"enabled": False, "restore": "latest"}, "accounting.backup.restore", "",
     "remove this setting, or remove 'enabled: false'"),
    ("backup", {"password_secret": "sets", "claim": "mine", "size": "10MiB"}, "backup.size",
     "10 MiB", "remove 'size'"),
    ("backup", {"password_secret": "sets", "memory": "64MiB"}, "backup.memory", "64MiB",
     "expected at least 256MiB"),
    ("backup", {"password_secret": "sets", "restore": "latest"}, "accounting.backup.restore",
     "'latest'", "keep only one of the two settings"),
    ("accounting.backup", {"claim": "mine", "size": "10MiB"}, "accounting.backup.size", "10 MiB",
     "remove 'size'"),
    ("accounting.backup", {"claim": "mine", "storage_class": "slow"},
     "accounting.backup.storage_class", "cannot be combined with 'claim'", "keep only one of"),
    ("accounting.backup.keep", dict.fromkeys(("last", "daily", "weekly", "monthly"), 0),
     "accounting.backup.keep.last", "0",
     "set one of these settings to 1 or more"),
    ("secrets", {"My Secret": {"key": "a"}}, "secrets.My Secret", '"My Secret"', _OBJECT),
    ("secrets", {"oncall": {"my key": "a"}}, "secrets.oncall.my key", '"my key"',
     "expected a Secret's key"),
    ("secrets", {"jwt-key": {"key": "a"}}, "secrets.jwt-key", "", "choose another name"),
    ("secrets", {"oncall": {}}, "secrets.oncall", "has no entries", "add an entry, or remove"),
    ("monitoring.bundled.alertmanager_secret", "alerts", "monitoring.bundled.webhook", "",
     "add this URL to alertmanager.yml in that Secret, and remove 'webhook'"),
    *(("monitoring.bundled.webhook", f"https://{host}/services/1", "monitoring.bundled.webhook",
       host, f"to a Secret whose alertmanager.yml uses {kind}_configs, and remove 'webhook'")
      for host, kind in (("hooks.slack.com", "slack"), ("lab.webhook.office.com", "msteams"))),
    ("monitoring", {"kind": "none", "bundled": {}}, "monitoring.bundled", "has no effect",
     "set monitoring.kind to 'bundled', or remove monitoring.bundled"),
    ("monitoring", {"operator": {}}, "monitoring.operator", "has no effect",
     "set monitoring.kind to 'operator', or remove monitoring.operator"),
    ("monitoring", {"kind": "operator", "dcgm_namespace": "gpu"}, "monitoring.dcgm_namespace",
     "gpu", "remove monitoring.dcgm_namespace"),
    ("monitoring", {"exporter": {"enabled": False}}, "monitoring.exporter.enabled", "false",
     "remove 'enabled: false', or set monitoring.kind to 'none'"),
    ("monitoring.logs.endpoint", "http://collector:4318/v1/logs/", "monitoring.logs.endpoint",
     "collector", "remove these parts"),
    ("monitoring.logs.endpoint", "http://loki.lab:3100/loki/api/v1/push",
     "monitoring.logs.endpoint", "/loki/api/v1/push",
     "expected Loki's path for OpenTelemetry: http://loki.lab:3100/otlp"),
    ("monitoring.logs.endpoint", "https://loki.lab/otlp?to=x", "monitoring.logs.endpoint",
     "loki.lab", "remove these parts"),
    ("rest.jwks", None, "rest.user_claim", "'name'", "add rest.jwks, or remove rest.user_claim"),
    ("users[1].name", "ada", "users", "'ada'", "give each a unique name"),
    ("users[1].uid", 2000, "users", "2000", "give each a unique uid"),
    ("users[0].uid", 999, "users[0].uid", "999", "expected at least 1000"),
    ("users[0].uid", 60_000, "users[0].uid", "60000", "expected less than 60000"),
    ("users[0].uid", "ada", "users[0].uid", '"ada"', "expected a whole number"),
    ("nodesets[1].roll.share", 0, "nodesets[1].roll.share", "0", "expected more than 0"),
    ("nodesets[1].roll.share", 1.5, "nodesets[1].roll.share", "1.5", "expected at most 1"),
    ("reconciler.replace", [], "reconciler.replace_secret", "cloud",
     "set reconciler.replace to a command, or remove this setting"),
    ("reconciler.share", 0, "reconciler.share", "0", "expected more than 0"),
    ("reconciler.share", 1.5, "reconciler.share", "1.5", "expected at most 1"),
    ("network.policies", "both", "network.names", "",
     "set network.policies to 'cilium', or remove this setting"),
    *(("network.cilium", {**CILIUM, key: value}, f"network.cilium.{named}", shown, remedy)
      for key, value, named, shown, remedy in (
          ("native_cidr", None, "native_cidr", "", (
              "add the address range that the underlying network routes to pods"
          )),
          ("routing", "tunnel", "native_cidr", "10.244.0.0/16",
           "remove 'native_cidr'"),
          ("kube_proxy_replacement", False, "api_host", "10.0.0.5",
           "remove 'api_host'"),
          ("api_host", None, "api_host", "", "add the host name or address of the Kubernetes API"),
          ("bandwidth_manager", False, "bbr", "true", "add it"),
          ("chained", "aws-cni", "routing", "native",
           "remove 'routing'"),
          ("ipsec_secret", "keys", "ipsec_secret", "'keys'",
           "remove 'ipsec_secret'"),
          ("hubble", {"ui": True}, "hubble.ui", "true", "add 'relay: true' in the same section"),
          ("hubble", {"enabled": False, "relay": True}, "hubble.relay", "true",
           "remove this setting, or remove 'enabled: false'"),
      )),
    *(("network.cilium", given, f"network.cilium.{named}", shown, remedy)
      for given, named, shown, remedy in (
          ({"node_routes": True}, "node_routes", "true", "remove 'node_routes'"),
          ({"api_port": 443}, "api_port", "443", "remove 'api_port'"),
          ({"bbr": True, "bandwidth_manager": True}, "bbr", "true", "add it"),
          ({"chained": "a", "pod_cidr": "10.0.0.0/8"}, "pod_cidr", "10.0.0.0/8",
           "remove 'pod_cidr'"),
          ({"chained": "a", **_IPSEC}, "encryption", "ipsec", (
              "set 'encryption' to 'wireguard' or 'none'"
          )),
          ({"chained": "a", "bbr": True}, "bbr", "true",
           "remove 'bbr'"),
          ({"encryption": "ipsec"}, "ipsec_secret", "", "add the name of the Secret with the key"),
          ({**_IPSEC, "host_firewall": True}, "host_firewall", "true",
           "remove 'host_firewall'"),
          ({"bbr": True, "bandwidth_manager": True, "kube_proxy_replacement": True,
            "api_host": "api.lab", **_IPSEC}, "bbr", "true", (
                "set 'encryption' to 'wireguard' or 'none'"
            )),
      )),
    ("reconciler.share", True, "reconciler.share", "true", "expected a number"),
    ("reconciler.ladder", ["recheck"] * 9, "reconciler.ladder", "recheck", "at most 8"),
    ("groups[0].gid", 0, "groups[0].gid", "0", "expected at least 1000"),
    ("groups[0].gid", 60_000, "groups[0].gid", "60000", "expected less than 60000"),
    ("groups[0].gid", 2000, "groups[0].gid", "2000",
     "choose another gid"),
    ("groups[0].name", "ada", "groups[0].name", "'ada'",
     "choose another group name"),
    ("groups[0].members", ["eve"], "groups[0].members", "'eve'", "known: ada, bob"),
    ("groups", [{"name": "lab", "gid": gid} for gid in (5000, 5001)], "groups", "'lab'",
     "unique name"),
    ("groups", [{"name": name, "gid": 5000} for name in "ab"], "groups", "5000", "unique gid"),
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A stack with one refused value, and three texts that the error must contain: the key, the
    value and the remedy."""

    what: str
    values: Values
    key: str
    value: str
    remedy: str


def base(key: str) -> Values:
    """Return a valid stack in which this key is allowed."""
    if key in ("cluster.nodes", "cluster.api_port", "cluster.ssh_port", "cluster.runtime", "login"):
        return LOCAL
    if key.startswith(("cluster.", "operators.")) and key not in OF_EXISTING:
        return made(key)
    if key in ("partitions[0].allow_groups", "accounting.operators"):
        return {name: value for name, value in FULL.items() if name != "directory"}
    if key.startswith(("network.cilium", "network.names", "network.policies")):
        return NETWORKED
    for beginning, values in {
        "login.source_ranges[": BALANCED,
        "snapshots": SNAPPED,
        "accounting.external": EXTERNAL,
        "monitoring.operator": OPERATED,
        "nodesets[0].on_demand": ELASTIC,
        "nodesets[0].shared_with_pods": BRIDGED,
        "on_demand": ELASTIC,
        "bridge": BRIDGED,
        **{f"accounting.backup.{store}": values for store, values in DUMPS.items()},
        **{f"backup.{store}": values for store, values in SETS.items()},
    }.items():
        if key.startswith(beginning):
            return values
    storage = key.removeprefix("jail.").split(".")[0].split("[")[0]
    if key.startswith("jail.") and storage in STORAGES:
        return STORAGES[storage]
    if key.startswith("slurm.topology.labels"):
        return LABELLED
    return BLOCKS if key.startswith("slurm.topology.block") else FULL


def made(key: str) -> Values:
    """Return a valid stack whose cluster the deploy creates."""
    if key.startswith(("cluster.machines[", *(f"cluster.{one}" for one in OF_METAL))):
        return METAL
    return EKS if OF_EKS & set(re.split(r"[.\[]", key)) else NEBIUS


def cases() -> Iterator[Case]:
    yield from wrong_numbers()
    for key, options in CHOICES.items():
        yield from wrong(key, f"expected {options}", "moon", True)
    for key in SWITCHES:
        yield from wrong(key, "expected true or false", "perhaps", 2, None)
    for key in LISTS:
        yield from wrong(key, "expected a list, such as [a, b]", "x", None)
    for key in MAPPINGS:
        yield from wrong(key, "expected a mapping, such as {", "x")
    for key, values in WORDS.items():
        for value, remedy in values.items():
            yield from wrong(key, remedy, value)
    for key, values in HIDDEN.items():
        for value, remedy in values.items():
            yield Case(f"{key} = {value!r}", changed(key, value), key, "", remedy)
    yield from unknown_and_missing_keys()
    for place, value, key, shown, remedy in RULES:
        yield Case(f"{place} = {json.dumps(value)}", changed(place, value), key, shown, remedy)


def wrong_numbers() -> Iterator[Case]:
    for key, (low, high) in NUMBERS.items():
        yield from wrong(key, f"expected at least {low}", low - 1)
        if high is not None:
            yield from wrong(key, f"expected at most {high}", high + 1)
        yield from wrong(key, "expected a whole number", low + 0.5, "many")
        yield from wrong(key, "expected a number", True)


def unknown_and_missing_keys() -> Iterator[Case]:
    for key, remedy in UNKNOWN.items():
        yield Case(f"{key} is unknown", changed(key, 1), key, "unknown key", remedy)
    for key in REQUIRED:
        values = apart(key)
        drop(values, key)
        yield Case(f"{key} is missing", values, key, "is required", "add it")


def wrong(key: str, remedy: str, *values: object) -> Iterator[Case]:
    plain = key.replace(".{", ".").replace("}", "")
    for value in values:
        shown = json.dumps(value, ensure_ascii=False)[:57]
        if value is None and key not in FULL:  # a top-level key: Pulumi passes the text `null`
            shown = "is empty"
        yield Case(f"{key} = {value!r}"[:80], changed(key, value), plain, shown, remedy)


def changed(key: str, value: object) -> Values:
    values = apart(key)
    put(values, key, value)
    return values


def apart(key: str) -> Values:
    """Return a valid stack for a case that edits this key.

    The stack has its own copy of the edited top-level key, so the edit changes no other case.
    """
    values = dict(base(key))
    first = re.split(r"[.\[{]", key)[0]
    if first in values:
        values[first] = copy.deepcopy(values[first])
    return values


CASES = list(cases())
JARGON = ("Input should", "Value error", "valid tuple", "Extra inputs", "List should", "dictionary")


@pytest.mark.parametrize("case", CASES, ids=[case.what for case in CASES])
def test_wrong_value_is_refused_in_one_line(case: Case) -> None:
    with pytest.raises(SettingsError) as caught:
        from_config(config(base=case.values))

    text = str(caught.value)
    prefix = f"the stack's configuration: slurmstack:{named(case.values, case.key)}: "
    assert text.startswith(prefix), "the error must name the full key"
    assert case.value in text.removeprefix(prefix), "the error must name the value"
    assert case.remedy in text
    assert text.isprintable(), "a user must get one line"
    assert text.count("slurmstack:") == 1, "one mistake must cause only one reported problem"
    assert not any(word in text for word in JARGON)


@pytest.mark.parametrize(("key", "value"), [(k, v) for k, values in HIDDEN.items() for v in values])
def test_error_does_not_show_a_wrong_credential(key: str, value: object) -> None:
    with pytest.raises(SettingsError) as caught:
        from_config(config(base=changed(key, value)))
    assert not value or str(value) not in str(caught.value)


_REGISTRIES = "expected JSON with the credentials of registries"


@pytest.mark.parametrize(
    ("entry", "text", "problem"),
    [
        (".dockerconfigjson", "ada:pass4711", _REGISTRIES),
        (".dockerconfigjson", '{"registry.lab": {"auth": "pass4711"}}', _REGISTRIES),
        (".dockerconfigjson", '{"auths": ["pass4711"]}', _REGISTRIES),
        (
            ".dockerconfigjson",
            '{"auths": {"pass4711": {}}}',
            ("has no credentials under the key 'auths'"),
        ),
        ("alertmanager.yml", "pass4711", "expected Alertmanager's configuration in YAML"),
        ("alertmanager.yml", "receivers: [{name: pass4711}]", "with route and receivers"),
        (
            "alertmanager.yml",
            "{route: {receiver: pass4711}, receivers: [{name: b}]}",
            "'route.receiver' does not name an entry of 'receivers'",
        ),
    ],
)
def test_invalid_content_of_a_secret_is_refused_and_not_shown(
    entry: str, text: str, problem: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        from_config(config(base={**VALID, "secrets": {"ours": {entry: text}}}))

    assert f"slurmstack:secrets.ours: '{entry}': " in str(caught.value)
    assert problem in str(caught.value)
    assert "pass4711" not in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (".dockerconfigjson", {"secure": "v1:abc"}),
        (".dockerconfigjson", '{"auths": {"a": {}, "b": {"username": "u", "password": "p"}}}'),
        ("alertmanager.yml", "{route: {receiver: a}, receivers: [{name: a}], templates: []}"),
        ("password", "no JSON"),
    ],
)
def test_valid_content_of_a_secret_is_accepted(entry: str, text: object) -> None:
    settings(base={**VALID, "secrets": {"ours": {entry: text}}})


def test_stack_of_each_case_is_valid_before_the_change() -> None:
    for valid in (VALID, FULL, BLOCKS, LABELLED, LOCAL, BALANCED, NETWORKED, NEBIUS, EKS, METAL):
        settings(base=valid)


def test_topology_with_labels_requires_static_nodes() -> None:
    dynamic = copy.deepcopy(LABELLED)
    put(dynamic, "nodesets[1].kind", "dynamic")
    put(dynamic, "nodesets[1].keep_machine", False)

    with pytest.raises(
        SettingsError, match=("labels requires static nodes; set 'kind: static'")
    ) as one:
        from_config(config(base=dynamic))

    assert f"slurmstack:{named(LABELLED, 'nodesets[1].kind')}: dynamic: " in str(one.value)


def test_block_topology_with_labels_refuses_nodes_on_demand() -> None:
    asleep = copy.deepcopy(LABELLED)
    put(asleep, "nodesets[0].on_demand", {})
    settings(base=asleep)

    put(asleep, "slurm.topology.kind", "block")

    with pytest.raises(SettingsError, match="a node on demand that was never awake has no labels"):
        settings(base=asleep)


def test_cases_cover_every_settings_key() -> None:
    tried: set[str] = {"cluster.kind", "nodesets[].cpu_request", "users[].uid", "groups[].gid"}
    for table in (NUMBERS, CHOICES, SWITCHES, LISTS, MAPPINGS, WORDS, HIDDEN):
        keys: Iterable[str] = table
        tried |= {pattern(key) for key in keys}
    tried |= {key.removesuffix("[]") for key in tried}
    tried |= {pattern(key) for _, _, key, _, _ in RULES}

    missing = sorted({key for key, _ in fields()} - tried)
    assert not missing, "add each key with a wrong value to NUMBERS, SWITCHES or another table"


# --- Limits of clouds -----------------------------------------------------------------------------


def refused(values: Values, **fields: Any) -> str:
    """Replace some top-level keys of a stack with `fields`, and return the error."""
    with pytest.raises(SettingsError) as caught:
        from_config(config(base={**values, **fields}))
    return str(caught.value)


def refuses(values: Values, **fields: Any) -> bool:
    """Replace some top-level keys of a stack with `fields`, and return whether it is refused."""
    try:
        from_config(config(base={**values, **fields}))
    except SettingsError:
        return True
    return False


@pytest.mark.parametrize("values", [NEBIUS, EKS, METAL])
def test_cloud_cluster_requires_a_registry(values: Values) -> None:
    without = {key: value for key, value in values.items() if key != "registry"}

    assert "slurmstack:registry: is required with cluster.kind '" in refused(without)


@pytest.mark.parametrize("kind", ["nfs", "host_path"])
def test_snapshots_of_a_jail_without_csi_volume_are_refused(kind: str) -> None:
    text = refused(STORAGES[kind], snapshots={"jail": "fast"})

    assert f"snapshots.jail: 'fast': jail.{kind} is not a CSI volume" in text


ON_EFS: Values = {**EKS, "cluster": {**EKS["cluster"], "file_system": "efs"}}


@pytest.mark.parametrize("values", [NEBIUS, EKS, ON_EFS], ids=["nebius", "lustre", "efs"])
def test_snapshots_of_a_cloud_file_system_are_refused(values: Values) -> None:
    given = {**values, "snapshots": {"jail": "fast"}}

    text = refused(given, jail={"size": "2400GiB"})
    assert "snapshots.jail: 'fast': the jail is on the cloud's file system" in text
    settings(base={**given, "jail": {"storage_class": "shared"}})
    settings(
        base={**given, "jail": {"server": {"storage_class": "fast", "machines": ["10.0.0.0/16"]}}}
    )


def test_snapshots_of_a_controller_state_on_efs_are_refused() -> None:
    given = {**ON_EFS, "snapshots": {"state": "fast"}}

    text = refused(given, controller={"standby": True})
    assert (
        "snapshots.state: 'fast': because controller.standby is true, the controller's state is "
        "on EFS"
    ) in text
    settings(base={**given, "controller": {"standby": False}})
    settings(base={**given, "controller": {"standby": True, "storage_class": "shared"}})


@pytest.mark.parametrize(
    "family",
    [
        *("a1", "c6g", "c7gn", "g5g", "hpc7g", "i4g", "i8ge", "im4gn", "is4gen", "m7gd"),
        *("p6e-gb200", "r8g", "r8gb", "t4g", "x2gd"),
    ],
)
def test_arm_machines_on_eks_are_refused(family: str) -> None:
    system = {**EKS["cluster"], "system": {"type": f"{family}.metal"}}

    assert f'cluster.system.type: "{family}.metal": {_ARM}' in refused(EKS, cluster=system)


@pytest.mark.parametrize(
    "family",
    [
        *("c5n", "c7i-flex", "f2", "g4ad", "g4dn", "g6e", "g6f", "gr6", "hpc7a", "m7a", "m7i"),
        *("p4de", "p5en", "p6-b200", "r7iz", "t3", "trn1n", "u-6tb1", "u7in-16tb", "x2iezn"),
    ],
)
def test_intel_and_amd_machines_on_eks_are_accepted(family: str) -> None:
    settings(base={**EKS, "cluster": {**EKS["cluster"], "system": {"type": f"{family}.metal"}}})


def test_nodeset_of_a_cloud_cluster_may_not_be_named_system() -> None:
    nodeset = {"name": "system", "replicas": 1, "cpus": 1, "memory": "1GiB"}
    machines = {"system": {"platform": "cpu-d3", "preset": "4vcpu-16gb"}}
    cluster = {**NEBIUS["cluster"], "machines": machines}
    given = {"cluster_name": "lab", "registry": "r.lab", "cluster": cluster, "nodesets": [nodeset]}

    assert (
        "nodesets[system].name: 'system': this name is reserved for the group of machines "
        "without workers"
    ) in refused(given)


def test_more_nodes_than_machines_are_refused() -> None:
    settings(base=METAL)
    text = refused(METAL, nodesets=[{**_NODESET, "replicas": 3}])

    assert (
        "slurmstack:nodesets[cpu].replicas: 3: cluster.machines has only 2 machines for "
        "nodeset 'cpu' (a, c); " in text
    )


def test_nodesets_that_share_a_fabric_need_the_same_platform() -> None:
    machines = NEBIUS["cluster"]["machines"]["gpu"]
    more = {**FULL["nodesets"][0], "name": "more"}

    def joined(**fields: str) -> Values:
        both = {"gpu": machines, "more": {**machines, **fields}}
        cluster = {**NEBIUS["cluster"], "machines": both}
        rest = {key: NEBIUS[key] for key in ("cluster_name", "registry")}
        return {**rest, "cluster": cluster, "nodesets": [FULL["nodesets"][0], more]}

    settings(base=joined())
    text = refused(joined(platform="gpu-h200-sxm"))
    key = "cluster.machines.more.fabric"
    assert f"{key}: 'fabric-6': nodeset 'gpu' already uses this fabric with platform 'gpu" in text


@pytest.mark.parametrize("size", ["100GiB", "1201GiB", "2TiB"])
def test_sizes_that_lustre_does_not_offer_are_refused(size: str) -> None:
    text = refused(EKS, jail={"size": size})

    assert "slurmstack:jail.size: " in text
    assert "expected 1200GiB or a multiple of 2400GiB" in text


@pytest.mark.parametrize("size", ["1200GiB", "2400GiB", "48000GiB"])
def test_sizes_that_lustre_offers_are_accepted(size: str) -> None:
    settings(base={**EKS, "jail": {"size": size}})


def test_standby_controller_on_eks_requires_shared_storage() -> None:
    lustre = {**EKS, "controller": {"standby": True}}

    assert "controller.standby: true: requires a StorageClass" in refused(lustre)
    settings(base={**lustre, "cluster": {**EKS["cluster"], "file_system": "efs"}})


@pytest.mark.parametrize(
    ("cilium", "problem"),
    [
        ({}, "network.cilium.chained: none: expected 'aws-cni'"),
        ({"chained": "ptp"}, "network.cilium.chained: 'ptp': expected 'aws-cni'"),
        ({"routing": "native", "native_cidr": "10.0.0.0/8"}, "network.cilium.chained: none: "),
        (
            {"chained": "aws-cni", "kube_proxy_replacement": True, "api_host": "api.lab"},
            (
                "network.cilium.kube_proxy_replacement: true: Cilium cannot replace kube-proxy, "
                "because EKS runs kube-proxy; remove 'kube_proxy_replacement'"
            ),
        ),
    ],
)
def test_cilium_on_eks_must_be_chained_to_aws_cni(cilium: Values, problem: str) -> None:
    text = refused(EKS, network={"cilium": cilium})

    assert f"slurmstack:{problem}" in text
    assert text.count("slurmstack:") == 1
    settings(base={**EKS, "network": {"cilium": {"chained": "aws-cni"}}})


@pytest.mark.parametrize("policies", ["cilium", "both"])
def test_cilium_policies_require_cilium(policies: str) -> None:
    network = {"policies": policies}
    text = refused(EKS, network=network)

    assert (
        f"slurmstack:network.policies: '{policies}': requires Cilium, but EKS comes without it; "
    ) in text
    settings(base={**EKS, "network": {**network, "cilium": {"chained": "aws-cni"}}})
    settings(base={**NEBIUS, "network": network})


def test_cilium_on_nebius_is_refused_because_nebius_installs_it() -> None:
    text = refused(NEBIUS, network={"policies": "cilium", "cilium": {}})

    assert (
        "slurmstack:network.cilium: Nebius already installs Cilium in its clusters; remove "
        "network.cilium"
    ) in text


@pytest.mark.parametrize("values", [NEBIUS, EKS])
def test_gpus_of_another_vendor_than_the_machines_are_refused(values: Values) -> None:
    gpus = {"type": "mi300x", "count": 8, "resource": "amd.com/gpu"}
    nodesets = [{**values["nodesets"][0], "gpus": gpus}, *values["nodesets"][1:]]

    text = refused(values, nodesets=nodesets)

    assert "slurmstack:cluster.machines.gpu." in text
    assert "gpus.resource" in text
    assert "'amd.com/gpu'" in text


def test_setting_network_refuse_may_not_contain_addresses_of_pods() -> None:
    text = refused(METAL, network={**METAL.get("network", {}), "refuse": ["10.0.0.0/8"]})

    assert "network.refuse: '10.0.0.0/8': contains addresses of pods (10." in text


def test_setting_network_refuse_may_not_contain_addresses_of_the_vpc() -> None:
    text = refused(EKS, network={"refuse": ["10.64.8.0/24"]})

    assert "network.refuse: '10.64.8.0/24': contains addresses of pods (10.64.0.0/18)" in text
    assert not refuses(EKS, network={"refuse": ["10.0.0.0/16"]})


@pytest.mark.parametrize("cron", ["0 3 29 2 *", "0 3 31 2 1", "0 3 31 2,3 *", "0 3 31 2 */2"])
def test_schedule_that_fires_in_some_year_is_accepted(cron: str) -> None:
    assert not refuses(SNAPPED, snapshots={"jail": "fast", "schedule": cron})


@pytest.mark.parametrize(
    ("type_", "problem"),
    [
        ("m7i.2xlarge", "has 8 CPUs; expected a type with more than the nodeset's 12"),
        (
            "c7i.4xlarge",
            "has 32 GiB of memory, and leaves pods at most 30.8 GiB, because",
        ),
        ("m7i.4xlarge", None),
        ("m7i.metal-24xl", None),
        ("m7i.metal", None),
        ("x2idn.16xlarge", None),
    ],
)
def test_eks_machine_must_be_larger_than_its_node(type_: str, problem: str | None) -> None:
    values = copy.deepcopy(CLOUD_EKS)
    values["cluster"]["machines"]["cpu"]["type"] = type_

    if problem is None:
        assert not refuses(values)
    else:
        assert f"cluster.machines.cpu.type: '{type_}': {problem}" in refused(values)


def test_eks_machine_must_have_more_cpus_than_its_pod_requests() -> None:
    values = copy.deepcopy(CLOUD_EKS)
    values["cluster"]["machines"]["cpu"]["type"] = "m7i.2xlarge"

    cpu = next(nodeset for nodeset in values["nodesets"] if nodeset["name"] == "cpu")
    cpu["cpu_request"] = 9.5
    assert "expected a type with more than the nodeset's 9.5" in refused(values)
    cpu |= {"cpu_request": 4, "memory": "16GiB"}
    assert not refuses(values)


@pytest.mark.parametrize(("memory", "fits"), [("62GiB", True), ("63GiB", False), ("64GiB", False)])
@pytest.mark.parametrize("values", [CLOUD_EKS, CLOUD_NEBIUS], ids=["eks", "nebius"])
def test_node_must_leave_memory_for_kubelet_and_linux(
    values: Values, memory: str, fits: bool
) -> None:
    values = copy.deepcopy(values)
    next(each for each in values["nodesets"] if each["name"] == "cpu")["memory"] = memory

    assert refuses(values) == (not fits)
    if not fits:
        assert f"leaves at least the nodeset's {memory[:2]} GiB" in refused(values)


@pytest.mark.parametrize(
    ("group", "fields", "problem"),
    [
        (
            "gpu",
            {"type": "g6.12xlarge", "efa": None},
            "type: 'g6.12xlarge': has 4 GPUs, but each node of the nodeset needs 8 (gpus.count)",
        ),
        ("gpu", {"type": "g6.48xlarge", "efa": 1}, None),
        ("gpu", {"type": "p6-b200.48xlarge", "efa": 8}, None),
        ("gpu", {"type": "g9.48xlarge", "efa": 32}, None),
        (
            "gpu",
            {"type": "p5en.48xlarge"},
            (
                "efa: 32: instance type 'p5en.48xlarge' has at most 16 Elastic Fabric Adapters; "
                "lower efa to 16, or"
            ),
        ),
        (
            "cpu",
            {"efa": 1},
            (
                "efa: 1: instance type 'm7i.4xlarge' has no Elastic Fabric Adapters; remove efa, "
                "or choose"
            ),
        ),
        (
            "cpu",
            {"type": "m7i.48xlarge", "efa": 3},
            ("efa: 3: instance type 'm7i.48xlarge' has at most 2 Elastic"),
        ),
        ("cpu", {"type": "c5n.9xlarge", "efa": 1}, None),
        ("cpu", {"type": "m6i.metal", "efa": 1}, None),
        ("cpu", {"type": "hpc7a.12xlarge", "efa": 2}, None),
    ],
)
def test_eks_machine_must_have_its_nodes_gpus_and_adapters(
    group: str, fields: Values, problem: str | None
) -> None:
    values = copy.deepcopy(CLOUD_EKS)
    values["cluster"]["machines"][group].update(fields)

    if problem is None:
        assert not refuses(values)
    else:
        assert f"cluster.machines.{group}.{problem}" in refused(values)


@pytest.mark.parametrize(
    ("network", "fields", "problem"),
    [
        ("10.0.0.0/20", {"replicas": 123}, None),
        ("10.0.0.0/20", {"replicas": 124}, "/24, has 251 addresses; expected at least 252"),
        ("10.0.0.0/19", {"replicas": 124}, None),
        ("10.0.0.0/16", {"replicas": 2044}, "/20, has 4091 addresses; expected at least 4092"),
    ],
)
def test_network_on_eks_must_have_addresses_for_all_workers(
    network: str, fields: Values, problem: str | None
) -> None:
    values = copy.deepcopy(CLOUD_EKS)
    values["cluster"]["network"] = network
    next(each for each in values["nodesets"] if each["name"] == "cpu").update(fields)

    if problem is None:
        assert not refuses(values)
    else:
        text = refused(values)
        assert f"cluster.network: '{network}': the workers' subnet, a {problem}" in text
    values["cluster"]["machines"]["cpu"]["autoscaling"] = {"max": 3000}
    assert refuses(values)


@pytest.mark.parametrize(
    ("disk", "space", "problem"),
    [
        (None, "255GiB", None),
        (None, "256GiB", "256GiB: expected less than the disk of the nodeset's machines, 256GiB"),
        ("1TiB", "500GiB", None),
        (
            "400GiB",
            "500GiB",
            ("500GiB: expected less than the disk of the nodeset's machines, 400GiB"),
        ),
    ],
)
@pytest.mark.parametrize("values", [CLOUD_EKS, CLOUD_NEBIUS], ids=["eks", "nebius"])
def test_disk_limit_of_a_pod_must_be_below_its_machines_disk(
    values: Values, disk: str | None, space: str, problem: str | None
) -> None:
    values = copy.deepcopy(values)
    put(values, "nodesets[1].ephemeral_storage", space)
    if disk:
        put(values, "cluster.machines.cpu.disk", disk)

    assert refuses(values) == (problem is not None)
    if problem:
        remedy = "lower this size, or raise cluster.machines.cpu.disk"
        assert f"nodesets[cpu].ephemeral_storage: {problem}; {remedy}" in refused(values)


@pytest.mark.parametrize("values", [CLOUD_EKS, CLOUD_NEBIUS], ids=["eks", "nebius"])
def test_machine_must_have_memory_for_its_nodes_huge_pages(values: Values) -> None:
    values = copy.deepcopy(values)
    put(values, "nodesets[1].pod", {"hugepages": {"hugepages-2Mi": "14GiB"}})
    assert not refuses(values)

    put(
        values, "nodesets[1].pod", {"hugepages": {"hugepages-2Mi": "8GiB", "hugepages-1Gi": "8GiB"}}
    )
    text = refused(values)
    assert "leaves at least the nodeset's 48 GiB and the 16 GiB of its pod.hugepages" in text


_OWN_LABEL = "slurmstack.dev/nodeset"


@pytest.mark.parametrize(
    ("tolerated", "refused_"),
    [
        ([], True),
        ([{"key": "other"}], True),
        ([{"key": _OWN_LABEL, "operator": "Equal", "value": "gpu"}], True),
        ([{"key": _OWN_LABEL, "effect": "NoExecute"}], True),
        ([{"key": _OWN_LABEL}], False),
        ([{"key": _OWN_LABEL, "operator": "Equal", "value": "cpu"}], False),
        ([{}], False),
    ],
)
@pytest.mark.parametrize("place", ["placement.default", "placement.controller", "nodesets[0]"])
@pytest.mark.parametrize("values", [CLOUD_EKS, CLOUD_METAL], ids=["eks", "metal"])
def test_pods_outside_a_nodeset_cannot_select_its_machines(
    values: Values, place: str, tolerated: list[Values], refused_: bool
) -> None:
    values = {**copy.deepcopy(values), "placement": {"controller": {}, "default": {}}}
    put(values, f"{place}.node_selector", {_OWN_LABEL: "cpu"})
    put(values, f"{place}.tolerations", tolerated)

    assert refuses(values) == refused_
    if refused_:
        key = place.replace("[0]", "[gpu]")
        assert refused(values).endswith(
            f"slurmstack:{key}.node_selector.{_OWN_LABEL}: 'cpu': only machines of nodeset 'cpu' "
            "have this label, and the pods do not tolerate the taint of these machines; remove "
            "the label from 'node_selector'"
        )


def test_default_toleration_lets_a_service_use_machines_of_a_nodeset() -> None:
    values = copy.deepcopy(CLOUD_METAL)
    selector = {"node_selector": {_OWN_LABEL: "cpu"}}
    values["placement"] = {"default": {"tolerations": [{}]}, "controller": selector}
    assert not refuses(values)

    values["nodesets"][1] |= selector
    assert not refuses(values)


@pytest.mark.parametrize(
    ("ranges", "problem"),
    [
        (["192.0.2.0/24"], None),
        (["192.0.2.8/29", "192.0.2.16/29"], None),
        (
            ["192.0.3.0/24"],
            (
                "192.0.3.0/24: does not contain the address of machine 'head' (192.0.2.10), nor "
                "of gpu-a, gpu-b, cpu-a, cpu-b, cpu-c, cpu-d, spare, so these machines could not "
                "mount the jail; add 192.0.2.10/32, or a range that contains all machines"
            ),
        ),
        (["192.0.2.8/29"], "machine 'cpu-d' (192.0.2.16), nor of spare, so these machines"),
        (
            ["fd00::/64", "192.0.2.0/28", "192.0.2.17/32"],
            "machine 'cpu-d' (192.0.2.16), so this machine",
        ),
    ],
)
def test_ranges_of_the_jail_server_must_contain_all_own_machines(
    ranges: list[str], problem: str | None
) -> None:
    values = copy.deepcopy(CLOUD_METAL)
    values["jail"] = {"server": {"machines": ranges}}

    assert refuses(values) == (problem is not None)
    if problem:
        text = refused(values)
        assert "slurmstack:jail.server.machines: " in text
        assert problem in text
        for machine in values["cluster"]["machines"]:
            machine["lost"] = machine["name"] in problem
        assert "does not contain" not in (refused(values) if refuses(values) else "")


@pytest.mark.parametrize(
    ("edits", "where"),
    [
        ({"health.checks.gpu-count": {"count": 8}}, None),
        ({"health.checks.gpu-count": {"count": 8}, "nodesets[0].gpus.count": 4}, "health"),
        (
            {
                "health.checks.gpu-count": {"count": 8},
                "nodesets[0].gpus.count": 4,
                "nodesets[0].checks.gpu-count": {"count": 3},
            },
            None,
        ),
        (
            {
                "health.checks.gpu-count": {"count": 8},
                "nodesets[0].gpus.count": 4,
                "nodesets[0].checks.gpu-count": False,
            },
            None,
        ),
        ({"nodesets[1].checks": {"gpu-count": {"count": 2}}}, "nodesets[slices]"),
    ],
)
def test_nodes_must_have_the_gpus_that_their_checks_expect(
    edits: Values, where: str | None
) -> None:
    values = copy.deepcopy(FULL)
    for key, value in edits.items():
        put(values, key, value)

    assert refuses(values) == (where is not None)
    if where:
        assert f"slurmstack:{where}.checks.gpu-count.count: " in refused(values)


def test_public_key_as_key_file_is_refused() -> None:
    text = refused(METAL, cluster={**METAL["cluster"], "key_file": "id_ed25519.pub"})

    assert "cluster.key_file: 'id_ed25519.pub': is a public key" in text


def test_error_about_a_key_of_another_cluster_kind_names_the_kind() -> None:
    text = refused(VALID, cluster={"kind": "existing", "api_port": 6443})

    assert (
        "cluster.api_port: belongs to cluster.kind: local; remove this key, or change kind" in text
    )


def test_misspelled_prefix_is_refused() -> None:
    values = {**config(), "slurmstak:login": "{}"}

    with pytest.raises(
        SettingsError, match=("slurmstak:login: unknown prefix of a setting; did you mean")
    ):
        from_config(values)


@pytest.mark.parametrize("key", ["slurmstack-web:login", "slurmstak:other", "kubernetes:namespace"])
def test_keys_of_other_projects_are_ignored(key: str) -> None:
    from_config({**config(), key: "{}"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("nodesets[0].node_selector", {"node-role.kubernetes.io/worker": ""}),
        ("controller.storage_class", ""),
        ("directory.base", r"OU=Acme\, Inc, 2.5.4.11 = x,DC=lab"),
        ("health.checks", {"memory": {"min_percent": 0}}),
        ("accounting.external.host", "192.0.2.5"),
    ],
)
def test_unusual_valid_values_are_accepted(key: str, value: object) -> None:
    from_config(config(base=changed(key, value)))


@pytest.mark.parametrize("given", ["-----BEGIN OPENSSH PRIVATE KEY-----", "#!/bin/sh\ntrue"])
def test_example_in_an_error_does_not_repeat_a_long_text(given: str) -> None:
    text = refused(VALID, users=[given])

    assert "expected a mapping, such as {name: …}" in text


def test_number_of_mig_slices_must_be_a_multiple_of_gpus() -> None:
    nodeset = {**FULL["nodesets"][1], "gpus": {"type": "a100", "count": 8, "mig": {"1g.10gb": 7}}}
    given = {**FULL, "nodesets": [nodeset], "partitions": [], "slurm": {}, "long_checks": {}}

    settings(base=given)
    text = refused(given, operators={"install": True})
    assert "nodesets[slices].gpus.mig: 1g.10gb: 7: expected a multiple of gpus.count (8), " in text


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "{login.replicas}",
            3,
            (
                "login.replicas: unknown key; write it as login: {replicas: …}, or use"
                " `pulumi config set --path`"
            ),
        ),
        (
            "slurm.{timeouts.kill_wait}",
            3,
            "slurm.timeouts.kill_wait: unknown key; write it as timeouts: {kill_wait: …}",
        ),
        (
            "{slurm.preemption.type}",
            "qos",
            "write it as slurm: {preemption: {type: …}}, or use `pulumi config set --path`",
        ),
        (
            "{cluster.machines.gpu.type}",
            "p5.48xlarge",
            "write it as cluster: {machines: {gpu: {type: …}}}, or use `pulumi config set --path`",
        ),
        (
            "{slurm.preemptoin.type}",
            "qos",
            "unknown key; 'preemptoin' is not a key of slurm; did you mean 'preemption'?",
        ),
        ("{slurm.KillWait}", 30, "'KillWait' is not a key of slurm; use slurm.timeouts.kill_wait"),
        (
            "{slurm.conf}",
            {"KillWait": 60},
            "slurm.conf: unknown key; add lines to slurm.extra: {slurm.conf: […]}",
        ),
        (
            "slurm.{gres.conf}",
            ["AutoDetect=nvml"],
            "slurm.gres.conf: unknown key; add lines to slurm.extra: {gres.conf: […]}",
        ),
        (
            "jail",
            {"size:10GiB": None},
            "jail.size:10GiB: unknown key; put a space after the colon: size: 10GiB",
        ),
        (
            "users[0]",
            {"name:ada": None, "uid": 2000},
            "users[0].name:ada: unknown key; put a space after the colon: name: ada",
        ),
        (
            "nodesets[0]",
            {"name": "cpu", "replica": 16, "cpus": 60, "memory": "240GiB"},
            "nodesets[cpu].replica: unknown key; did you mean 'replicas'?",
        ),
        ("slurm.KillWait", 30, "slurm.KillWait: unknown key; use slurm.timeouts.kill_wait"),
        ("slurm.MaxJobCount", 9, "slurm.MaxJobCount: unknown key; use slurm.max_jobs"),
        ("slurm.timeouts.SlurmdTimeout", 9, "unknown key; use slurm.timeouts.slurmd"),
        (
            "slurm.SlurmctldDebug",
            "debug",
            (
                "slurm.SlurmctldDebug: unknown key; add the line SlurmctldDebug=… to slurm.extra:"
                " {slurm.conf: […]}"
            ),
        ),
        (
            "partitions[0].LLN",
            True,
            "partitions[main].LLN: unknown key; put it under partitions[].parameters",
        ),
        (
            "nodesets[0].TmpDisk",
            1,
            "nodesets[gpu].TmpDisk: unknown key; put it under nodesets[].parameters",
        ),
        ("partitions[0].MaxTime", "1:00:00", "MaxTime: unknown key; did you mean 'max_time'?"),
        (
            "partitions[0].max_nodes",
            "UNLIMITED",
            (
                'partitions[main].max_nodes: "UNLIMITED": expected a whole number; for no limit,'
                " remove max_nodes"
            ),
        ),
        (
            "nodesets[0].replicas",
            "UNLIMITED",
            'nodesets[gpu].replicas: "UNLIMITED": expected a whole number',
        ),
        (
            "nodesets[0].cpus",
            "500m",
            (
                'nodesets[gpu].cpus: "500m": expected a whole number; to reserve less than a CPU,'
                " set cpus: 1 and cpu_request: 0.5"
            ),
        ),
        (
            "nodesets[0].replicas",
            "2 nodes",
            'nodesets[gpu].replicas: "2 nodes": expected a whole number without a unit',
        ),
        (
            "monitoring.bundled.retention",
            "30d",
            (
                'monitoring.bundled.retention: "30d": expected a whole'
                " number of days; did you mean 30?"
            ),
        ),
        (
            "monitoring.bundled.retention",
            "2 w",
            (
                'monitoring.bundled.retention: "2 w": expected a whole'
                " number of days; did you mean 14?"
            ),
        ),
        (
            "login.source_ranges[0]",
            "0.0.0.0/0",
            (
                'login.source_ranges[0]: "0.0.0.0/0": contains all addresses; expected a'
                " narrower range, such as '10.0.0.0/16'; to admit all addresses, remove"
                " source_ranges"
            ),
        ),
        (
            "network.refuse[0]",
            "::/0",
            (
                'network.refuse[0]: "::/0": contains all addresses; expected a narrower range,'
                " such as '10.0.0.0/16'"
            ),
        ),
    ],
)
def test_error_about_the_notation_of_another_tool_names_the_remedy(
    key: str, value: object, message: str
) -> None:
    values = copy.deepcopy(BALANCED)
    values["slurm"] = {"timeouts": {}}
    values["network"] = {"refuse": ["198.51.100.0/24"]}
    values["monitoring"] = {"bundled": {}}
    put(values, key, value)

    text = refused(values)

    assert text.endswith(message)
    assert text.count("slurmstack:") == 1, "one mistake must cause only one reported problem"


def test_hints_about_slurm_parameters_name_existing_settings() -> None:
    assert {*SETTINGS.values()} <= {key for key, _ in fields()}


# --- Stack files ---------------------------------------------------------------------------------


_BLANKS = "the indentation fits no line above; indent this line like"
_COLON = "this ':' is not allowed here; put text that contains ': ' in quotes, and indent"


def written(text: str, folder: Path) -> str:
    """Return the error of a stack file with this text."""
    (folder / "Pulumi.lab.yaml").write_text(text, newline="")
    with pytest.raises(SettingsError) as caught:
        read_stack("lab", folder)
    message = str(caught.value)
    for line in message.split("\n"):
        assert line.startswith("Pulumi.lab.yaml: ")
        assert line.isprintable(), "a user must get one line for each problem"
    return message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "add a mapping 'config' with slurmstack:… keys"),
        (
            "- a\n",
            (
                "expected a mapping at the top level of the file; put the settings under the key "
                "'config'"
            ),
        ),
        ("confg: {}\n", "confg: unknown key; did you mean 'config'?"),
        ("Config: {}\n", "Config: unknown key; did you mean 'config'?"),
        ("slurmstack:jail: {}\n", "slurmstack:jail: unknown key; move it under `config`"),
        ("config:\n", "add a mapping 'config'"),
        ("config: [a]\n", "config: expected a mapping of <namespace>:<name> to values"),
        ("config: {}\n", "add a mapping 'config' with slurmstack:… keys"),
        ("config: {aws:region: a}\n", "slurmstack:cluster_name: is required; add it"),
        ("config: [\n", "invalid YAML: line 2, column 1: "),
        ("config:\n  a:\n    b: 1\n   c: 2\n", f"line 4, column 4: {_BLANKS}"),
        ("config:\n  a:\n    - b: 1\n    c: 2\n", f"line 4, column 5: {_BLANKS}"),
        ("config:\n  a: 1\n    b: 2\n", f"line 3, column 6: {_COLON}"),
        ("config:\n  a: b: c\n", f"line 2, column 7: {_COLON}"),
        (
            "config:\n\ta: 1\n",
            ("line 2, column 1: YAML allows no tab here; indent this line with spaces"),
        ),
        ("config:\n  a: @b\n", "line 2, column 6: text cannot begin with '@'; put it in quotes"),
        ("config:\n  a: [b\n  c: 1\n", "line 3, column 4: expected ',' or ']'; close the list"),
        ("config:\n  a: {b: 1\n  c: 1\n", "line 3, column 4: expected ',' or '}'; close the"),
        (
            "config:\n  a: 'b\n",
            ("line 2, column 6: the text that begins here has no closing quote; add the quote"),
        ),
        ("config:\n\tslurmstack:cluster_name: a\n", "invalid YAML: line 2, column 1: "),
        ("config: &a [*b]\n", "invalid YAML: line 1, column 13: found undefined alias 'b'"),
        ("config: {a: \x00}\n", "invalid YAML: unacceptable character"),
        (
            "config: " + "[" * 5000,
            ("invalid YAML: the values are nested too deeply; write them with fewer levels"),
        ),
        ("config: {slurmstack:a: !!bool maybe}\n", "invalid YAML: a value does not fit its tag"),
        ("config: {slurmstack:a: !!python/object:os.x {}}\n", "could not determine a constructor"),
        ("config: {slurmstack:a: 1, slurmstack:a: 2}\n", "duplicate key 'slurmstack:a'; keep one"),
        ("config: {a:b: {c: 1, d: 2, c: 3}}\n", "duplicate key 'c'; keep one"),
        (
            "config: {slurmstack:a: 1, slurmstack:config:a: 2}\n",
            "slurmstack:config:a: the file has the key 'slurmstack:a' twice, in two spellings",
        ),
        ("config: {nodesets: []}\n", "nodesets: expected a key of the form <namespace>:<name>"),
        ("config: {login: {replicas: 2}}\n", "before it, such as slurmstack:login"),
        ("config: {slurm:login: {replicas: 2}}\n", "did you mean 'slurmstack:login'?"),
        ("config: {SlurmStack:login: {replicas: 2}}\n", "did you mean 'slurmstack:login'?"),
        (
            "config: {slurmstack:a: 02000}\n",
            "02000 begins with 0, so YAML reads it as an octal number",
        ),
        (
            "config: {slurmstack:secrets: {registry: {secure: v1:abc}}}\n",
            "slurmstack:secrets.registry: is encrypted as a whole: expected a mapping of encrypted",
        ),
        ("config: {1: []}\n", "1: expected a key of the form <namespace>:<name>"),
        ('config: {"slurmstack:a\\nb": 1}\n', r"slurmstack:a\nb: unknown key"),
        ("config: {slurmstack:a: &a [*a]}\n", "nested too deeply or contains itself"),
    ],
)
def test_broken_stack_file_is_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    assert message in written(text, tmp_path)


@pytest.mark.parametrize(
    ("key", "yaml_text", "message"),
    [
        ("nodesets[0].replicas", "on", '"on": expected a whole number'),
        ("nodesets[0].replicas", ".nan", '".nan": expected a whole number'),
        ("nodesets[0].replicas", "1e400", "inf: expected a finite number"),
        ("nodesets[0].replicas", "!!binary AAAA", "unsupported type bytes"),
        ("nodesets[0].features", "", "is empty: expected a list"),
        ("nodesets[0].features", "{a, b}", '{"a": null, "b": null}: expected a list'),
        ("nodesets[0].affinity", "&a {a: *a}", "nested too deeply or contains itself"),
        ("nodesets[0].volumes", "{2026-12-01: a}", '{"2026-12-01": "a"}: expected a list'),
        ("nodesets[0]", "{1: a}", "slurmstack:nodesets[0].1: unknown key"),
        ("partitions[0].preempt_mode", "true", "or 'suspend'; put it in quotes"),
        ("cluster_name", "", '"": expected'),
        ("users", "", '"": expected a list'),
        ("users[0].ssh_keys", "{secure: v1:abc}", "is encrypted: expected plain text"),
        ("jail", "{secure: v1:abc}", "slurmstack:jail: is encrypted: expected plain text"),
        ("auth.rotations", "[2026-12-01]", "expected a date and time with a time zone"),
    ],
)
def test_value_that_yaml_misinterprets_is_refused_in_one_line(
    key: str, yaml_text: str, message: str, tmp_path: Path
) -> None:
    values = copy.deepcopy(FULL)
    put(values, key, "PLACE")
    text = yaml.safe_dump({"config": {f"slurmstack:{k}": v for k, v in values.items()}})

    assert message in written(text.replace("PLACE", yaml_text), tmp_path)


def test_unreadable_stack_file_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.dir.yaml").mkdir()
    (tmp_path / "Pulumi.latin.yaml").write_bytes(b"config: {a: \xe9}")

    with pytest.raises(
        SettingsError, match=r"Pulumi\.dir\.yaml: cannot read the file: Is a directory"
    ):
        read_stack("dir", tmp_path)
    with pytest.raises(SettingsError, match=r"Pulumi\.latin\.yaml: expected text in UTF-8"):
        read_stack("latin", tmp_path)


@pytest.mark.parametrize("value", ["[", "{'a': 1}", "[1,]", "[" * 100_000, "[1" + "0" * 5000 + "]"])
def test_broken_json_is_refused_in_one_line(value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        from_config({**config(), "slurmstack:nodesets": value})

    text = str(caught.value)
    assert text.startswith(
        f"the stack's configuration: slurmstack:nodesets: {json.dumps(value)[:9]}"
    )
    assert ": invalid JSON: " in text
    assert text.endswith("write the value as YAML in the stack file")
    assert text.isprintable()


def test_keys_of_other_packages_are_ignored() -> None:
    assert from_config({**config(), "kubernetes:context": "[elsewhere"}) == settings()


def test_private_key_is_refused_and_not_printed() -> None:
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0" * 2
    broken = [
        {**config(), "slurmstack:users": "[" + json.dumps(key)},
        config(lambda values: put(values, "users[0].ssh_keys", [key])),
        config(lambda values: put(values, "users[0].ssh_keys", key)),
        config(lambda values: put(values, "users[0].name", key)),
    ]
    for values in broken:
        with pytest.raises(SettingsError) as caught:
            from_config(values)
        assert "c2Vj" not in str(caught.value)


@pytest.mark.parametrize(
    ("memory", "meant"),
    [("240GB", "240GiB"), ("240G", "240GiB"), ("512mb", "512MiB"), ("240", "240MiB' or '240GiB")],
)
def test_error_about_a_size_suggests_the_unit(memory: str, meant: str) -> None:
    with pytest.raises(SettingsError, match=f"did you mean '{meant}'"):
        from_config(config(lambda values: put(values, "nodesets[0].memory", memory)))


def test_error_about_lustre_suggests_the_nearest_size() -> None:
    text = refused(EKS, jail={"size": "12TiB"})
    assert "jail.size: 12288GiB: " in text
    assert "such as 12000GiB" in text


def test_items_with_equal_names_are_shown_by_their_index() -> None:
    users = [{"name": "ada", "uid": 2000}, {"name": "ada", "uid": "x"}]
    with pytest.raises(SettingsError, match=r"slurmstack:users\[1\]\.uid: "):
        from_config(config(lambda values: values.update(users=users)))


def test_error_lists_at_most_ten_mistakes() -> None:
    nodesets = [{"name": f"n{n}", "replicas": -1, "cpus": 1, "memory": "1GiB"} for n in range(13)]

    with pytest.raises(SettingsError) as caught:
        from_config(config(lambda values: values.update(nodesets=nodesets)))

    assert str(caught.value).count("expected at least 0") == 10
    assert str(caught.value).split("\n")[10:] == [
        "the stack's configuration: 3 more problems are not shown; correct those above first"
    ]


# --- Arbitrary values -----------------------------------------------------------------------------

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.from_regex(
        r"[0-9]{1,400}(:[0-9]{1,400})?|[a-z]-\[[0-9,-]{1,9}\]|[0-9]+[GT]iB", fullmatch=True
    )
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text() | st.just("secure"), inner, max_size=3)
    ),
    max_leaves=6,
)
CONCRETE = [*NUMBERS, *CHOICES, *SWITCHES, *LISTS, *MAPPINGS, *WORDS]


def has_clean_lines(text: str) -> bool:
    """Return whether each problem is one printable line."""
    return all(line.isprintable() for line in text.split("\n"))


def error_of(read: Callable[[], object]) -> str:
    """Return the error of refused settings, or an empty text for accepted settings."""
    try:
        read()
    except SettingsError as error:
        return str(error)
    return ""


@hypothesis_settings(max_examples=300)
@given(key=st.sampled_from(CONCRETE), value=JSON)
@example(key="partitions[0].max_time", value="9" * 400 + ":0")
@example(key="nodesets[0].memory", value="9" * 5000 + "GiB")
@example(key="users[0].name", value="\ud800")
def test_any_value_is_accepted_or_refused_in_one_line(key: str, value: object) -> None:
    assert has_clean_lines(error_of(lambda: from_config(config(base=changed(key, value)))))


@hypothesis_settings(max_examples=200)
@given(key=st.sampled_from(list(FULL)), text=st.text() | st.text('[]{}",:1 an').map("[".__add__))
def test_any_config_text_is_accepted_or_refused_in_one_line(key: str, text: str) -> None:
    handed = {**config(base=FULL), f"slurmstack:{key}": text}
    assert has_clean_lines(error_of(lambda: from_config(handed)))


@hypothesis_settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.sampled_from(CONCRETE), value=JSON)
def test_stack_file_with_any_value_gives_one_line_for_each_problem(
    key: str, value: object, tmp_path: Path
) -> None:
    config = {f"slurmstack:{name}": part for name, part in changed(key, value).items()}
    (tmp_path / "Pulumi.lab.yaml").write_text(yaml.safe_dump({"config": config}))
    assert has_clean_lines(error_of(lambda: read_stack("lab", tmp_path)))


@hypothesis_settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text()
    | st.text("{}[]&*!:-?|>%@'\"\n\t ,#a0.").map("config: {slurmstack:users: ".__add__)
    | st.binary().map(lambda data: data.decode("latin-1"))
)
def test_stack_file_of_random_text_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "Pulumi.lab.yaml").write_text(text, encoding="utf-8", errors="replace", newline="")
    with pytest.raises(SettingsError) as caught:
        read_stack("lab", tmp_path)
    assert has_clean_lines(str(caught.value))


# --- Pods ----------------------------------------------------------------------------------------


def test_nodes_share_machines_with_pods_only_if_slurm_schedules_pods() -> None:
    without = {key: value for key, value in BRIDGED.items() if key != "bridge"}

    assert "nodesets[cpu].shared_with_pods: true: has no effect" in refused(without)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cpu_request", 1),
        ("exclusive_cpus", True),
        ("on_demand", {}),
        ("pod", {"resources": {"rdma/hca": 1}}),
        ("pod", {"hugepages": {"hugepages-2Mi": "1GiB"}}),
    ],
)
def test_nodes_that_share_machines_with_pods_reserve_nothing_else(field: str, value: Any) -> None:
    nodeset = {**BRIDGED["nodesets"][0], field: value}

    assert "cannot be combined with 'shared_with_pods: true'" in refused(
        BRIDGED, nodesets=[nodeset]
    )


PODS_ONLY: Values = {
    **BRIDGED,
    "nodesets": [{**_NODESET, "pods_only": True}, {**_NODESET, "name": "shared"}],
    "bridge": {**BRIDGED["bridge"], "partition": None},
}
"""A stack with nodes that run only pods, and others."""


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("shared_with_pods", True),
        ("cpu_request", 1),
        ("on_demand", {}),
        ("gpus", {"type": "h100", "count": 8, "shards": 2}),
        ("gpus", {"type": "h100", "count": 8, "mig": {"1g.10gb": 8}}),
    ],
)
def test_nodes_that_run_only_pods_reserve_nothing(field: str, value: Any) -> None:
    nodeset = {**PODS_ONLY["nodesets"][0], field: value}

    assert "cannot be combined with 'pods_only: true'" in refused(PODS_ONLY, nodesets=[nodeset])


def test_nodes_that_run_only_pods_are_in_a_partition_of_their_own() -> None:
    used = [{"name": "main", "nodesets": ["cpu"]}]
    named = [{"name": "pods", "nodesets": ["shared"]}]

    assert "'cpu': no jobs of users run on nodes with 'pods_only" in refused(
        PODS_ONLY, partitions=used
    )
    assert "'pods': this name is reserved" in refused(PODS_ONLY, partitions=named)


def test_long_checks_do_not_run_where_only_pods_run() -> None:
    checks = [{"name": "cpu-memory", "nodesets": ["cpu"]}]

    assert "no jobs of users run on nodes with 'pods_only" in refused(
        PODS_ONLY, long_checks={"checks": checks}
    )


def test_pods_of_a_user_of_the_directory_need_the_uid() -> None:
    directory = {"uris": ["ldaps://ldap.example.org"], "base": "dc=example,dc=org"}
    rule = {"namespace": "lab", "user": "grace"}
    bridge = {"users": [rule]}

    assert "bridge.users[0].uid: is required" in refused(
        BRIDGED, directory=directory, bridge=bridge
    )
    assert not refuses(BRIDGED, directory=directory, bridge={"users": [{**rule, "uid": 3001}]})
