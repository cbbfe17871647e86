"""Faults in components/settings: invalid values that pass, and valid ones that change."""

from typing import Final

from tests.mutants.fault import Fault

_REFUSED: Final = "tests/unit/components/test_settings_refused.py"
_REFUSES: Final = f"{_REFUSED}::test_wrong_value_is_refused_in_one_line"

FAULTS: Final = (
    Fault(
        "two users may have the same uid",
        "settings",
        "components/settings/models.py",
        "for uid in duplicates(str(user.uid) for user in self.users):",
        "for uid in duplicates(str(user.name) for user in self.users):",
        f"{_REFUSES}[users[1].uid = 2000]",
    ),
    Fault(
        "a group may have the id of a user",
        "settings",
        "components/settings/models.py",
        "            if str(group.gid) in own:",
        "            if group.gid in own:",
        f"{_REFUSES}[groups[0].gid = 2000]",
    ),
    Fault(
        "a GiB is converted to 1000 MiB",
        "settings",
        "components/settings/types.py",
        '_MIB = {"Mi": 1, "Gi": 1024,',
        '_MIB = {"Mi": 1, "Gi": 1000,',
        "tests/unit/components/test_settings.py::test_memory_is_stored_in_mebibytes",
    ),
    Fault(
        "hours in a time limit are read as minutes",
        "settings",
        "components/settings/types.py",
        "return int(days or 0) * 1440 + hours * 60 + minutes + seconds / 60",
        "return int(days or 0) * 1440 + hours + minutes + seconds / 60",
        "tests/unit/components/test_slurmconf_accounts.py::test_account_values_are_normalized",
    ),
    Fault(
        "network.refuse may contain all addresses",
        "settings",
        "components/settings/types.py",
        "    if network.prefixlen == 0:\n",
        "    if network.prefixlen < 0:\n",
        f"{_REFUSES}[network.refuse[0] = '0.0.0.0/0']",
    ),
    Fault(
        "a nodeset's volume may hide the jail",
        "settings",
        "components/settings/volumes.py",
        '            if path.startswith(f"{self.path}/"):',
        '            if path.startswith(f"{self.path}//"):',
        f'{_REFUSES}[nodesets[0].volumes[0].path = "/mnt"]',
    ),
    Fault(
        "a file path may lead out of the project",
        "settings",
        "components/settings/types.py",
        'if not value or path.is_absolute() or ".." in path.parts:',
        "if not value or path.is_absolute():",
        f"{_REFUSES}[rest.jwks = '../keys.json']",
    ),
    Fault(
        "an error repeats a private key",
        "settings",
        "components/settings/reading.py",
        '    if "PRIVATE KEY" in text:\n        return',
        '    if "PRIVATE KEY" == text:\n        return',
        f"{_REFUSED}::test_private_key_is_refused_and_not_printed",
    ),
    Fault(
        "snapshots of a jail without a CSI driver are accepted",
        "settings",
        "components/settings/models.py",
        'for kind in ("nfs", "host_path"):',
        'for kind in ("host_path",):',
        f"{_REFUSED}::test_snapshots_of_a_jail_without_csi_volume_are_refused",
    ),
    Fault(
        "data is not protected by default",
        "settings",
        "components/settings/models.py",
        "protect_data: bool = True",
        "protect_data: bool = False",
        "tests/unit/components/test_graph.py::test_data_is_protected_by_default",
    ),
)
