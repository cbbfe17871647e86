"""slurmrestd in a container."""

from collections.abc import Mapping

from images import tags
from local import host
from tests.support.containers import Start, put
from tests.support.slurmctld import Slurmctld, controller_address

REST_PORT = 6820


def start_rest(start: Start, controller: Slurmctld, files: Mapping[str, str]) -> str:
    """Start slurmrestd in a container with these `files` (by path), and return its URL."""
    hosts = {controller_address(): controller.address}
    slurmrestd = start("rest", extra_hosts=hosts, cap_drop=["ALL"])
    put(slurmrestd, files)
    # slurmrestd looks up the name of every client's address: make the lookup fail at once.
    Slurmctld(slurmrestd).run("echo nameserver 127.0.0.1 >/etc/resolv.conf", user="root")
    image = host.engine(print).images.get(tags.reference("rest")).attrs["Config"]
    slurmrestd.exec_run(image["Cmd"], user=image["User"], detach=True)
    return f"http://{Slurmctld(slurmrestd).address}:{REST_PORT}"
