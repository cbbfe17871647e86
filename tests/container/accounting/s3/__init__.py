"""Two S3 servers with TLS in a container. One accepts all credentials, and one rejects all."""

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from docker.models.containers import Container

from components import conventions as c
from images import build
from local import host
from tests.support.containers import Start, put
from tests.support.slurmctld import Slurmctld
from tests.support.waiting import eventually

IMAGE = "slurmstack-test/s3"
HOST = "objects"
"""The host name has no dots: the server would treat the part before a dot as a bucket."""
PORT = 9000
REFUSING = 9001
"""Port of the server that rejects all credentials."""
BUCKET = "dumps"
_FOLDER = Path(__file__).parent
_CERTIFICATE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -batch"
    f" -subj /CN={HOST} -addext subjectAltName=DNS:{HOST} -keyout /tmp/key.pem -out /tmp/cert.pem"
)


@dataclass(frozen=True)
class Server:
    address: str
    certificate: str


def serve(start: Start) -> Server:
    """Start both servers."""
    proxies = {key: os.environ[key] for key in os.environ if key.lower() in build.PROXIES}
    host.engine(print).images.build(
        path=str(_FOLDER), tag=IMAGE, network_mode="host", buildargs=proxies, rm=True
    )
    server = Slurmctld(start(f"{IMAGE}:latest", ours=False))
    server.run(_CERTIFICATE, "root")
    for port, environment in {PORT: "", REFUSING: "INITIAL_NO_AUTH_ACTION_COUNT=0"}.items():
        command = f"moto_server -H 0.0.0.0 -p {port} -c /tmp/cert.pem -k /tmp/key.pem"
        server.run(f"{environment} {command} >/tmp/log.{port} 2>&1 &", "root")
        listens = f": 2>/dev/null </dev/tcp/127.0.0.1/{port} && echo yes || true"
        eventually("the server listens", partial(_says_yes, server, listens))
    return Server(server.address, server.run("cat /tmp/cert.pem", "root"))


def _says_yes(server: Slurmctld, command: str) -> bool:
    return "yes" in server.run(command, "root")


def give(container: Container, access_key: str, secret_key: str) -> None:
    """Write credentials to the path at which pods mount the Secret."""
    keys = {"access_key": access_key, "secret_key": secret_key}
    put(container, {f"{c.BACKUP_KEYS}/{name}": text for name, text in keys.items()})
