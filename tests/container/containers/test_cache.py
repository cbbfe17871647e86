"""The image cache saves downloads, and reports failures."""

import base64
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from agents.containers.counts import FILE, Counts
from components import conventions as c
from components.settings.containers import Containers, ImageRegistry
from components.slurmconf import container_files
from tests.support import ociimages
from tests.support.containers import put
from tests.support.imagesite import ACCOUNT, REGISTRY, RUN_REGISTRY, Site, refusal, run
from tests.support.ociimages import Entry, layer
from tests.support.waiting import becomes, eventually

SETTINGS = f"{c.USER_IMAGES}/settings.json"
CACHE = f"{c.JAIL}/home/researcher/.cache/slurmstack"
SILENT = """
import socket, ssl

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/srv/registry/certificate.pem", "/srv/registry/key.pem")
server, kept = socket.create_server(("", 443)), []
while True:
    try:
        kept.append(context.wrap_socket(server.accept()[0], server_side=True))
    except OSError:
        pass  # The client has closed the connection.
"""


def blob_of(files: dict[str, bytes], size: int) -> str:
    """Return the digest of the layer whose size is closest to `size` bytes."""
    layers = {path: raw for path, raw in files.items() if raw[:2] == b"\x1f\x8b"}
    path = min(layers, key=lambda each: abs(len(layers[each]) - size))
    return path.rpartition("/")[2]


def read_counts(site: Site) -> Counts:
    """Return the first node's statistics of the cache."""
    return Counts(**json.loads(site.node.root(f"cat {FILE}")))


@contextmanager
def settings(site: Site, **values: object) -> Iterator[None]:
    """Apply the site's settings on the first node."""
    node = site.node
    put(node.worker.container, {SETTINGS: json.dumps(values)})
    try:
        yield
    finally:
        node.root(f"rm {SETTINGS}")


@contextmanager
def mirror(site: Site, registry: str, place: str) -> Iterator[None]:
    """Configure a mirror of a registry on the first node, as a deploy does."""
    chosen = Containers(registries=(ImageRegistry(name=registry, mirrors=(place,)),))
    file = f"{c.USER_IMAGES}/registries.conf"
    put(site.node.worker.container, {file: container_files(chosen)["registries.conf"]})
    try:
        yield
    finally:
        site.node.root(f"rm {file}")


@contextmanager
def registry_down(site: Site) -> Iterator[None]:
    site.registry_run("pkill --exact docker-registry")
    try:
        yield
    finally:
        site.registry.exec_run(["sh", "-c", RUN_REGISTRY], detach=True)
        eventually(
            "the registry answers",
            lambda: (
                site.registry.exec_run(["curl", "--silent", "https://registry.example/v2/"])[0] == 0
            ),
        )


def test_hundred_tasks_on_two_nodes_pull_an_image_once(site: Site) -> None:
    files = ociimages.layout([site.base, layer([Entry("once", os.urandom(2_000_000))])])
    name = site.push("cache/once:1", files)
    blob = blob_of(files, 2_000_000)

    output = run(site, f"--nodes=2 --ntasks=100 --overcommit --container-image={name}", "uname -n")

    assert sorted({*output.splitlines()}) == ["cpu-0", "cpu-1"]
    assert len(output.splitlines()) == 100
    assert site.requests(f"/v2/cache/once/blobs/sha256:{blob}") == 1


def test_cache_counts_its_pulls_hits_and_failures(site: Site) -> None:
    files = ociimages.layout([site.base, layer([Entry("counted", os.urandom(2_000_000))])])
    name = site.push("cache/counted:1", files)
    before = read_counts(site)

    run(site, f"--nodelist=cpu-0 --container-image={name}", "true")
    run(site, f"--nodelist=cpu-0 --container-image={name}", "true")
    refusal(site, f"--nodelist=cpu-0 --container-image={REGISTRY}/cache/missing:1")

    def difference() -> list[int]:
        now = read_counts(site)
        return [now.pulls - before.pulls, now.hits - before.hits, now.failures - before.failures]

    becomes("the list of pulls, hits and failures", difference, [1, 1, 1])
    now = read_counts(site)
    assert now.downloaded - before.downloaded >= 2_000_000
    assert now.milliseconds > before.milliseconds


def test_shared_layers_are_downloaded_once(site: Site) -> None:
    shared = layer([Entry("shared", os.urandom(3_000_000))])
    blobs = []
    for n in range(2):
        files = ociimages.layout([site.base, shared, layer([Entry("own", str(n))])])
        name = site.push(f"cache/shared{n}:1", files)
        assert run(site, f"--container-image={name}", "cat /own") == str(n)
        blobs.append(site.requests(f"/v2/cache/shared{n}/blobs/sha256:{blob_of(files, 3_000_000)}"))

    assert blobs == [1, 0]


