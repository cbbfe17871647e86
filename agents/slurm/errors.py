"""Failures between an agent and Slurm: one exception, with one line for people."""

from enum import StrEnum


class Fault(StrEnum):
    """Kinds of failures. Each has its own remedy."""

    UNREACHABLE = "unreachable"
    REFUSED = "token refused"
    SLURM = "refused by Slurm"
    UNEXPECTED = "unexpected answer"


REMEDIES = {
    Fault.UNREACHABLE: (
        "check that slurmrestd and slurmctld run and that nothing blocks the connection"
    ),
    Fault.REFUSED: (
        "use a token that was made with slurmctld's key and is still valid by slurmctld's clock"
    ),
    Fault.SLURM: "correct the request, or send it as a user with the permission",
    Fault.UNEXPECTED: "check that the address is slurmrestd's and that its version is supported",
}


class SlurmError(Exception):
    """Slurm did not do, or did not report, what was requested.

    `numbers` are Slurm's own error numbers (slurm_errno.h), if it gave any.
    """

    def __init__(self, fault: Fault, asked: str, said: str, numbers: tuple[int, ...] = ()) -> None:
        self.fault = fault
        self.numbers = numbers
        super().__init__(f"{asked}: {fault}: {' '.join(said.split())}; {REMEDIES[fault]}")
