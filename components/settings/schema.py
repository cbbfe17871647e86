"""JSON Schema of a stack file, for editors."""

from pathlib import Path
from typing import Any

from components.conventions import PROJECT
from components.settings.models import Settings

STACK_SCHEMA = Path(__file__).parent.with_name("settings.schema.json")


def stack_schema() -> dict[str, Any]:
    """Return the JSON Schema of `Pulumi.<stack>.yaml`.

    The file `STACK_SCHEMA` contains the same schema; a test compares the two.
    """
    schema = Settings.model_json_schema()
    definitions = schema.pop("$defs")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "slurmstack stack file",
        "type": "object",
        "required": ["config"],
        "properties": {
            "config": {
                "type": "object",
                "required": [f"{PROJECT}:{name}" for name in schema["required"]],
                "properties": {
                    f"{PROJECT}:{name}": value for name, value in schema["properties"].items()
                },
                # Keys of other packages, such as kubernetes:….
                "patternProperties": {f"^(?!{PROJECT}:)": True},
                "additionalProperties": False,
            }
        },
        "$defs": definitions,
    }
