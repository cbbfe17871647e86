"""Build previews of deploys for tests. A step of a preview is the change of one resource."""

import json
from collections.abc import Mapping
from typing import Any

from plans.reading import Preview, read

CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
STATEFUL_SET = "kubernetes:apps/v1:StatefulSet"
_PASSWORD = "random:index/randomPassword:RandomPassword"
_SECRET = "kubernetes:core/v1:Secret"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"


def urn(type_: str, name: str) -> str:
    return f"urn:pulumi:lab::slurmstack::{type_}::{name}"


def step(
    op: str,
    type_: str,
    name: str,
    old: Mapping[str, Any] | None = None,
    new: Mapping[str, Any] | None = None,
    **of_old: Any,
) -> dict[str, Any]:
    """Return a step of a JSON preview. `of_old`: fields of the old state, such as `protect`."""
    states: dict[str, Any] = {}
    if old is not None:
        states["oldState"] = {"custom": True, "type": type_, "inputs": old, **of_old}
    if new is not None:
        states["newState"] = {"custom": True, "type": type_, "inputs": new}
    return {"op": op, "urn": urn(type_, name), **states, "detailedDiff": None}


def preview(
    *steps: Mapping[str, Any], errors: tuple[str, ...] = (), logged: tuple[str, ...] = ()
) -> Preview:
    lines = [*(("error", text) for text in errors), *(("info", text) for text in logged)]
    document = {
        "steps": steps,
        "diagnostics": [{"severity": severity, "message": text} for severity, text in lines],
        "changeSummary": {"same": 7},
    }
    return read(json.dumps(document), "made up")


def stateful_set(
    labels: Mapping[str, str],
    replicas: Any = 1,
    limits: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    container = {"name": "one", "resources": {"limits": dict(limits or {})}}
    pod = {"containers": [container], "volumes": spec.pop("volumes", [])}
    template = {"metadata": {"labels": dict(labels)}, "spec": pod}
    return {"spec": {"replicas": replicas, "template": template, **spec}}


def removed_key(since: int) -> dict[str, Any]:
    """Return a step that deletes the key of the rotation at this Unix time."""
    return step("delete", _PASSWORD, f"auth-password-{since}", {})


def key_secret(*moments: int) -> dict[str, Any]:
    """Return a step that edits the Secret with the authentication keys.

    After the step, the Secret has the first key, and the keys of the rotations at these Unix times.
    """
    hidden = {"stringData": "[secret]"}
    names = ("auth-password", *(f"auth-password-{since}" for since in moments))
    sources = {"stringData": [urn(_PASSWORD, name) for name in names]}
    return step("update", _SECRET, "auth-secret", hidden, hidden, propertyDependencies=sources)


def claim(size: str) -> dict[str, Any]:
    return {"spec": {"resources": {"requests": {"storage": size}}}}
