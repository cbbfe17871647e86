"""The options of Pyxis (`--container-…`) and their opposites, such as `--no-container-…`."""

from collections.abc import Iterator

import pytest

from components import conventions as c
from tests.support import ociimages
from tests.support.imagesite import Site, refusal, run
from tests.support.ociimages import Entry, layer


def test_step_runs_in_the_image(site: Site, image: str) -> None:
    assert "ID=small" in run(site, f"--container-image={image}", "cat /etc/os-release")


def test_user_name_is_the_same_inside_the_container(site: Site, image: str) -> None:
    output = run(site, f"--container-image={image}", "id --user --name")

    assert output == "researcher"


def test_image_variables_override_job_variables(site: Site, image: str) -> None:
    output = run(
        site,
        f"--container-image={image} --export=ALL,COLOUR=black,OTHER=kept",
        "bash -c 'echo $COLOUR,$OTHER,$PATH'",
    )

    assert output == f"red and green,kept,/usr/bin:{c.PROGRAMS}/clients"


def test_image_variables_do_not_override_those_of_slurm(site: Site) -> None:
    variables = ["PATH=/usr/bin", "SLURM_PROCID=9", "PMIX_MCA_gds=hash"]
    name = site.push("options/slurm:1", ociimages.layout([site.base], Env=variables))

    output = run(
        site, f"--ntasks=2 --container-image={name}", "bash -c 'echo $SLURM_PROCID $PMIX_MCA_gds'"
    )

    assert sorted(output.splitlines()) == ["0 hash", "1 hash"]


def test_container_env_keeps_variables_of_the_job(site: Site, image: str) -> None:
    output = run(
        site,
        f"--container-image={image} --container-env=COLOUR,ABSENT --export=ALL,COLOUR=black",
        "bash -c 'echo $COLOUR'",
    )

    assert output == "black"


@pytest.mark.parametrize(
    ("option", "directory"), [("", "/data"), ("--container-workdir=/usr/bin", "/usr/bin")]
)
def test_step_starts_in_its_working_directory(
    site: Site, image: str, option: str, directory: str
) -> None:
    assert run(site, f"--container-image={image} {option}", "bash -c pwd") == directory


def test_option_container_mounts_makes_paths_of_the_job_visible(site: Site, image: str) -> None:
    site.node.user(f"echo mine >{c.JAIL}/home/researcher/file")
    mounts = "/home/researcher/file:/deep/down/file,/etc/hostname:/host:ro,tmpfs:/fast"
    script = "cat /deep/down/file; touch /fast/a && echo fast; (echo x >/host) 2>&- || echo kept"

    output = run(
        site, f"--container-image={image} --container-mounts={mounts}", f"bash -c '{script}'"
    )

    assert output.splitlines() == ["mine", "fast", "kept"]


@pytest.mark.parametrize(
    ("mounts", "command", "expected"),
    [
        ("umount:/home/researcher", "ls -A /home/researcher | wc -l", "0"),
        ("tmpfs:/fast:size=64k+mode=0700", "stat --format=%a /fast", "700"),
        (
            "tmpfs:/fast:size=64k",
            "cat /usr/bin/bash >/fast/a 2>&- || stat --format=%s /fast/a",
            "65536",
        ),
        (
            "tmpfs:/fast:noexec",
            'cp /usr/bin/true /fast; /fast/true 2>&- || echo "refused"',
            "refused",
        ),
        (
            "/home/researcher:/h:ro+noexec+nodev+nosuid",
            'read -r line < <(grep " /h " /proc/self/mountinfo); set -- $line; echo $6',
            "ro,nosuid,nodev,noexec,relatime",
        ),
        ("/etc/hostname:/h:bind+nofail", "test -s /h && echo mounted", "mounted"),
        ("/absent:/h:nofail+ro", "test -e /h || echo none", "none"),
        ("/etc/hostname", "test -s /etc/hostname && echo mounted", "mounted"),
    ],
)
def test_mounts_have_the_requested_kinds_and_flags(
    site: Site, image: str, mounts: str, command: str, expected: str
) -> None:
    options = f"--container-image={image} --container-mounts={mounts}"

    assert run(site, options, f"bash -c '{command}'") == expected


