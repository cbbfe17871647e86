"""slurmctld: whether it answers, how fast, and what keeps it busy."""

from grafana_foundation_sdk.models import units

from monitoring.dashboards.parts import (
    PER_MINUTE,
    YES_NO,
    Query,
    board,
    graph,
    rising,
    stat,
)

_CALLS = "sum by (type) (rate(slurm_rpcs_total[$__rate_interval]))"
_TIME = "sum by (type) (rate(slurm_rpc_duration_seconds_total[$__rate_interval]))"
_CALLS_OF_USERS = "sum by (user) (rate(slurm_user_rpcs_total[$__rate_interval]))"
_TIME_OF_USERS = "sum by (user) (rate(slurm_user_rpc_duration_seconds_total[$__rate_interval]))"

DASHBOARD = board(
    "slurmstack-controller",
    "Controller",
    "slurmctld: whether it answers, how fast, and what keeps it busy.",
    stat(
        "Slurm answers",
        "Whether the exporter's last look at Slurm was told everything. If not, see first whether "
        "slurmctld runs, then what the exporter's log says.",
        units.NoUnit,
        "min(slurm_up)",
        none="no exporter",
        words=YES_NO,
    ),
    stat(
        "Known since",
        "Age of the oldest of what is shown as Slurm's state. It is at most two intervals, or "
        "else the exporter is not told everything.",
        units.Seconds,
        "max(slurm_exporter_data_age_seconds)",
        none="nothing known",
    ),
    stat(
        "Answers take",
        "Mean time that slurmctld spends on a call. Over a second, users' commands hang: see "
        "which calls, and who sends them.",
        units.Seconds,
        "sum(rate(slurm_rpc_duration_seconds_total[5m])) / (sum(rate(slurm_rpcs_total[5m])) > 0)",
        none="no calls",
        steps=rising(0.1, 1),
    ),
    stat(
        "Threads",
        "Threads that answer now. From 32 on the schedulers give way, and where all 64 are taken "
        "further callers wait: see what the calls are.",
        units.Short,
        "max(slurm_server_threads)",
        steps=rising(32, 60),
    ),
    stat(
        "To be sent to nodes",
        "Messages to nodes that wait. It rises when many nodes do not answer, or thousands of "
        "jobs begin at once, and should fall again within minutes.",
        units.Short,
        "max(slurm_agent_queue_length)",
        steps=rising(100, 1000),
    ),
    stat(
        "Records for slurmdbd",
        "Records of accounting that wait. Growing: slurmdbd or its database is away. Nothing is "
        "lost until `MaxDBDMsgs` of them wait.",
        units.Short,
        "max(slurm_dbd_agent_queue_length)",
        steps=rising(100, 5000),
    ),
    graph(
        "Calls",
        "Remote procedure calls that slurmctld answers, by type. Many job_info or node_info calls "
        "are somebody's loop around `squeue` or `sinfo`: see whose.",
        units.RequestsPerSecond,
        Query(f"{_CALLS} > 0", "{{type}}"),
        none="no calls",
        stacked=True,
    ),
    graph(
        "Time of an answer",
        "Mean time of the calls of each type. All slow together: slurmctld waits for a lock or "
        "for its disk; one alone has much to tell.",
        units.Seconds,
        Query(f"{_TIME} / ({_CALLS} > 0)", "{{type}}"),
        none="no calls",
    ),
    graph(
        "Where its time goes",
        "Seconds that calls of each type take in a second: how many threads they keep busy. What "
        "is on top is what to ask less often.",
        units.Short,
        Query(f"{_TIME} > 0", "{{type}}"),
        none="no calls",
        stacked=True,
    ),
    graph(
        "Calls, by user",
        "Calls of the users whose answers take longest; `root`, `slurm` and users that are numbers "
        "are daemons. One person with most of them has a loop: ask for fewer, or set a limit "
        "(`rl_enable`).",
        units.RequestsPerSecond,
        Query(f"{_CALLS_OF_USERS} > 0", "{{user}}"),
        none="no calls",
        stacked=True,
    ),
    graph(
        "Where its time goes, by user",
        "Seconds that each user's calls take in a second: how many threads they keep busy. Who is "
        "on top with few calls asks for much at once: all jobs, with all of their fields.",
        units.Short,
        Query(f"{_TIME_OF_USERS} > 0", "{{user}}"),
        none="no calls",
        stacked=True,
    ),
    graph(
        "Queues",
        "Messages to nodes and records of accounting that wait, and threads that answer. A queue "
        "that only grows is something that does not answer: nodes, or slurmdbd.",
        units.Short,
        Query("max(slurm_agent_queue_length)", "messages to nodes"),
        Query("max(slurm_dbd_agent_queue_length)", "records for slurmdbd"),
        Query("max(slurm_server_threads)", "threads"),
    ),
    graph(
        "Cycle of the scheduler",
        "How long the main scheduler takes to look at the queue; the longest and the mean are "
        "since midnight UTC or the last start. Seconds: fewer jobs in a cycle "
        "(`default_queue_depth`), or `defer_batch`.",
        units.Seconds,
        Query("max(slurm_scheduler_cycle_last_seconds)", "last"),
        Query("max(slurm_scheduler_cycle_mean_seconds)", "mean"),
        Query("max(slurm_scheduler_cycle_max_seconds)", "longest"),
    ),
    graph(
        "Cycle of backfill",
        "How long backfill takes to plan the queue. Longer than `bf_interval` and short of the "
        "queue's end: lower `bf_window`, or raise `bf_resolution`.",
        units.Seconds,
        Query("max(slurm_backfill_cycle_last_seconds)", "last"),
        Query("max(slurm_backfill_cycle_mean_seconds)", "mean"),
    ),
    graph(
        "Jobs that a cycle sees",
        "Jobs in the queue as each scheduler saw it, and those that backfill tried. Tried far "
        "fewer than seen: jobs at the end of the queue are not planned; raise `bf_max_job_test` "
        "or `bf_max_time`.",
        units.Short,
        Query("max(slurm_scheduler_queue_length)", "seen by the scheduler"),
        Query("max(slurm_backfill_queue_length)", "seen by backfill"),
        Query("max(slurm_backfill_depth_last)", "tried by backfill"),
    ),
    graph(
        "Cycles and starts",
        "How often the schedulers run, and how many jobs begin, of which by backfill. No cycles "
        "at all while jobs wait is a slurmctld that hangs.",
        PER_MINUTE,
        Query("60 * sum(rate(slurm_scheduler_cycles_total[$__rate_interval]))", "cycles"),
        Query(
            "60 * sum(rate(slurm_backfill_cycles_total[$__rate_interval]))", "cycles of backfill"
        ),
        Query("60 * sum(rate(slurm_jobs_started_total[$__rate_interval]))", "jobs begun"),
        Query("60 * sum(rate(slurm_backfill_jobs_total[$__rate_interval]))", "begun by backfill"),
    ),
    graph(
        "Reads of the exporter",
        "How long each of the exporter's reads takes. Near its interval slurmctld is slow, or the "
        "interval is too short for the cluster.",
        units.Seconds,
        Query("max by (source) (slurm_exporter_read_duration_seconds)", "{{source}}"),
        none="no exporter",
    ),
    graph(
        "Reads that failed",
        "Reads of the exporter that failed. While one fails, what it would show is not shown: the "
        "exporter's log says why.",
        PER_MINUTE,
        Query(
            "60 * sum by (source) (rate(slurm_exporter_read_failures_total[$__rate_interval]))",
            "{{source}}",
        ),
        none="no exporter",
    ),
)
