"""Prometheus evaluates the expressions of dashboard panels."""

import json

import pytest
from docker.models.containers import Container

from monitoring.dashboards import expressions
from tests.container.monitoring.promtool import THERE, promtool
from tests.support.containers import put


def expression(dashboard: str, panel: str) -> str:
    (found,) = (
        one.expr for one in expressions() if (one.dashboard, one.panel) == (dashboard, panel)
    )
    return found


@pytest.mark.parametrize(
    ("jobs", "share"),
    [
        ({"failed": 3, "completed": 1}, 0.75),
        ({"failed": 1, "cancelled": 9, "running": 9, "pending": 9}, 1),
        ({"out_of_memory": 1, "timeout": 1, "node_fail": 1, "boot_fail": 1, "completed": 4}, 0.5),
        ({"completed": 4, "failed": 0}, 0),
        ({"completed": 0, "failed": 0, "running": 7}, None),
    ],
)
def test_share_of_recent_failures_comes_from_job_states(
    container: Container, jobs: dict[str, int], share: float | None
) -> None:
    # The panel must not use these counters. If a job's script fails, slurmctld still counts the job
    # as completed.
    counters = {"slurm_jobs_failed_total": 0, "slurm_jobs_completed_total": 100}
    series = counters | {f'slurm_jobs{{state="{state}"}}': count for state, count in jobs.items()}
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": f"{at}x60"} for name, at in series.items()],
        "promql_expr_test": [
            {
                "expr": expression("slurmstack-jobs", "Recently failed"),
                "eval_time": "30m",
                "exp_samples": [] if share is None else [{"labels": "{}", "value": share}],
            }
        ],
    }
    # Write JSON into the YAML file, because JSON is valid YAML.
    put(container, {f"{THERE}/panel.yaml": json.dumps({"tests": [case]})})

    code, output = promtool(container, "test", "rules", "panel.yaml")
    assert code == 0, output
