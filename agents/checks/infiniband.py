"""Checks of InfiniBand ports, from the kernel's files in /sys/class/infiniband.

The reader's text has one line for each value: device, port, file name and value. An example is
`mlx5_0 1 state 4: ACTIVE`. Linux documents these files in
Documentation/ABI/stable/sysfs-class-infiniband.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from agents.checks.judging import EARLIER, UnknownError, earlier, listed, rows

VALUES = ("link_layer", "phys_state", "rate", "state")
"""Files that the reader reads for each port."""
DOWNED = "link_downed"
ERRORS = (
    "excessive_buffer_overrun_errors",
    "link_error_recovery",
    "local_link_integrity_errors",
    "port_rcv_errors",
    "symbol_error",
)
"""Counters of a port's errors. A counter that reaches its maximum stays there until a reset."""

Port = dict[str, str]


def link(text: str, *, ports: int | None, min_gbits: float | None) -> str | None:
    """Check that all ports are up, and that no port is slower than `min_gbits`.

    If `ports` is set, it is enough that this number of ports is up. Disabled ports are ignored.
    """
    now, _, _ = text.partition(EARLIER)
    found = {
        name: port for name, port in _ports(now).items() if "Disabled" not in port["phys_state"]
    }
    up = {name: port for name, port in found.items() if port["state"].endswith("ACTIVE")}
    slow = [
        f"port {name} runs at {rate:g} Gb/s, expected at least {min_gbits or 0:g}"
        for name, port in up.items()
        if (rate := float(port["rate"].partition(" ")[0])) < (min_gbits or 0)
    ]
    down = [
        (
            f"port {name} is in the state {port['state'].partition(': ')[2]} "
            f"({port['phys_state'].partition(': ')[2]})"
        )
        for name, port in found.items()
        if name not in up
    ]
    if ports is not None:
        down = [f"{len(up)} of {ports} InfiniBand ports are up", *down] if len(up) < ports else []
    return listed([*down, *slow], "check the cable and the switch")


def errors(text: str, *, max_downed: float, max_errors: float) -> str | None:
    """Check that no port has had more errors per hour than the limits allow.

    The errors are those since the earlier reading, which is about an hour old.
    """
    now, before, age = earlier(text)
    earlier_ports = _ports(before)
    return listed(
        _errors(_ports(now), earlier_ports, max(age, 3600) / 3600, max_downed, max_errors),
        "check the cable and the switch",
    )


def _errors(
    now: Mapping[str, Port],
    before: Mapping[str, Port],
    hours: float,
    max_downed: float,
    max_errors: float,
) -> Iterator[str]:
    for name, port in now.items():
        for counter in (DOWNED, *ERRORS):
            then = before.get(name, {}).get(counter)
            if then is None or counter not in port:
                continue
            # If the counter is lower than before, a reset has set it to 0: count from 0.
            new = int(port[counter]) - int(then)
            new = int(port[counter]) if new < 0 else new
            limit = max_downed if counter == DOWNED else max_errors
            if new / hours > limit:
                yield (
                    f"port {name}: the counter '{counter}' rose by {new}, expected at most "
                    f"{limit:g} per hour"
                )


def _ports(text: str) -> dict[str, Port]:
    """Return the InfiniBand ports by `device/port`. Raises `UnknownError` if there are no ports."""
    found: dict[str, Port] = defaultdict(dict)
    for device, port, name, value in rows(text, 4):
        found[f"{device}/{port}"][name] = value
    ports = {name: port for name, port in found.items() if port.get("link_layer") == "InfiniBand"}
    if not ports:
        raise UnknownError(
            "/sys/class/infiniband contains no InfiniBand port; check the driver, or remove "
            "the feature 'infiniband' from the nodeset"
        )
    return ports
