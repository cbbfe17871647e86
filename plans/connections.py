"""Find the connections that a planned change of a network policy newly allows or refuses."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from engine.planning import Op
from plans.costs import at
from plans.reading import Step

_ALLOWED: Final = ("ingress", "egress")
_DENIED: Final = ("ingressDeny", "egressDeny")
_PORTS: Final = ("ports", "toPorts")
Connection = tuple[str, str, tuple[Any, Any]]
"""Direction, peer and port. If the peer is a range of addresses, its exceptions are left out."""


def newly_refused(step: Step) -> list[str]:
    """Return the ranges of addresses that become exceptions of an allowed range."""
    return _exceptions(step.old, step.new)


def no_longer_refused(step: Step) -> list[str]:
    """Return the ranges of addresses that are no longer exceptions of an allowed range."""
    return _exceptions(step.new, step.old)


def allows_more(step: Step) -> bool:
    """Return whether a changed policy allows connections that it refused before."""
    return _is_changed(step) and bool(
        _new(step.old, step.new, _ALLOWED) or _new(step.new, step.old, _DENIED)
    )


def allows_less(step: Step) -> bool:
    """Return whether a changed policy refuses connections that it allowed before.

    Also return True if the policy is unknown in this preview.
    """
    is_known = all(isinstance(at(side or {}, "spec"), Mapping) for side in (step.old, step.new))
    return _is_changed(step) and bool(
        not is_known or _new(step.new, step.old, _ALLOWED) or _new(step.old, step.new, _DENIED)
    )


def _is_changed(step: Step) -> bool:
    return step.op in (Op.UPDATE, Op.REPLACE)


def _new(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, sections: tuple[str, ...]
) -> bool:
    return bool(_connections(after, sections).keys() - _connections(before, sections).keys())


def _exceptions(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> list[str]:
    """Return the exceptions that only `after` has, for the ranges that both sides allow."""
    old, new = (_connections(side, _ALLOWED) for side in (before, after))
    return sorted({cidr for one in old.keys() & new.keys() for cidr in new[one] - old[one]})


def _connections(
    inputs: Mapping[str, Any] | None, sections: tuple[str, ...]
) -> dict[Connection, frozenset[str]]:
    """Return the connections of a NetworkPolicy or CiliumNetworkPolicy, with their exceptions."""
    return {
        (section, json.dumps(peer, sort_keys=True), port): frozenset(exceptions)
        for section in sections
        for rule in at(inputs or {}, "spec", section) or []
        for peer, exceptions in _peers(rule)
        for port in _ports(rule)
    }


def _peers(rule: Mapping[str, Any]) -> Iterator[tuple[Any, list[str]]]:
    """Yield the peers of a rule, each with its exceptions. The peer None means all peers."""
    peers = [(kind, peer) for kind in rule if kind not in _PORTS for peer in rule[kind]]
    for kind, peer in peers or [("", None)]:
        addresses = at(peer, "ipBlock") or peer
        if at(addresses, "cidr"):
            yield at(addresses, "cidr"), at(addresses, "except") or []
        else:
            yield (kind, peer), []


def _ports(rule: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the protocols and ports of a rule. The port None means all ports."""
    groups = [rule, *(rule.get("toPorts") or [])]
    ports = [port for group in groups for port in group.get("ports") or []]
    yield from ((at(port, "protocol"), at(port, "port")) for port in ports or [None])
