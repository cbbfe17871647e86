"""Images from registries and files, and hostile images."""

import base64
import io
import json
import tarfile

import pytest

from components import conventions as c
from tests.support import ociimages
from tests.support.containers import put
from tests.support.imagesite import REGISTRY, Site, refusal, run
from tests.support.ociimages import Entry, folder, layer, link

CACHE = f"{c.JAIL}/home/researcher/.cache/slurmstack"
CAPABILITY = "\x01\0\0\x02\0\x20" + "\0" * 14
"""File capability cap_net_raw, permitted and effective; see linux/capability.h."""
LIST_ATTRIBUTES = """python3 -c 'import os; print(*sorted(os.listxattr("/tagged")))'"""
JAIL_PROGRAMS = "--container-mounts=/usr:/usr"
"""Option that shows the programs of the jail, such as Python, in a container."""
STATIC = """
#include <stdio.h>
#include <unistd.h>

int main(void)
{
	char directory[4096];

	return printf("%d %s\\n", (int)getuid(), getcwd(directory, sizeof(directory))) < 0;
}
"""


def test_whiteouts_hide_files_of_lower_layers(site: Site) -> None:
    below = [
        folder("kept"),
        Entry("kept/a", "1"),
        Entry("gone"),
        folder("emptied"),
        Entry("emptied/a"),
    ]
    above = [
        Entry(".wh.gone"),
        folder("emptied"),
        Entry("emptied/.wh..wh..opq"),
        Entry("kept/a", "2"),
    ]
    name = site.push("kinds/whiteouts:1", ociimages.layout([site.base, layer(below), layer(above)]))

    output = run(
        site, f"--container-image={name}", "bash -c 'cat /kept/a; ls /gone 2>&1; ls -A /emptied'"
    )

    assert output.splitlines()[0].startswith("2")
    assert "No such file" in output
    assert not output.endswith("a")


def test_runs_an_image_of_sixty_layers(site: Site) -> None:
    layers = [layer([Entry(f"layer/{n}", str(n))]) for n in range(60)]
    name = site.push("kinds/many:1", ociimages.layout([site.base, *layers]))

    assert run(site, f"--container-image={name}", "bash -c 'cat /layer/* | wc -c'") == "110"


def test_runs_an_image_with_only_a_static_program(site: Site) -> None:
    put(site.registry, {"/srv/static.c": STATIC})
    site.registry_run("gcc -static -o /srv/static /srv/static.c")
    program = base64.b64decode(site.registry_run("base64 --wrap=0 /srv/static"))
    files = [Entry("program", program, mode=0o755)]
    name = site.push("kinds/static:1", ociimages.layout([layer(files)], Env=["PATH=/"]))

    output = run(site, f"--ntasks=2 --container-image={name}", "program")

    assert output.splitlines() == ["2000 /"] * 2


def test_import_drops_other_owners_and_setuid_bits(site: Site) -> None:
    odd = [
        Entry("opt/program", "#!/bin/sh\n", mode=0o6755, owner=4_000_000),
        folder("closed", mode=0o000, owner=33),
        Entry("closed/file", "readable", mode=0o000, owner=33),
        Entry("hard", kind=tarfile.LNKTYPE, target="opt/program"),
    ]
    name = site.push("kinds/odd:1", ociimages.layout([site.base, layer(odd)]))

    output = run(site, f"--container-image={name}", "stat --format='%a %U' /opt/program /hard")

    assert output.splitlines() == ["755 researcher"] * 2
    assert site.node.root(f"stat --format=%a {CACHE}") == "700"


def program(site: Site, name: str) -> bytes:
    """Return a program of the small distribution."""
    with tarfile.open(fileobj=io.BytesIO(site.base)) as archive:
        file = archive.extractfile(f"./usr/bin/{name}")
        assert file is not None
        return file.read()


def test_imported_files_keep_user_attributes_but_lose_capabilities(site: Site) -> None:
    attributes = {"user.note": "kept", "security.capability": CAPABILITY}
    tagged = Entry("tagged", program(site, "cat"), mode=0o755, attributes=attributes)
    name = site.push("kinds/tagged:1", ociimages.layout([site.base, layer([tagged])]))

    names = run(site, f"--container-image={name} {JAIL_PROGRAMS}", LIST_ATTRIBUTES)
    status = run(site, f"--container-image={name}", "/tagged /proc/self/status")

    assert names == "user.note"
    assert "CapEff:\t0000000000000000" in status


def test_step_runs_the_image_for_the_nodes_architecture(site: Site) -> None:
    images = {
        name: [site.base, layer([Entry("architecture", name)])] for name in ("arm64", "amd64")
    }
    name = site.push("kinds/both:1", ociimages.many_architectures(images))

    assert run(site, f"--container-image={name}", "cat /architecture") == "amd64"


