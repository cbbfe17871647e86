"""Two nodes with a shared jail, and a registry with TLS and passwords."""

import io
import tarfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from docker.models.containers import Container

from components import conventions as c
from local import host
from local.paths import ROOT
from tests.support import open_shells
from tests.support.containers import Start, put
from tests.support.slurmctld import Slurmctld
from tests.support.spank import COPY_FILES, Node, several_nodes
from tests.support.waiting import becomes, eventually

NODES = ("cpu-0", "cpu-1")
REGISTRY = "registry.example"
ACCOUNT = ("reader", "open sesame")
"""Login and password of the registry."""

START_REGISTRY = f"""
set -e
mkdir -p /srv/registry && cd /srv/registry
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \\
  -subj /CN={REGISTRY} -addext subjectAltName=DNS:{REGISTRY} -keyout key.pem \\
  -out certificate.pem 2>/dev/null
hash=$(perl -e 'print crypt($ARGV[0], q($2b$05$abcdefghijklmnopqrstuu))' '{ACCOUNT[1]}')
echo "{ACCOUNT[0]}:$hash" >passwords
cat >config.yml <<'END'
version: 0.1
log: {{level: info}}
storage: {{filesystem: {{rootdirectory: /srv/registry/data}}}}
auth: {{htpasswd: {{realm: test, path: /srv/registry/passwords}}}}
http:
  addr: ":443"
  tls: {{certificate: /srv/registry/certificate.pem, key: /srv/registry/key.pem}}
END
cp certificate.pem /usr/local/share/ca-certificates/test.crt
update-ca-certificates >/dev/null 2>&1
echo '127.0.0.1 {REGISTRY}' >>/etc/hosts
"""
RUN_REGISTRY = "exec docker-registry serve /srv/registry/config.yml >>/srv/registry/log 2>&1"
PROGRAMS = (
    *("bash", "cat", "chmod", "chown", "cp", "env", "find", "getent", "grep", "head", "id", "ls"),
    *("mkdir", "mv", "nproc", "ps", "readlink", "rm", "sed", "sh", "sleep", "sort", "stat", "tail"),
    *("touch", "true", "uname", "wc", "whoami"),
)
MAKE_BASE = f"""
set -e
root=${{ROOT:-/srv/base}}
mkdir -p $root/usr/bin $root/usr/sbin $root/usr/lib $root/usr/lib64 $root/etc $root/root $root/tmp
for name in bin sbin lib lib64; do ln -s usr/$name $root/$name; done
for name in {" ".join(PROGRAMS)}; do
  program=$(type -P $name)
  cp --dereference $program $root/usr/bin/$name
  ldd $program 2>/dev/null | grep -o '/lib[^ ]*' || true
done | sort -u | while read -r library; do
  mkdir -p $root$(dirname $library)
  cp --dereference $library $root$library
done
echo root:x:0:0:root:/root:/bin/bash >$root/etc/passwd
echo root:x:0: >$root/etc/group
echo ID=small >$root/etc/os-release
ln -s ../run/systemd/resolve/stub-resolv.conf $root/etc/resolv.conf
tar --create --directory $root .
"""
"""Bash script that prints a tar archive of a small distribution, built in the folder ROOT."""


