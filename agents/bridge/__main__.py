"""`python3 -m agents.bridge`: let Slurm schedule pods of Kubernetes, until SIGTERM.

Several pods may run this program. One of them acts, and the others wait to take its place.

Environment variables:

    REST_URL      URL of slurmrestd
    JWT_KEY       file with slurmctld's key
    WANTED        file with the settings
    NAMESPACE     namespace of the stack
    POD_NAME      name of this pod
    PORT          port for the questions of nodes (agents/bridge/server.py)
    METRICS_PORT  port for metrics (docs/metrics.md)
    WEBHOOK_PORT  port on which the API server asks about new pods (agents/bridge/webhook.py)
    CERTIFICATE   folder with tls.crt and tls.key for this port
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from agents import labels, metrics
from agents.bridge import proof, wanted
from agents.bridge.actions import Drain, Submit, Undrain
from agents.bridge.carry import Carrier
from agents.bridge.cluster import Cluster
from agents.bridge.lease import RENEW, Lease
from agents.bridge.metrics import Plans
from agents.bridge.nodes import Nodes
from agents.bridge.observed import Observed
from agents.bridge.plan import Memory, plan
from agents.bridge.records import Records
from agents.bridge.server import Server
from agents.bridge.webhook import Webhook
from agents.kubernetes import Api, KubernetesError, in_cluster
from agents.say import fail, say
from agents.slurm import Client, Node, SlurmError, from_key
from agents.wanted import WantedError

USER = "slurm"
"""Only SlurmUser may submit jobs for other users."""
INTERVAL = 1.0
"""Seconds until the next plan if Kubernetes reports no change."""
PAUSE = 0.1
"""Least number of seconds between two plans."""
FRESH = 3.0
"""Seconds after a submission in which plans follow one another quickly, because Slurm starts most
jobs within this time, and Kubernetes does not report it."""
NODES = 15.0
"""Seconds between two lists of Slurm's nodes, whose machines rarely change."""
PROBLEMS = (KubernetesError, SlurmError, WantedError)


class Bridge:
    """Makes plans and carries them out, while this pod holds the lease."""

    def __init__(
        self,
        slurm: Client,
        api: Api,
        namespace: str,
        cluster: Cluster,
        plans: Plans,
        may_act: Callable[[], bool],
    ) -> None:
        self._slurm = slurm
        self._cluster = cluster
        self.plans = plans
        self._records = Records(slurm)
        self.nodes = Nodes(cluster, self._records)
        self._carrier = Carrier(slurm, api, namespace, self._records, self.nodes, may_act)
        self._memory = Memory()
        self._slurm_nodes: dict[str, Node] = {}
        """Nodes with a machine."""
        self._listed: float | None = None
        self._failed: set[int] = set()
        """Jobs that had lost a node at the last plan."""
        self._submitted = -FRESH
        """When the last job was submitted, on a monotonic clock."""

    def pause(self) -> float:
        """Return the seconds until the next plan, if Kubernetes reports no change."""
        return PAUSE if time.monotonic() - self._submitted < FRESH else INTERVAL

    def start_over(self) -> None:
        """Forget everything, because another pod may have acted in the meantime."""
        self._records.start_over()
        self._memory = Memory()
        self._listed = None

    def look(self, settings: wanted.Wanted) -> None:
        """Make one plan, and carry it out. Raises an error of `PROBLEMS`."""
        begun, now = time.monotonic(), time.time()
        observed = self._observe(settings)
        made = plan(observed, now, self._memory)
        carried = self._carrier.carry(made.actions, settings)
        self._memory = made.memory.refused(carried.refused, now)
        self.plans.done(time.monotonic() - begun, observed, carried, self._memory.refusals)
        if any(isinstance(action, Submit) for action in carried.done):
            self._submitted = time.monotonic()
        if any(isinstance(action, Drain | Undrain) for action in made.actions):
            self._listed = None
        for action in carried.done:
            say("info", f"done: {action}")
        for note in carried.notes:
            say("error", f"not done: {note}")

    def _observe(self, settings: wanted.Wanted) -> Observed:
        now = time.monotonic()
        # Read Kubernetes last: a pod may be newer than the record of its job, and then waits for
        # the next plan. The reverse could make the job of a new pod look abandoned.
        jobs = self._records.jobs(now)
        failed = {job.id for job in jobs.values() if "NODE_FAIL" in job.state}
        used = {node for job in jobs.values() if not job.has_ended for node in job.shares}
        is_old = self._listed is None or now - self._listed > NODES
        if is_old or failed - self._failed or not used <= self._slurm_nodes.keys():
            self._slurm_nodes = {node.name: node for node in self._slurm.nodes() if node.machine}
            self.nodes.set_nodes({name: node.machine for name, node in self._slurm_nodes.items()})
            self._listed = now
        self._failed = failed
        self.nodes.forget_all_but(jobs)
        machines = self._cluster.machines(settings)
        return Observed(
            tuple(self._cluster.pods(settings)),
            jobs,
            {
                name: machines[node.machine]
                for name, node in self._slurm_nodes.items()
                if node.machine in machines and settings.feature in node.features
            },
            {name: node.machine for name, node in self._slurm_nodes.items()},
            {
                name: node.reason
                for name, node in self._slurm_nodes.items()
                if "DRAIN" in node.state
            },
            frozenset(name for name, node in self._slurm_nodes.items() if "DOWN" in node.state),
            self.nodes.starting(),
            self.nodes.restarted(),
        )


