"""Expressions in the Common Expression Language (CEL) for Kubernetes' admission policies.

An expression that iterates over the fields of an object must first remove the object's type
(`dyn(object)`).
"""

import json


def literal(value: object) -> str:
    """Render strings, or lists and maps of strings, as JSON, which CEL accepts."""
    return json.dumps(value)


def equal_but(old: str, new: str, *but: str) -> str:
    """Return an expression that is true if two maps are equal in all keys except `but`."""
    free = literal(but)
    return (
        f"{old}.all(key, key in {free} || key in {new} && {new}[key] == {old}[key])"
        f" && {new}.all(key, key in {free} || key in {old})"
    )


def part(place: str, name: str, absent: str) -> str:
    """Return an expression for the value of an optional field, or `absent` without this field."""
    return f"(has({place}.{name}) ? {place}.{name} : {absent})"
