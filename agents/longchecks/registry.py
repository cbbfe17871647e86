"""List all long checks, with their programs, nodes and output parsers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agents.longchecks import parsers
from agents.longchecks.parsers import NoValueError, Reading

NO_MEASUREMENT = 4
"""Exit code of a job's script if its program is missing."""
END = "slurmstack: ended with"
"""Start of the last line of a job's output. If this line is missing, the output is incomplete."""
KEPT_DAYS = 30
"""Days for which the outputs of jobs are kept."""


@dataclass(frozen=True)
class Check:
    name: str
    about: str
    body: str
    """Shell commands that run on the job's first node and print the measurement.

    The commands can use the variables of Slurm, MEMORY_MIB (memory of a node), GPUS (number of GPUs
    of a node), and SECOND (name of the other node of a pair)."""
    parse: Callable[[str], Reading]
    """Parser of the output. Raises `NoValueError`."""
    unit: str
    minutes: int
    """Time limit of the job."""
    programs: tuple[str, ...]
    """Programs that must be on the PATH. The script checks them first."""
    higher_is_better: bool = True
    nodes: int = 1
    """Number of nodes per measurement: 1, or 2 for a pair."""
    least_gpus: int = 0
    """Minimum number of GPUs of a node."""
    threshold: float | None = None
    """Default threshold for nodes that are not in `thresholds`, or None for no threshold."""
    thresholds: Mapping[tuple[str, int], float] = field(default_factory=dict)
    """Default thresholds. The keys are the type and the number of a node's GPUs."""

    def default_threshold(self, gpu_type: str, gpus: int) -> float | None:
        """Return the threshold for nodes with these GPUs, for stacks that set no threshold."""
        return self.thresholds.get((gpu_type, gpus), self.threshold)

    def script(self, logs: str) -> str:
        """Return the job's script. `logs` is the path of the output folder on nodes."""
        missing = "\n".join(
            f"type -P {program} >/dev/null || {{ echo 'no {program} on the PATH: install it in the "
            f"jail'; exit {NO_MEASUREMENT}; }}"
            for program in self.programs
        )
        return _SCRIPT.format(
            logs=logs, days=KEPT_DAYS, end=END, name=self.name, missing=missing, body=self.body
        )

    def read(self, output: str) -> Reading:
        """Parse a job's output. Raises `NoValueError` if it is incomplete or contains no value."""
        text, end, _ = output.rpartition(END)
        if not end:
            raise NoValueError(
                "the job was killed, or has not written all its output; see this output in "
                "/var/log/slurmstack-checks in the jail, then run the check again"
            )
        try:
            return self.parse(text)
        except NoValueError as error:
            raise NoValueError(
                f"{error}; correct the cause, then run the check again; all output is in "
                f"/var/log/slurmstack-checks in the jail, with the last line: {_last_line(text)}"
            ) from None


_SCRIPT = """\
#!/bin/bash
# Delete old outputs.
find {logs} -maxdepth 1 -name '*.out' -mtime +{days} -delete 2>/dev/null
trap 'echo "{end} $?"' EXIT
echo "slurmstack: {name} on $(hostname)"
{missing}
{body}
"""


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no output"


_AZURE_NCCL = {
    ("v100", 8): 110.0,
    ("a100", 8): 228.0,
    ("h100", 8): 460.0,
    ("h200", 8): 431.0,
}
"""Lowest bandwidth that Microsoft accepts for its own machines, in GB/s. Microsoft measures it with
all_reduce_perf over NVLink in one machine, with 16 GiB (8 GiB on V100). Source:
check_nccl_allreduce in conf/nd40rs_v2.conf, nd96amsr_a100_v4.conf, nd96isr_h100_v5.conf and
nd96isr_h200_v5.conf of https://github.com/Azure/azurehpc-health-checks."""
_AZURE_COPY = {
    **{("v100", count): 9.0 for count in range(1, 9)},
    **{("a100", count): 21.0 for count in range(1, 9)},
    **{("h100", count): 48.0 for count in range(1, 9)},
    **{("h200", count): 48.0 for count in range(1, 9)},
}
"""Lowest bandwidth that Microsoft accepts between a GPU and its host, in GB/s. It does not depend
on the number of GPUs. Source: the first number of check_gpu_bw in the four files named above."""

