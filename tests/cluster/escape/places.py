"""Places in which attempts run, and the commands that run programs there."""

import shlex
from collections.abc import Mapping

from tests.cluster.escape.victim import NODE

_JOB = f"--chdir=/ --nodelist={NODE} --mem=100"
_WAYS = {
    "login": "{command}",
    "job": f"srun {_JOB} {{command}}",
    "root": f"srun {_JOB} {{command}}",
    "batch": f"sbatch --quiet --wait {_JOB} --output={{folder}}/said --wrap {{quoted}};"
    " cat {folder}/said",
    # These are the options with which salloc starts the shell of its interactive step.
    "salloc": f"salloc --quiet {_JOB} srun --interactive --preserve-env {{command}}",
    # The image has no files of its own: the container uses directories of the jail. An attempt
    # therefore never fails because a program is missing, and all refusals come from the kernel.
    "container": f"srun {_JOB} --container-image={{folder}}/image"
    " --container-mounts=/usr:/usr,/etc:/etc,/srv:/srv,/home:/home,/var/lib:/var/lib"
    " {command}",
    "ssh": f"salloc --quiet {_JOB} ssh -o BatchMode=yes {NODE} {{quoted}}",
}
LIKE_A_JOB = ("batch", "salloc", "ssh", "container")
"""Other ways to run in a job, with the same refusals as in a job of srun."""
REFUSED_OTHERWISE: Mapping[str, Mapping[str, str]] = {
    "container": {
        # The user namespace of a container maps only the user, so other uids are invalid.
        "to become root": "EINVAL",
        "to become another user": "EINVAL",
        # In a container, each of the jail's directories is a separate mount.
        "to hard-link the users' password hashes": "EXDEV",
        "to hard-link another user's open file": "EXDEV",
    }
}
"""Refusals that differ from those in a job of srun, by place and attempt."""
EMPTY_IMAGE = """
mkdir --parents {folder}/usr {folder}/etc {folder}/tmp {folder}/mnt
for name in bin sbin lib lib64; do ln -s usr/$name {folder}/$name; done
"""
"""Script that creates the image for the place `container`."""


def kind(place: str) -> str:
    """Return the place under which `attempts.py` lists the refusals of this place."""
    return "job" if place in LIKE_A_JOB else place


def leading_to(place: str, command: str, folder: str) -> str:
    """Return the command line that runs `command` in a place.

    For the place `root`, root must run the command line.
    """
    return _WAYS[place].format(command=command, quoted=shlex.quote(command), folder=folder)
