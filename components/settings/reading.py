"""Read a stack's settings, and report each error in one line."""

import difflib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from components.conventions import PROJECT
from components.settings.clusters import KINDS
from components.settings.models import Settings
from components.settings.slurm import Slurm
from components.settings.slurmnames import SETTINGS
from components.settings.types import closest_name, known_names
from stackfile import Ciphertext, ConfigValue, StackFileError, as_text, parse_config, read

_CONFIGURATION = "the stack's configuration"
"""Name of the source in errors, if the stack's file does not contain all of the settings."""


class SettingsError(Exception):
    """Invalid settings: a line for each problem, with the key, its value and the expected value."""

    def __init__(self, *problems: str) -> None:
        # Escape unprintable characters, such as line breaks in the user's keys and values.
        super().__init__(
            "\n".join(
                "".join(c if c.isprintable() else ascii(c)[1:-1] for c in problem)
                for problem in problems
            )
        )


def from_config(config: Mapping[str, str], source: str = _CONFIGURATION) -> Settings:
    """Return the settings from Pulumi's configuration: keys with prefixes, and values as text.

    Ignore keys of other namespaces (`kubernetes:…`). Raises `SettingsError`, also for a key with a
    misspelled namespace. Each line begins with the source.
    """
    return _settings(config, source)


def read_stack(stack: str, root: Path) -> Settings:
    """Return the settings from `Pulumi.<stack>.yaml` below `root`, as a deploy receives them.

    Raises `SettingsError`.
    """
    name, document = _file(stack, root)
    if document is None:
        raise _absent(stack, root)
    if not document:
        raise SettingsError(
            f"{name}: the file has no settings; add a mapping 'config' with {_PREFIX}… keys"
        )
    return _settings({key: as_text(value) for key, value in document.items()}, name)


def check_file(stack: str, root: Path, config: Mapping[str, str]) -> str:
    """Return the name of the file that has the configuration, for `from_config`.

    Refuse a stack file with duplicate keys: the `pulumi` command would ignore one of them. A stack
    may use another file (`--config-file`), but it must have a file. Raises `SettingsError`.
    """
    name, document = _file(stack, root)
    ours = {key for key in config if key.startswith(_PREFIX)}
    if document is None and not ours:
        raise _absent(stack, root)
    return name if document is not None and ours <= {*document} else _CONFIGURATION


def require_file(stack: str, root: Path) -> None:
    """Refuse a stack without a file: the `pulumi` command would create the stack and a file.

    Raises `SettingsError`.
    """
    if not (root / f"Pulumi.{stack}.yaml").exists():
        raise _absent(stack, root)


def _absent(stack: str, root: Path) -> SettingsError:
    """Return the error about a stack without a file."""
    name, other = f"Pulumi.{stack}.yaml", f"Pulumi.{stack}.yml"
    if (root / other).exists():
        remedy = f"rename {other} to {name}"
    else:
        remedy = f"existing stacks: {', '.join(_stacks(root)) or 'none'}"
    return SettingsError(f"no stack '{stack}': {name} does not exist; {remedy}")


def _file(stack: str, root: Path) -> tuple[str, dict[str, ConfigValue] | None]:
    """Return the name of the stack's file, and its configuration; None if the file is missing."""
    path = root / f"Pulumi.{stack}.yaml"
    try:
        config = parse_config(read(path).get("config"))
        for key, value in config.items():
            if key.startswith(_PREFIX):
                _check_encryption(key, value, config)
        return path.name, config
    except FileNotFoundError:
        return path.name, None
    except StackFileError as error:
        raise SettingsError(f"{path.name}: {error}") from None


