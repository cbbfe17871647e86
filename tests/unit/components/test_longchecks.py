"""Tests of what long checks add to the stack's resources, to slurm.conf, to the accounts, and to
the settings file of agents/longchecks."""

from typing import Any

import pytest

from agents.accounts.things import Wanted as WantedAccounts
from agents.longchecks.registry import CHECKS
from agents.longchecks.run import PATH
from agents.longchecks.wanted import Wanted
from agents.populate import CHECKS_ID, LOGS, SLURM_ID
from components import conventions as c
from components.settings import LongCheck
from components.settings.longchecks import LEAST_GPUS, LongChecks
from components.slurmconf import config_files, wanted_accounts, wanted_long_checks
from local.paths import ROOT
from tests.support.graph import Graph, record, templates
from tests.support.parsed import options, records
from tests.support.stack import FULL, VALID, config, settings

ON = {"checks": [{"name": "cpu-memory"}, {"name": "network", "enabled": False}]}


def slurm_conf(base: dict[str, Any] = VALID, **fields: Any) -> str:
    return config_files(settings(lambda values: values.update(fields), base))["slurm.conf"]


@pytest.fixture(scope="module")
def graph() -> Graph:
    with pytest.MonkeyPatch.context() as monkeypatch:
        return record(monkeypatch, config(lambda values: values.update(long_checks=ON)))


# --- Values that are defined in two places --------------------------------------------------------


def test_settings_and_agent_have_the_same_long_checks() -> None:
    assert {name: check.least_gpus for name, check in CHECKS.items()} == LEAST_GPUS
    names = LongCheck.model_json_schema()["properties"]["name"]["enum"]
    assert names == sorted(CHECKS)


def test_image_and_agent_use_the_same_ids_and_paths() -> None:
    assert f"/{LOGS}" == c.CHECKS_LOGS
    assert (CHECKS_ID, SLURM_ID) == (c.CHECKS_ID, c.SLURM_ID)
    assert c.PROGRAMS in PATH.split(":")
    dockerfile = (ROOT / "images/base/Dockerfile").read_text()
    assert f"groupadd --system --gid {c.CHECKS_ID} {c.CHECKS_USER}" in dockerfile
    assert f"useradd --system --uid {c.CHECKS_ID} --gid {c.CHECKS_USER}" in dockerfile


# --- slurm.conf ----------------------------------------------------------------------------------


def test_slurm_conf_has_no_long_checks_by_default() -> None:
    conf = slurm_conf()
    assert c.CHECKS_PARTITION not in conf
    assert options(conf)["PreemptType"] == "preempt/none"


def test_partition_of_long_checks_is_hidden_exclusive_and_lowest() -> None:
    conf = slurm_conf(long_checks=ON)
    (line,) = [
        p for p in records(conf, "PartitionName") if p["PartitionName"] == "slurmstack-checks"
    ]

    assert line["Nodes"] == "big,cpu"
    assert line["PriorityTier"] == "0"
    assert line["OverSubscribe"] == "EXCLUSIVE"
    assert (line["Hidden"], line["Default"]) == ("YES", "NO")
    assert line["AllowGroups"] == c.CHECKS_USER
    assert int(line["MaxTime"]) >= max(check.minutes for check in CHECKS.values())


def test_user_jobs_preempt_long_checks_but_not_each_other() -> None:
    conf = slurm_conf(long_checks=ON)
    modes = {p["PartitionName"]: p["PreemptMode"] for p in records(conf, "PartitionName")}

    assert options(conf)["PreemptType"] == "preempt/partition_prio"
    assert modes == {"main": "OFF", "slurmstack-checks": "CANCEL"}


@pytest.mark.parametrize("type_", ["partition_prio", "qos"])
def test_long_checks_keep_the_preemption_that_the_settings_choose(type_: str) -> None:
    def chosen(**further: Any) -> tuple[dict[str, str], list[dict[str, str]]]:
        conf = slurm_conf(slurm={"preemption": {"type": type_, "mode": "suspend"}}, **further)
        partitions = records(conf, "PartitionName")
        kept = [p for p in partitions if p["PartitionName"] != c.CHECKS_PARTITION]
        return {k: v for k, v in options(conf).items() if k.startswith("Preempt")}, kept

    assert chosen(long_checks=ON) == chosen()


# --- Accounts ------------------------------------------------------------------------------------


def test_user_of_long_checks_has_an_association_while_checks_exist() -> None:
    def wanted(**fields: Any) -> WantedAccounts:
        stack = settings(lambda values: values.update(fields))
        return WantedAccounts.model_validate_json(wanted_accounts(stack))

    assert c.CHECKS_USER not in wanted().users
    found = wanted(long_checks=ON)
    assert found.users[c.CHECKS_USER] == {c.CHECKS_USER: {}}
    assert c.CHECKS_USER in found.accounts


