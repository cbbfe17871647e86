"""Stands in for providers that the engine has not: what the program asks of them is planned."""

from __future__ import annotations

from engine.builtin import Builtin
from engine.errors import EngineError
from engine.providers import Operation, Resource
from engine.values import Properties


class PlannedProvider(Builtin):
    """In a preview alone. Whatever differs is an update: what would replace is not known here."""

    def create(
        self, resource_type: str, urn: str, inputs: Properties, op: Operation
    ) -> tuple[str, Properties]:
        """Raises EngineError: nothing is made in a preview."""
        raise EngineError(f"{resource_type}: cannot be made by this engine")

    def preview_outputs(
        self, resource_type: str, inputs: Properties, old: Resource | None
    ) -> Properties:
        """The inputs; everything else is known once it is there."""
        return {**(old.outputs if old else {}), **inputs}
