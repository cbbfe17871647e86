"""What login nodes read of the settings: sshd's part, limits, and what users are told.

Login nodes take an edit of these files up while sessions go on (images/login/serve).
"""

from collections.abc import Iterator

from components import conventions as c
from components.settings.login import Limits, Login

_MIB = 1024 * 1024
CPU_PERIOD = 100_000
"""Microseconds in which a cgroup's share of CPU time is counted: the kernel's own choice."""


def login_files(settings: Login) -> dict[str, str]:
    """The files by name; one that has nothing to say is left out."""
    files = {
        "sshd_config": _lines(sshd_options(settings)),
        "limits": _lines(limits(settings.limits)),
        "motd": _lines([settings.motd.text] if settings.motd.text else []),
        # That it is there says that the state is to be told.
        "state": _lines(["yes"] if settings.motd.state else []),
    }
    return {name: text for name, text in sorted(files.items()) if text}


def sshd_options(settings: Login) -> Iterator[str]:
    """Lines of sshd_config(5)."""
    home_keys = f"{c.JAIL}/%h/.ssh/authorized_keys" if settings.home_keys else "none"
    forwarding = settings.forwarding
    yield f"AuthorizedKeysFile {home_keys}"
    yield f"AllowTcpForwarding {_switch(forwarding.tcp)}"
    yield f"AllowStreamLocalForwarding {_switch(forwarding.tcp)}"
    yield f"AllowAgentForwarding {_switch(forwarding.agent)}"
    yield f"X11Forwarding {_switch(forwarding.x11)}"
    # Through the other kinds of Service all clients can come from one address, a Kubernetes node's:
    # whoever fails to log in would shut out everybody.
    yield f"PerSourcePenalties {_switch(settings.service == 'LoadBalancer')}"


def limits(settings: Limits) -> Iterator[str]:
    """Assignments for a shell, in the units of cgroups(7): microseconds a period, bytes, number."""
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
