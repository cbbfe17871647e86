"""Elect one bridge among several pods, with a Lease of Kubernetes.

A pod that could not renew its lease for `GIVE_UP` seconds stops to act, before another pod can take
the lease after `DURATION` seconds. Source of the rules: k8s.io/client-go, tools/leaderelection.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import httpx

from agents.kubernetes import Api, KubernetesError, Object

DURATION: Final = 15
"""Seconds after the last renewal at which another pod may take the lease."""
GIVE_UP: Final = 10.0
"""Seconds after the last renewal at which the holder stops to act."""
RENEW: Final = 3.0
"""Seconds between two renewals."""


class Lease:
    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        holder: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name = name
        self._holder = holder
        self._clock = clock
        self._renewed: float | None = None
        self._seen: tuple[str, float] = ("", 0.0)
        """Version of another pod's lease, and the time at which this pod first saw it. Clocks of
        machines differ, so this pod measures the time itself."""

    @property
    def is_held(self) -> bool:
        return self._renewed is not None and self._clock() - self._renewed < GIVE_UP

    def renew(self) -> None:
        """Take or renew the lease if possible. Raises `KubernetesError`."""
        begun = self._clock()
        try:
            found = self._api.ask("GET", f"{self._path}/{self._name}")
        except KubernetesError as error:
            if error.status != httpx.codes.NOT_FOUND:
                raise
            self._write("POST", self._path, {})
        else:
            if not self._may_take(found):
                self._renewed = None
                return
            version = {"resourceVersion": found["metadata"]["resourceVersion"]}
            self._write("PUT", f"{self._path}/{self._name}", version)
        self._renewed = begun

    def release(self) -> None:
        """Let another pod take the lease at once. Raises `KubernetesError`."""
        if self.is_held:
            self._renewed = None
            self._api.ask("DELETE", f"{self._path}/{self._name}")

    def _may_take(self, found: Object) -> bool:
        version, now = found["metadata"]["resourceVersion"], self._clock()
        if found["spec"].get("holderIdentity") == self._holder:
            return True
        if self._seen[0] != version:
            self._seen = version, now
        return now - self._seen[1] > DURATION

    def _write(self, method: str, path: str, metadata: Object) -> None:
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, **metadata},
            "spec": {
                "holderIdentity": self._holder,
                "leaseDurationSeconds": DURATION,
                "renewTime": moment,
            },
        }
        self._api.ask(method, path, body)
