"""Options of slurm.conf other than nodes and partitions, and other files of Slurm."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.conventions import SCRIPTS
from components.settings import Settings, SettingsError
from components.settings.slurm import REPEATABLE, key_of
from components.slurmconf import config_digest, config_files, script_files, wanted_nodes
from tests.support.parsed import lines, options, records, words
from tests.support.stack import settings

SCRIPT = "#!/bin/sh\nexit 0\n"
LUA = "function slurm_job_submit() end function slurm_job_modify() end"
STATIC = [
    {"name": name, "kind": "static", "replicas": 4, "cpus": 8, "memory": "32GiB"}
    for name in ("left", "right")
]


def files(root: Path = Path(), **slurm: Any) -> dict[str, str]:
    return config_files(settings(lambda v: v.update(slurm=slurm)), root)


def conf(**slurm: Any) -> dict[str, str]:
    return options(files(**slurm)["slurm.conf"])


@pytest.mark.parametrize(
    ("slurm", "expected"),
    [
        ({"timeouts": {"message": 20}}, {"MessageTimeout": "20"}),
        ({"timeouts": {"tcp": 5}}, {"TCPTimeout": "5"}),
        ({"timeouts": {"slurmctld": 60}}, {"SlurmctldTimeout": "60"}),
        ({"timeouts": {"slurmd": 60}}, {"SlurmdTimeout": "60"}),
        ({"timeouts": {"kill_wait": 60}}, {"KillWait": "60"}),
        ({"timeouts": {"unkillable_step": 300}}, {"UnkillableStepTimeout": "300"}),
        ({"timeouts": {"inactive": 60}}, {"InactiveLimit": "60"}),
        ({"timeouts": {"wait": 60}}, {"WaitTime": "60"}),
        ({"timeouts": {"complete": 60}}, {"CompleteWait": "60"}),
        ({"timeouts": {"min_job_age": 60}}, {"MinJobAge": "60"}),
        ({"max_jobs": 100}, {"MaxJobCount": "100"}),
        ({"scheduler": {"type": "builtin"}}, {"SchedulerType": "sched/builtin"}),
        ({"priority": {"type": "multifactor"}}, {"PriorityType": "priority/multifactor"}),
    ],
)
def test_each_setting_sets_its_options(slurm: dict[str, Any], expected: dict[str, str]) -> None:
    found, plain = conf(**slurm), conf()

    assert found.items() >= expected.items()
    assert expected.items() - plain.items(), "the setting must change a default"


def test_complete_wait_is_unset_by_default() -> None:
    assert "CompleteWait" not in conf()


def test_scheduler_parameter_overrides_only_the_default_of_the_same_name() -> None:
    chosen = {"bf_max_time": 30, "extra_constraints": False, "defer": True, "bf_continue": False}

    found = conf(scheduler={"parameters": chosen})["SchedulerParameters"].split(",")

    assert {"bf_max_time=30", "defer", "bf_max_job_test=1000"} <= set(found)
    assert not {"extra_constraints", "bf_continue"} & {word.split("=")[0] for word in found}
    assert found == sorted(found)


def test_slurmctld_parameters_in_the_settings_are_added_to_the_defaults() -> None:
    chosen = {"idle_on_node_suspend": True, "max_dbd_msg_action": "exit", "off": False}

    first, mark, *further = conf(slurmctld_parameters=chosen)["SlurmctldParameters"].split(",")

    assert first == "enable_configless"
    assert mark.startswith("slurmstack=")
    assert further == ["idle_on_node_suspend", "max_dbd_msg_action=exit"]


@pytest.mark.parametrize(
    ("kind", "mode", "of_partition", "expected"),
    [
        ("none", "requeue", None, ("preempt/none", "OFF")),
        ("partition_prio", "requeue", None, ("preempt/partition_prio", "REQUEUE")),
        ("partition_prio", "cancel", "off", ("preempt/partition_prio", "CANCEL")),
        ("partition_prio", "suspend", None, ("preempt/partition_prio", "SUSPEND,GANG")),
        ("partition_prio", "requeue", "suspend", ("preempt/partition_prio", "REQUEUE,GANG")),
        ("qos", "cancel", None, ("preempt/qos", "CANCEL")),
    ],
)
def test_suspending_jobs_requires_the_gang_scheduler(
    kind: str, mode: str, of_partition: str | None, expected: tuple[str, str]
) -> None:
    queue = {"name": "main", "nodesets": ["cpu"], "preempt_mode": of_partition}
    slurm = {"preemption": {"type": kind, "mode": mode}}

    found = options(
        config_files(settings(lambda v: v.update(slurm=slurm, partitions=[queue])))["slurm.conf"]
    )

    assert (found["PreemptType"], found["PreemptMode"]) == expected


def test_suspending_jobs_of_a_qos_requires_the_gang_scheduler() -> None:
    qos = [{"name": "high", "preempt": ["low"]}, {"name": "low", "preempt_mode": "suspend"}]
    accounting = {"enabled": True, "qos": qos}

    def mode(kind: str) -> str:
        slurm = {"preemption": {"type": kind, "mode": "requeue"}}
        changed = settings(lambda v: v.update(slurm=slurm, accounting=accounting))
        return options(config_files(changed)["slurm.conf"])["PreemptMode"]

    assert mode("qos") == "REQUEUE,GANG"
    assert mode("partition_prio") == "REQUEUE"


def test_priority_weights_are_set_only_with_multifactor_priority() -> None:
    weights = {"age": 1, "association": 2, "fairshare": 3, "job_size": 4, "partition": 5, "qos": 6}
    chosen = {"tres": {"node": 1, "cpu": 2}, "max_age": "1-0", "decay_half_life": "2-0"}

    found = conf(priority={"type": "multifactor", **weights, **chosen, "favor_small": True})

    prefix = "Priority"
    assert {key.removeprefix(prefix): found[key] for key in found if key.startswith(prefix)} == {
        "Type": "priority/multifactor",
        "WeightAge": "1",
        "WeightAssoc": "2",
        "WeightFairshare": "3",
        "WeightJobSize": "4",
        "WeightPartition": "5",
        "WeightQOS": "6",
        "WeightTRES": "cpu=2,node=1",
        "MaxAge": "1-0",
        "DecayHalfLife": "2-0",
        "FavorSmall": "YES",
    }
    assert [key for key in conf() if key.startswith(prefix)] == ["PriorityType"]


# --- Topology ------------------------------------------------------------------------------------


def topology(kind: str, **parts: Any) -> dict[str, str]:
    slurm = {"topology": {"kind": kind, **parts}}
    return config_files(settings(lambda v: v.update(nodesets=STATIC, slurm=slurm)))


def test_tree_lists_nodes_as_a_hostlist_and_switches_by_name() -> None:
    found = topology(
        "tree",
        switches=[
            {"name": "top", "switches": ["two", "one"]},
            {"name": "one", "nodes": "left-[0-2]"},
            {"name": "two", "nodes": "left-3", "nodesets": ["right"]},
        ],
    )

    assert [words(line) for line in lines(found["topology.conf"])] == [
        {"SwitchName": "top", "Switches": "one,two"},
        {"SwitchName": "one", "Nodes": "left-[0-2]"},
        {"SwitchName": "two", "Nodes": "left-3,right-[0-3]"},
    ]
    assert options(found["slurm.conf"])["TopologyPlugin"] == "topology/tree"


def test_block_topology_lists_nodes_and_block_sizes() -> None:
    blocks = [{"name": "a", "nodesets": ["left"]}, {"name": "b", "nodes": "right-[0-3]"}]

    found = topology("block", blocks=blocks, block_sizes=[4, 8])

    assert [words(line) for line in lines(found["topology.conf"])] == [
        {"BlockName": "a", "Nodes": "left-[0-3]"},
        {"BlockName": "b", "Nodes": "right-[0-3]"},
        {"BlockSizes": "4,8"},
    ]
    assert options(found["slurm.conf"])["TopologyPlugin"] == "topology/block"


def test_block_sizes_default_to_the_smallest_block() -> None:
    """Slurm's own default is the size of the first block. With it, slurmctld would not start."""
    blocks = [{"name": "a", "nodesets": ["left"]}, {"name": "b", "nodes": "right-[0-2]"}]

    found = topology("block", blocks=blocks)

    assert words(lines(found["topology.conf"])[-1]) == {"BlockSizes": "3,6,12,24,48"}


