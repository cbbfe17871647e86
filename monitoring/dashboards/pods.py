"""Pods of Kubernetes that Slurm schedules, and the bridge that starts and ends them."""

from grafana_foundation_sdk.models import units

from monitoring.dashboards.parts import (
    BLUE,
    GREEN,
    GREY,
    PER_MINUTE,
    RED,
    Column,
    Query,
    board,
    graph,
    rising,
    stat,
    table,
)

_COLORS = {"ending": GREY, "refused": RED, "running": GREEN, "waiting": BLUE}
_NONE = "no bridge"


def _number(state: str) -> str:
    """Return an expression for the number of pods in a state, which is 0 if there are none."""
    return f'sum(slurmstack_bridge_pods{{state="{state}"}}) or 0 * max(slurmstack_bridge_acts)'


DASHBOARD = board(
    "slurmstack-pods",
    "Pods",
    "Pods of Kubernetes that Slurm schedules, and the bridge that starts and ends them.",
    stat(
        "Last plan",
        "Time since the bridge last looked after all pods. If it is longer than a few seconds, no "
        "pod starts, and Slurm keeps the resources of pods that have ended: the bridge's log says "
        "which service does not answer.",
        units.Seconds,
        "time() - max(slurmstack_bridge_last_plan_timestamp_seconds)",
        none=_NONE,
        steps=rising(60, 120),
    ),
    stat(
        "Running",
        "Pods on machines. Each uses CPUs and memory of a Slurm job: `squeue` shows both.",
        units.Short,
        _number("running"),
        none=_NONE,
    ),
    stat(
        "Waiting",
        "Pods without a machine. The condition PodScheduled of each pod says what it waits for: "
        "`kubectl describe pod`.",
        units.Short,
        _number("waiting"),
        none=_NONE,
    ),
    stat(
        "Refused",
        "Pods that cannot have a job as they are. An event of each pod says why: tell its owner.",
        units.Short,
        _number("refused"),
        none=_NONE,
        steps=rising(1, 50),
    ),
    stat(
        "Longest start",
        "Longest time for which a running job has waited for pods without a machine. If it is "
        "longer than a minute, Kubernetes has no room where Slurm has: see *Actions*.",
        units.Seconds,
        "max(slurmstack_bridge_start_delay_seconds)",
        none=_NONE,
        steps=rising(30, 60),
    ),
    stat(
        "Longest stop",
        "Longest time for which a pod has run after the end of its grace period. Until it stops, "
        "its job is COMPLETING: see the machine of the pod.",
        units.Seconds,
        "max(slurmstack_bridge_stop_delay_seconds)",
        none=_NONE,
        steps=rising(60, 600),
    ),
    graph(
        "Pods by state",
        "Pods that Slurm schedules. Waiting pods are normal on a full cluster: they start in the "
        "order of Slurm's priorities.",
        units.Short,
        Query("sum by (state) (slurmstack_bridge_pods)", "{{state}}"),
        none="no pods",
        stacked=True,
        colors=_COLORS,
    ),
    graph(
        "Running pods, by namespace",
        "Pods on machines, for each namespace. Fair share and limits of the users of a namespace "
        "decide how many run: see `sshare` and `sacctmgr show qos`.",
        units.Short,
        Query('sum by (namespace) (slurmstack_bridge_pods{state="running"})', "{{namespace}}"),
        none="no pods",
        stacked=True,
    ),
    graph(
        "Time to bind",
        "Mean time from the start of a job to the binding of its pods. It is about a second, "
        "because Slurm reports the start in whole seconds. If it rises, see *Duration of a plan*.",
        units.Seconds,
        Query(
            "sum(rate(slurmstack_bridge_bind_delay_seconds_total[$__rate_interval]))"
            ' / (sum(rate(slurmstack_bridge_actions_total{action="bind", result="done"}'
            "[$__rate_interval])) > 0)",
            "mean",
        ),
        none="no pod started",
    ),
    graph(
        "Duration of a plan",
        "Time that the bridge needs to read the changes, decide and act. If it is longer than "
        "some seconds, slurmctld or Kubernetes answers slowly: see the dashboard *Controller*.",
        units.Seconds,
        Query("max(slurmstack_bridge_plan_duration_seconds)", "last plan"),
        none=_NONE,
    ),
    graph(
        "Actions",
        "What the bridge did. Many `unlink` and `cancel` mean that Kubernetes has no room where "
        "Slurm has: the bridge's log names the machine and the resource.",
        PER_MINUTE,
        Query(
            "60 * sum by (action) "
            '(rate(slurmstack_bridge_actions_total{result="done"}[$__rate_interval])) > 0',
            "{{action}}",
        ),
        none="no action",
    ),
    table(
        "Pods by namespace",
        "Numbers of pods of each namespace. If pods of a namespace are refused, tell its users: "
        "events of the pods say why.",
        ["namespace"],
        Column(
            'sum by (namespace) (slurmstack_bridge_pods{state="running"})',
            "Running",
        ),
        Column('sum by (namespace) (slurmstack_bridge_pods{state="waiting"})', "Waiting"),
        Column(
            'sum by (namespace) (slurmstack_bridge_pods{state="refused"})',
            "Refused",
            steps=rising(1, 50),
        ),
        none="no pods",
        sort="Running",
    ),
    graph(
        "Failed plans and actions",
        "Plans that failed because a service did not answer, and actions that Slurm or Kubernetes "
        "refused: the bridge's log shows the reasons.",
        PER_MINUTE,
        Query(
            '60 * sum(rate(slurmstack_bridge_plans_total{result="failed"}[$__rate_interval]))',
            "plans",
        ),
        Query(
            "60 * sum by (action) "
            '(rate(slurmstack_bridge_actions_total{result="failed"}[$__rate_interval])) > 0',
            "{{action}}",
        ),
        none=_NONE,
        width=24,
    ),
)