def test_home_directory_is_mounted_by_default(site: Site, image: str) -> None:
    command = "bash -c 'ls -A /home 2>/dev/null; true'"

    assert run(site, f"--container-image={image} --container-mount-home", command) == "researcher"
    assert run(site, f"--container-image={image} --no-container-mount-home", command) == ""


def test_root_in_the_container_is_the_user_outside(site: Site, image: str) -> None:
    output = run(
        site,
        f"--container-image={image} --container-remap-root",
        "bash -c 'id -u; touch /root/made; chown 33:33 /etc/os-release && echo pretended'",
    )

    assert output.splitlines() == ["0", "pretended"]
    owner = site.node.root(f"stat --format=%u {c.JAIL}/home/researcher/made")
    assert owner == "2000"


def test_user_keeps_the_uid_in_the_container_by_default(site: Site, image: str) -> None:
    assert run(site, f"--container-image={image} --no-container-remap-root", "id -u") == "2000"


def test_container_is_writable_by_default(site: Site, image: str) -> None:
    command = "bash -c 'touch /new && echo written || echo read-only'"

    assert run(site, f"--container-image={image} --container-writable", command) == "written"
    assert "read-only" in run(site, f"--container-image={image} --container-readonly", command)
    # The image itself stays unchanged.
    seen = run(site, f"--container-image={image}", "bash -c 'test -e /new && echo yes || echo no'")
    assert seen == "no"


def test_entrypoint_runs_only_on_request(site: Site, image: str) -> None:
    command = "bash -c 'echo $COLOUR; pwd'"

    with_it = run(site, f"--container-image={image} --container-entrypoint", command)
    without = run(site, f"--container-image={image} --no-container-entrypoint", command)

    assert with_it.splitlines() == ["blue", "/usr"]
    assert without.splitlines() == ["red and green", "/data"]


def test_output_of_the_entrypoint_is_shown_on_request(site: Site) -> None:
    files = [Entry("start", '#!/bin/sh\necho hello; exec "$@"\n', mode=0o755)]
    layers = [site.base, layer(files)]
    name = site.push(
        "options/log:1", ociimages.layout(layers, Env=["PATH=/usr/bin"], Entrypoint=["/start"])
    )
    step = f"srun --quiet --container-image={name} --container-entrypoint"

    shown = site.node.user(f"{step} --container-entrypoint-log id -u 2>&1")
    hidden = site.node.user(f"{step} id -u 2>&1")

    assert shown.splitlines() == ["hello", "2000"]
    assert hidden == "2000"


@pytest.mark.parametrize("kind", ["net", "ipc", "uts"])
def test_container_can_have_private_namespaces(site: Site, image: str, kind: str) -> None:
    link = f"readlink /proc/self/ns/{kind}"

    own, shared = (
        run(site, f"--jobid={job} --overlap --container-image={image} {option}", link)
        for job in [site.job()]
        for option in (f"--container-unshare={kind}", "")
    )

    assert own != shared


@pytest.mark.parametrize(
    ("variable", "command", "expected"),
    [
        ("WORKDIR=/usr/bin", "pwd", "/usr/bin"),
        ("MOUNTS=/etc/hostname:/host", "test -s /host && echo mounted", "mounted"),
        ("ENV=COLOUR", "echo $COLOUR", "black"),
        ("UNSHARE=net", "grep --count eth0 /proc/net/dev || true", "0"),
        ("MOUNT_HOME=no", "test -e /home/researcher || echo none", "none"),
        ("REMAP_ROOT=yes", "id -u", "0"),
        ("ENTRYPOINT=1", "pwd", "/usr"),
        ("READONLY=true", "touch /new 2>&- || echo read-only", "read-only"),
        ("WRITABLE=n", "touch /new 2>&- || echo read-only", "read-only"),
        ("WRITABLE=y", "touch /new && echo written", "written"),
    ],
)
def test_variables_set_options(
    site: Site, image: str, variable: str, command: str, expected: str
) -> None:
    variables = f"COLOUR=black PYXIS_CONTAINER_IMAGE={image} PYXIS_CONTAINER_{variable}"

    assert site.node.user(f"{variables} srun --quiet bash -c '{command}'") == expected