def test_topology_conf_is_rendered_only_with_a_topology() -> None:
    found = topology("none")

    assert "topology.conf" not in found
    assert "TopologyPlugin" not in options(found["slurm.conf"])


def test_reconciler_writes_a_topology_that_labels_define() -> None:
    labels = ["zone", "example.org/rack"]

    found = topology("tree", labels=labels)

    assert "topology.conf" not in found
    assert options(found["slurm.conf"])["TopologyPlugin"] == "topology/tree"
    chosen = {"topology": {"kind": "tree", "labels": labels}}
    given = settings(lambda v: v.update(nodesets=STATIC, slurm=chosen))
    assert json.loads(wanted_nodes(given))["topology"] == {
        "kind": "tree",
        "levels": [["topology.kubernetes.io/zone"], ["example.org/rack"]],
        "block_sizes": [],
    }


def test_reconciler_gets_the_block_sizes() -> None:
    blocks = {"kind": "block", "labels": ["nvlink"], "block_sizes": [16, 32]}

    given = settings(lambda v: v.update(nodesets=STATIC, slurm={"topology": blocks}))

    found = json.loads(wanted_nodes(given))["topology"]
    assert (found["kind"], found["block_sizes"]) == ("block", [16, 32])
    assert found["levels"][0][0] == "nvidia.com/gpu.clique"


