"""slurmrestd, and clients for tests."""

from dataclasses import dataclass

from agents.slurm import Client, make_token
from tests.container.rest.provider import Provider
from tests.support.containers import Start
from tests.support.slurmctld import Slurmctld

USER = "researcher"
NODE_NAMES = ("cpu-0", "cpu-1")


@dataclass(frozen=True)
class Rest:
    """slurmrestd's URL, slurmctld's key for tokens, and the identity provider of slurmctld."""

    url: str
    key: bytes
    provider: Provider
    slurmctld: Slurmctld
    start: Start

    def client(self, user: str = "slurm", token: str | None = None) -> Client:
        """Return a client that retries without pauses."""
        return Client(
            self.url,
            lambda: make_token(self.key, user, 300) if token is None else token,
            sleep=lambda _: None,
        )
