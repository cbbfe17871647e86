"""Check the contents of the site's Secrets.

Without these checks, a mistake would show only after the deploy has begun.
"""

import json
from collections.abc import Callable, Mapping
from typing import Final

import yaml

_REGISTRIES: Final = (
    'expected JSON with the credentials of registries, such as {"auths":'
    ' {"registry.example.org": {"auth": "…"}}}'
)
_RECEIVERS: Final = "expected Alertmanager's configuration in YAML, with route and receivers"


def problem(entry: str, text: str) -> str | None:
    """Return the problem with the text of a Secret's entry, or None if the text is valid.

    The problem does not quote the text, which is a credential. If only the encrypted form of the
    text is known, `text` is empty. The function then checks nothing and returns None.
    """
    check = _CHECKS.get(entry)
    return check(text) if check and text else None


def _registries(text: str) -> str | None:
    """Check registry credentials. Kubernetes requires valid JSON, and kubelet uses only `auths`."""
    try:
        auths = json.loads(text)["auths"]
        entries = [entry for entry in auths.values() if isinstance(entry, dict)]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return _REGISTRIES
    if not any(entry.get("auth") or entry.get("username") for entry in entries):
        # With credsStore, `docker login` writes the credentials into the machine's own store, so
        # the file has none.
        return f"the JSON has no credentials under the key 'auths': {_REGISTRIES}"
    return None


def _receivers(text: str) -> str | None:
    """Check that the route leads to a receiver; Alertmanager refuses other configurations."""
    try:
        document = yaml.safe_load(text)
        first = document["route"]["receiver"]
        names = [receiver["name"] for receiver in document["receivers"]]
    except (yaml.YAMLError, LookupError, TypeError, ValueError, RecursionError):
        return _RECEIVERS
    if first not in names:
        return f"'route.receiver' does not name an entry of 'receivers': {_RECEIVERS}"
    return None


_CHECKS: Final[Mapping[str, Callable[[str], str | None]]] = {
    ".dockerconfigjson": _registries,
    "alertmanager.yml": _receivers,
}
