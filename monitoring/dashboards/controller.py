"""Whether slurmctld answers, how fast it answers, and which calls keep it busy."""

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
    "Whether slurmctld answers, how fast it answers, and which calls keep it busy.",
    stat(
        "Slurm answers",
        "Whether the exporter's last read of Slurm was complete. If not, check whether slurmctld "
        "runs, then read the exporter's log.",
        units.NoUnit,
        "min(slurm_up)",
        none="no exporter",
        words=YES_NO,
    ),
    stat(
        "Age of the data",
        "Age of the oldest data of Slurm on these dashboards. If the age exceeds two intervals of "
        "the exporter (`monitoring.exporter.interval`), its reads fail.",
        units.Seconds,
        "max(slurm_exporter_data_age_seconds)",
        none="no data",
    ),
    stat(
        "Response time",
        "Mean time that slurmctld needs to answer a call. Above one second, users' commands hang: "
        "check which calls take most of the time, and which users send them.",
        units.Seconds,
        "sum(rate(slurm_rpc_duration_seconds_total[5m])) / (sum(rate(slurm_rpcs_total[5m])) > 0)",
        none="no calls",
        steps=rising(0.1, 1),
    ),
    stat(
        "Threads",
        "Threads of slurmctld that process calls now. From 32 threads on, the schedulers pause. If "
        "all 64 threads are in use, further calls wait. *Busy threads, by user* shows whose calls "
        "these are.",
        units.Short,
        "max(slurm_server_threads)",
        steps=rising(32, 60),
    ),
    stat(
        "Messages to nodes",
        "Messages that slurmctld has not yet sent to nodes. The number rises if many"
        " nodes do not answer, or if thousands of jobs start at once. If it does not fall"
        " within minutes, find the nodes that do not answer: `sinfo --list-reasons`.",
        units.Short,
        "max(slurm_agent_queue_length)",
        steps=rising(100, 1000),
    ),
    stat(
        "Records for slurmdbd",
        "Accounting records that wait for slurmdbd. If the number grows, slurmdbd or its"
        " database does not work: read the logs of both. slurmctld starts to discard records"
        " only when `MaxDBDMsgs` records wait.",
        units.Short,
        "max(slurm_dbd_agent_queue_length)",
        steps=rising(100, 5000),
    ),
    graph(
        "Calls",
        "Remote procedure calls that slurmctld answers, by type. Many job_info or node_info calls "
        "come from a loop around `squeue` or `sinfo`: find the user in *Calls, by user*.",
        units.RequestsPerSecond,
        Query(f"{_CALLS} > 0", "{{type}}"),
        none="no calls",
        stacked=True,
    ),
    graph(
        "Duration of a call",
        "Mean duration of calls, by type. If all types are slow, slurmctld waits for a"
        " lock or its disk. If only one type is slow, its answers contain much data.",
        units.Seconds,
        Query(f"{_TIME} / ({_CALLS} > 0)", "{{type}}"),
        none="no calls",
    ),
    graph(
        "Busy threads, by type of call",
        "Mean number of threads that calls of each type keep busy. If all 64 threads are"
        " busy, find the user who sends most calls of the top type in *Calls, by user*.",
        units.Short,
        Query(f"{_TIME} > 0", "{{type}}"),
        none="no calls",
        stacked=True,
    ),
    graph(
        "Calls, by user",
        "Calls of the users whose calls take the most time. `root`, `slurm` and numeric users are "
        "daemons. A person with most of the calls runs a loop: ask this person for fewer calls, or "
        "set a limit (`rl_enable`).",
        units.RequestsPerSecond,
        Query(f"{_CALLS_OF_USERS} > 0", "{{user}}"),
        none="no calls",
        stacked=True,
    ),
    graph(
        "Busy threads, by user",
        "Mean number of slurmctld's threads that each user's calls keep busy. If all 64 threads "
        "are busy, the calls of all users wait: ask the top user for fewer or smaller calls. A top "
        "user with few calls (see *Calls, by user*) requests much data at once, for example all "
        "jobs with all fields.",
        units.Short,
        Query(f"{_TIME_OF_USERS} > 0", "{{user}}"),
        none="no calls",
        stacked=True,
    ),
    graph(
        "Queues",
        "Numbers of messages that wait to be sent to nodes, of accounting records that wait for"
        " slurmdbd, and of slurmctld's busy threads. If the number of messages only grows, nodes do"
        " not answer: see `sinfo --list-reasons`. If the number of records only grows, slurmdbd"
        " does not answer: read its log.",
        units.Short,
        Query("max(slurm_agent_queue_length)", "messages to nodes"),
        Query("max(slurm_dbd_agent_queue_length)", "records for slurmdbd"),
        Query("max(slurm_server_threads)", "threads"),
    ),
    graph(
        "Scheduler cycle time",
        "Duration of a cycle of the main scheduler. *longest* and *mean* cover the time since "
        "midnight UTC, or since slurmctld's last start. If a cycle takes seconds, reduce the "
        "number of jobs in a cycle (`default_queue_depth`), or set `defer_batch`.",
        units.Seconds,
        Query("max(slurm_scheduler_cycle_last_seconds)", "last"),
        Query("max(slurm_scheduler_cycle_mean_seconds)", "mean"),
        Query("max(slurm_scheduler_cycle_max_seconds)", "longest"),
    ),
    graph(
        "Backfill cycle time",
        "Time that backfill needs to plan the queue. If backfill needs longer than `bf_interval` "
        "and does not reach the end of the queue, lower `bf_window`, or raise `bf_resolution`.",
        units.Seconds,
        Query("max(slurm_backfill_cycle_last_seconds)", "last"),
        Query("max(slurm_backfill_cycle_mean_seconds)", "mean"),
    ),
    graph(
        "Jobs per cycle",
        "Jobs that each scheduler found in the queue, and jobs that backfill tried to start. If "
        "backfill tries far fewer jobs than it finds, it does not plan the end of the queue: raise "
        "`bf_max_job_test` or `bf_max_time`.",
        units.Short,
        Query("max(slurm_scheduler_queue_length)", "seen by the scheduler"),
        Query("max(slurm_backfill_queue_length)", "seen by backfill"),
        Query("max(slurm_backfill_depth_last)", "tried by backfill"),
    ),
    graph(
        "Cycles and job starts",
        "Cycles of the schedulers, and job starts, in total and by backfill. If there are no "
        "cycles while jobs wait, slurmctld hangs: read its log, then restart it.",
        PER_MINUTE,
        Query("60 * sum(rate(slurm_scheduler_cycles_total[$__rate_interval]))", "cycles"),
        Query("60 * sum(rate(slurm_backfill_cycles_total[$__rate_interval]))", "backfill cycles"),
        Query("60 * sum(rate(slurm_jobs_started_total[$__rate_interval]))", "jobs started"),
        Query("60 * sum(rate(slurm_backfill_jobs_total[$__rate_interval]))", "started by backfill"),
    ),
    graph(
        "Duration of exporter reads",
        "Duration of each read of the exporter. If it approaches `monitoring.exporter.interval`, "
        "slurmctld is slow, or this interval is too short for the cluster.",
        units.Seconds,
        Query("max by (source) (slurm_exporter_read_duration_seconds)", "{{source}}"),
        none="no exporter",
    ),
    graph(
        "Failed exporter reads",
        "Reads of the exporter that failed. After a failed read, the metrics of its source are "
        "missing: the exporter's log shows the reason.",
        PER_MINUTE,
        Query(
            "60 * sum by (source) (rate(slurm_exporter_read_failures_total[$__rate_interval]))",
            "{{source}}",
        ),
        none="no exporter",
    ),
)
