"""A fake provider, whose resources are entries of a dictionary. Inputs can make it fail or wait.

Inputs of ``test:index:Thing``:

- ``value``: a change updates the thing in place.
- ``key``: a change replaces the thing; with ``fixed``, the provider deletes the old thing first.
- ``fail``: the operation that fails ("create", "update", "delete"), or "half" for a create after
  which the thing never becomes ready.
- ``delay``: duration of a create, in seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from engine.errors import Cancelled, CheckError, EngineError, PartialFailure
from engine.providers import Diff, Operation, Resource
from engine.urns import name_of
from engine.values import Properties, Unknown


class World:
    """Existing things, and a log of the operations in order, such as ``create a``."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.things: dict[str, Properties] = {}
        self.tells_ids = True
        self.on_create: Callable[[str], None] = lambda _name: None
        self.lock = threading.Lock()
        self._serial = 0

    def note(self, line: str) -> None:
        with self.lock:
            self.log.append(line)

    def add(self, name: str, inputs: Properties) -> str:
        with self.lock:
            self._serial += 1
            made = f"{name}-{self._serial}"
            self.things[made] = inputs
            return made

    def drain(self) -> list[str]:
        """Return the operations since the last call."""
        with self.lock:
            done, self.log = self.log, []
            return done


class FakeProvider:
    """Manage the things of a world."""

    def __init__(self, world: World, config: Properties) -> None:
        self.world = world
        self.config = config

    def check(self, resource_type: str, urn: str, olds: Properties, news: Properties) -> Properties:
        if news.get("value") == "bad":
            raise CheckError("value", "bad is not good; choose another")
        return {"label": olds.get("label") or f"made-up-{len(self.world.things)}", **news}

    def diff(self, old: Resource, news: Properties) -> Diff:
        changed = tuple(
            sorted(k for k in old.inputs.keys() | news.keys() if old.inputs.get(k) != news.get(k))
        )
        replaces = tuple(k for k in changed if k in ("key", "on"))
        return Diff(changed, replaces, bool(news.get("fixed")))

    def create(
        self, resource_type: str, urn: str, inputs: Properties, op: Operation
    ) -> tuple[str, Properties]:
        name = name_of(urn)
        self.world.on_create(name)
        delay: Any = inputs.get("delay") or 0
        if delay:
            op.status("waiting for the delay")
            if op.cancelled.wait(delay):
                raise Cancelled
        if inputs.get("fail") == "create":
            raise EngineError("the world is full")
        made = self.world.add(name, inputs)
        self.world.note(f"create {name}")
        if inputs.get("fail") == "half":
            raise PartialFailure(made, {**inputs, "ready": False}, "it never became ready")
        return made, {**inputs, "ready": True, "self": made, "password": f"hush-{name}"}

    def update(self, old: Resource, news: Properties, op: Operation) -> Properties:
        self.world.note(f"update {old.name}")
        if news.get("fail") == "update":
            raise EngineError("it does not want to change")
        assert old.id is not None
        self.world.things[old.id] = news
        return {**old.outputs, **news, "ready": True}

    def delete(self, old: Resource, op: Operation) -> None:
        if old.inputs.get("fail") == "delete":
            raise EngineError("it does not want to go")
        assert old.id is not None
        self.world.things.pop(old.id, None)
        self.world.note(f"delete {old.name}")

    def read(
        self,
        resource_type: str,
        urn: str,
        resource_id: str,
        inputs: Properties,
        outputs: Properties | None = None,
    ) -> tuple[str, Properties, Properties] | None:
        found = resource_id or next(
            (i for i in self.world.things if i.rpartition("-")[0] == name_of(urn)), ""
        )
        if found not in self.world.things:
            return None
        there = self.world.things[found]
        if not resource_id and not self.world.tells_ids:
            return "", there, {}
        return found, there, {**there, "self": found}

    def preview_outputs(
        self, resource_type: str, inputs: Properties, old: Resource | None
    ) -> Properties:
        known = {k: v for k, v in inputs.items() if not isinstance(v, Unknown)}
        return {**(old.outputs if old else {}), **known}

    def secret_outputs(self, resource_type: str) -> frozenset[str]:
        return frozenset({"password"})
