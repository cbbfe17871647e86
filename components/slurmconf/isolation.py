"""Render the options of the SPANK plugin for one node; see slurmstack-chroot(8)."""

from collections.abc import Iterable, Iterator

from components.conventions import CHECKS_LOGS
from components.settings import Nodeset, Submount
from components.slurmconf.nodes import reserved_memory

_DEVICES = ("dri", "fuse", "gdrdrv", "infiniband", "kfd", "nvidia*")
"""Devices in a node's /dev that jobs can use: GPUs of both vendors, fast networks, FUSE."""

_STEPS = 256
"""Default limit of a job's steps on a node. On a node with little memory, the default is lower."""
_FEWEST_STEPS = 8
_SLURMSTEPD = 4
"""Memory in MiB that the stack plans for each slurmstepd. A measured slurmstepd used 3 MiB."""


def node_options(nodeset: Nodeset, submounts: Iterable[Submount] = ()) -> str:
    """Render the file of the plugin's option `node=` for the nodeset's nodes."""
    return "".join(f"{key}={value}\n" for key, value in _options(nodeset, submounts))


def _options(nodeset: Nodeset, submounts: Iterable[Submount]) -> Iterator[tuple[str, str]]:
    isolation = nodeset.isolation
    yield "no_new_privs", _switch(isolation.no_new_privileges)
    yield "private_dev", _switch(isolation.private_devices)
    if isolation.private_devices:
        yield from (("device", name) for name in sorted({*_DEVICES, *isolation.devices}))
    sizes = {"tmp": isolation.tmp, "var_tmp": isolation.var_tmp, "shm": isolation.shm}
    yield from ((f"{name}_size", f"{size}M") for name, size in sizes.items() if size)
    yield "processes", str(isolation.processes)
    yield "steps", str(isolation.steps or min(_fitting_steps(nodeset), _STEPS))
    yield "node_steps", str(max(_fitting_steps(nodeset), isolation.steps or 0))
    yield "overlay", _switch(isolation.overlay)
    if isolation.overlay:
        # An overlay does not show volumes that are mounted in its lower directory, so the plugin
        # mounts these paths through the overlay.
        mounted = (path for volume in nodeset.volumes if (path := volume.in_jail()))
        further = (submount.path for submount in submounts)
        ours = {CHECKS_LOGS, *mounted, *further}
        shared = {*isolation.shared, *ours}
        yield from (("through", path) for path in sorted(shared))


def _fitting_steps(nodeset: Nodeset) -> int:
    """Return the number of steps, of all jobs together, that fit in the node's reserved memory."""
    return max(reserved_memory(nodeset) // _SLURMSTEPD, _FEWEST_STEPS)


def _switch(on: bool) -> str:
    return "yes" if on else "no"
