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
        "check that the pods of slurmrestd and slurmctld run, and that no network policy "
        "blocks the connection"
    ),
    Fault.REFUSED: (
        "use a token signed with slurmctld's key, and check that the clocks of both machines "
        "are correct"
    ),
    Fault.SLURM: "correct the cause that Slurm reports, or use the token of a user with permission",
    Fault.UNEXPECTED: (
        "check that the address is that of slurmrestd, and that this version of Slurm is supported"
    ),
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
