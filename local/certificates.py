"""The cluster's certificates: an authority, and the certificates that it signs."""

import datetime
import ipaddress
from dataclasses import dataclass, field
from typing import Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALIDITY = datetime.timedelta(days=3650)
"""Certificates are not renewed, so they must outlive the local cluster."""
_CLOCK_SKEW = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, in PEM format."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True)
class Request:
    """Contents of a certificate: its subject, and a server's host names and IP addresses.

    Kubernetes reads a client's user from `name` and its groups from `groups`. Every certificate is
    valid for clients. A certificate with hosts or addresses is also valid for servers.
    """

    name: str
    groups: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Authority:
    """A certificate authority, which signs the certificates of the cluster."""

    pair: Pair

    @classmethod
    def new(cls, name: str) -> Self:
        """Return an authority with a new key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = (
            _builder(subject, subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
        )
        return cls(_pair(builder.sign(key, hashes.SHA256()), key))

    def issue(self, request: Request) -> Pair:
        """Issue a certificate for the request, with a new key."""
        issuer = x509.load_pem_x509_certificate(self.pair.certificate)
        signer = serialization.load_pem_private_key(self.pair.key, None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)  # noqa: S101  # `new` makes EC keys
        key = ec.generate_private_key(ec.SECP256R1())
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        names = _alternative_names(request)
        if names:
            uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = (
            _builder(_subject(request), issuer.subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
                critical=False,
            )
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return _pair(builder.sign(signer, hashes.SHA256()), key)

    def has_issued(self, certificate: bytes, request: Request) -> bool:
        """Return whether this authority issued the certificate, and the request describes it."""
        try:
            issued = x509.load_pem_x509_certificate(certificate)
            issued.verify_directly_issued_by(x509.load_pem_x509_certificate(self.pair.certificate))
        except (ValueError, TypeError, InvalidSignature):
            return False
        try:
            extension = issued.extensions.get_extension_for_class(x509.SubjectAlternativeName)
            names = list(extension.value)
        except x509.ExtensionNotFound:
            names = []
        return issued.subject == _subject(request) and names == _alternative_names(request)


def new_key() -> tuple[bytes, bytes]:
    """Return a private and a public key, PEM, to sign and verify service account tokens."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return _pem(key), public


def new_ssh_key(comment: str) -> tuple[bytes, bytes]:
    """Return an OpenSSH Ed25519 private key, and its line for `authorized_keys`."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return private, public + f" {comment}\n".encode()


def _subject(request: Request) -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in request.groups]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, request.name)])


def _alternative_names(request: Request) -> list[x509.GeneralName]:
    hosts: list[x509.GeneralName] = [x509.DNSName(host) for host in request.hosts]
    return hosts + [x509.IPAddress(ipaddress.ip_address(text)) for text in request.addresses]


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + VALIDITY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))
