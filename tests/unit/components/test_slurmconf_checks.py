"""The checks that nodes run, and when Slurm calls them."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agents.checks.registry import CHECKS, Effect, Nodes
from agents.checks.settings import read
from components import conventions as c
from components.settings import Settings
from components.slurmconf import config_files, node_checks, script_files
from tests.support.parsed import lines, options
from tests.support.stack import settings

H100 = {"type": "h100", "count": 8}
ON_ALL = {name for name, check in CHECKS.items() if check.nodes is Nodes.ALL}
OF_GPUS = {name for name, check in CHECKS.items() if check.nodes is Nodes.GPUS}
SCRIPT = {"text": "#!/bin/sh\nexit 0\n"}


def stack(health: dict[str, Any] | None = None, **nodeset: Any) -> Settings:
    """Return a stack in which the nodeset `big` has these fields."""

    def edit(values: dict[str, Any]) -> None:
        values.update(health=health or {})
        values["nodesets"][1].update(nodeset)

    return settings(edit)


def checks(given: Settings) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(node_checks(given.nodesets[1], given))
    return found


def conf(given: Settings) -> dict[str, str]:
    return options(config_files(given)["slurm.conf"])


def test_nodeset_has_the_checks_for_its_hardware() -> None:
    assert set(checks(stack())) == ON_ALL | {"munge"}
    assert set(checks(stack(gpus=H100))) == ON_ALL | OF_GPUS | {"munge"}
    ports = {"infiniband-link", "infiniband-errors"}
    assert set(checks(stack(features=["infiniband"]))) == ON_ALL | ports | {"munge"}


def test_nodes_with_auth_slurm_have_no_munge_check() -> None:
    assert "munge" not in checks(settings(lambda values: values.update(auth={"type": "slurm"})))


def test_gpus_of_other_vendors_are_not_checked() -> None:
    amd = {**H100, "resource": "amd.com/gpu"}

    assert not OF_GPUS & set(checks(stack(gpus=amd)))


def test_sliced_gpus_have_neither_gpu_count_nor_gpu_busy_check() -> None:
    slices = {"type": "a100", "count": 1, "mig": {"1g.10gb": 7}}

    assert OF_GPUS - set(checks(stack(gpus=slices))) == {"gpu-count", "gpu-busy"}


def test_gpu_and_jail_settings_set_limits_of_checks() -> None:
    shared = checks(stack(gpus={**H100, "shards": 4}))
    refreshed = checks(settings(lambda values: values.update(jail={"refresh": 3})))

    assert shared["gpu-count"] == {"count": 8}
    assert shared["gpu-busy"] == {"shared": True}
    assert refreshed["jail"] == {"generation": 3}


def test_nodeset_limits_override_global_limits_which_override_derived_limits() -> None:
    everywhere = {"disk": {"max_percent": 80, "paths": ["/"]}, "gpu-count": {"count": 7}}

    found = checks(stack({"checks": everywhere}, gpus=H100, checks={"disk": {"max_percent": 70}}))

    assert found["disk"] == {"max_percent": 70, "paths": ["/"]}
    assert found["gpu-count"] == {"count": 7}


@pytest.mark.parametrize(
    ("everywhere", "here", "on"),
    [
        ({"clock": False}, {}, False),
        ({}, {"clock": False}, False),
        ({"clock": False}, {"clock": {}}, True),
        ({"clock": {}}, {"clock": False}, False),
    ],
)
def test_nodeset_may_switch_a_check_on_or_off(
    everywhere: dict[str, Any], here: dict[str, Any], on: bool
) -> None:
    assert ("clock" in checks(stack({"checks": everywhere}, checks=here))) is on


def test_nodeset_has_every_check_that_it_names() -> None:
    assert checks(stack(checks={"infiniband-link": {"ports": 2}}))["infiniband-link"] == {
        "ports": 2
    }
    assert "infiniband-link" not in checks(stack({"checks": {"infiniband-link": {"ports": 2}}}))


def test_node_reads_the_rendered_file_of_checks(tmp_path: Path) -> None:
    given = stack({"checks": {"disk": {"effect": "report"}}}, gpus=H100)
    (tmp_path / c.NODE_CHECKS).write_text(node_checks(given.nodesets[1], given))

    found = {one.check.name: one for one in read(tmp_path / c.NODE_CHECKS)}

    assert found.keys() == checks(given).keys()
    assert found["disk"].effect is Effect.REPORT
    assert found["gpu-count"].limits == {"count": 8}


# --- slurm.conf ----------------------------------------------------------------------------------


def test_slurm_calls_checks_at_the_configured_interval_and_node_states() -> None:
    plain, chosen = conf(stack()), conf(stack({"interval": 30, "node_states": ["idle", "cycle"]}))

    assert plain["HealthCheckProgram"] == f"{c.CHECKS}/interval"
    assert (plain["HealthCheckInterval"], plain["HealthCheckNodeState"]) == ("60", "ANY,CYCLE")
    assert (chosen["HealthCheckInterval"], chosen["HealthCheckNodeState"]) == ("30", "IDLE,CYCLE")


def test_disabled_checks_are_neither_called_nor_rendered() -> None:
    off = stack({"enabled": False}, gpus=H100)

    assert not {key for key in conf(off) if key.startswith(("HealthCheck", "Prolog", "Epilog"))} - {
        "PrologFlags"
    }
    assert node_checks(off.nodesets[1], off) == ""


def test_slurm_calls_the_site_script_if_checks_are_disabled() -> None:
    both, alone = stack({"script": SCRIPT}), stack({"enabled": False, "script": SCRIPT})

    assert script_files(both) == script_files(alone) == {"health_check": SCRIPT["text"]}
    assert conf(both)["HealthCheckProgram"] == f"{c.CHECKS}/interval"
    assert conf(alone)["HealthCheckProgram"] == f"{c.SCRIPTS}/health_check"
    assert conf(alone)["HealthCheckInterval"] == "60"


def called(given: Settings, key: str) -> list[str]:
    text = config_files(given)["slurm.conf"]
    return [line.partition("=")[2] for line in lines(text) if line.startswith(f"{key}=")]


def test_prolog_runs_checks_only_if_a_nodeset_has_job_checks() -> None:
    assert called(stack(), "Prolog") == called(stack(), "Epilog") == []
    assert called(stack(gpus=H100), "Prolog") == ["checks_prolog"]
    assert called(stack(gpus=H100), "Epilog") == ["checks_epilog"]


def test_checks_run_before_the_site_prolog_and_after_the_site_epilog() -> None:
    given = settings(
        lambda values: (
            values["nodesets"][1].update(gpus=H100),
            values.update(slurm={"prolog": SCRIPT, "epilog": SCRIPT}),
        )
    )

    assert called(given, "Prolog") == ["checks_prolog", "prolog"]
    assert called(given, "Epilog") == ["epilog", "checks_epilog"]


def test_jobs_start_on_nodes_whose_image_has_no_checks(tmp_path: Path) -> None:
    program = tmp_path / "checks_prolog"
    program.write_text(config_files(stack(gpus=H100))["checks_prolog"])
    program.chmod(0o755)

    assert not Path(f"{c.CHECKS}/prolog").exists()
    assert subprocess.run([program], env={"PATH": os.defpath}, check=False).returncode == 0
