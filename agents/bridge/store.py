"""Keep a list of Kubernetes' objects current by watching it.

A list of all pods can be larger than 10 MB. With a watch, the API server sends it only once.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import httpx

from agents.bridge.podspec import Meta
from agents.kubernetes import Api, KubernetesError
from agents.say import say

RETRY = 2.0
"""Seconds before the store lists the objects again after an error."""
ABSENT = 30.0
"""Seconds before the store lists the objects again if the cluster does not have their kind."""


class Kept(Protocol):
    """What a store requires of its objects."""

    @property
    def metadata(self) -> Meta: ...


K = TypeVar("K", bound=Kept)


class Store(Generic[K]):
    """Objects of one path. A thread keeps them current."""

    def __init__(
        self,
        api: Api,
        path: str,
        kind: type[K],
        changed: Callable[[], None],
        *,
        is_optional: bool = False,
    ) -> None:
        """`changed` is called after each change. With `is_optional`, the cluster may lack the kind
        of objects. The store then has no objects."""
        self._api = api
        self._path = path
        self._kind: Any = kind
        self._changed = changed
        self._is_optional = is_optional
        self._lock = threading.Lock()
        self._objects: dict[str, K] = {}
        self._is_current = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._follow, daemon=True, name=self._path).start()

    def objects(self) -> list[K]:
        """Return all objects. Raises `KubernetesError` if they are not known at present."""
        if not self._is_current.is_set():
            raise KubernetesError(f"GET {self._path}", "the list is not complete yet")
        with self._lock:
            return list(self._objects.values())

    def _follow(self) -> None:
        version = ""
        while True:
            try:
                version = version or self._list()
                version = self._watch(version)
            except KubernetesError as error:
                version = ""
                if error.status == httpx.codes.NOT_FOUND and self._is_optional:
                    self._replace({})
                    time.sleep(ABSENT)
                elif error.status != httpx.codes.GONE:
                    self._is_current.clear()
                    say("error", f"cannot watch {self._path}: {error}; trying again")
                    time.sleep(RETRY)

    def _list(self) -> str:
        found, version = self._api.listed(self._path, self._kind)
        self._replace({one.metadata.uid: one for one in found})
        return version

    def _replace(self, objects: dict[str, K]) -> None:
        with self._lock:
            self._objects = objects
        self._is_current.set()
        self._changed()

    def _watch(self, version: str) -> str:
        for event in self._api.watch(self._path, self._kind, version):
            version = event.version
            if event.object is None:
                continue
            uid = event.object.metadata.uid
            with self._lock:
                if event.is_deleted:
                    self._objects.pop(uid, None)
                else:
                    self._objects[uid] = event.object
            self._changed()
        return version