def main() -> int:
    stop, changed = threading.Event(), threading.Event()

    def end(*_: object) -> None:
        stop.set()
        changed.set()

    signal.signal(signal.SIGTERM, end)
    threading.excepthook = _fail
    try:
        api = in_cluster()
    except KubernetesError as error:
        fail(str(error))
        return 2
    namespace = os.environ["NAMESPACE"]
    cluster = Cluster(api, namespace, changed.set)
    cluster.start()
    slurm = Client(os.environ["REST_URL"], from_key(Path(os.environ["JWT_KEY"]), USER))
    lease = Lease(api, namespace, labels.BRIDGE_LEASE, os.environ["POD_NAME"])
    plans = Plans(lambda: lease.is_held)
    metrics.serve(plans, int(os.environ["METRICS_PORT"]))
    bridge = Bridge(slurm, api, namespace, cluster, plans, lambda: lease.is_held)
    webhook = Webhook(int(os.environ["WEBHOOK_PORT"]), Path(os.environ["CERTIFICATE"]), _settings)
    threading.Thread(target=webhook.serve_forever, daemon=True).start()
    port, key = int(os.environ["PORT"]), Path(proof.KEY)
    with Server(port, key, bridge.nodes, lambda: lease.is_held) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        threading.Thread(target=_renew, args=(lease, stop), daemon=True).start()
        acts = False
        while not stop.wait(PAUSE):
            changed.clear()
            if lease.is_held and not acts:
                bridge.start_over()
            acts = lease.is_held
            if acts:
                _look(bridge)
            changed.wait(bridge.pause())
        server.shutdown()
    _release(lease)
    return 0


def _fail(arguments: threading.ExceptHookArgs) -> None:
    """End the process if a thread fails: it may keep a list that is no longer current."""
    threading.__excepthook__(arguments)
    os._exit(1)


def _look(bridge: Bridge) -> None:
    try:
        bridge.look(_settings())
    except PROBLEMS as error:
        bridge.plans.failed()
        say("error", f"cannot look after the pods: {error}; trying again in {INTERVAL:g} s")
        time.sleep(INTERVAL)


def _settings() -> wanted.Wanted:
    return wanted.read(Path(os.environ["WANTED"]))


def _renew(lease: Lease, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            lease.renew()
        except KubernetesError as error:
            say("error", f"cannot renew the lease: {error}; trying again in {RENEW:g} s")
        stop.wait(RENEW)


def _release(lease: Lease) -> None:
    try:
        lease.release()
    except KubernetesError as error:
        say("warn", f"cannot release the lease: {error}; another pod takes it in some seconds")


if __name__ == "__main__":
    sys.exit(main())
