"""Random values that are drawn once and then kept in the state.

Types, inputs, outputs and ids are those of Pulumi's random provider (4.21). A stack can therefore
move between this engine and Pulumi's, and keep its values. Only a value drawn from a ``seed``
differs between the two engines, because each uses another random number generator.
"""

from __future__ import annotations

import base64
import ctypes
import ctypes.util
import random
import secrets
import string
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from engine.errors import CheckError, EngineError
from engine.providers import Diff, Operation, Resource
from engine.values import UNKNOWN, Properties, Unknown, Value

Inputs: TypeAlias = Mapping[str, Any]

_SPECIAL: Final = "!@#$%&*()-_=+[]{}<>:?"
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "a number": (int,),
    "true or false": (bool,),
    "text": (str,),
    "a list of strings": (list,),
    "a mapping": (dict,),
}
_TEXT: Final = {
    "length": "a number",
    "lower": "true or false",
    "minLower": "a number",
    "minNumeric": "a number",
    "minSpecial": "a number",
    "minUpper": "a number",
    "number": "true or false",
    "numeric": "true or false",
    "overrideSpecial": "text",
    "special": "true or false",
    "upper": "true or false",
}
_TEXT_DEFAULTS: Final[Properties] = {
    "lower": True,
    "minLower": 0,
    "minNumeric": 0,
    "minSpecial": 0,
    "minUpper": 0,
    "number": True,
    "numeric": True,
    "special": True,
    "upper": True,
}


@dataclass(frozen=True)
class _Kind:
    """A resource type: its inputs with their types, and the function that draws a value.

    ``draw`` returns the id and the outputs.
    """

    inputs: Mapping[str, str]
    required: tuple[str, ...]
    defaults: Properties
    draw: Callable[[Inputs], tuple[str, Properties]]
    secret: frozenset[str] = frozenset()


class RandomProvider:
    """The provider of random values. It has no config and uses no service."""

    def check(self, resource_type: str, urn: str, olds: Properties, news: Properties) -> Properties:
        """Return the inputs unchanged. Raises CheckError that names an invalid input."""
        kind = _kind(resource_type)
        for name in kind.required:
            if news.get(name) is None:
                raise CheckError(name, "is required; set it")
        for name, value in news.items():
            if not name.startswith("__"):
                _check_type(name, kind.inputs.get(name), value)
        if not any(isinstance(value, Unknown) for value in news.values()):
            _check_values(kind, {**kind.defaults, **news})
        return dict(news)

    def diff(self, old: Resource, news: Properties) -> Diff:
        """Report each changed input. Every change replaces the resource and draws a new value.

        An input that is set to its default is the same as an input that is not set.
        """
        kind = _kind(old.type)
        before, after = _effective(kind, old.inputs), _effective(kind, news)
        changed = tuple(
            name
            for name in sorted(before.keys() | after.keys())
            if isinstance(after.get(name), Unknown) or before.get(name) != after.get(name)
        )
        return Diff(changed, changed)

    def create(
        self, resource_type: str, urn: str, inputs: Properties, op: Operation
    ) -> tuple[str, Properties]:
        """Draw a value."""
        kind = _kind(resource_type)
        given = _effective(kind, inputs)
        resource_id, drawn = kind.draw(given)
        return resource_id, {**given, **drawn}

    def update(self, old: Resource, news: Properties, op: Operation) -> Properties:
        """Return the new outputs, with the old value. Only a replacement draws a new value."""
        return {**old.outputs, **_effective(_kind(old.type), news)}

    def delete(self, old: Resource, op: Operation) -> None:
        """Do nothing: the value exists only in the state."""

    def read(
        self,
        resource_type: str,
        urn: str,
        resource_id: str,
        inputs: Properties,
        outputs: Properties | None = None,
    ) -> tuple[str, Properties, Properties] | None:
        """Return the stored values.

        Return None if there is no id, because then no value was drawn.
        """
        if not resource_id:
            return None
        if outputs is None:
            raise EngineError(
                f"{resource_type}: cannot be imported or looked up, because a random value exists"
                " only in the state of its stack; remove the import option or the get() call"
            )
        return resource_id, inputs, outputs

    def preview_outputs(
        self, resource_type: str, inputs: Properties, old: Resource | None
    ) -> Properties:
        """Return the inputs; drawn values are unknown."""
        if old is not None:
            return {**old.outputs, **inputs}
        kind = _kind(resource_type)
        drawn = dict.fromkeys(_drawn_names(resource_type), cast(Value, UNKNOWN))
        return {**_effective(kind, inputs), **drawn}

    def secret_outputs(self, resource_type: str) -> frozenset[str]:
        """Return the secret outputs: passwords, their hashes, and random bytes."""
        return _kind(resource_type).secret