def test_layers_shared_by_the_site_are_not_downloaded_again(site: Site) -> None:
    files = ociimages.layout([site.base, layer([Entry("ours", os.urandom(3_000_000))])])
    name = site.push("cache/ours:1", files)
    shared = f"{c.JAIL}/images"
    site.give_password("student")
    site.node.root(f"install -d -o student {shared}")
    try:
        with settings(site, site_cache="/images"):
            share = f"srun --quiet --nodelist=cpu-0 {c.PROGRAMS}/slurm-image share {name}"
            site.node.user(share, "student")
            output = run(site, f"--nodelist=cpu-0 --container-image={name}", "stat -c %s /ours")
    finally:
        site.node.root(f"rm -r {shared} {c.JAIL}/home/student/.config {c.JAIL}/home/student/.cache")

    assert output == "3000000"
    assert site.requests(f"/v2/cache/ours/blobs/sha256:{blob_of(files, 3_000_000)}") == 1


def test_only_the_site_account_can_share_layers(site: Site, image: str) -> None:
    shared = f"{c.JAIL}/images"
    site.node.root(f"install -d -o student {shared}")
    try:
        with settings(site, site_cache="/images"):
            share = f"srun --nodelist=cpu-0 {c.PROGRAMS}/slurm-image share {image} 2>&1 || true"
            output = site.node.user(share)
    finally:
        site.node.root(f"rm -r {shared}")

    assert (
        "cannot write to /images/blobs, the directory for shared layers: Permission denied"
        in output
    )


def test_cached_image_starts_without_the_registry(site: Site, image: str) -> None:
    run(site, f"--container-image={image}", "true")

    with registry_down(site):
        fresh = run(site, f"--container-image={image}", "id -u 2>&1")
        site.node.root(f"touch --date=yesterday {CACHE}/references/*")
        old = site.node.user(f"srun --quiet --container-image={image} id -u 2>&1")

    assert fresh == "2000"
    assert old.splitlines()[-1] == "2000"
    assert "continuing with the image in the cache" in old


@contextmanager
def silent(site: Site) -> Iterator[None]:
    """Replace the registry by a server that accepts connections and never answers."""
    put(site.registry, {"/srv/silent.py": SILENT})
    with registry_down(site):
        site.registry.exec_run(["sh", "-c", "exec python3 /srv/silent.py"], detach=True)
        look = "ss --listening --numeric | grep -c :443 || true"
        eventually("the server listens", lambda: site.registry_run(look).strip() != "0")
        try:
            yield
        finally:
            site.registry_run("pkill --full silent.py")


@contextmanager
def program(site: Site, name: str, script: str) -> Iterator[str]:
    """Install a script that the importer runs instead of the program `name`.

    Yield the assignment `PATH=…`, with which the importer finds the script first.
    """
    folder = f"{c.JAIL}/home/researcher/programs"
    site.node.user(f"mkdir --parents {folder}")
    put(site.node.worker.container, {f"{folder}/{name}": f"#!/bin/bash\n{script}\n"}, mode=0o755)
    try:
        yield f"PATH={folder.removeprefix(c.JAIL)}:$PATH"
    finally:
        site.node.root(f"rm -r {folder}")


def test_cached_image_starts_although_the_registry_never_answers(site: Site, image: str) -> None:
    """The test shortens the limit of one minute within which a registry must answer."""
    run(site, f"--container-image={image}", "true")
    site.node.root(f"touch --date=yesterday {CACHE}/references/*")
    shorter = 'exec /usr/bin/skopeo "${@/60s/1s}"'
    step = f"srun --quiet --nodelist=cpu-0 --container-image={image} id -u 2>&1"

    with silent(site), program(site, "skopeo", shorter) as path:
        first, second = (site.node.user(f"{path} {step}") for _ in range(2))

    assert "context deadline exceeded: continuing with the image in the cache" in first
    assert first.splitlines()[-1] == "2000"
    assert second == "2000", "the second step does not wait for the registry"


@pytest.mark.parametrize(
    ("victim", "words"),
    [("$$", "skopeo was killed: the job probably exceeded"), ("$PPID", "slurm-image was killed")],
    ids=["skopeo", "importer"],
)
def test_killed_import_is_reported_in_one_line(site: Site, victim: str, words: str) -> None:
    """The test kills the program, as the kernel does if a job exceeds its memory limit."""
    step = f"srun --quiet --nodelist=cpu-0 --container-image={REGISTRY}/cache/none:1 true 2>&1"

    with program(site, "skopeo", f"kill -KILL {victim}") as path:
        output = site.node.user(f"{path} {step} || true")

    (line,) = (line for line in output.splitlines() if "container: " in line)
    assert words in line
    assert line.endswith("request more memory with --mem")


def test_image_of_a_running_step_is_not_removed(site: Site, image: str) -> None:
    in_image = f"srun --quiet --nodelist=cpu-0 --container-image={image}"
    remove = "srun --quiet --nodelist=cpu-0 --overlap slurm-image remove"
    site.node.user(f"{in_image} bash -c 'touch ~/up; sleep 1000' >/dev/null 2>&1 & sleep 0")
    up = f"{c.JAIL}/home/researcher/up"
    becomes("the step's file", lambda: site.node.root(f"ls {up} 2>/dev/null || true"), up)
    images = f"{CACHE}/images"

    site.node.user(remove)
    kept = site.node.root(f"ls {images}").split()
    site.node.user("scancel --user=researcher")
    site.node.user(remove)

    assert len(kept) == 1
    assert site.node.root(f"ls {images}").split() == []


