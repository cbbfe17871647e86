"""Plans the resources of providers that this engine does not support. Works only in a preview."""

from __future__ import annotations

from engine.builtin import Builtin
from engine.errors import EngineError
from engine.providers import Operation, Resource
from engine.values import Properties


class PlannedProvider(Builtin):
    """A provider only for previews.

    It reports every difference as an update, because it does not know which changes force a
    replacement.
    """

    def create(
        self, resource_type: str, urn: str, inputs: Properties, op: Operation
    ) -> tuple[str, Properties]:
        """Raise EngineError: a preview creates nothing."""
        raise EngineError(
            f"{resource_type}: this engine cannot create resources of this type; deploy this stack"
            " with the `pulumi` command"
        )

    def read(
        self,
        resource_type: str,
        urn: str,
        resource_id: str,
        inputs: Properties,
        outputs: Properties | None = None,
    ) -> tuple[str, Properties, Properties] | None:
        """Return the stored values, because this engine cannot look for the resource."""
        return None if outputs is None else (resource_id, inputs, outputs)

    def preview_outputs(
        self, resource_type: str, inputs: Properties, old: Resource | None
    ) -> Properties:
        """Return the old outputs, overridden by the inputs; other outputs are still unknown."""
        return {**(old.outputs if old else {}), **inputs}
