"""Exception for failed requests to Slurm, with a message in one line."""

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
        "use a token signed with slurmctld's key, and check that slurmctld's clock is correct"
    ),
    Fault.SLURM: "correct the request, or use the token of a user with permission",
    Fault.UNEXPECTED: "check the address and the version of slurmrestd",
}


class SlurmError(Exception):
    """A request to Slurm failed.

    `numbers` are Slurm's own error numbers (see slurm_errno.h), if the answer contains any.
    """

    def __init__(
        self, fault: Fault, request: str, said: str, numbers: tuple[int, ...] = ()
    ) -> None:
        self.fault = fault
        self.numbers = numbers
        message = " ".join(said.split())
        super().__init__(f"slurmrestd: {request}: {fault}: {message}; {REMEDIES[fault]}")
