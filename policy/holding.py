"""Types of resources whose deletion may lose data. The package `plans` uses this list too."""

from collections.abc import Mapping
from typing import Final

HOLDS_DATA: Final[Mapping[str, str]] = {
    "kubernetes:core/v1:Namespace": "contains volumes, which are deleted with it",
    "kubernetes:core/v1:PersistentVolume": "refers to data",
    "kubernetes:core/v1:PersistentVolumeClaim": "holds data",
    # Shared file systems of clouds, which may contain a jail.
    "nebius:index/computeV1Filesystem:ComputeV1Filesystem": "holds data",
    "aws:efs/fileSystem:FileSystem": "holds data",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "holds data",
}
"""Reasons by type."""
