"""Jobs and queue: who uses the cluster, and which jobs wait, how long and why."""

from grafana_foundation_sdk.models import units

from monitoring.dashboards.parts import PER_MINUTE, Column, Query, board, graph, rising, stat, table
from monitoring.dashboards.states import JOB_COLORS

_FAILED = "boot_fail|failed|node_fail|out_of_memory|timeout"


def _on_record(states: str) -> str:
    """Return PromQL for the jobs on record in these states.

    slurmctld's counters do not help here: they treat a failed job as completed.
    """
    return f'sum(slurm_jobs{{state=~"{states}"}})'


def _sum(metric: str, by: str) -> str:
    return f"sum by ({by}) ({metric})"


def _share(of: str) -> str:
    """Return PromQL that divides each account's value in `of` by the sum of all accounts."""
    return f"({of}) / on () group_left () (sum({of}) > 0)"


_USED = _sum("slurm_account_cpus_allocated", "account")
_ASKED = f"{_USED} + {_sum('slurm_account_cpus_requested', 'account')}"
_FAIRNESS = f"({_share(_USED)}) / ({_share(_ASKED)} > 0)"


def _owners(owner: str) -> tuple[Column, ...]:
    """Return the columns that the tables of accounts and of users share."""
    return (
        Column(_sum(f'slurm_{owner}_jobs{{state="running"}}', owner), "Running"),
        Column(_sum(f'slurm_{owner}_jobs{{state="pending"}}', owner), "Waiting"),
        Column(_sum(f"slurm_{owner}_cpus_allocated", owner), "CPUs in use"),
        Column(_sum(f"slurm_{owner}_cpus_requested", owner), "CPUs waited for"),
        Column(_wait("0.5", owner), "Median wait", units.Seconds),
        Column(_wait("1", owner), "Longest wait", units.Seconds),
        Column(_waited("0.5", owner), "Median wait before start", units.Seconds),
    )


def _wait(share: str, by: str) -> str:
    """Return PromQL for the quantile `share` of the seconds that jobs have waited so far.

    It includes only waiting jobs that could start.
    """
    return f'max by ({by}) (slurm_{by}_pending_seconds{{share="{share}"}})'


def _waited(share: str, by: str) -> str:
    """Return PromQL for the quantile `share` of the seconds that started jobs had waited."""
    return f'max by ({by}) (slurm_{by}_waited_seconds{{share="{share}"}})'


