"""The site's settings of containers (`containers` in the stack's settings)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from components import conventions as c
from components.settings.containers import Containers, ImageRegistry
from components.slurmconf.containers import container_files, plugin_defaults
from tests.support import ociimages
from tests.support.containers import put
from tests.support.imagesite import REGISTRY, Site, refusal, run
from tests.support.ociimages import Entry, layer
from tests.support.waiting import eventually

PORT = 5000
PLAIN = f"{REGISTRY}:{PORT}"
"""Address at which the registry serves the same images without TLS and without a password."""
CONFIG = f"""
version: 0.1
storage: {{filesystem: {{rootdirectory: /srv/registry/data}}}}
http: {{addr: ":{PORT}"}}
"""
PLUGSTACK = "/run/slurm/conf/plugstack.conf"
"""The file that slurmd of the first node has received from slurmctld."""


@contextmanager
def configured(site: Site, **settings: Any) -> Iterator[str]:
    """Apply settings on the first node, as a deploy does. Yield srun's option for that node."""
    chosen = Containers(**settings)
    files = {f"{c.USER_IMAGES}/{k}": text for k, text in container_files(chosen).items()}
    defaults = " ".join(f"{k}={value}" for k, value in plugin_defaults(chosen).items())
    put(site.node.worker.container, files)
    site.node.root(f"sed --in-place=.before '/start-container/s/$/ {defaults}/' {PLUGSTACK}")
    try:
        yield "--nodelist=cpu-0"
    finally:
        site.node.root(f"mv {PLUGSTACK}.before {PLUGSTACK}; rm {' '.join(files)}")


@pytest.fixture(scope="module")
def plain(running: Site) -> None:
    """Serve the registry's images over HTTP as well."""
    put(running.registry, {"/srv/registry/plain.yml": CONFIG})
    serve = "exec docker-registry serve /srv/registry/plain.yml >/srv/registry/plain.log 2>&1"
    running.registry.exec_run(["sh", "-c", serve], detach=True)
    look = f"curl --silent http://localhost:{PORT}/v2/ && echo up || true"
    eventually("the registry answers over HTTP", lambda: "up" in running.registry_run(look))


@pytest.mark.parametrize("way", ["insecure", "ENROOT_ALLOW_HTTP"])
def test_image_is_pulled_over_http_only_on_request(site: Site, plain: None, way: str) -> None:
    files = ociimages.layout([site.base, layer([Entry("plain", way)])])
    name = site.push(f"plain/{way.lower()}:1", files).replace(REGISTRY, PLAIN)
    registry = ImageRegistry(name=PLAIN, insecure=way == "insecure")
    variable = "" if way == "insecure" else f"{way}=yes "

    with configured(site) as node:
        refused = refusal(site, f"{node} --container-image={name}")
    with configured(site, registries=(registry,)) as node:
        output = site.node.user(
            f"{variable}srun --quiet {node} --container-image={name} cat /plain"
        )

    assert "server gave HTTP response to HTTPS client" in refused
    assert output == way


def test_mounts_and_variables_of_the_site_reach_containers(site: Site, image: str) -> None:
    variables = {"COLOUR": "white", "SITE": "with spaces and $signs"}
    command = """bash -c 'test -s /site/hostname && echo mounted; echo "$SITE, $COLOUR"'"""

    with configured(site, mounts=("/etc:/site:ro",), environment=variables) as node:
        output = run(site, f"{node} --container-image={image}", command)
        own = run(
            site,
            f"{node} --container-image={image} --container-mounts=tmpfs:/site",
            "ls /site",
        )

    assert output.splitlines() == ["mounted", "with spaces and $signs, red and green"]
    assert own == "", "mounts of the user hide those of the site"


@pytest.mark.parametrize(
    ("setting", "option", "command", "changed"),
    [
        ({"mount_home": False}, "--container-mount-home", "test -e /home/researcher", "no"),
        ({"writable": False}, "--container-writable", "touch /new", "no"),
        ({"remap_root": True}, "--no-container-remap-root", "test $UID = 0", "yes"),
        ({"entrypoint": True}, "--no-container-entrypoint", "test $COLOUR = blue", "yes"),
    ],
    ids=["mount_home", "writable", "remap_root", "entrypoint"],
)
def test_options_override_the_defaults_of_the_site(
    site: Site, image: str, setting: dict[str, bool], option: str, command: str, changed: str
) -> None:
    script = f"bash -c '({command}) 2>/dev/null && echo yes || echo no'"

    with configured(site, **setting) as node:
        by_default = run(site, f"{node} --container-image={image}", script)
        on_request = run(site, f"{node} --container-image={image} {option}", script)

    assert by_default == changed
    assert {by_default, on_request} == {"yes", "no"}
