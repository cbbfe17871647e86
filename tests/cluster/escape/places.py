"""Places that attempts are made from, and the command that leads there."""

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
    # As salloc itself starts a shell in its interactive step.
    "salloc": f"salloc --quiet {_JOB} srun --interactive --preserve-env {{command}}",
    # An image without files of its own: those of the jail show what the kernel refuses.
    "container": f"srun {_JOB} --container-image={{folder}}/image"
    " --container-mounts=/usr:/usr,/etc:/etc,/srv:/srv,/home:/home,/var/lib:/var/lib"
    " {command}",
    "ssh": f"salloc --quiet {_JOB} ssh -o BatchMode=yes {NODE} {{quoted}}",
}
LIKE_A_JOB = ("batch", "salloc", "ssh", "container")
"""Other ways into a job, in which all is refused as in one of srun's."""
REFUSED_OTHERWISE: Mapping[str, Mapping[str, str]] = {
    "container": {
        # A container maps no other user.
        "to become root": "EINVAL",
        "to become another user": "EINVAL",
        # Each of the jail's directories is a mount of its own.
        "to hard-link the users' password hashes": "EXDEV",
        "to hard-link another user's open file": "EXDEV",
    }
}
"""Refusals that differ from those in a job of srun's, by way and attempt."""
EMPTY_IMAGE = """
mkdir --parents {folder}/usr {folder}/etc {folder}/tmp {folder}/mnt
for name in bin sbin lib lib64; do ln -s usr/$name {folder}/$name; done
"""
"""Makes the image for `container`."""


def kind(place: str) -> str:
    """The place by whose refusals an attempt is judged."""
    return "job" if place in LIKE_A_JOB else place


def leading_to(place: str, command: str, folder: str) -> str:
    """The command line by which a user, or root for `root`, runs a command in a place."""
    return _WAYS[place].format(command=command, quoted=shlex.quote(command), folder=folder)
