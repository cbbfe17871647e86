"""Certificates contain what was requested, and verify only against their authority."""

import ipaddress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from local.certificates import Authority, Request, new_key, new_ssh_key

SERVER = Request(
    "kube-apiserver", hosts=("localhost", "kubernetes"), addresses=("127.0.0.1", "10.96.0.1")
)
CLIENT = Request("system:node:node-1", groups=("system:nodes",))


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.new("test")


def policy(authority: Authority) -> PolicyBuilder:
    root = x509.load_pem_x509_certificate(authority.pair.certificate)
    return PolicyBuilder().store(Store([root]))


@pytest.mark.parametrize(
    "name",
    [
        x509.DNSName("localhost"),
        x509.DNSName("kubernetes"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.IPAddress(ipaddress.ip_address("10.96.0.1")),
    ],
)
def test_a_server_verifies_under_each_of_its_names(
    authority: Authority, name: x509.DNSName | x509.IPAddress
) -> None:
    certificate = x509.load_pem_x509_certificate(authority.issue(SERVER).certificate)
    policy(authority).build_server_verifier(name).verify(certificate, [])


def test_a_server_does_not_verify_under_another_name(authority: Authority) -> None:
    certificate = x509.load_pem_x509_certificate(authority.issue(SERVER).certificate)
    verifier = policy(authority).build_server_verifier(x509.DNSName("elsewhere"))
    with pytest.raises(VerificationError):
        verifier.verify(certificate, [])


def test_a_server_does_not_verify_against_another_authority(authority: Authority) -> None:
    certificate = x509.load_pem_x509_certificate(authority.issue(SERVER).certificate)
    verifier = policy(Authority.new("test")).build_server_verifier(x509.DNSName("localhost"))
    with pytest.raises(VerificationError):
        verifier.verify(certificate, [])


def test_kubernetes_reads_user_and_groups_from_a_client_certificate(authority: Authority) -> None:
    subject = x509.load_pem_x509_certificate(authority.issue(CLIENT).certificate).subject
    assert [name.value for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == [
        "system:node:node-1"
    ]
    organizations = subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert [name.value for name in organizations] == ["system:nodes"]


def test_client_certificate_without_names_may_not_serve(authority: Authority) -> None:
    certificate = x509.load_pem_x509_certificate(authority.issue(CLIENT).certificate)
    uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(uses) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_certificate_issued_for_the_request_is_kept(authority: Authority) -> None:
    assert authority.has_issued(authority.issue(SERVER).certificate, SERVER)
    assert authority.has_issued(authority.issue(CLIENT).certificate, CLIENT)


@pytest.mark.parametrize(
    "other",
    [
        Request("another", hosts=SERVER.hosts, addresses=SERVER.addresses),
        Request(SERVER.name, hosts=SERVER.hosts, addresses=("127.0.0.1", "172.30.0.10")),
        Request(SERVER.name, groups=("system:masters",), hosts=SERVER.hosts),
    ],
)
def test_certificate_issued_for_another_request_is_stale(
    authority: Authority, other: Request
) -> None:
    assert not authority.has_issued(authority.issue(SERVER).certificate, other)


def test_certificate_of_another_authority_is_stale(authority: Authority) -> None:
    assert not authority.has_issued(Authority.new("test").issue(SERVER).certificate, SERVER)


def test_a_damaged_certificate_is_stale(authority: Authority) -> None:
    assert not authority.has_issued(b"-----BEGIN CERTIFICATE-----\n", SERVER)


def test_the_public_key_for_tokens_belongs_to_the_private_one() -> None:
    private, public = new_key()
    loaded = serialization.load_pem_private_key(private, None).public_key()
    assert public == loaded.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def test_ssh_key_has_the_openssh_format() -> None:
    private, public = new_ssh_key("researcher")
    loaded = serialization.load_ssh_private_key(private, None).public_key()
    kind, blob, comment = public.decode().split()
    assert (kind, comment) == ("ssh-ed25519", "researcher")
    assert f"{kind} {blob}".encode() == loaded.public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )


def test_printed_pair_hides_the_key(authority: Authority) -> None:
    assert "PRIVATE KEY" not in repr(authority.issue(CLIENT))