DASHBOARD = board(
    "slurmstack-jobs",
    "Jobs and queue",
    "Which accounts and users use the cluster, and which jobs wait, how long and why.",
    stat(
        "Running",
        "Jobs that run now. Each task of an array is one job. If no job runs while jobs wait, see "
        "*Why jobs wait*.",
        units.Short,
        'sum(slurm_jobs{state="running"})',
    ),
    stat(
        "Waiting",
        "Jobs that wait, for any reason. *Why jobs wait* shows whether a long queue is a problem.",
        units.Short,
        'sum(slurm_jobs{state="pending"})',
    ),
    stat(
        "Longest wait",
        "How long the job that waits longest has waited. Held jobs, and jobs that wait for another "
        "job or for a start time, are excluded. If other jobs of its partition wait far "
        "less, check the reason of this job: `squeue --start`, `scontrol show job`.",
        units.Seconds,
        'max(slurm_partition_pending_seconds{share="1"})',
        none="no job waits",
        steps=rising(86400, 7 * 86400),
    ),
    stat(
        "CPUs in use",
        "Share of all CPUs that is allocated to jobs. If it is low while jobs wait for resources, "
        "nodes are out of service, or memory, GPUs or limits are exhausted.",
        units.PercentUnit,
        "sum(slurm_node_cpus_allocated) / (sum(slurm_node_cpus) > 0)",
        none="no nodes",
    ),
    stat(
        "GPUs in use",
        "Share of all GPUs that is allocated to jobs. If it is low while jobs wait for GPUs, look "
        "for nodes that are out of service, and for nodes without free CPUs or memory.",
        units.PercentUnit,
        "sum(slurm_node_gpus_allocated) / (sum(slurm_node_gpus) > 0)",
        none="no GPUs",
    ),
    stat(
        "Recently failed",
        "Share of the recently ended jobs that failed, ran out of memory or time, or lost"
        " their node. Slurm keeps ended jobs on record for half an hour by default."
        " Cancelled jobs are excluded. If jobs of many users fail at once, the cluster is"
        " at fault: see *Failed jobs, by node* on the dashboard *Nodes*.",
        units.PercentUnit,
        f"{_on_record(_FAILED)} / ({_on_record(f'completed|{_FAILED}')} > 0)",
        none="no job ended",
        steps=rising(0.2, 0.5),
    ),
    graph(
        "Jobs",
        "Jobs that wait, and jobs on nodes. If the queue grows while fewer jobs than usual run, "
        "the queue is stuck: see *Why jobs wait*.",
        units.Short,
        Query(
            "sum by (state)"
            ' (slurm_jobs{state=~"pending|running|configuring|completing|suspended"})',
            "{{state}}",
        ),
        colors=JOB_COLORS,
    ),
    graph(
        "Why jobs wait",
        "Jobs that wait, by reason. `priority` and `resources`: the cluster is full. "
        "`nodes_unavailable`: nodes are out of service. `limit` and `not_allowed`: limits of "
        "accounting prevent the start. `none`: the scheduler has not evaluated the job yet.",
        units.Short,
        Query("sum by (reason) (slurm_jobs_pending) > 0", "{{reason}}"),
        none="no job waits",
        stacked=True,
    ),
    graph(
        "Wait so far, by partition",
        "How long jobs have waited so far: 90 % of a partition's waiting jobs have waited at"
        " most this long. Held jobs, and jobs that wait for another job or for a start time,"
        " are excluded. Where the line has a gap, no job waited. If one partition is far above"
        " the others, return its nodes to service, or give it more nodes.",
        units.Seconds,
        Query(_wait("0.9", "partition"), "{{partition}}"),
        none="no job waits",
    ),
    graph(
        "Wait before start, by partition",
        "90 % of the jobs that started in the last half hour had waited at most this long. Users "
        "can expect a similar wait. If the wait grows, add nodes, or ask users for shorter time "
        "limits (`--time`), so that jobs fit into gaps.",
        units.Seconds,
        Query(_waited("0.9", "partition"), "{{partition}}"),
        none="no job started",
    ),
    graph(
        "Wait before start, by account",
        "90 % of an account's jobs that started in the last half hour had waited at most this "
        "long. An account far above the others has used more than its fair share (see `sshare`), "
        "or has reached its limits (see `sacctmgr show associations`).",
        units.Seconds,
        Query(_waited("0.9", "account"), "{{account}}"),
        none="no job started",
    ),
    graph(
        "Jobs per minute",
        "Jobs that users submit, and jobs that start or end, per minute. *ended* includes"
        " failed jobs, but not cancelled jobs. If, for hours, users submit more jobs than"
        " Slurm starts, the queue grows. If *failed on their node* is not 0, read the log"
        " of slurmd on that node.",
        PER_MINUTE,
        *(
            Query(f"60 * sum(rate(slurm_jobs_{what}_total[$__rate_interval]))", legend)
            for what, legend in (
                ("submitted", "submitted"),
                ("started", "started"),
                ("completed", "ended"),
                ("failed", "failed on their node"),
                ("canceled", "cancelled"),
            )
        ),
    ),
    graph(
        "CPUs in use, by account",
        "CPUs allocated to the jobs of each account. `other` is the sum of all smaller"
        " accounts. If users complain that the distribution is unfair, compare it with"
        " the shares of the accounts (`sshare`).",
        units.Short,
        Query(f"{_USED} > 0", "{{account}}"),
        none="none in use",
        stacked=True,
    ),
    graph(
        "CPUs in use, by user",
        "CPUs allocated to the jobs of each user. `other` is the sum of all users with"
        " fewer CPUs. If one user has most of the cluster while others wait, limit this"
        " user's CPUs with an account or a QOS.",
        units.Short,
        Query(f"{_sum('slurm_user_cpus_allocated', 'user')} > 0", "{{user}}"),
        none="none in use",
        stacked=True,
    ),
    graph(
        "Fairness",
        "Whether Slurm meets the demand of all accounts equally. At 1, an account gets its due"
        " part of the CPUs. Above 1, it gets more. Below 1, it gets less, and its jobs wait"
        " longer: check its limits and its fair share (`sshare`). The value is *Share of use*"
        " divided by *Share of demand* (see *Accounts*). Demand is all CPUs that jobs use or"
        " wait for.",
        units.Short,
        Query(_FAIRNESS, "{{account}}"),
        none="none in use",
    ),
    table(
        "Accounts",
        "Jobs and CPUs of each account, and the two shares that *Fairness* compares. If fair"
        " share works, small accounts run jobs while large accounts wait. *Median wait* and"
        " *Longest wait* cover jobs that wait now, except held jobs and jobs that wait for"
        " another job or for a start time. *Median wait before start* covers jobs that started"
        " in the last half hour.",
        ["account"],
        *_owners("account"),
        Column(_share(_USED), "Share of use", units.PercentUnit),
        Column(_share(_ASKED), "Share of demand", units.PercentUnit),
        sort="CPUs in use",
    ),
    table(
        "Users",
        "Jobs and CPUs of each user. `other` is the sum of all users with fewer CPUs. Ask a user "
        "with many waiting jobs to submit an array instead, because the scheduler needs time for "
        "each job in every cycle.",
        ["user"],
        *_owners("user"),
        sort="CPUs in use",
    ),
    table(
        "Largest jobs",
        "Running jobs with the most nodes. A job's number links to the job's dashboard. Jobs with "
        "few CPUs may be missing: the exporter reports the jobs with the most CPUs first, up to "
        "`monitoring.exporter.jobs` pairs of job and node. To see more jobs, raise this setting.",
        ["job_id", "user", "account", "partition"],
        Column(
            "topk(50, count by (job_id, user, account, partition)"
            " (max by (job_id, node, user, account, partition) (slurm_job_node)))",
            "Nodes",
        ),
        none="no job runs",
        sort="Nodes",
    ),
    table(
        "Partitions",
        "Nodes, CPUs and jobs of each partition. A partition that is not `up` starts no jobs. If "
        "its CPUs are free while jobs wait, it lacks another resource: memory, GPUs, or whole "
        "nodes.",
        ["partition", "state"],
        Column("max by (partition, state) (slurm_partition_state == 1)"),
        Column(_sum("slurm_partition_nodes", "partition"), "Nodes"),
        Column(_sum('slurm_partition_jobs{state="running"}', "partition"), "Running"),
        Column(_sum('slurm_partition_jobs{state="pending"}', "partition"), "Waiting"),
        Column(_sum("slurm_partition_cpus", "partition"), "CPUs"),
        Column(_sum("slurm_partition_cpus_allocated", "partition"), "CPUs in use"),
        Column(_wait("0.5", "partition"), "Median wait", units.Seconds),
        Column(_wait("1", "partition"), "Longest wait", units.Seconds),
        Column(_waited("0.5", "partition"), "Median wait before start", units.Seconds),
        width=24,
        sort="Waiting",
    ),
    table(
        "Licenses",
        "The number of licenses in total, in use, reserved and free. If no license is free, jobs "
        "that need it wait with the reason `licenses`.",
        ["license"],
        Column("max by (license) (slurm_licenses)", "Total"),
        Column("max by (license) (slurm_licenses_used)", "In use"),
        Column("max by (license) (slurm_licenses_reserved)", "Reserved"),
        Column("max by (license) (slurm_licenses_free)", "Free"),
    ),
)