CHECKS: Mapping[str, Check] = {
    check.name: check
    for check in (
        Check(
            name="cpu-memory",
            about="memory bandwidth of all CPUs together (STREAM triad)",
            # The arrays use a quarter of the memory, which is far larger than any CPU cache.
            body='membw "$SLURM_CPUS_ON_NODE" "$((MEMORY_MIB / 4))"',
            parse=parsers.cpu_memory,
            unit="MB/s",
            minutes=10,
            programs=("membw",),
        ),
        Check(
            name="network",
            about="TCP bandwidth between two nodes (iperf3, eight streams)",
            body="""\
srun --overlap --nodes=1 --ntasks=1 --nodelist="$SECOND" iperf3 --server --one-off >/dev/null &
for attempt in 1 2 3 4 5; do
  sleep 2
  iperf3 --client "$SECOND" --parallel 8 --omit 2 --time 20 --json >/tmp/iperf3.json && break
done
cat /tmp/iperf3.json
kill $! 2>/dev/null
wait""",
            parse=parsers.network,
            unit="Gbit/s",
            minutes=5,
            programs=("iperf3", "srun"),
            nodes=2,
        ),
        Check(
            name="nccl",
            about="bus bandwidth of an all-reduce over a node's GPUs (nccl-tests)",
            body="all_reduce_perf --minbytes 1G --maxbytes 16G --stepfactor 2 --check 1 "
            '--ngpus "$GPUS"',
            parse=parsers.nccl,
            unit="GB/s",
            minutes=15,
            programs=("all_reduce_perf",),
            least_gpus=2,
            thresholds=_AZURE_NCCL,
        ),
        Check(
            name="nccl-pair",
            about="bus bandwidth of an all-reduce over the GPUs of two nodes (nccl-tests with MPI)",
            body='srun --mpi=pmix --nodes=2 --ntasks-per-node="$GPUS" all_reduce_perf '
            "--minbytes 1G --maxbytes 16G --stepfactor 2 --check 1 --ngpus 1",
            parse=parsers.nccl,
            unit="GB/s",
            minutes=20,
            programs=("all_reduce_perf", "srun"),
            nodes=2,
            least_gpus=1,
        ),
        Check(
            name="dcgm",
            about="diagnosis of GPUs, level 3 (dcgmi diag)",
            body="dcgmi diag --run 3 --json",
            parse=parsers.dcgm,
            unit="failed tests",
            minutes=60,
            programs=("dcgmi",),
            higher_is_better=False,
            least_gpus=1,
            threshold=0.0,
        ),
        Check(
            name="gpu-burn",
            about="number of GPUs that compute wrong results in five minutes of full load "
            "(gpu_burn)",
            # gpu_burn ends each progress report with a carriage return. Replace it with a newline.
            body="gpu_burn -tc 300 | tr '\\r' '\\n' | tail -n 300",
            parse=parsers.gpu_burn,
            unit="faulty GPUs",
            minutes=15,
            programs=("gpu_burn",),
            higher_is_better=False,
            least_gpus=1,
            threshold=0.0,
        ),
        Check(
            name="gpu-memory",
            about="bandwidth between the memory of each GPU and the memory of the host "
            "(nvbandwidth)",
            body="nvbandwidth -t host_to_device_memcpy_ce device_to_host_memcpy_ce",
            parse=parsers.gpu_memory,
            unit="GB/s",
            minutes=10,
            programs=("nvbandwidth",),
            least_gpus=1,
            thresholds=_AZURE_COPY,
        ),
    )
}
"""All checks by name."""
