"""The tables of docs/settings.md match the models."""

import re
from collections.abc import Iterator

import yaml

from components.settings import Settings
from tests.unit.components.documented import DOCUMENT, VALUE, edits
from tests.unit.components.fields import fields


def rows() -> Iterator[tuple[str, str]]:
    """Yield each key in the tables and its documented default."""
    text = DOCUMENT.read_text().split("## What an edit does")[0]
    for line in text.splitlines():
        if line.startswith("| `"):
            keys, _, default = (cell.strip() for cell in line.strip("|").split(" | "))
            yield from ((key, default) for key in VALUE.findall(keys))


def test_documentation_lists_every_key_and_no_unknown_key() -> None:
    documented = [key for key, _ in rows()]
    known = {key for key, _ in fields()}
    groups = {key for key in known if any(other.startswith(f"{key}.") for other in known)}

    assert sorted(documented) == sorted(set(documented)), "a key is explained twice"
    assert set(documented) <= known
    assert known - groups <= set(documented)


def test_table_of_edits_has_every_setting() -> None:
    known = {key for key, _ in fields()}
    rows = {key for key in edits() if key in known | set(Settings.model_fields)}

    missing = [
        key
        for key in sorted(known)
        if not any(re.match(rf"{re.escape(row)}($|[.\[])", key) for row in rows)
        and not any(row.startswith(key) for row in rows)
    ]
    assert not missing


def test_documented_defaults_match_the_models() -> None:
    defaults = dict(rows())
    for key, field in fields():
        documented_default = defaults.get(key)
        value = VALUE.fullmatch(documented_default or "")
        if documented_default is None or field.default_factory:
            continue
        if field.is_required():
            assert documented_default == "required", key
        elif field.default in (None, (), {}):
            # The table describes a default of this kind in words.
            assert documented_default != "required", key
            assert not value, key
        else:
            assert value, f"{key}: document the default as a value"
            expected = list(field.default) if isinstance(field.default, tuple) else field.default
            assert yaml.safe_load(value[1]) == expected, key