def test_named_container_can_come_from_variables(site: Site, image: str) -> None:
    variables = f"PYXIS_CONTAINER_IMAGE={image} PYXIS_CONTAINER_NAME=mine"
    step = f"srun --quiet --jobid={site.job()} --overlap"

    site.node.user(f"{variables} {step} touch /made")

    assert run(site, f"{step.removeprefix('srun')} --container-name=mine", "ls /made") == "/made"


def test_options_override_variables(site: Site, image: str) -> None:
    variables = "PYXIS_CONTAINER_IMAGE=/nowhere PYXIS_CONTAINER_READONLY=yes"

    output = site.node.user(
        f"{variables} srun --quiet --container-image={image} --container-writable touch /new && "
        "echo written"
    )

    assert output == "written"


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("READONLY=perhaps", "PYXIS_CONTAINER_READONLY=perhaps: expected yes or no"),
        ("WORKDIR=here", "expected an absolute path"),
        (
            "MOUNTS=/$(printf %09000d 0)",
            "PYXIS_CONTAINER_MOUNTS: the value has more than 8191 bytes: shorten it",
        ),
    ],
)
def test_error_about_an_invalid_variable_has_one_line(
    site: Site, variable: str, words: str
) -> None:
    output = site.node.user(
        f"PYXIS_CONTAINER_{variable} srun --quiet --container-image=x true 2>&1 || true"
    )

    lines = [line for line in output.splitlines() if "container: " in line]
    assert len(lines) == 1, output
    assert words in lines[0]


def test_warning_names_the_variable_without_effect(site: Site) -> None:
    output = site.node.user("PYXIS_CONTAINER_REMAP_ROOT=yes srun --quiet id -u 2>&1")

    assert "PYXIS_CONTAINER_REMAP_ROOT has no effect without --container-image" in output
    assert output.splitlines()[-1] == "2000"


@pytest.fixture
def driver(site: Site) -> Iterator[str]:
    """Add a program and a library of a driver to the first node."""
    folder = f"{c.PROGRAMS}/drivers"
    program, library = f"{folder}/bin/nvidia-smi", f"{folder}/lib/libmunge.so.2"
    site.node.root(
        f"printf '#!/bin/sh\necho a GPU\n' >{program}; chmod 755 {program}; "
        f"cp --dereference /usr/lib/x86_64-linux-gnu/libmunge.so.2 {library}"
    )
    yield "--nodelist=cpu-0"
    site.node.root(f"rm {program} {library}")


def test_programs_of_the_driver_are_on_path(site: Site, image: str, driver: str) -> None:
    assert run(site, f"{driver} --container-image={image}", "nvidia-smi") == "a GPU"


def test_loader_finds_libraries_of_the_driver(site: Site, image: str, driver: str) -> None:
    path = f"{c.PROGRAMS}/drivers/lib/libmunge.so.2"

    search = f"grep --text --count {path} /etc/ld.so.cache"

    assert run(site, f"{driver} --container-image={image}", search) == "1"


@pytest.mark.parametrize("devices", ["void", "none"])
def test_container_can_leave_out_the_driver(
    site: Site, image: str, driver: str, devices: str
) -> None:
    output = run(
        site,
        f"{driver} --container-image={image} --export=ALL,NVIDIA_VISIBLE_DEVICES={devices}",
        "bash -c 'command -v nvidia-smi; ls /etc/ld.so.conf.d 2>&1; true'",
    )

    assert "nvidia-smi" not in output
    assert "slurmstack" not in output


@pytest.mark.parametrize("devices", ["all", "0"])
def test_container_that_selects_devices_keeps_the_driver(
    site: Site, image: str, driver: str, devices: str
) -> None:
    variable = f"--export=ALL,NVIDIA_VISIBLE_DEVICES={devices}"

    assert run(site, f"{driver} --container-image={image} {variable}", "nvidia-smi") == "a GPU"


def test_image_can_leave_out_the_driver(site: Site, driver: str) -> None:
    variables = ["PATH=/usr/bin", "NVIDIA_VISIBLE_DEVICES=void"]
    name = site.push("options/void:1", ociimages.layout([site.base], Env=variables))

    command = "bash -c 'command -v nvidia-smi || echo none'"

    assert run(site, f"{driver} --container-image={name}", command) == "none"


