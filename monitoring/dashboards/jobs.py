"""Jobs and queue: users of the cluster, and waiting jobs with their waiting times and reasons."""

from grafana_foundation_sdk.models import units

from monitoring.dashboards.parts import PER_MINUTE, Column, Query, board, graph, rising, stat, table
from monitoring.dashboards.states import JOB_COLORS

_FAILED = "boot_fail|failed|node_fail|out_of_memory|timeout"


def _on_record(states: str) -> str:
    """Jobs on record in these states. slurmctld's counters count failed jobs as completed."""
    return f'sum(slurm_jobs{{state=~"{states}"}})'


def _sum(metric: str, by: str) -> str:
    return f"sum by ({by}) ({metric})"


def _share(of: str) -> str:
    """Each account's share of the sum over all accounts; `of` has values by account."""
    return f"({of}) / on () group_left () (sum({of}) > 0)"


_USED = _sum("slurm_account_cpus_allocated", "account")
_ASKED = f"{_USED} + {_sum('slurm_account_cpus_requested', 'account')}"
_FAIRNESS = f"({_share(_USED)}) / ({_share(_ASKED)} > 0)"


def _owners(owner: str) -> tuple[Column, ...]:
    """Columns that accounts and users have in common."""
    return (
        Column(_sum(f'slurm_{owner}_jobs{{state="running"}}', owner), "Running"),
        Column(_sum(f'slurm_{owner}_jobs{{state="pending"}}', owner), "Waiting"),
        Column(_sum(f"slurm_{owner}_cpus_allocated", owner), "CPUs in use"),
        Column(_sum(f"slurm_{owner}_cpus_requested", owner), "CPUs waited for"),
        Column(_wait("0.5", owner), "Wait, half", units.Seconds),
        Column(_wait("1", owner), "Wait, longest", units.Seconds),
        Column(_waited("0.5", owner), "Waited, half", units.Seconds),
    )


def _wait(share: str, by: str) -> str:
    """Seconds that this share of the jobs that could start has waited at most."""
    return f'max by ({by}) (slurm_{by}_pending_seconds{{share="{share}"}})'


def _waited(share: str, by: str) -> str:
    """Seconds that this share of the recently started jobs had waited at most."""
    return f'max by ({by}) (slurm_{by}_waited_seconds{{share="{share}"}})'


