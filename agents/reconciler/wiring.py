"""Write topology.conf, which slurmctld reads, to a ConfigMap when the machines' labels change.

The ConfigMap also contains the *place* of each node, which is the list of its machine's labels.
Each change of the file makes slurmctld and every slurmd read their configuration again. Therefore,
the file changes at most every `LEAST` seconds. For the same reason, a node without a machine keeps
its last place: its pod usually restarts on the same machine.
"""

from collections.abc import Collection
from typing import Final

from agents.kubernetes import MERGE, Api
from agents.reconciler.observed import Observed
from agents.reconciler.topology import dumps, find_places, loads, render
from agents.reconciler.wanted import Topology

LEAST: Final = 60
"""Minimum number of seconds between two changes of the file."""
FILE: Final = "topology.conf"
PLACES: Final = "places"
WRITTEN: Final = "written"
"""Key of the Unix time of the last change of the file."""


class Wiring:
    def __init__(self, api: Api, namespace: str, config_map: str) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/configmaps/{config_map}"

    def keep(
        self,
        topology: Topology,
        nodes: Collection[str],
        observed: Observed,
        now: int,
        *,
        dry_run: bool = False,
    ) -> str:
        """Write the file if it differs from the labels. Return what was written, or "".

        Raises `KubernetesError`, also if another reconciler has written the file in the meantime.
        """
        found = self._api.ask("GET", self._path)
        data = found.get("data") or {}
        last = loads(data.get(PLACES, ""), topology.levels)
        places = find_places(nodes, observed.pods, observed.machines, last, topology.levels)
        made = render(topology, places)
        if made.text == data.get(FILE) or now - _time(data.get(WRITTEN, "")) < LEAST:
            return ""
        if dry_run:
            return f"planned: write topology.conf: {made.summary}"
        content = {
            FILE: made.text,
            PLACES: dumps(places, topology.levels),
            WRITTEN: str(now),
        }
        # With the version in the request, only one of two reconcilers can write.
        version = {"resourceVersion": found["metadata"]["resourceVersion"]}
        self._api.ask("PATCH", self._path, {"metadata": version, "data": content}, kind=MERGE)
        return f"done: write topology.conf: {made.summary}"


def _time(text: str) -> int:
    return int(text) if text.isdecimal() else 0
