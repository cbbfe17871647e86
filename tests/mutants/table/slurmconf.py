"""Faults in components/slurmconf, which make Slurm's configuration say something unintended."""

from typing import Final

from tests.mutants.fault import Fault

_UNIT: Final = "tests/unit/components"
_NODES: Final = "components/slurmconf/nodes.py"

FAULTS: Final = (
    Fault(
        "a step runs outside of the jail if the plugin fails",
        "slurmconf",
        "components/slurmconf/plugstack.conf.j2",
        "required {{ plugin }}",
        "optional {{ plugin }}",
        f"{_UNIT}/test_slurmconf.py::test_jail_plugin_is_required_and_binds_absolute_paths",
    ),
    Fault(
        "the last node of a static nodeset is not listed",
        "slurmconf",
        _NODES,
        "names = compress(c.node_names(nodeset.name, nodeset.replicas))",
        "names = compress(c.node_names(nodeset.name, nodeset.replicas - 1))",
        f"{_UNIT}/test_slurmconf_nodes.py::test_slurm_conf_defines_only_static_nodes",
    ),
    Fault(
        "jobs may use all memory of a node's pod",
        "slurmconf",
        _NODES,
        "else min(nodeset.memory // 8, 4096)",
        "else 0",
        f"{_UNIT}/test_slurmconf.py::test_slurm_offers_less_memory_than_the_pod_may_use",
    ),
    Fault(
        "a partition for some groups is open to all users",
        "slurmconf",
        _NODES,
        '"AllowGroups": ",".join(partition.allow_groups) or None,',
        '"AllowGroup": ",".join(partition.allow_groups) or None,',
        f"{_UNIT}/test_slurmconf_nodes.py::test_each_partition_field_sets_only_its_option",
    ),
    Fault(
        "long checks have priority over users' jobs",
        "slurmconf",
        "components/slurmconf/longchecks.py",
        '"PriorityTier": 0,',
        '"PriorityTier": 2,',
        f"{_UNIT}/test_longchecks.py::test_partition_of_long_checks_is_hidden_exclusive_and_lowest",
    ),
    Fault(
        "a job sees all devices of its node",
        "slurmconf",
        "components/slurmconf/isolation.py",
        'yield "private_dev", _switch(isolation.private_devices)',
        'yield "private_dev", _switch(isolation.overlay)',
        f"{_UNIT}/test_slurmconf_isolation.py"
        "::test_all_isolation_except_the_overlay_is_on_by_default",
    ),
    Fault(
        "slurmstepd processes may use all memory of a node",
        "slurmconf",
        "components/slurmconf/isolation.py",
        "reserved_memory(nodeset) // _SLURMSTEPD",
        "nodeset.memory // _SLURMSTEPD",
        f"{_UNIT}/test_slurmconf_isolation.py::test_step_limits_fit_into_the_reserved_memory",
    ),
    Fault(
        "limits of accounts are not enforced",
        "slurmconf",
        "components/settings/models.py",
        "return self.accounting.enforce if chosen or not self.directory else ()",
        "return self.accounting.enforce if chosen and not self.directory else ()",
        f"{_UNIT}/test_slurmconf_accounts.py::test_limits_are_enforced_unless_they_lock_out_users",
    ),
    Fault(
        "cgroups do not limit the memory of jobs",
        "slurmconf",
        "components/slurmconf/cgroup.conf.j2",
        "ConstrainRAMSpace=yes",
        "ConstrainRAMSpace=no",
        f"{_UNIT}/test_slurmconf_slurm.py::test_jobs_are_constrained_unless_cgroups_are_disabled",
    ),
)