# --- The agent's file ----------------------------------------------------------------------------


def wanted_of(base: dict[str, Any], **fields: Any) -> Wanted:
    stack = settings(lambda values: values.update(fields), base)
    return Wanted.model_validate_json(wanted_long_checks(stack))


def test_cpu_check_runs_on_every_nodeset() -> None:
    found = wanted_of(VALID, long_checks=ON)

    assert found.checks["cpu-memory"].nodesets == ("big", "cpu")
    assert found.rule(CHECKS["cpu-memory"], "cpu-0").threshold is None


def test_gpu_check_runs_only_on_nodesets_with_whole_gpus() -> None:
    found = wanted_of(FULL, long_checks={"checks": [{"name": "dcgm"}]})

    assert found.checks["dcgm"].nodesets == ("gpu",)
    assert found.rule(CHECKS["dcgm"], "gpu-1").threshold == 0


def test_default_threshold_depends_on_the_type_of_gpu() -> None:
    nodesets = [
        {
            "name": kind,
            "replicas": 2,
            "cpus": 96,
            "memory": "900GiB",
            "gpus": {"type": kind, "count": 8},
        }
        for kind in ("a100", "h100", "h200", "b300")
    ]
    of_gpus = {"checks": [{"name": "nccl"}]}
    found = wanted_of(VALID, nodesets=nodesets, long_checks=of_gpus)
    thresholds = {n: found.rule(CHECKS["nccl"], f"{n}-0").threshold for n in found.nodesets}
    assert thresholds == {"a100": 228, "h100": 460, "h200": 431, "b300": None}

    chosen = {"checks": [{"name": "nccl", "threshold": 300}]}
    found = wanted_of(VALID, nodesets=nodesets, long_checks=chosen)
    assert {found.rule(CHECKS["nccl"], f"{n}-0").threshold for n in found.nodesets} == {300}


@pytest.mark.parametrize(
    ("check", "lack"),
    [
        ("cpu-memory", "the stack has no nodesets for jobs"),
        ("nccl", "no nodeset has nodes with 2 or more whole GPUs"),
    ],
)
def test_check_that_fits_no_nodeset_is_refused(check: str, lack: str) -> None:
    checks = LongChecks.model_validate({"checks": [{"name": check}]})

    problem = f"check '{check}': {lack}; remove the check"
    assert list(checks.problems(())) == [("checks[0].name", problem)]


# --- The graph -----------------------------------------------------------------------------------


def test_each_long_check_is_a_cronjob_without_concurrent_runs(graph: Graph) -> None:
    jobs = [job for job in graph.of_type("kubernetes:batch/v1:CronJob") if "longcheck" in job.name]
    specs = {job.inputs["metadata"]["name"]: job.inputs["spec"] for job in jobs}

    assert set(specs) == {"longcheck-cpu-memory", "longcheck-network"}
    assert all(spec["concurrencyPolicy"] == "Forbid" for spec in specs.values())
    assert not specs["longcheck-cpu-memory"]["suspend"]
    assert specs["longcheck-network"]["suspend"]
    (container,) = specs["longcheck-network"]["jobTemplate"]["spec"]["template"]["spec"][
        "containers"
    ]
    assert container["args"] == ["agents.longchecks", "run", "network"]


def test_pods_with_the_results_volume_share_one_kubernetes_node(graph: Graph) -> None:
    pods = {name: t for name, t in templates(graph).items() if name.startswith("longchecks-")}
    desk = pods.pop("longchecks-desk")

    assert len(pods) == 2
    for template in pods.values():
        (term,) = template["spec"]["affinity"]["podAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]
        (chosen,) = term["labelSelector"]["matchExpressions"]
        assert desk["metadata"]["labels"][chosen["key"]] in chosen["values"]


def test_only_long_checks_mount_the_volume_of_results(
    graph: Graph,
) -> None:
    """Long checks also mount the jail, but read-only."""
    claim = graph.one("longchecks-volume").inputs["metadata"]["name"]
    mounting = set()
    for name, template in templates(graph).items():
        for volume in template["spec"].get("volumes", []):
            source = volume.get("persistentVolumeClaim", {})
            if source.get("claimName") == claim and volume["name"] == "series":
                mounting.add(name)
            if volume["name"] == "jail" and name.startswith("longchecks-"):
                assert source["readOnly"]
    assert mounting == {"longchecks-desk", "longchecks-cpu-memory", "longchecks-network"}


def test_volume_of_results_is_protected_like_other_data(graph: Graph) -> None:
    assert graph.one("longchecks-volume").protect


def test_long_checks_create_no_resources_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    found = record(monkeypatch, config())
    assert not [r for r in found.resources if r.name.startswith("longchecks")]