@dataclass(frozen=True)
class Site:
    """The nodes and the registry of the tests."""

    nodes: list[Node]
    registry: Container
    base: bytes
    """Layer with a small distribution."""

    @property
    def node(self) -> Node:
        """Return the node that users submit from."""
        return self.nodes[0]

    def push(self, name: str, layout: Mapping[str, bytes]) -> str:
        """Push an image, and return its reference."""
        folder = f"/srv/layouts/{uuid.uuid4().hex}"
        put(self.registry, {f"{folder}/{path}": raw for path, raw in layout.items()})
        login = ":".join(ACCOUNT)
        self.registry_run(
            "skopeo --insecure-policy copy --all --quiet "
            f"--dest-creds '{login}' oci:{folder} docker://{REGISTRY}/{name}"
        )
        self.registry_run(f"rm -rf {folder}")
        return f"{REGISTRY}/{name}"

    def registry_run(self, command: str) -> str:
        code, text = open_shells.run(self.registry, command)
        assert code == 0, f"{command}: exit code {code}; output: {text}"
        return text

    def job(self, *options: str) -> str:
        """Start a job in which tests run steps, and return its id."""
        job = self.node.submit("sleep 1000", *options)
        becomes("the job's state", lambda: self.node.controller.job_state(job), "RUNNING")
        return job

    def requests(self, path: str) -> int:
        """Count the successful GET requests for this path."""
        sent = ('msg="response completed"', "http.request.method=GET", "http.response.status=200")
        words = (*sent, f'http.request.uri="{path}"')
        lines = self.registry_run("cat /srv/registry/log").splitlines()
        return sum(all(word in line for word in words) for line in lines)

    def give_password(self, name: str) -> None:
        """Write enroot's credentials file of a user."""
        login, password = ACCOUNT
        file = f"{c.JAIL}/home/{name}/.config/enroot/.credentials"
        line = f"machine {REGISTRY} login {login} password {password}"
        self.node.root(
            f"install -d -o {name} -g {name} $(dirname {file}) && echo '{line}' >{file} && "
            f"chown {name}: {file} && chmod 600 {file}"
        )


def run(site: Site, options: str, command: str, name: str = "researcher") -> str:
    """Return the output of a step in a container."""
    return site.node.user(f"srun --quiet {options} {command}", name)


def ended(site: Site, job: str) -> str:
    """Wait for the end of a batch job, and return its output."""
    listed = f"squeue --noheader --jobs={job} --format=%T 2>/dev/null || true"
    eventually("the job ends", lambda: not site.node.user(listed))
    return site.node.output(job)


def refusal(site: Site, options: str, name: str = "researcher") -> str:
    """Return the line with the reason why a step does not run; fail if there are several."""
    output = site.node.user(f"srun --quiet {options} true 2>&1 && echo it ran; true", name)
    lines = [line for line in output.splitlines() if "container: " in line]
    assert len(lines) == 1, output
    assert "it ran" not in output
    return lines[0]


@contextmanager
def volume() -> Iterator[str]:
    """Provide a volume for the jail."""
    made = host.engine(print).volumes.create(f"slurmstack-test-jail-{uuid.uuid4().hex[:8]}")
    try:
        yield str(made.name)
    finally:
        made.remove(force=True)


@contextmanager
def image_site(start: Start, jail: str) -> Iterator[Site]:
    """Start nodes and registry, with the jail in this volume."""
    registry = start("jail", hostname="registry", volumes=[f"{jail}:{c.JAIL}"])
    binary = (ROOT / ".local/bin/docker-registry").read_bytes()
    put(registry, {"/usr/bin/docker-registry": binary}, mode=0o755)
    _run(registry, START_REGISTRY)
    _run(registry, COPY_FILES)
    registry.exec_run(["sh", "-c", RUN_REGISTRY], detach=True)
    eventually("the registry answers", lambda: _answers(registry))
    code, (base, errors) = registry.exec_run(["bash", "-c", MAKE_BASE], demux=True)
    assert code == 0, errors
    address = Slurmctld(registry).address
    volumes = [f"{jail}:{c.JAIL}", c.WORKER_SCRATCH, c.WORKER_SPOOL]

    def filled(worker: Slurmctld) -> None:
        """Do nothing, because the registry's container has already filled the jail."""

    with several_nodes(
        start, NODES, "CPUs=8", "auto", filled, volumes, {REGISTRY: address}
    ) as nodes:
        yield Site(nodes, registry, _readable(cast(bytes, base)))


def _run(container: Container, command: str) -> None:
    code, text = open_shells.run(container, command)
    assert code == 0, f"{command}: exit code {code}; output: {text}"


def _answers(registry: Container) -> bool:
    code, _ = open_shells.run(registry, f"curl --silent --output /dev/null https://{REGISTRY}/v2/")
    return code == 0


def _readable(base: bytes) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(base)) as archive:
        assert "./etc/os-release" in archive.getnames()
    return base
