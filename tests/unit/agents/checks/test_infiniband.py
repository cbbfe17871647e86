"""Checks of the links and errors of InfiniBand ports."""

import pytest

from agents.checks import infiniband
from agents.checks.judging import EARLIER, UnknownError
from tests.support.recordings import recorded

PORTS = recorded("infiniband-h100")
REMEDY = "; check the cable and the switch"


def link(text: str, ports: int | None = None, min_gbits: float | None = None) -> str | None:
    return infiniband.link(text, ports=ports, min_gbits=min_gbits)


def edited(name: str, value: str, port: str = "mlx5_0") -> str:
    lines = (line.split(None, 3) for line in PORTS.splitlines())
    return "\n".join(
        " ".join([*words[:3], value if (words[0], words[2]) == (port, name) else words[3]])
        for words in lines
    )


def test_ports_that_are_up_pass_the_check() -> None:
    assert link(PORTS) is None
    assert link(PORTS, ports=3, min_gbits=400) is None


def test_message_names_a_port_that_is_down() -> None:
    down = edited("state", "1: DOWN").replace("5: LinkUp", "2: Polling", 1)

    assert link(down) == f"port mlx5_0/1 is in the state DOWN (Polling){REMEDY}"


def test_disabled_port_is_ignored() -> None:
    down = edited("state", "1: DOWN").replace("5: LinkUp", "3: Disabled", 1)

    assert link(down) is None
    assert link(down, ports=3) == f"2 of 3 InfiniBand ports are up{REMEDY}"


def test_unplugged_port_is_ignored_if_enough_other_ports_are_up() -> None:
    assert link(edited("state", "1: DOWN"), ports=2) is None
    assert link(edited("state", "1: DOWN"), ports=3) is not None


def test_slow_port_fails_the_check() -> None:
    slow = edited("rate", "200 Gb/sec (4X HDR)")

    assert link(slow, min_gbits=400) == (
        f"port mlx5_0/1 runs at 200 Gb/s, expected at least 400{REMEDY}"
    )
    assert link(slow) is None


def test_link_check_uses_only_the_latest_reading() -> None:
    down = edited("state", "1: DOWN")
    assert link(f"{PORTS}{EARLIER}600\n{down}") is None
    assert link(f"{down}{EARLIER}600\n{PORTS}") is not None


@pytest.mark.parametrize("text", ["", PORTS.replace("InfiniBand", "Ethernet")])
def test_infiniband_check_of_a_node_without_ports_is_unknown(text: str) -> None:
    with pytest.raises(UnknownError):
        link(text)


def errors(now: str, before: str, age: float = 600) -> str | None:
    text = f"{now}{EARLIER}{age}\n{before}"
    return infiniband.errors(text, max_downed=1, max_errors=1000)


def test_counters_pass_at_any_value_if_they_do_not_change() -> None:
    assert errors(edited("link_downed", "255", "mlx5_1"), PORTS) is None


def test_flapping_link_fails_the_check() -> None:
    assert errors(edited("link_downed", "2"), PORTS) == (
        f"port mlx5_0/1: the counter 'link_downed' rose by 2, expected at most 1 per hour{REMEDY}"
    )
    assert errors(edited("link_downed", "1"), PORTS) is None


def test_error_limit_is_per_hour() -> None:
    many = edited("symbol_error", "1500")

    assert errors(many, PORTS) == (
        "port mlx5_0/1: the counter 'symbol_error' rose by 1500, expected at most 1000 per hour"
        f"{REMEDY}"
    )
    assert errors(many, PORTS, age=7200) is None


def test_counters_that_were_reset_start_from_zero() -> None:
    before = edited("symbol_error", "60000")

    assert errors(edited("symbol_error", "500"), before) is None
    assert errors(edited("symbol_error", "5000"), before) is not None


def test_check_of_error_counters_is_unknown_after_one_reading() -> None:
    with pytest.raises(UnknownError):
        infiniband.errors(PORTS, max_downed=1, max_errors=1000)
