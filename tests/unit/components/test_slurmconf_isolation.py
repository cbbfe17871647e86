"""Options of the jail plugin (SPANK) on the nodes of a nodeset."""

import re
from typing import Any

import pytest

from components.slurmconf import config_files, node_options
from local.paths import ROOT
from tests.support.stack import VALID, settings

SOURCE = ROOT / "spank" / "options.c"


def test_jobs_see_the_slurm_commands_of_the_node_image() -> None:
    (line,) = (
        line
        for line in config_files(settings())["plugstack.conf"].splitlines()
        if "/chroot.so " in line
    )
    words = line.split()

    assert {"bind_ro=/usr/bin/srun", "bind_ro=/usr/bin/sbatch"} <= set(words)


def options(**fields: Any) -> list[tuple[str, str]]:
    """Return the jail plugin's options on the nodes of a nodeset with these fields."""
    nodeset = {**VALID["nodesets"][1], **fields}
    (built,) = settings(lambda values: values.update(nodesets=[nodeset])).nodesets
    return [
        (key, value)
        for key, _, value in (line.partition("=") for line in node_options(built).splitlines())
    ]


def test_all_isolation_except_the_overlay_is_on_by_default() -> None:
    switches = dict(options())

    assert switches["no_new_privs"] == "yes"
    assert switches["private_dev"] == "yes"
    assert switches["overlay"] == "no"
    assert not {"through", "tmp_size", "var_tmp_size", "shm_size"} & switches.keys()


@pytest.mark.parametrize(
    ("isolation", "option"),
    [
        ({"no_new_privileges": False}, ("no_new_privs", "no")),
        ({"private_devices": False}, ("private_dev", "no")),
        ({"devices": ["vfio"]}, ("device", "vfio")),
        ({"tmp": "8GiB"}, ("tmp_size", "8192M")),
        ({"var_tmp": "512MiB"}, ("var_tmp_size", "512M")),
        ({"shm": "1GiB"}, ("shm_size", "1024M")),
        ({"steps": 500}, ("steps", "500")),
        ({"steps": 20_000}, ("node_steps", "20000")),
        ({"overlay": True}, ("overlay", "yes")),
        ({"overlay": True}, ("through", "/home")),
        ({"overlay": True, "shared": ["/opt"]}, ("through", "/opt")),
    ],
)
def test_each_isolation_setting_becomes_an_option_of_the_plugin(
    isolation: dict[str, Any], option: tuple[str, str]
) -> None:
    assert option in options(isolation=isolation)


@pytest.mark.parametrize(
    ("memory", "of_job", "of_node"),
    [("1GiB", "32", "32"), ("16GiB", "256", "512"), ("512GiB", "256", "1024")],
)
def test_step_limits_fit_into_the_reserved_memory(memory: str, of_job: str, of_node: str) -> None:
    found = dict(options(memory=memory))

    assert (found["steps"], found["node_steps"]) == (of_job, of_node)


def test_devices_are_listed_only_if_other_devices_are_hidden() -> None:
    assert ("device", "nvidia*") in options()
    assert "device" not in dict(options(isolation={"private_devices": False}))


def test_nodeset_volumes_in_the_jail_are_visible_through_the_overlay() -> None:
    volumes = [
        {"name": "data", "path": "/mnt/jail/data", "claim": "data"},
        {"name": "other", "path": "/other", "empty": {}},
    ]
    found = options(volumes=volumes, isolation={"overlay": True})

    assert [value for key, value in found if key == "through"] == [
        *("/data", "/home", "/var/log/slurmstack-checks")
    ]


def test_volumes_of_the_jail_setting_are_visible_through_the_overlay() -> None:
    volume = {"name": "data", "path": "/data", "claim": "data"}
    stack = settings(
        lambda values: (
            values.update(jail={"volumes": [volume]}),
            values["nodesets"][0].update(isolation={"overlay": True}),
        )
    )
    overlaid, plain = stack.nodesets

    assert "through=/data\n" in node_options(overlaid, stack.jail.volumes)
    assert "through" not in node_options(plain, stack.jail.volumes)


def test_jail_plugin_knows_every_rendered_option() -> None:
    known = set(re.findall(r'^\t\{"(\w+)", [A-Z_]+, ', SOURCE.read_text(), re.MULTILINE))
    given = {key for key, _ in options(isolation={"overlay": True, "tmp": "1GiB", "shm": "1GiB"})}
    lines = config_files(settings())["plugstack.conf"].splitlines()
    (words,) = (line.split() for line in lines if "/chroot.so " in line)
    given |= {word.partition("=")[0] for word in words if "=" in word}

    assert given <= known