DASHBOARD = board(
    "slurmstack-jobs",
    "Jobs and queue",
    "Who has the cluster, who waits for it, for how long and why.",
    stat(
        "Running",
        "Jobs that run now; each task of an array is one. None while jobs wait means that nothing "
        "is started: see why jobs wait.",
        units.Short,
        'sum(slurm_jobs{state="running"})',
    ),
    stat(
        "Waiting",
        "Jobs that wait for any reason. A long queue is good or bad by its reasons, beside.",
        units.Short,
        'sum(slurm_jobs{state="pending"})',
    ),
    stat(
        "Longest wait",
        "The longest that a job has waited since it could have begun. When it is far above the "
        "others of its partition, ask that job why: `squeue --start`, `scontrol show job`.",
        units.Seconds,
        'max(slurm_partition_pending_seconds{share="1"})',
        none="nobody waits",
        steps=rising(86400, 7 * 86400),
    ),
    stat(
        "CPUs in use",
        "Share of all nodes' CPUs that jobs have. Low while jobs wait for resources: nodes are "
        "out, or memory, GPUs or limits are what is short.",
        units.PercentUnit,
        "sum(slurm_node_cpus_allocated) / (sum(slurm_node_cpus) > 0)",
        none="no nodes",
    ),
    stat(
        "GPUs in use",
        "Share of all nodes' GPUs that jobs have. Low while jobs wait for GPUs: look for nodes "
        "that are out, or whose CPUs or memory are given away.",
        units.PercentUnit,
        "sum(slurm_node_gpus_allocated) / (sum(slurm_node_gpus) > 0)",
        none="no GPUs",
    ),
    stat(
        "Failed lately",
        "Share of the jobs that ended and are on record (for half an hour, by default) which "
        "failed, ran out of memory or of time, or lost their node; cancelled ones do not count. A "
        "jump with many users at once is the cluster's fault: see jobs that failed, by node, in "
        "the overview of nodes.",
        units.PercentUnit,
        f"{_on_record(_FAILED)} / ({_on_record(f'completed|{_FAILED}')} > 0)",
        none="none ended",
        steps=rising(0.2, 0.5),
    ),
    graph(
        "Jobs",
        "Jobs that wait and that are on nodes. A queue that grows while fewer run than usual is "
        "stuck: see why jobs wait.",
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
        "Jobs that wait, by reason. `priority` and `resources` are a full cluster; "
        "`nodes_unavailable` are nodes that are out, `limit` and `not_allowed` are accounting's, "
        "`none` are not looked at yet.",
        units.Short,
        Query("sum by (reason) (slurm_jobs_pending) > 0", "{{reason}}"),
        none="nobody waits",
        stacked=True,
    ),
    graph(
        "Wait, by partition",
        "How long nine in ten of the jobs have waited at most that could begin; a gap where "
        "nobody waits. One partition far above the others is too small, or its nodes are out.",
        units.Seconds,
        Query(_wait("0.9", "partition"), "{{partition}}"),
        none="nobody waits",
    ),
    graph(
        "Waited, by partition",
        "How long nine in ten of the jobs that began in the last half hour had waited at most. It "
        "is what users have to expect: where it grows, more nodes help, or jobs that fit in "
        "between (`--time`).",
        units.Seconds,
        Query(_waited("0.9", "partition"), "{{partition}}"),
        none="none began",
    ),
    graph(
        "Waited, by account",
        "How long nine in ten of an account's jobs that began in the last half hour had waited at "
        "most. One far above the others has a low share or runs into its limits: see `sshare`.",
        units.Seconds,
        Query(_waited("0.9", "account"), "{{account}}"),
        none="none began",
    ),
    graph(
        "Jobs in a minute",
        "How fast jobs come and go; those that ended did so by themselves, well or not. When more "
        "are submitted than begin for hours, the queue grows; those that fail on their node are "
        "errors of slurmd's: see its log.",
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
        "CPUs that the jobs of each account have; smaller accounts are `other`. Hold it against "
        "the accounts' shares when somebody calls it unfair.",
        units.Short,
        Query(f"{_USED} > 0", "{{account}}"),
        none="nobody has any",
        stacked=True,
    ),
    graph(
        "CPUs in use, by user",
        "CPUs that the jobs of each user have; smaller users are `other`. One user with most of a "
        "cluster on which others wait calls for a limit, in an account or a QOS.",
        units.Short,
        Query(f"{_sum('slurm_user_cpus_allocated', 'user')} > 0", "{{user}}"),
        none="nobody has any",
        stacked=True,
    ),
    graph(
        "Fairness",
        "An account's share of the CPUs in use, divided by its share of those asked for, in use "
        "or waited for. At 1 it gets as others do; an account that stays below waits more than "
        "others: see its limits and its share (`sshare`).",
        units.Short,
        Query(_FAIRNESS, "{{account}}"),
        none="nobody has any",
    ),
    table(
        "Accounts",
        "What each account has and waits for, with the shares that fairness is made of. Large "
        "accounts that wait while small ones run are doing well by fair share, not by size. "
        "*Wait* is of jobs that could begin, *waited* of those that did in the last half hour.",
        ["account"],
        *_owners("account"),
        Column(_share(_USED), "Share in use", units.PercentUnit),
        Column(_share(_ASKED), "Share asked for", units.PercentUnit),
        sort="CPUs in use",
    ),
    table(
        "Users",
        "What each user has and waits for; smaller users are `other`. Many waiting jobs of one "
        "user are better one array: each costs every cycle of the scheduler.",
        ["user"],
        *_owners("user"),
        sort="CPUs in use",
    ),
    table(
        "Largest jobs",
        "The jobs with the most nodes that run now; a job's number leads to what its nodes do. "
        "Smaller ones may be missing: `monitoring.exporter.jobs` is how many nodes of jobs are "
        "told of.",
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
        "What each partition has, and what is waited for in it. One that is not `up` starts no "
        "jobs; one whose CPUs are free while jobs wait lacks something else: memory, GPUs, or "
        "whole nodes.",
        ["partition", "state"],
        Column("max by (partition, state) (slurm_partition_state == 1)"),
        Column(_sum("slurm_partition_nodes", "partition"), "Nodes"),
        Column(_sum('slurm_partition_jobs{state="running"}', "partition"), "Running"),
        Column(_sum('slurm_partition_jobs{state="pending"}', "partition"), "Waiting"),
        Column(_sum("slurm_partition_cpus", "partition"), "CPUs"),
        Column(_sum("slurm_partition_cpus_allocated", "partition"), "CPUs in use"),
        Column(_wait("0.5", "partition"), "Wait, half", units.Seconds),
        Column(_wait("1", "partition"), "Wait, longest", units.Seconds),
        Column(_waited("0.5", "partition"), "Waited, half", units.Seconds),
        width=24,
        sort="Waiting",
    ),
    table(
        "Licenses",
        "Licenses that there are, and how many jobs have. Where none is free, jobs wait for "
        "`licenses`.",
        ["license"],
        Column("max by (license) (slurm_licenses)", "All"),
        Column("max by (license) (slurm_licenses_used)", "In use"),
        Column("max by (license) (slurm_licenses_reserved)", "Reserved"),
        Column("max by (license) (slurm_licenses_free)", "Free"),
    ),
)