def test_pytorch_image_has_the_variables_of_torch_distributed(site: Site) -> None:
    variables = ["PATH=/usr/bin", "PYTORCH_VERSION=2"]
    name = site.push("options/pytorch:1", ociimages.layout([site.base], Env=variables))
    step = f"--nodes=2 --ntasks-per-node=2 --container-image={name}"
    names = "$RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $OMP_NUM_THREADS $MASTER_PORT"

    output = run(site, step, f"bash -c 'echo {names}'")
    own = run(
        site, f"--export=ALL,MASTER_ADDR=mine,MASTER_PORT=1 {step}", f"bash -c 'echo {names}'"
    )

    lines = [line.split() for line in sorted(output.splitlines())]
    assert [line[:-1] for line in lines] == [
        ["0", "0", "4", "cpu-0", "1"],
        ["1", "1", "4", "cpu-0", "1"],
        ["2", "0", "4", "cpu-0", "1"],
        ["3", "1", "4", "cpu-0", "1"],
    ]
    (port,) = {int(line[-1]) for line in lines}
    assert 61000 <= port < 65536
    assert {tuple(line.split()[3:]) for line in own.splitlines()} == {("mine", "1", "1")}


@pytest.fixture
def infiniband(site: Site) -> Iterator[str]:
    """On the first node, create a plain file that stands for an InfiniBand device."""
    site.node.root("mkdir /dev/infiniband; touch /dev/infiniband/uverbs0")
    yield "--nodelist=cpu-0"
    site.node.root("rm -r /dev/infiniband")


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("OTHER=void", "uverbs0"),
        ("MELLANOX_VISIBLE_DEVICES=all", "uverbs0"),
        ("MELLANOX_VISIBLE_DEVICES=1", "uverbs0"),
        ("MELLANOX_VISIBLE_DEVICES=void", ""),
        ("MELLANOX_VISIBLE_DEVICES=none", ""),
    ],
)
def test_image_can_leave_out_infiniband_devices(
    site: Site, infiniband: str, variable: str, expected: str
) -> None:
    layout = ociimages.layout([site.base], Env=["PATH=/usr/bin", variable])
    name = site.push(f"options/infiniband:{variable.replace('=', '-')}", layout)

    assert run(site, f"{infiniband} --container-image={name}", "ls /dev/infiniband") == expected


def test_container_without_infiniband_starts_on_a_node_without_infiniband(
    site: Site, image: str
) -> None:
    variable = "--export=ALL,MELLANOX_VISIBLE_DEVICES=void"

    assert run(site, f"--container-image={image} {variable}", "id -u") == "2000"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--container-name=a/b --container-image=x", "expected 1 to 128 letters"),
        ("--container-name=a:b --container-image=x", "expected auto, create, exec or no_exec"),
        ("--container-workdir=here --container-image=x", "expected an absolute path"),
        ("--container-mounts=here --container-image=x", "expected a path that begins"),
        ("--container-mounts=/a:/b:huge --container-image=x", "flag huge of /b is unknown"),
        (
            "--container-mounts=/absent:/a --container-image={image}",
            "cannot mount /absent: No such",
        ),
        ("--container-mounts=umount:/a --container-image={image}", "cannot open /a to unmount"),
        ("--container-unshare=pid --container-image=x", "expected net, ipc or uts"),
        ("--container-readonly --container-writable --container-image=x", "are both set"),
        (
            "--container-env=A,, --container-image=x",
            "--container-env=A,,: one of the words is empty",
        ),
        ("--container-save=/tmp/ --container-image=x", "expected the path of a file"),
        ("--container-name=none", "add --container-image"),
        ("--container-image=A@@B", "expected [USER@][REGISTRY#]IMAGE[:TAG]"),
        ("--container-image=dockerd://x", "no Docker or Podman daemon"),
        ("--container-image=/nowhere", "check the path"),
        ("--container-image=/etc/passwd", "expected a squashfs file"),
    ],
)
def test_error_about_an_invalid_option_has_one_line(
    site: Site, image: str, options: str, words: str
) -> None:
    assert words in refusal(site, options.format(image=image))