def _kind(resource_type: str) -> _Kind:
    kind = _KINDS.get(resource_type.rpartition(":")[2])
    if kind is None:
        raise EngineError(
            f"{resource_type}: this type is not supported (supported:"
            f" {', '.join(sorted(_KINDS))}); correct the type in the program"
        )
    return kind


def _check_type(name: str, expected: str | None, value: Value) -> None:
    if expected is None:
        raise CheckError(
            name,
            "the resource type has no input with this name; correct the name, or remove the input",
        )
    if value is None or isinstance(value, Unknown):
        return
    kinds = _TYPES[expected]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise CheckError(name, f"{value!r}: expected {expected}")


def _check_values(kind: _Kind, given: Properties) -> None:
    for name in ("length", "byteLength"):
        size = given.get(name)
        if isinstance(size, int) and size < 1:
            raise CheckError(name, f"{size}: expected 1 or more")
    if kind.inputs.keys() >= {"min", "max"} and cast(int, given["min"]) > cast(int, given["max"]):
        raise CheckError(
            "min", f"{given['min']}: expected at most {given['max']}, the value of the input `max`"
        )
    if "overrideSpecial" in kind.inputs:
        _check_text(given)


def _check_text(given: Inputs) -> None:
    least = sum(given[name] or 0 for name in ("minLower", "minNumeric", "minSpecial", "minUpper"))
    if least > given["length"]:
        raise CheckError(
            "length",
            f"{given['length']}: expected at least {least}, the sum of minLower, minUpper,"
            " minNumeric and minSpecial",
        )
    if not _alphabet(given):
        raise CheckError(
            "lower", "false: set at least one of lower, upper, numeric and special to true"
        )


def _effective(kind: _Kind, inputs: Properties) -> Properties:
    """Return the inputs with defaults. ``number`` is an old name of ``numeric``."""
    given = {
        name: value
        for name, value in inputs.items()
        if value is not None and not name.startswith("__")
    }
    if "numeric" in kind.inputs:
        numeric = given.get("numeric", given.get("number", True))
        given["numeric"] = given["number"] = numeric
    return {**kind.defaults, **given}


# ---------------------------------------------------------------------------------------------
# Drawing


def _alphabets(given: Inputs) -> dict[str, tuple[str, int]]:
    """Return the characters of each kind, and their minimum number in a result."""
    special = given.get("overrideSpecial") or _SPECIAL
    kinds = {
        "lower": (string.ascii_lowercase, given["minLower"]),
        "upper": (string.ascii_uppercase, given["minUpper"]),
        "numeric": (string.digits, given["minNumeric"]),
        "special": (special, given["minSpecial"]),
    }
    return {name: pair for name, pair in kinds.items() if given[name] or pair[1]}


def _alphabet(given: Inputs) -> str:
    return "".join(characters for characters, _ in _alphabets(given).values())


def _text(given: Inputs) -> str:
    least = [
        secrets.choice(characters)
        for characters, count in _alphabets(given).values()
        for _ in range(count)
    ]
    everything = _alphabet(given)
    drawn = least + [secrets.choice(everything) for _ in range(given["length"] - len(least))]
    secrets.SystemRandom().shuffle(drawn)
    return "".join(drawn)


def _draw_string(given: Inputs) -> tuple[str, Properties]:
    result = _text(given)
    return result, {"id": result, "result": result, "__meta": '{"schema_version":"2"}'}