def test_error_about_an_index_without_a_matching_image_has_one_line(site: Site) -> None:
    images = {name: [layer([Entry("architecture", name)])] for name in ("arm64", "ppc64le")}
    name = site.push("kinds/foreign:1", ociimages.many_architectures(images))

    line = refusal(site, f"--container-image={name}")

    assert "no image for linux/amd64 (available: linux/arm64, linux/ppc64le): choose" in line


def test_runs_an_image_by_digest(site: Site, image: str) -> None:
    digest = site.registry_run(
        f"skopeo inspect --creds 'reader:open sesame' --format '{{{{.Digest}}}}' docker://{image}"
    ).strip()

    assert run(site, f"--container-image={image.partition(':')[0]}@{digest}", "id -u") == "2000"


def test_accepts_image_references_of_enroot(site: Site, image: str) -> None:
    path = image.removeprefix(f"{REGISTRY}/")

    for form in (f"docker://{REGISTRY}#{path}", f"reader@{REGISTRY}#{path}"):
        assert run(site, f"--container-image={form}", "id -u") == "2000"


@pytest.mark.parametrize("kind", ["squashfs", "oci", "oci-archive", "docker-archive", "directory"])
def test_runs_images_from_files(site: Site, image: str, kind: str) -> None:
    folder = "/home/researcher/images"
    make = {
        "squashfs": f"mksquashfs $(slurm-image find {image})/root {folder}/squashfs -quiet "
        "-no-progress",
        "directory": f"cp --archive $(slurm-image find {image})/root {folder}/directory",
    }.get(
        kind,
        f"skopeo --insecure-policy copy --quiet --src-creds 'reader:open sesame' "
        f"docker://{image} {kind}:{folder}/{kind}",
    )
    site.node.job(f"mkdir --parents {folder} && {make} >/dev/null".replace("'", '"'))

    output = run(site, f"--container-image={folder}/{kind}", "cat /etc/os-release")

    assert output == "ID=small"


# --- Credentials ---------------------------------------------------------------------------------


def test_registry_refuses_a_user_without_credentials(site: Site, image: str) -> None:
    output = refusal(site, f"--container-image={image}", "student")

    assert image in output
    assert "authentication required" in output


def test_pull_uses_credentials_of_the_docker_config(site: Site, image: str) -> None:
    login = site.node.root("printf %s 'reader:open sesame' | base64")
    file = f"{c.JAIL}/home/student/.docker/config.json"
    text = json.dumps({"auths": {REGISTRY: {"auth": login}}})
    site.node.root(
        f"install -d -o student $(dirname {file}); echo '{text}' >{file}; chown student {file}"
    )

    try:
        assert run(site, f"--container-image={image}", "id -u", "student") == "1500"
    finally:
        site.node.root(f"rm {file}")


# --- Hostile images ------------------------------------------------------------------------------

OUTSIDE = "/home/researcher/outside"


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([Entry(f"../../../../../../../../{OUTSIDE}")], id="a path with .."),
        pytest.param([link("way", "/home/researcher"), Entry("way/outside")], id="absolute link"),
        pytest.param(
            [link("way", "../" * 12 + "home/researcher"), Entry("way/outside")], id="relative link"
        ),
        pytest.param(
            [Entry("way", kind=tarfile.LNKTYPE, target=f"../../../../../../..{OUTSIDE}.link")],
            id="hard link",
        ),
    ],
)
def test_layers_cannot_write_outside_the_image(site: Site, entries: list[Entry]) -> None:
    name = site.push("hostile/paths:1", ociimages.layout([site.base, layer(entries)]))
    site.node.root(f"echo mine >{c.JAIL}{OUTSIDE}.link")

    site.node.user(f"srun --quiet --container-image={name} true 2>&1 || true")

    found = site.node.root(f"ls {c.JAIL}/home/researcher; cat {c.JAIL}{OUTSIDE}.link")
    assert "outside\n" not in found
    assert found.endswith("mine")


def test_device_files_become_empty_files(site: Site) -> None:
    device = Entry("dev-null", kind=tarfile.CHRTYPE, device=(1, 3), mode=0o666)
    name = site.push("hostile/devices:1", ociimages.layout([site.base, layer([device])]))

    output = run(site, f"--container-image={name}", "stat --format=%F /dev-null")

    assert output == "regular empty file"


def test_layers_cannot_redirect_directories_with_attributes_of_overlayfs(site: Site) -> None:
    """Containers mount the image as a user, so overlayfs reads its attributes `user.overlay.…`."""
    redirect = {"user.overlay.redirect": "/etc", "user.overlay.opaque": "y"}
    way = Entry("way", kind=tarfile.DIRTYPE, mode=0o755, attributes=redirect)
    name = site.push(
        "hostile/overlay:1", ociimages.layout([site.base, layer([way, Entry("way/own")])])
    )

    assert run(site, f"--container-image={name}", "ls /way") == "own"