def _check_encryption(key: str, value: ConfigValue, config: Mapping[str, ConfigValue]) -> None:
    """Raise `StackFileError` if a credential is not encrypted, or if another value is encrypted.

    Other values reach ConfigMaps and the state in plain text. If they were encrypted in the file,
    users would wrongly assume that they stay secret.
    """
    if isinstance(value, dict):
        for name, item in value.items():
            _check_encryption(f"{key}.{name}", item, config)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_encryption(f"{key}[{index}]", item, config)
    elif isinstance(value, Ciphertext):
        if _is_whole_secret(key):
            raise StackFileError(
                f"{key}: is encrypted as a whole: expected a mapping of encrypted entries, such as "
                "password: {secure: …}; encrypt each entry with `pulumi config set --secret --path`"
            )
        if not key.startswith((_SECRETS, _WEBHOOK)):
            raise StackFileError(
                f"{_with_names(key, config)}: is encrypted: expected plain text, because this "
                "setting is not kept secret; set it with `pulumi config set --plaintext`"
            )
    elif key.startswith(_SECRETS) and isinstance(value, str):
        raise StackFileError(
            f"{key}: expected an encrypted value; encrypt it with `pulumi config set --secret "
            f"--path`, or `python -m engine encrypt`"
        )


def _is_whole_secret(key: str) -> bool:
    """Return whether a key is `secrets` or a Secret in it, but not an entry of a Secret."""
    return f"{key}.".startswith(_SECRETS) and key.removeprefix(_SECRETS).count(".") == 0


def _stacks(root: Path) -> list[str]:
    return sorted(path.name.split(".")[1] for path in root.glob("Pulumi.*.yaml"))


def _decode(key: str, value: str) -> Any:
    """Decode a value: Pulumi passes scalars as text and everything else as JSON."""
    if value[:1] not in ("{", "["):
        return value
    try:
        return json.loads(value)
    except RecursionError:
        reason = "nested too deeply"
    except ValueError as error:
        reason = str(error)
    raise SettingsError(
        f"{key}: {_shown(value)}: invalid JSON: {reason}; write the value as YAML in the stack file"
    )


def _settings(config: Mapping[str, str], source: str) -> Settings:
    for key in config:
        namespace, _, name = key.partition(":")
        likeness = _likeness(namespace)
        # A longer name, such as `slurmstack-web`, may be another project's.
        is_ours = name in Settings.model_fields and PROJECT not in namespace
        if is_ours and likeness > _SIMILAR:
            raise SettingsError(
                f"{source}: {key}: unknown prefix of a setting; did you mean '{_PREFIX}{name}'?"
            )
    values = {
        key.removeprefix(_PREFIX): _decode(f"{source}: {key}", value)
        for key, value in config.items()
        if key.startswith(_PREFIX)
    }
    return from_values(values, source, _PREFIX)


def _likeness(namespace: str) -> float:
    """Return how similar a namespace is to the project's name, from 0 to 1.

    Return 1 also if the project's name begins with the namespace.
    """
    if PROJECT.startswith(namespace.lower()):
        return 1.0
    return difflib.SequenceMatcher(a=namespace, b=PROJECT).ratio()


def from_values(values: Mapping[str, Any], source: str, prefix: str = "") -> Settings:
    """Return the settings from decoded values by key, such as the arguments of a program.

    Raises `SettingsError`. Each line begins with the source and, if it names a key, the prefix.
    """
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        found = error.errors(include_url=False)
        reported = [details for details in found if not _is_result(details, found)]
        problems = [prefix + explained(details, values) for details in reported]
        if (left := len(problems) - _MOST) > 0:
            problems[_MOST:] = [f"{left} more problems are not shown; correct those above first"]
        raise SettingsError(*(f"{source}: {text}" for text in problems)) from None


# --- Errors for users ----------------------------------------------------------------------------

