"""Client of slurmrestd for programs inside the cluster."""

from agents.slurm.client import Client
from agents.slurm.errors import Fault, SlurmError
from agents.slurm.models import Job, JobRequest, Node, Partition, Ping, Reservation, Statistics
from agents.slurm.tokens import from_file, from_key, make_token

__all__ = [
    "Client",
    "Fault",
    "Job",
    "JobRequest",
    "Node",
    "Partition",
    "Ping",
    "Reservation",
    "SlurmError",
    "Statistics",
    "from_file",
    "from_key",
    "make_token",
]
