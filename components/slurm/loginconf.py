"""Files of login nodes from the settings: sshd's options, limits, and messages for users.

Login nodes apply changes of these files without ending sessions (images/login/serve).
"""

from collections.abc import Iterator

from components import conventions as c
from components.settings.login import Limits, Login

_MIB = 1024 * 1024
CPU_PERIOD = 100_000
"""Period of a cgroup's CPU quota in microseconds: the kernel's default."""


def login_files(settings: Login) -> dict[str, str]:
    """Return the files by name, without empty files."""
    files = {
        "sshd_config": _lines(sshd_options(settings)),
        "limits": _lines(limits(settings.limits)),
        "motd": _lines([settings.motd.text] if settings.motd.text else []),
        # If this file exists, the login node shows the cluster's state to users who log in.
        "state": _lines(["yes"] if settings.motd.state else []),
    }
    return {name: text for name, text in sorted(files.items()) if text}


def sshd_options(settings: Login) -> Iterator[str]:
    """Yield lines of sshd_config(5)."""
    home_keys = f"{c.JAIL}/%h/.ssh/authorized_keys" if settings.home_keys else "none"
    forwarding = settings.forwarding
    yield f"AuthorizedKeysFile {home_keys}"
    yield f"AllowTcpForwarding {_switch(forwarding.tcp)}"
    yield f"AllowStreamLocalForwarding {_switch(forwarding.tcp)}"
    yield f"AllowAgentForwarding {_switch(forwarding.agent)}"
    yield f"X11Forwarding {_switch(forwarding.x11)}"
    # Only with LoadBalancer, delay clients that fail to log in. With other types of Service, all
    # clients can have the address of one Kubernetes node. One client that fails would then lock out
    # all clients.
    yield f"PerSourcePenalties {_switch(settings.service == 'LoadBalancer')}"


def limits(settings: Limits) -> Iterator[str]:
    """Yield shell assignments in units of cgroups(7): microseconds per period, bytes, processes."""
    if settings.cpus is not None:
        yield f"cpu_quota={round(settings.cpus * CPU_PERIOD)}"
    if settings.memory is not None:
        yield f"memory={settings.memory * _MIB}"
    if settings.processes is not None:
        yield f"processes={settings.processes}"


def _switch(on: bool) -> str:
    return "yes" if on else "no"


def _lines(lines: Iterator[str] | list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
