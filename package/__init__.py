"""A Slurm cluster as one Pulumi component, for programs of other projects."""

from package.arguments import SlurmClusterArgs
from package.cluster import SlurmCluster

__all__ = ["SlurmCluster", "SlurmClusterArgs"]
