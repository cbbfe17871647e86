"""Types of resources that take data with them when they are removed. Plans use it as well."""

from collections.abc import Mapping
from typing import Final

HOLDS_DATA: Final[Mapping[str, str]] = {
    "kubernetes:core/v1:Namespace": "contains volumes, which are deleted with it",
    "kubernetes:core/v1:PersistentVolume": "refers to data",
    "kubernetes:core/v1:PersistentVolumeClaim": "holds data",
    # Clouds' shared file systems, which may hold a jail.
    "nebius:index/computeV1Filesystem:ComputeV1Filesystem": "holds data",
    "aws:efs/fileSystem:FileSystem": "holds data",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "holds data",
}
"""Types, each with the reason."""