_PREFIX = f"{PROJECT}:"
_SECRETS = f"{PROJECT}:secrets."
_WEBHOOK = f"{PROJECT}:monitoring.bundled.webhook"
_MOST = 10
"""Limit of reported problems."""
_SIMILAR = 0.8
"""Similarity to our prefix, above which another prefix is treated as misspelled."""
_NAME = re.compile(r"[\w.-]{1,63}", re.ASCII)
_STEP = re.compile(r"\[(\d+)\]|\.?([^.\[]+)")
_MAPPING = "a mapping, such as {{key: value}}"
_IN_A_CLUSTER = 3
"""Length of the path to a field below `cluster`: `cluster`, its kind and the field."""
_IN_SLURM = 2
"""Length of the path to a field below `slurm`: `slurm` and the field."""
_FILES: Sequence[str] = get_args(get_args(Slurm.model_fields["extra"].annotation)[0])
"""Slurm's files to which the user may add lines."""
_MOMENT = "a date and time with a time zone, such as '2026-12-01T03:00:00Z'"
_NUMBER = "a number"
_SWITCH = "true or false"
_TEXT = "text; put it in quotes"
_WHOLE = "a whole number"
_EXPECTED: Mapping[str, str] = {
    "bool_parsing": _SWITCH,
    "bool_type": _SWITCH,
    "datetime_from_date_parsing": _MOMENT,
    "datetime_object_invalid": _MOMENT,
    "datetime_parsing": _MOMENT,
    "datetime_type": _MOMENT,
    "dict_type": _MAPPING,
    "finite_number": _NUMBER,
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge}",
    "int_from_float": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": "a number with fewer digits",
    "int_type": _WHOLE,
    "invalid-json-value": "text, a number, true, false, a list or a mapping; put a date in quotes",
    "invalid_key": "a key that is text",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
    "recursion_depth_exceeded": "fewer nested levels",
    "recursion_loop": "a value that does not contain itself",
    "string_type": _TEXT,
    "string_unicode": "valid Unicode text",
    "timezone_aware": _MOMENT,
    "too_short": "a list with {min_length} or more items",
    "tuple_type": "a list, such as [a, b]",
}
"""Expected value for each error type of pydantic; braces contain keys of the error's context."""


def explained(
    details: ErrorDetails, values: Mapping[str, Any], within: Sequence[str | int] = ()
) -> str:
    """Render one problem as `key: value: what is expected`.

    The place in `details` is relative to `within`.
    """
    place = [*within, *(part for part in details["loc"] if part != "[key]")]
    kind, context = details["type"], details.get("ctx", {})
    if kind == "cross_field":
        return f"{_key([*place, *context['key'].split('.')], values)}: {details['msg']}"
    key = _key(place, values)
    match kind:
        case "secret":  # hide the value
            return f"{key}: {details['msg']}"
        case "extra_forbidden":
            return f"{key}: {_unknown(place, details['input'])}"
        case "missing":
            return f"{key}: is required; add it"
        case "model_type" | "model_attributes_type":
            example = _example(_fields_at(place), details["input"])
            return f"{key}: {_shown(details['input'])}: expected a mapping, such as {example}"
        case "union_tag_not_found" | "union_tag_invalid":
            return f"{key}.kind: {_untagged(kind, context)}"
    # Below `secrets`, each value may be a credential. Names of Secrets and of entries are shown.
    is_hidden = place[:1] == ["secrets"] and len(place) > 1 and "[key]" not in details["loc"]
    shown = '"…"' if is_hidden else _shown(details["input"])
    expected = _EXPECTED.get(kind)
    message = f"expected {expected.format(**context)}" if expected else details["msg"]
    message += _hint(kind, place, details["input"])
    if kind == "literal_error" and isinstance(details["input"], bool):
        message += "; put it in quotes"  # YAML's `no` and `off`
    if details["input"] is None:
        return f"{key}: is empty: {message}"
    return f"{key}: {shown}: {message}"


def _hint(kind: str, place: Sequence[str | int], value: object) -> str:
    """Return the remedy for a value in the notation of another tool, such as `2000m` for CPUs."""
    names = [part for part in place if isinstance(part, str)]
    if kind == "all_addresses" and names == ["login", "source_ranges"]:
        return "; to admit all addresses, remove source_ranges"
    if kind not in ("int_parsing", "float_parsing") or not isinstance(value, str):
        return ""
    if value.upper() in _ENDLESS and names[-1].startswith("max_"):
        return f"; for no limit, remove {names[-1]}"
    if names == ["nodesets", "cpus"] and re.fullmatch(r"\d{1,3}m", value, re.ASCII):
        request = int(value[:-1]) / 1000
        return f"; to reserve less than a CPU, set cpus: 1 and cpu_request: {request:g}"
    return " without a unit" if re.fullmatch(r"[\d.]+ ?[A-Za-z]+", value, re.ASCII) else ""


