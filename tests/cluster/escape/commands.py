"""Commands that a user might use to harm another user or the cluster.

Each command has a pattern for the refusal. `{job}` is the other user's job, which runs on `{node}`,
and `{other}` is that user's name. `{folder}` is the attacker's folder with the files `payload` and
`etc/slurm.conf`.

Inside the jail, this file is a program: `python3 commands.py COMMANDS` runs the commands in the
JSON object COMMANDS, and prints the outputs as JSON.
"""

import json
import subprocess
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    text: str
    refusal: str
    """A regular expression that matches the output of a refusal."""


TIMEOUT = 30
"""Time limit of a command in seconds."""
_DENIED = "[Pp]ermission denied|Invalid user id|Operation not permitted"
_CONF = "SLURM_CONF={folder}/etc/slurm.conf"
"""A slurm.conf with the attacker as SlurmUser."""

OTHERS_JOB = {
    "to cancel the job": Command("scancel -v {job}", _DENIED),
    "to signal the job's script": Command("scancel --batch --signal=KILL {job}", _DENIED),
    "to signal a step of the job": Command(
        "scancel --signal=KILL {job}.0", "Kill job error on job step id {job}"
    ),
    "to cancel all of the user's jobs": Command(
        "scancel -v --user={other} --state=RUNNING", _DENIED
    ),
    "to requeue the job": Command("scontrol requeue {job}", _DENIED),
    "to requeue and hold the job": Command("scontrol requeuehold {job}", _DENIED),
    "to hold the job": Command("scontrol hold {job}", _DENIED),
    "to suspend the job": Command("scontrol suspend {job}", _DENIED),
    "to shorten the job": Command("scontrol update JobId={job} TimeLimit=1", _DENIED),
    "to move the job": Command(
        "scontrol update JobId={job} Partition=main NodeList=cpu-1", _DENIED
    ),
    "to rename the job": Command("scontrol update JobId={job} JobName=mine", _DENIED),
    "to write to the job's output": Command("scontrol notify {job} boo", _DENIED),
    "to read the job's script": Command("scontrol write batch_script {job} -", _DENIED),
    "to run a step in the job": Command("srun --jobid={job} --overlap id", _DENIED),
    "to run a step in the job through environment variables": Command(
        "env SLURM_JOB_ID={job} SLURM_JOBID={job} SLURM_JOB_NODELIST={node} srun --overlap id",
        _DENIED,
    ),
    "to run a step in the job as the other user": Command(
        "env SLURM_JOB_ID={job} SLURM_JOB_UID=5 SLURM_JOB_USER={other} srun --overlap id", _DENIED
    ),
    "to attach to the job's step": Command("sattach {job}.0", "no tasks running"),
    "to send files to the job's nodes": Command(
        "env SLURM_JOB_ID={job} sbcast {folder}/payload /tmp/secret", _DENIED
    ),
    "to send files with --jobid": Command(
        "sbcast --force --jobid={job} {folder}/payload /tmp/secret", _DENIED
    ),
    "to submit as the other user": Command(
        "sbatch --uid={other} --wrap id", "only permitted by root"
    ),
    "to submit as root": Command("sbatch --uid=0 --wrap id", "only permitted by root"),
    "to get a token for the other user": Command("scontrol token username={other}", _DENIED),
    "to get a token for root": Command("scontrol token username=root", _DENIED),
}

THE_CLUSTER = {
    "to drain a node": Command("scontrol update NodeName=cpu-1 State=DRAIN Reason=mine", _DENIED),
    "to mark a node down": Command("scontrol update NodeName=cpu-1 State=DOWN Reason=x", _DENIED),
    "to make a node": Command("scontrol create NodeName=cpu-9 State=FUTURE", _DENIED),
    "to delete a node": Command("scontrol delete NodeName=cpu-1", _DENIED),
    "to close a partition": Command("scontrol update PartitionName=main State=DOWN", _DENIED),
    "to make a partition": Command("scontrol create PartitionName=mine Nodes=cpu-1", _DENIED),
    "to delete a partition": Command("scontrol delete PartitionName=main", _DENIED),
    "to reserve all nodes": Command(
        "scontrol create reservation StartTime=now Duration=60 Users=researcher Nodes=ALL", _DENIED
    ),
    "to raise one's own priority": Command(
        "job=$(sbatch --begin=now+1hour --parsable --output=/dev/null --wrap=true);"
        " scontrol update JobId=$job Priority=4294967290; scancel $job",
        _DENIED,
    ),
    "to set a negative nice value": Command(
        "sbatch --nice=-100 --wrap=true", "Invalid --nice value"
    ),
    "to reconfigure slurmctld": Command("scontrol reconfigure", _DENIED),
    "to stop slurmctld": Command("scontrol shutdown slurmctld", _DENIED),
    "to stop every daemon": Command("scontrol shutdown", _DENIED),
    "to change the log level": Command("scontrol setdebug 9", _DENIED),
    "to change the debug flags": Command("scontrol setdebugflags +Protocol", _DENIED),
    "to become administrator with a forged configuration": Command(
        f"env {_CONF} scontrol update NodeName=cpu-1 State=DRAIN Reason=mine", _DENIED
    ),
    "to reconfigure with a forged configuration": Command(
        f"env {_CONF} scontrol reconfigure", _DENIED
    ),
}

THE_SYSTEM = {
    "to become root with su": Command("su -c id", "Authentication failure|must be run from"),
    "to become another user with su": Command(
        "su {other} -s /bin/sh -c id", "Authentication failure|must be run from"
    ),
    "to join another group with newgrp": Command("newgrp root", "Password|not permitted"),
    "to change root's shell": Command("chsh -s /bin/sh root", "may not change"),
    "to enter the namespaces of process 1": Command("nsenter -t 1 -m id", _DENIED),
    "to become root with setpriv": Command("setpriv --reuid=0 id", "not permitted"),
}


def main(commands: dict[str, str]) -> None:
    outputs = {}
    for name, text in commands.items():
        result = subprocess.run(
            ["sh", "-c", text],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )
        outputs[name] = result.stdout
    print(json.dumps(outputs))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