# --- Scripts -------------------------------------------------------------------------------------

PATHS = {
    "prolog": ("Prolog", "prolog"),
    "epilog": ("Epilog", "epilog"),
    "task_prolog": ("TaskProlog", f"{SCRIPTS}/task_prolog"),
    "task_epilog": ("TaskEpilog", f"{SCRIPTS}/task_epilog"),
}


@pytest.mark.parametrize("source", ["text", "file"])
@pytest.mark.parametrize("name", PATHS)
def test_slurm_conf_names_each_script_that_nodes_get(
    name: str, source: str, tmp_path: Path
) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "one.sh").write_text(SCRIPT)
    given = {"text": SCRIPT} if source == "text" else {"file": "scripts/one.sh"}
    stack = settings(lambda v: v.update(slurm={name: given}))
    key, path = PATHS[name]

    shipped, mounted = config_files(stack, tmp_path), script_files(stack, tmp_path)

    assert options(shipped["slurm.conf"])[key] == path
    assert (mounted if path.startswith("/") else shipped)[name] == SCRIPT
    assert (name in mounted) != (name in shipped)


def test_slurm_conf_names_no_script_by_default() -> None:
    assert not {key for key, _ in PATHS.values()} & set(conf())
    assert script_files(settings()) == {}


def test_task_scripts_are_readable_inside_the_jail() -> None:
    found = files(task_epilog={"text": SCRIPT})
    plugin, _ = lines(found["plugstack.conf"])
    readable = [word.partition("=")[2] for word in plugin.split() if word.startswith("bind_ro=")]

    script = Path(options(found["slurm.conf"])["TaskEpilog"])
    assert any(script.is_relative_to(folder) for folder in readable)


def test_job_submit_script_is_part_of_the_configuration() -> None:
    found = files(job_submit_lua={"text": LUA})

    assert found["job_submit.lua"] == LUA
    assert options(found["slurm.conf"])["JobSubmitPlugins"] == "lua"
    assert "JobSubmitPlugins" not in conf()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "lost.sh",
            None,
            "lost.sh: No such file or directory; expected a text file in the project",
        ),
        ("folder", None, "folder: Is a directory; expected a text file in the project"),
        ("bytes.sh", b"\xff\xfe", "bytes.sh: is not text; expected a text file in the project"),
        ("nul\0", None, r"nul\x00: is not text; expected a text file in the project"),
        (
            "plain.sh",
            b"exit 0",
            "plain.sh: expected a script that begins with '#!', such as '#!/bin/sh'",
        ),
    ],
)
@pytest.mark.parametrize(("key", "read"), [("prolog", config_files), ("task_epilog", script_files)])
def test_error_names_an_unusable_script(
    key: str,
    read: Callable[[Settings, Path], object],
    name: str,
    content: bytes | None,
    message: str,
    tmp_path: Path,
) -> None:
    (tmp_path / "folder").mkdir()
    if content:
        (tmp_path / name).write_bytes(content)
    stack = settings(lambda v: v.update(slurm={key: {"file": name}}))

    with pytest.raises(SettingsError) as caught:
        read(stack, tmp_path)

    assert str(caught.value) == f"slurmstack:slurm.{key}.file: {message}"