def _unknown(place: Sequence[str | int], value: object) -> str:
    """Return the problem with an unknown key."""
    name = str(place[-1])
    kinds = [kind for kind in KINDS if name in KINDS[kind].model_fields]
    if place[0] == "cluster" and len(place) == _IN_A_CLUSTER and kinds:
        return f"belongs to cluster.kind: {' or '.join(kinds)}; remove this key, or change kind"
    fields = _fields_at([*place[:-1]])
    remedy = _respelled(place, fields, value) or _elsewhere(place, fields)
    return f"unknown key; {remedy or known_names(name, fields)}"


def _respelled(place: Sequence[str | int], fields: Sequence[str], value: object) -> str | None:
    """Return the remedy for an unknown key that is a known key in a wrong form, or None.

    The key lacks a space after its colon, contains dots, or is the name of one of Slurm's files.
    """
    name = str(place[-1])
    key, colon, text = name.partition(":")
    if colon and key in fields and value is None:
        return f"put a space after the colon: {key}: {text}"
    if name in _FILES and len(place) <= _IN_SLURM:
        return f"add lines to slurm.extra: {{{name}: […]}}"
    parts = name.split(".")
    if len(parts) == 1 or parts[0] not in fields:
        return None
    if remedy := _misspelled_part(place[:-1], parts):
        return remedy
    nested = f"{parts[-1]}: …"
    for part in reversed(parts[:-1]):
        nested = f"{part}: {{{nested}}}"
    command = ", or use `pulumi config set --path`" if len(place) == 1 else ""
    return f"write it as {nested}{command}"


def _misspelled_part(path: Sequence[str | int], parts: Sequence[str]) -> str | None:
    """Return the problem with the first part of a dotted key that is not a field, or None."""
    models = _models_at([*path])
    for index, (outer, part) in enumerate(itertools.pairwise(parts), start=2):
        models = [
            inner
            for model in models
            if outer in model.model_fields
            for inner in _alternatives(model.model_fields[outer].annotation)
        ]
        known = _names(models)
        if known and part not in known:
            remedy = _elsewhere([*path, *parts[:index]], known) or known_names(part, known)
            return f"'{part}' is not a key of {outer}; {remedy}"
    return None


def _elsewhere(place: Sequence[str | int], fields: Sequence[str]) -> str | None:
    """Return the remedy if an unknown key belongs elsewhere in the settings, or None."""
    section, name = str(place[0]), str(place[-1])
    if section in _SLURMS and name.lower() in SETTINGS:
        return f"use {SETTINGS[name.lower()]}"
    is_direct = len(place) == (2 if section == "slurm" else 3)
    if section in _SLURMS and is_direct and name[:1].isupper() and name.isalnum():
        close = known_names(name, fields)
        return close if close.startswith("did you mean") else _SLURMS[section].format(name)
    return _ELSEWHERE.get((section, name))


_ENDLESS = ("UNLIMITED", "INFINITE")
"""Slurm's words for no limit."""
_SLURMS: Mapping[str, str] = {
    "slurm": "add the line {}=… to slurm.extra: {{slurm.conf: […]}}",
    "partitions": "put it under partitions[].parameters",
    "nodesets": "put it under nodesets[].parameters",
}
"""Places for parameters of Slurm that have no setting, by section."""
_ELSEWHERE: Mapping[tuple[str, str], str] = {
    ("users", "gid"): "the user's own group has the uid as its id; remove gid",
    ("users", "groups"): "list the user in groups[].members",
}
"""Remedies for keys that the settings of other tools have, by section and key."""


def _untagged(kind: str, context: Mapping[str, Any]) -> str:
    """Return the problem with a missing or unknown kind of cluster."""
    if kind == "union_tag_not_found":
        return f"is required; add one of {', '.join(KINDS)}"
    *kinds, last = (f"'{name}'" for name in KINDS)
    return f"{_shown(context['tag'])}: expected {', '.join(kinds)} or {last}"


