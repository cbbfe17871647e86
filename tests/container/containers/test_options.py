"""The options of Pyxis and their opposites."""

from collections.abc import Iterator

import pytest

from components import conventions as c
from tests.support import ociimages
from tests.support.imagesite import Site, refusal, run


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


def test_container_mounts_option_mounts_paths_of_the_job(site: Site, image: str) -> None:
    site.node.user(f"echo mine >{c.JAIL}/home/researcher/file")
    mounts = "/home/researcher/file:/deep/down/file,/etc/hostname:/host:ro,tmpfs:/fast"
    script = "cat /deep/down/file; touch /fast/a && echo fast; (echo x >/host) 2>&- || echo kept"

    output = run(
        site, f"--container-image={image} --container-mounts={mounts}", f"bash -c '{script}'"
    )

    assert output.splitlines() == ["mine", "fast", "kept"]


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
def test_reports_invalid_variables_in_one_line(site: Site, variable: str, words: str) -> None:
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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--container-name=a/b --container-image=x", "expected at most 128 letters"),
        ("--container-name=a:b --container-image=x", "expected auto, create, exec or no_exec"),
        ("--container-workdir=here --container-image=x", "expected an absolute path"),
        ("--container-mounts=here --container-image=x", "expected a path that begins"),
        ("--container-mounts=/a:/b:huge --container-image=x", "flag huge of /b is unknown"),
        ("--container-unshare=pid --container-image=x", "expected net, ipc or uts"),
        ("--container-readonly --container-writable --container-image=x", "are both set"),
        ("--container-env=A,, --container-image=x", "--container-env=A,,: expected words"),
        ("--container-save=/tmp/ --container-image=x", "expected the path of a file"),
        ("--container-name=none", "add --container-image"),
        ("--container-image=A@@B", "expected [USER@][REGISTRY#]IMAGE[:TAG]"),
        ("--container-image=dockerd://x", "no Docker or Podman daemon"),
        ("--container-image=/nowhere", "check the path"),
        ("--container-image=/etc/passwd", "expected a squashfs file"),
    ],
)
def test_reports_invalid_options_in_one_line(site: Site, options: str, words: str) -> None:
    assert words in refusal(site, options)
