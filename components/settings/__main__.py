"""Write the JSON Schema of the stack files: `python -m components.settings`."""

import json

from components.settings import STACK_SCHEMA, stack_schema

STACK_SCHEMA.write_text(json.dumps(stack_schema(), indent=2, sort_keys=True) + "\n")
