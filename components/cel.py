"""The Common Expression Language, in which Kubernetes' admission policies are written."""

import json


def literal(value: object) -> str:
    """Render strings, or lists and maps of strings, in CEL, which accepts JSON."""
    return json.dumps(value)