def test_image_stays_until_the_last_step_in_the_container_ends(site: Site, image: str) -> None:
    job = site.job()
    step = f"srun --quiet --nodelist=cpu-0 --jobid={job} --overlap"
    in_container = f"{step} --container-name=mine"
    home = f"{c.JAIL}/home/researcher"
    first = f"{in_container} --container-image={image} bash -c 'touch ~/up1; sleep 1000'"
    second = f"{in_container}:exec bash -c 'touch ~/up2; sleep 1000'"
    for number, command in enumerate((first, second), 1):
        site.node.user(f"{command} >/dev/null 2>&1 & sleep 0")
        up = f"{home}/up{number}"
        becomes("the step's file", partial(site.node.root, f"ls {up} 2>&- || true"), up)
    steps = f"squeue --noheader --steps --jobs={job} --format=%i | grep -c '[.][0-9]'"
    site.node.user(f"scancel {job}.0")
    becomes("the number of steps", lambda: site.node.user(steps), "1")

    site.node.user(f"{step} slurm-image remove")

    assert len(site.node.root(f"ls {CACHE}/images").split()) == 1
    site.node.root(f"rm {home}/up1 {home}/up2")


def test_tag_is_looked_up_again_when_its_record_expires(site: Site) -> None:
    for n in range(2):
        files = ociimages.layout([site.base, layer([Entry("version", str(n))])])
        name = site.push("cache/moves:latest", files)
        site.node.root(f"touch --date=yesterday {CACHE}/references/* 2>/dev/null || true")
        assert run(site, f"--container-image={name}", "cat /version") == str(n)


def test_killed_pull_does_not_block_the_next_pull(site: Site) -> None:
    files = ociimages.layout([site.base, layer([Entry("big", os.urandom(200_000_000))])])
    name = site.push("cache/killed:1", files)
    job = site.node.submit(f"srun --container-image={name} true")
    layout = f"ls {CACHE}/temporary/*/layout 2>/dev/null || true"
    eventually("the pull has started", lambda: bool(site.node.root(layout)))
    site.node.user(f"scancel --signal=KILL --full {job}; scancel {job}")
    eventually("the job has ended", site.node.is_clean)

    assert run(site, f"--container-image={name}", "stat --format=%s /big") == "200000000"


def test_reports_a_full_cache_volume(site: Site, image: str) -> None:
    site.give_password("student")
    place = f"{c.JAIL}/home/student/.cache"
    site.node.root(f"install -d -o student {place}; mount -t tmpfs -o size=2M,mode=777 x {place}")
    try:
        output = refusal(site, f"--nodelist=cpu-0 --container-image={image}", "student")
    finally:
        site.node.root(f"umount {place}; rm -r {c.JAIL}/home/student/.config")

    assert "No space left" in output or "free space" in output or "left: remove" in output


def test_refuses_an_image_above_the_size_limit(site: Site) -> None:
    files = ociimages.layout([site.base, layer([Entry("bomb", bytes(400_000_000))])])
    name = site.push("hostile/bomb:1", files)

    unfinished = f"ls {CACHE}/temporary 2>/dev/null || true"
    before = site.node.root(unfinished)

    with settings(site, image_size=100_000_000):
        output = refusal(site, f"--nodelist=cpu-0 --container-image={name}")

    assert "exceed 100.0 MB" in output
    assert site.node.root(unfinished) == before


def test_image_is_pulled_from_a_mirror_that_requires_a_password(site: Site) -> None:
    files = ociimages.layout([site.base, layer([Entry("mirrored", "yes")])])
    site.push("hub/library/mirrored:1", files)

    with mirror(site, "docker.io", f"{REGISTRY}/hub"):
        output = run(site, "--nodelist=cpu-0 --container-image=mirrored:1", "cat /mirrored")

    assert output == "yes"


def test_user_without_credentials_uses_the_site_credentials(site: Site, image: str) -> None:
    login = base64.b64encode(":".join(ACCOUNT).encode()).decode()
    auth = json.dumps({"auths": {REGISTRY: {"auth": login}}})
    put(site.node.worker.container, {f"{c.USER_IMAGES}/auth.json": auth})
    try:
        output = run(site, f"--nodelist=cpu-0 --container-image={image}", "whoami", "student")
    finally:
        site.node.root(f"rm -r {c.USER_IMAGES}/auth.json {c.JAIL}/home/student/.cache")

    assert output == "student"


def test_refuses_an_image_outside_the_permitted_patterns(site: Site, image: str) -> None:
    with settings(site, allowed=["nvcr.io/*"]):
        output = refusal(site, f"--nodelist=cpu-0 --container-image={image}")

    assert "this site permits only nvcr.io/*" in output
