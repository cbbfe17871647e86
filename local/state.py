"""A stack's files below `.local/`: keys, certificates, kubeconfigs, each node's configuration."""

import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from local import certificates
from local.certificates import Authority, Pair, Request
from local.configuration import (
    ADMIN,
    API_PORT,
    CLIENTS,
    FRONT_PROXY,
    Node,
    kubeconfig,
    node_files,
    requests,
    yaml_text,
)
from local.paths import stack_directory, write

SSH_USER = "researcher"
PASSPHRASE_BYTES = 24


@dataclass(frozen=True)
class State:
    """The files of one stack. A file is written only if it is missing or has other contents."""

    stack: str

    @property
    def directory(self) -> Path:
        return stack_directory(self.stack)

    @property
    def pki(self) -> Path:
        """Path of the authorities, the administrator's certificate and the service account key."""
        return self.directory / "pki"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.directory / "kubeconfig"

    @property
    def volumes(self) -> Path:
        return self.directory / "volumes"

    @property
    def images(self) -> Path:
        """Temporary archives of images that the nodes load."""
        return self.directory / "images"

    def node(self, node: Node) -> Path:
        return self.directory / "nodes" / node.name

    @property
    def has_authority(self) -> bool:
        return (self.pki / "ca.key").is_file()

    # --- Writing ---------------------------------------------------------------------------------

    def write_user_files(self) -> None:
        """Write the user's SSH key for login, and the passphrase that encrypts Pulumi's state."""
        private = self.directory / "id_ed25519"
        public = self.directory / "id_ed25519.pub"
        if not (private.is_file() and public.is_file()):
            key, line = certificates.new_ssh_key(SSH_USER)
            write(public, line, 0o644)
            write(private, key)
        passphrase = self.directory / "passphrase"
        if not passphrase.is_file():
            write(passphrase, secrets.token_urlsafe(PASSPHRASE_BYTES) + "\n")

    def write_cluster_files(self, api_port: int) -> None:
        """Write the cluster's authorities and the administrator's kubeconfig."""
        self.volumes.mkdir(parents=True, exist_ok=True)
        self.images.mkdir(parents=True, exist_ok=True)
        front_proxy = self._authority("front-proxy-ca")
        self._pair(self.pki / "front-proxy-client", FRONT_PROXY, front_proxy)
        private, public = self.pki / "service-account.key", self.pki / "service-account.pub"
        if not (private.is_file() and public.is_file()):
            public.unlink(missing_ok=True)
            key, public_key = certificates.new_key()
            write(private, key)
            write(public, public_key)
        authority = self._authority("ca")
        admin = self._pair(self.pki / "admin", ADMIN, authority)
        server = f"https://127.0.0.1:{api_port}"
        document = kubeconfig(server, authority.pair.certificate, admin, f"slurmstack-{self.stack}")
        _refresh(self.kubeconfig, yaml_text(document))

    def write_node_files(self, node: Node) -> dict[str, bytes]:
        """Bring the node's directory up to date; return its files by relative path."""
        directory = self.node(node)
        authority = self._authority("ca")
        files = {name: text.encode() for name, text in node_files(node).items()}
        files["pki/ca.crt"] = authority.pair.certificate
        for name, request in requests(node).items():
            pair = self._pair(directory / "pki" / name, request, authority)
            files[f"pki/{name}.crt"], files[f"pki/{name}.key"] = (
                pair.certificate,
                pair.key,
            )
            if name in CLIENTS:
                server = f"https://{node.control_plane.address}:{API_PORT}"
                document = kubeconfig(server, authority.pair.certificate, pair, node.name)
                files[f"{name}.kubeconfig"] = yaml_text(document).encode()
        if node.is_control_plane:
            for name in (
                *("ca.key", "front-proxy-ca.crt", "front-proxy-client.crt"),
                *(
                    "front-proxy-client.key",
                    "service-account.key",
                    "service-account.pub",
                ),
            ):
                files[f"pki/{name}"] = (self.pki / name).read_bytes()
        for path in [path for path in directory.rglob("*") if path.is_file()]:
            if str(path.relative_to(directory)) not in files:
                path.unlink()
        for name, content in files.items():
            _refresh(directory / name, content)
        return files

    def remove_node(self, node: Node) -> None:
        shutil.rmtree(self.node(node), ignore_errors=True)

    def _authority(self, name: str) -> Authority:
        certificate, key = self.pki / f"{name}.crt", self.pki / f"{name}.key"
        if not (certificate.is_file() and key.is_file()):
            pair = Authority.new(f"slurmstack {self.stack} {name}").pair
            write(certificate, pair.certificate, 0o644)
            # Write the key last: if the key exists, the certificate exists too.
            write(key, pair.key)
        return Authority(Pair(certificate.read_bytes(), key.read_bytes()))

    def _pair(self, stem: Path, request: Request, authority: Authority) -> Pair:
        certificate = stem.with_name(f"{stem.name}.crt")
        key = stem.with_name(f"{stem.name}.key")
        if certificate.is_file() and key.is_file():
            pair = Pair(certificate.read_bytes(), key.read_bytes())
            if authority.has_issued(pair.certificate, request):
                return pair
        # Remove the certificate first, so that an interruption never leaves an old certificate with
        # a new key.
        certificate.unlink(missing_ok=True)
        pair = authority.issue(request)
        write(key, pair.key)
        write(certificate, pair.certificate)
        return pair


def _refresh(path: Path, content: bytes | str) -> None:
    data = content.encode() if isinstance(content, str) else content
    if not path.is_file() or path.read_bytes() != data:
        write(path, data)