def _draw_password(given: Inputs) -> tuple[str, Properties]:
    result = _text(given)
    outputs: Properties = {"id": "none", "result": result, "__meta": '{"schema_version":"3"}'}
    hashed = _bcrypt(result)
    if hashed is not None:
        outputs["bcryptHash"] = hashed
    return "none", outputs


_CRYPT_LOCK: Final = threading.Lock()


def _bcrypt(password: str) -> str | None:
    """Return a bcrypt hash from the system's crypt(3), or None if it does not support bcrypt."""
    library = ctypes.util.find_library("crypt")
    if library is None:
        return None
    crypt = ctypes.CDLL(library).crypt
    crypt.restype = ctypes.c_char_p
    alphabet = "./" + string.ascii_letters + string.digits
    # The last of the salt's 22 characters has only two bits, so only four characters are valid.
    salt = "".join(secrets.choice(alphabet) for _ in range(21)) + secrets.choice(".Oeu")
    with _CRYPT_LOCK:  # crypt(3) returns a static buffer
        hashed = crypt(password.encode(), f"$2a$10${salt}".encode())
    text = (hashed or b"").decode()
    return text if text.startswith("$2a$10$") else None


def _draw_bytes(given: Inputs) -> tuple[str, Properties]:
    drawn = secrets.token_bytes(given["length"])
    text = base64.b64encode(drawn).decode()
    return text, {"base64": text, "hex": drawn.hex()}


def _draw_id(given: Inputs) -> tuple[str, Properties]:
    drawn = secrets.token_bytes(given["byteLength"])
    prefix = given.get("prefix", "")
    url = base64.urlsafe_b64encode(drawn).decode().rstrip("=")
    return url, {
        "id": url,
        "b64Std": prefix + base64.b64encode(drawn).decode(),
        "b64Url": prefix + url,
        "dec": f"{prefix}{int.from_bytes(drawn)}",
        "hex": prefix + drawn.hex(),
    }


def _generator(given: Inputs) -> random.Random:
    seed = given.get("seed")
    return random.Random(seed) if seed else secrets.SystemRandom()  # noqa: S311 - the user's seed


def _draw_integer(given: Inputs) -> tuple[str, Properties]:
    result = _generator(given).randint(given["min"], given["max"])
    return str(result), {"id": str(result), "result": result}


def _draw_shuffle(given: Inputs) -> tuple[str, Properties]:
    generator = _generator(given)
    items: list[str] = given["inputs"]
    count = given.get("resultCount", len(items)) if items else 0
    results: list[str] = []
    while len(results) < count:
        # Draw each item once before any is repeated.
        results += generator.sample(items, len(items))
    return "-", {"id": "-", "results": cast(list[Value], results[:count])}


def _draw_pet(given: Inputs) -> tuple[str, Properties]:
    length = given["length"]
    words = [secrets.choice(_ADVERBS) for _ in range(length - 2)]
    if length > 1:
        words.append(secrets.choice(_ADJECTIVES))
    words.append(secrets.choice(_ANIMALS))
    if given.get("prefix"):
        words.insert(0, given["prefix"])
    name = str(given["separator"]).join(words)
    return name, {"id": name}


def _draw_uuid(_given: Inputs) -> tuple[str, Properties]:
    result = str(uuid.uuid4())
    return result, {"id": result, "result": result}


def _draw_uuid7(_given: Inputs) -> tuple[str, Properties]:
    """Draw a UUID of version 7 (RFC 9562): milliseconds since 1970, then random bits."""
    milliseconds = time.time_ns() // 1_000_000
    value = milliseconds << 80 | 0x7 << 76 | secrets.randbits(12) << 64
    value |= 0b10 << 62 | secrets.randbits(62)
    result = str(uuid.UUID(int=value))
    return result, {"id": result, "result": result}


