"""A real LDAP server in a container, with entries that the test chooses."""

import os
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from docker.models.containers import Container

from images import build
from local import host
from tests.support.containers import put
from tests.support.slurmctld import Slurmctld

IMAGE = "slurmstack-test/slapd"
HOST = "ldap.example.org"
BASE = "dc=example,dc=org"
READER = f"cn=reader,{BASE}"
PASSWORD = uuid.uuid4().hex
_FOLDER = Path(__file__).with_name("slapd")

_ROOT = f"""\
dn: {BASE}
objectClass: domain
dc: example

dn: {READER}
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: reader
userPassword: {PASSWORD}
"""


def person(name: str, uid: int, *keys: str, title: str = "member", gecos: str | None = None) -> str:
    """Return the LDIF entry of a person, whose primary group has the same id as the person."""
    lines = [
        f"dn: uid={name},{BASE}",
        *(f"objectClass: {kind}" for kind in ("inetOrgPerson", "posixAccount", "ldapPublicKey")),
        *(f"{attribute}: {name}" for attribute in ("uid", "cn", "sn")),
        f"title: {title}",
        f"uidNumber: {uid}",
        f"gidNumber: {uid}",
        f"homeDirectory: /nfs/{name}",
        *(f"sshPublicKey: {key}" for key in keys),
        *([f"gecos: {gecos}"] if gecos else []),
    ]
    return "\n".join(lines) + "\n"


def group(name: str, gid: int, *members: str) -> str:
    """Return the LDIF entry of a group."""
    lines = [
        f"dn: cn={name},{BASE}",
        "objectClass: posixGroup",
        f"cn: {name}",
        f"gidNumber: {gid}",
        *(f"memberUid: {member}" for member in members),
    ]
    return "\n".join(lines) + "\n"


def build_image() -> None:
    proxies = {key: os.environ[key] for key in os.environ if key.lower() in build.PROXIES}
    host.engine(print).images.build(
        path=str(_FOLDER), tag=IMAGE, network_mode="host", buildargs=proxies, rm=True
    )


def serve(container: Container, entries: Iterable[str]) -> str:
    """Start slapd with these entries, and return its self-signed certificate (PEM)."""
    certificate, key = _certificate()
    put(
        container,
        {
            "/tmp/ldap/cert.pem": certificate,
            "/tmp/ldap/key.pem": key,
            "/tmp/ldap/slapd.conf": (_FOLDER / "slapd.conf").read_text(),
            "/tmp/ldap/data.ldif": "\n".join([_ROOT, *entries]),
        },
    )
    server = Slurmctld(container)
    server.run(
        "mkdir /tmp/ldap/db && slapadd -f /tmp/ldap/slapd.conf -l /tmp/ldap/data.ldif"
        " && slapd -f /tmp/ldap/slapd.conf -h 'ldap:/// ldaps:///'",
        user="root",
    )
    return certificate


def _certificate() -> tuple[str, str]:
    """Return a self-signed server certificate and its key, both in PEM format."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=12))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode()