def _example(fields: Sequence[str], given: object) -> str:
    """Return an example of a mapping with one field; use the given text if it may be a name."""
    field = next((name for name in ("name", "text") if name in fields), fields[0])
    is_name = isinstance(given, str) and field == "name" and _NAME.fullmatch(given)
    return f"{{{field}: {given if is_name else '…'}}}"


def _is_result(details: ErrorDetails, found: Sequence[ErrorDetails]) -> bool:
    """Return whether another problem causes this one.

    pydantic also reports a list with invalid items as too short, and the correct name of a
    misspelled key as missing.
    """
    place = details["loc"]
    if details["type"] == "too_short":
        return any(_is_within(place, other["loc"]) for other in found)
    return details["type"] == "missing" and any(
        other["loc"][:-1] == place[:-1] and _meant(other["loc"]) == place[-1]
        for other in found
        if other["type"] == "extra_forbidden"
    )


def _meant(place: Sequence[str | int]) -> str | None:
    """Return the field that the user probably meant by an unknown key, or None."""
    fields, name = _fields_at([*place[:-1]]), str(place[-1])
    first = re.split("[.:]", name)[0]
    return first if first in fields else closest_name(name, fields)


def _is_within(place: Sequence[str | int], other: Sequence[str | int]) -> bool:
    """Return whether `other` is inside `place`."""
    return len(other) > len(place) and other[: len(place)] == place


def _shown(value: object) -> str:
    """Return the beginning of a value as JSON; hide private keys."""
    try:
        text = json.dumps(value, default=str, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):  # a key that JSON does not allow, or a cycle
        text = "{…}" if isinstance(value, dict) else "[…]"
    if "PRIVATE KEY" in text:
        return '"…"'
    return text if len(text) <= 60 else f"{text[:57]}…"


def _key(place: Sequence[str | int], values: Mapping[str, Any]) -> str:
    """Render a place in the settings in the user's notation: `nodesets[cpu].cpus`."""
    if place[:1] == ["cluster"] and place[1:2] and place[1] in KINDS:
        place = ["cluster", *place[2:]]
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return _with_names("".join(parts).lstrip("."), values)


def _with_names(key: str, values: Any) -> str:
    """Show items of lists by their names, if these are unique: `users[bob]` for `users[1]`."""
    here, shown = values, ""
    for step in _STEP.finditer(key):
        index, word = step.groups()
        if word is not None:
            here = here.get(word) if isinstance(here, dict) else None
            shown += step[0]
            continue
        items = here if isinstance(here, list) else []
        names = [item.get("name") if isinstance(item, dict) else None for item in items]
        here = items[int(index)] if int(index) < len(items) else None
        name = names[int(index)] if int(index) < len(items) else None
        is_clear = isinstance(name, str) and _NAME.fullmatch(name) and names.count(name) == 1
        shown += f"[{name}]" if is_clear else step[0]
    return shown


def _fields_at(path: list[str | int]) -> list[str]:
    """Return the names of the fields that are allowed at a place in the settings."""
    return _names(_models_at(path))


def _models_at(path: list[str | int]) -> list[type[BaseModel]]:
    """Return the possible models of the value at a place in the settings."""
    models: list[type[BaseModel]] = [Settings]
    for index, part in enumerate(path):
        if index == 1 and path[0] == "cluster":
            models = [KINDS[str(part)]]
        elif isinstance(part, str):
            inner = [
                found
                for model in models
                if part in model.model_fields
                for found in _models_in(model.model_fields[part].annotation)
            ]
            models = inner or models  # a key of a mapping is not a field
    return models


def _names(models: Sequence[type[BaseModel]]) -> list[str]:
    return sorted({name for model in models for name in model.model_fields})


def _alternatives(annotation: Any) -> list[type[BaseModel]]:
    """Return the possible models of a value. Lists and mappings have none."""
    return [] if get_origin(annotation) in (dict, tuple) else _models_in(annotation)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models_in(argument)]
