"""Rules about passwords, keys and tokens: only objects of the kind Secret may contain them."""

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from pulumi_policy.proxy import UnknownValueError

from policy.allowed import Allowed
from policy.manifests import at, containers, kind, pod, strings
from policy.rule import About, Resource, Rule, StackRule, over

_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_CREDENTIALS = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s:@$]+@", re.IGNORECASE)
_NAMED = re.compile(r"PASSWORD|PASSWD|PASSPHRASE|SECRET|TOKEN|CREDENTIAL|(^|_)KEY(_|$)")
_LEAST = 8
"""Minimum length of the secrets that the rule searches for. Shorter texts could occur anywhere by
chance."""


# --- Single resources ----------------------------------------------------------------------------


def _open_secrets(resource: Resource, _: Allowed) -> Iterator[str]:
    if resource.type.startswith("kubernetes:") and kind(resource) != "Secret":
        yield from over(_texts(resource), _looks_secret)
        yield from over(
            (env for one in containers(resource) for env in one.spec.get("env") or ()),
            _named_secret,
        )


def _texts(resource: Resource) -> Iterator[str]:
    """Yield the texts of a resource in which a rule searches for secrets. In pods, skip generated
    fields such as `hostAliases`."""
    found = pod(resource)
    if found is None:
        return strings(resource.props)
    parts = (at(resource.props, "metadata"), found.metadata, *(c.spec for c in found.containers()))
    return over(parts, strings)


def _looks_secret(text: str) -> Iterable[str]:
    if _PRIVATE_KEY.search(text):
        yield "the object contains a private key"
    if _CREDENTIALS.search(text):
        yield "the object contains a URL with a password"


def _named_secret(env: object) -> Iterable[str]:
    name, value = str(at(env, "name")), str(at(env, "value") or "")
    # Accept a path, which is not itself a secret, but names the file with the secret.
    if value and not value.startswith("/") and _NAMED.search(name.upper()):
        yield f"the environment variable {name} has a value in plain text"


OPEN_SECRETS = Rule(
    About(
        "open-secrets",
        "Private keys, passwords and tokens are only in Secrets",
        "every account that can read pods, ConfigMaps or logs could read the secret",
        "move the value to a Secret, and mount this Secret in the pod",
    ),
    _open_secrets,
)


# --- Secrets that the stack generates ------------------------------------------------------------

_MADE = {
    "random:index/randomPassword:RandomPassword": ("result",),
    "tls:index/privateKey:PrivateKey": ("privateKeyPem", "privateKeyOpenssh"),
}
"""Types of resources that generate secrets, each with the names of the outputs that contain the
secrets."""


def _made_secrets(resources: Sequence[Resource], _: Allowed) -> Iterator[tuple[Resource, str]]:
    makers = {one.urn: one.name for one in resources if one.type in _MADE}
    open_ = [
        one
        for one in resources
        if one.type.startswith("kubernetes:") and kind(one) not in ("", "Secret")
    ]

    def takes(one: Resource) -> Iterator[tuple[Resource, str]]:
        urns = {urn for sources in one.sources.values() for urn in sources}
        for urn in sorted(urns & makers.keys()):
            yield (
                one,
                f"the object contains a value derived from the secret of resource {makers[urn]}",
            )

    # First follow the dependencies: a preview knows them, although it does not know the secrets.
    yield from over(open_, takes)
    secrets: list[tuple[str, str]] = []

    for one in resources:
        # Skip secrets that Pulumi does not know yet, because no object can contain them yet.
        with suppress(UnknownValueError):
            secrets.extend(_secrets_of(one))

    def holds(one: Resource) -> Iterator[tuple[Resource, str]]:
        left, texts = set(secrets), _texts(one)
        # Stop when all secrets are found, because reading an unknown text raises an error.
        while left and (text := next(texts, None)) is not None:
            for secret, name in sorted(known for known in left if known[0] in text):
                left.remove((secret, name))
                yield (
                    one,
                    f"the object contains the secret that resource {name} generates or contains",
                )

    # An unknown text in one resource must not end the search in the others.
    yield from over(open_, holds)


def _secrets_of(resource: Resource) -> Iterator[tuple[str, str]]:
    """Yield the secrets that a resource generates or contains, each with the resource's name."""
    for key in _MADE.get(resource.type, ()):
        secret = str(at(resource.props, key) or "")
        if len(secret) >= _LEAST:
            yield secret, resource.name
    if kind(resource) == "Secret":
        plain = tuple(strings(at(resource.props, "stringData")))
        for text in (*plain, *map(_decoded, strings(at(resource.props, "data")))):
            # Search only for private keys: other entries of a Secret may be public keys or
            # settings.
            if _PRIVATE_KEY.search(text):
                yield text.strip(), resource.name


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""


MADE_SECRETS = StackRule(
    About(
        "made-secrets",
        "Secrets that the stack generates are only in Secrets",
        "many accounts can read a copy in a ConfigMap, an annotation or a command line",
        "mount the Secret instead of copying its contents",
    ),
    _made_secrets,
)