PLAIN = "-quiet -no-progress -noappend -all-root -noI -noD -noF -noX"
"""Options of mksquashfs without compression."""


def pack(site: Site, name: str, *steps: str) -> str:
    """Build a squashfs file with the small distribution, and return its path in jobs.

    The steps are shell commands in the directory of the files. The step `squash` writes
    `/srv/NAME.sqsh` without compression, so that later steps can edit the names of files in it.
    """
    put(site.registry, {"/srv/base.tar": site.base})
    lines = (
        "set -e; rm -rf /srv/packed; mkdir /srv/packed; cd /srv/packed; tar xf ../base.tar",
        f'squash() {{ mksquashfs . /srv/{name}.sqsh {PLAIN} "$@"; }}',
        *steps,
        f"cp /srv/{name}.sqsh {c.JAIL}/home/researcher",
    )
    site.registry_run("\n".join(lines))
    return f"/home/researcher/{name}.sqsh"


def test_device_files_of_a_squashfs_image_are_left_out(site: Site) -> None:
    devices = ("null c 666 0 0 1 3", "disk b 660 0 6 8 0", "program f 4755 0 0 cat /bin/true")
    arguments = " ".join(f"-p '/files/{device}'" for device in devices)
    path = pack(site, "devices", "mkdir files", f"squash {arguments}")

    output = run(
        site, f"--container-image={path}", "bash -c 'cd /files; stat --format=\"%n %a\" *'"
    )

    assert output == "program 755"


def test_files_of_a_squashfs_image_have_no_attributes(site: Site) -> None:
    tag = 'import os; os.setxattr("tagged", "user.note", b"kept")'
    path = pack(site, "tagged", "touch tagged", f"python3 -c '{tag}'", "squash -xattrs")

    assert run(site, f"--container-image={path} {JAIL_PROGRAMS}", LIST_ATTRIBUTES) == ""


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(
            ("mkdir sub; echo x >sub/@@", "squash", "sed -i 's/@@/../g' /srv/hostile.sqsh"),
            id="a path with ..",
        ),
        pytest.param(
            ("echo x >a@b", "squash", "sed -i 's/a@b/a\\/b/g' /srv/hostile.sqsh"), id="a slash"
        ),
        pytest.param(
            (
                "ln -s /home/researcher waa; mkdir wab; echo x >wab/outside",
                "squash",
                "sed -i 's/wa[ab]/way/g' /srv/hostile.sqsh",
            ),
            id="a link with the name of a directory",
        ),
        pytest.param(
            ("squash", "truncate --size=-100K /srv/hostile.sqsh"), id="an incomplete file"
        ),
    ],
)
def test_error_about_a_hostile_squashfs_file_has_one_line(
    site: Site, steps: tuple[str, ...]
) -> None:
    path = pack(site, "hostile", *steps)

    assert path in refusal(site, f"--container-image={path}")
    assert "outside\n" not in site.node.root(f"ls {c.JAIL}/home/researcher")


def test_special_files_of_an_image_do_not_stop_the_import(site: Site) -> None:
    """Opening the FIFO would wait for a writer. The link leads to the user's own password."""
    path = pack(
        site,
        "special",
        "mkfifo etc/environment; ln -s /home/researcher/.config/enroot/.credentials etc/rc",
        "squash",
    )

    output = run(site, f"--container-image={path} --container-entrypoint", "env")

    assert "password" not in output


def test_links_in_the_image_do_not_redirect_mount_points(site: Site) -> None:
    """If the link were followed, its target would be created outside the container."""
    hostile = [link("etc/resolv.conf", "/home/researcher/made-by-a-mount")]
    name = site.push("hostile/mounts:1", ociimages.layout([site.base, layer(hostile)]))

    run(site, f"--container-image={name} --no-container-mount-home", "true")

    assert "made-by-a-mount" not in site.node.root(f"ls {c.JAIL}/home/researcher")


def test_refuses_a_layer_with_a_wrong_digest(site: Site) -> None:
    files = ociimages.layout([site.base, layer([Entry("said", "one thing")])])
    name = site.push("hostile/digest:1", files)
    blob = next(
        path.rpartition("/")[2]
        for path, raw in files.items()
        if raw[:2] == b"\x1f\x8b" and len(raw) < 10_000
    )
    data = f"/srv/registry/data/docker/registry/v2/blobs/sha256/{blob[:2]}/{blob}/data"
    site.registry_run(f"printf x | dd of={data} conv=notrunc bs=1 seek=20 2>/dev/null")

    assert "digest" in refusal(site, f"--container-image={name}").lower()
