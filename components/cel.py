"""The Common Expression Language, in which Kubernetes' admission policies are written.

Expressions that iterate over objects of the API must remove their types (`dyn(object)`).
"""

import json


def literal(value: object) -> str:
    """Render strings, or lists and maps of strings, in CEL, which accepts JSON."""
    return json.dumps(value)


def equal_but(old: str, new: str, *but: str) -> str:
    """Return the condition that two maps are equal in all keys except `but`."""
    free = literal(but)
    return (
        f"{old}.all(key, key in {free} || key in {new} && {new}[key] == {old}[key])"
        f" && {new}.all(key, key in {free} || key in {old})"
    )


def part(place: str, name: str, absent: str) -> str:
    """Return the value of an optional field, or `absent`."""
    return f"(has({place}.{name}) ? {place}.{name} : {absent})"