def test_changed_prolog_changes_the_configuration_digest() -> None:
    one = settings(lambda v: v.update(slurm={"prolog": {"text": SCRIPT}}))
    other = settings(lambda v: v.update(slurm={"prolog": {"text": f"{SCRIPT}# other\n"}}))

    assert config_digest(one) != config_digest(other)


# --- Lines in the settings ------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["KillWait=60", "killwait=60", "KILLWAIT = 60", "KillWait=60 # x"])
def test_slurm_conf_line_in_the_settings_replaces_the_derived_one(line: str) -> None:
    text = files(extra={"slurm.conf": [line]})["slurm.conf"]

    assert [found for found in lines(text) if key_of(found) == "killwait"] == [line]
    assert lines(text)[-1] == line


RESERVED = {
    "AuthType",
    "ClusterName",
    "CredType",
    "SlurmUser",
    "SlurmdPort",
    "SlurmdSpoolDir",
    "SlurmdUser",
}


@given(
    chosen=st.lists(
        st.sampled_from([key for key in conf() if key not in RESERVED]),
        unique=True,
    )
)
def test_slurm_conf_has_no_duplicate_keys(chosen: list[str]) -> None:
    owned = ("Communication", "Slurmctld", "StateSave")
    keys = [key for key in chosen if not key.startswith(owned)]

    # SelectTypeParameters accepts only values with memory.
    text = files(extra={"slurm.conf": [f"{key.upper()}=CR_Memory" for key in keys]})["slurm.conf"]

    found = [key_of(line) for line in lines(text) if key_of(line) not in REPEATABLE | {"nodeset"}]
    assert len(found) == len(set(found))
    assert {key.lower() for key in keys} <= set(found)


def test_lines_with_repeatable_keys_are_added() -> None:
    extra = ["NodeName=far-[0-1] CPUs=1", "PartitionName=far Nodes=far-[0-1]"]

    text = files(extra={"slurm.conf": extra})["slurm.conf"]

    assert [record["NodeName"] for record in records(text, "NodeName")] == ["far-[0-1]"]
    assert [record["PartitionName"] for record in records(text, "PartitionName")] == ["main", "far"]


def test_lines_for_other_files_are_appended_or_create_the_file() -> None:
    found = files(
        extra={"plugstack.conf": ["optional /x.so"], "oci.conf": ["IgnoreFileConfigJson=true"]}
    )

    *ours, theirs = lines(found["plugstack.conf"])
    assert all(line.startswith("required ") for line in ours)
    assert theirs == "optional /x.so"
    assert found["oci.conf"] == "IgnoreFileConfigJson=true\n"


# --- cgroups -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cgroups", "plugin", "tracking"),
    [
        ("disabled", "disabled", "proctrack/linuxproc"),
        ("auto", "autodetect", "proctrack/cgroup"),
        ("required", "autodetect", "proctrack/cgroup"),
    ],
)
def test_jobs_are_constrained_unless_cgroups_are_disabled(
    cgroups: str, plugin: str, tracking: str
) -> None:
    found = files(cgroups=cgroups)
    cgroup, slurm = options(found["cgroup.conf"]), options(found["slurm.conf"])

    constrained = {key for key, value in cgroup.items() if (key[:9], value) == ("Constrain", "yes")}
    assert cgroup["CgroupPlugin"] == plugin
    assert slurm["ProctrackType"] == tracking
    assert constrained == (
        set()
        if cgroups == "disabled"
        else {f"Constrain{what}" for what in ("Cores", "Devices", "RAMSpace", "SwapSpace")}
    )
