"""How the cluster is watched."""

from typing import Annotated

from pydantic import Field

from components.settings.types import DnsLabel, Model, Number


class Exporter(Model):
    """Slurm's state as metrics for Prometheus."""

    enabled: bool = True
    interval: Annotated[int, Field(ge=5, le=600), Number] = 30
    """Seconds from one read of Slurm to the next, however often it is scraped."""
    top: Annotated[int, Field(ge=0, le=1000), Number] = 50
    """Accounts, and users, that have series of their own, the largest by CPUs that their jobs have
    or wait for; the others are counted together."""
    jobs: Annotated[int, Field(ge=0, le=100_000), Number] = 1000
    """Pairs of a job that runs and one of its nodes that are shown, those of the jobs with the most
    CPUs first; a job is shown with all of its nodes or not at all."""


class Monitoring(Model):
    """How the cluster is watched."""

    scrape_from: tuple[DnsLabel, ...] = ("monitoring",)
    """Namespaces of Kubernetes whose pods may scrape, by `network.policies`."""
    exporter: Exporter = Field(default_factory=Exporter)