_ADVERBS: Final = (
    *("barely", "boldly", "briefly", "calmly", "clearly", "deeply", "duly", "early", "fairly"),
    *("firmly", "freely", "fully", "gently", "gladly", "hardly", "kindly", "lately", "loudly"),
    *("mostly", "nearly", "neatly", "openly", "partly", "plainly", "quietly", "rarely", "really"),
    *("safely", "simply", "slowly", "softly", "surely", "truly", "vastly", "warmly", "wisely"),
)
_ADJECTIVES: Final = (
    *("able", "amber", "brave", "brief", "bright", "calm", "civil", "clever", "cosy", "crisp"),
    *("eager", "early", "fair", "fancy", "fleet", "fond", "fresh", "gentle", "glad", "golden"),
    *("grand", "hardy", "honest", "humble", "jolly", "keen", "light", "lively", "loyal", "lucky"),
    *("mellow", "merry", "mild", "modest", "neat", "noble", "patient", "plain", "proud", "quick"),
    *("quiet", "rapid", "ready", "robust", "silver", "smart", "solid", "steady", "sunny", "swift"),
    *("tidy", "trusty", "upbeat", "valid", "vivid", "warm", "wise", "witty", "young", "zesty"),
)
_ANIMALS: Final = (
    *("adder", "badger", "bat", "bear", "beaver", "bee", "bison", "boar", "camel", "carp", "cat"),
    *("cobra", "condor", "crab", "crane", "crow", "deer", "dingo", "dove", "duck", "eagle", "eel"),
    *("egret", "elk", "falcon", "ferret", "finch", "fox", "frog", "gecko", "goose", "gull"),
    *("hare", "hawk", "heron", "horse", "ibex", "ibis", "jackal", "jay", "koala", "lark", "lemur"),
    *("lion", "llama", "lynx", "marten", "mole", "moose", "newt", "okapi", "otter", "owl", "ox"),
    *("panda", "perch", "pike", "puma", "quail", "rabbit", "raven", "robin", "salmon", "seal"),
    *("shrew", "skunk", "sloth", "snail", "stoat", "stork", "swan", "tapir", "tern", "tiger"),
    *("toad", "trout", "viper", "vole", "walrus", "wasp", "weasel", "whale", "wolf", "wren", "yak"),
)
_KEEPERS: Final = {"keepers": "a mapping"}
_UUID: Final = _Kind(_KEEPERS, (), {}, _draw_uuid)
_KINDS: Final[Mapping[str, _Kind]] = {
    "RandomBytes": _Kind(
        {**_KEEPERS, "length": "a number"},
        ("length",),
        {},
        _draw_bytes,
        frozenset({"base64", "hex"}),
    ),
    "RandomId": _Kind(
        {**_KEEPERS, "byteLength": "a number", "prefix": "text"}, ("byteLength",), {}, _draw_id
    ),
    "RandomInteger": _Kind(
        {**_KEEPERS, "max": "a number", "min": "a number", "seed": "text"},
        ("max", "min"),
        {},
        _draw_integer,
    ),
    "RandomPassword": _Kind(
        {**_KEEPERS, **_TEXT},
        ("length",),
        _TEXT_DEFAULTS,
        _draw_password,
        frozenset({"bcryptHash", "result"}),
    ),
    "RandomPet": _Kind(
        {**_KEEPERS, "length": "a number", "prefix": "text", "separator": "text"},
        (),
        {"length": 2, "separator": "-"},
        _draw_pet,
    ),
    "RandomShuffle": _Kind(
        {**_KEEPERS, "inputs": "a list of strings", "resultCount": "a number", "seed": "text"},
        ("inputs",),
        {},
        _draw_shuffle,
    ),
    "RandomString": _Kind({**_KEEPERS, **_TEXT}, ("length",), _TEXT_DEFAULTS, _draw_string),
    "RandomUuid": _UUID,
    "RandomUuid4": _UUID,
    "RandomUuid7": _Kind(_KEEPERS, (), {}, _draw_uuid7),
}


def _drawn_names(resource_type: str) -> tuple[str, ...]:
    """Return the outputs that a draw adds to the inputs."""
    name = resource_type.rpartition(":")[2]
    if name in ("RandomPassword", "RandomBytes"):
        return tuple(sorted(_kind(resource_type).secret))
    return {
        "RandomId": ("b64Std", "b64Url", "dec", "hex"),
        "RandomShuffle": ("results",),
        "RandomPet": (),
    }.get(name, ("result",))
