"""A Slurm cluster on the Kubernetes cluster that kubectl uses."""

import pulumi
from slurmstack import SlurmCluster

config = pulumi.Config()
lab = SlurmCluster(
    "lab",
    {
        "cluster_name": "lab",
        "namespace": "lab",
        "registry": config.require("registry"),
        "jail": {"size": "1TiB", "storage_class": "shared"},
        "nodesets": [{"name": "cpu", "replicas": 2, "cpus": 8, "memory": "32GiB"}],
        "users": [{"name": "ada", "uid": 2000, "ssh_keys": [config.require("ssh_key")]}],
    },
)
pulumi.export("login_address", lab.login_address)
pulumi.export("login_host_key", lab.login_host_key)
pulumi.export("report", lab.report)
