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
def test_certificate_is_valid_for_each_name_of_the_server(
    authority: Authority, name: x509.DNSName | x509.IPAddress
) -> None:
    certificate = x509.load_pem_x509_certificate(authority.issue(SERVER).certificate)
    policy(authority).build_server_verifier(name).verify(certificate, [])


def test_certificate_is_invalid_for_another_name(authority: Authority) -> None:
    certificate = x509.load_pem_x509_certificate(authority.issue(SERVER).certificate)
    verifier = policy(authority).build_server_verifier(x509.DNSName("elsewhere"))
    with pytest.raises(VerificationError):
        verifier.verify(certificate, [])


def test_certificate_is_invalid_under_another_authority(authority: Authority) -> None:
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


def test_certificate_without_names_is_only_for_clients(authority: Authority) -> None:
    certificate = x509.load_pem_x509_certificate(authority.issue(CLIENT).certificate)
    uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(uses) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_certificate_that_matches_the_request_is_kept(authority: Authority) -> None:
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
def test_certificate_that_does_not_match_the_request_is_stale(
    authority: Authority, other: Request
) -> None:
    assert not authority.has_issued(authority.issue(SERVER).certificate, other)


def test_certificate_of_another_authority_is_stale(authority: Authority) -> None:
    assert not authority.has_issued(Authority.new("test").issue(SERVER).certificate, SERVER)


def test_damaged_certificate_is_stale(authority: Authority) -> None:
    assert not authority.has_issued(b"-----BEGIN CERTIFICATE-----\n", SERVER)


def test_public_key_for_tokens_matches_the_private_key() -> None:
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


def test_printed_key_pair_hides_the_private_key(authority: Authority) -> None:
    assert "PRIVATE KEY" not in repr(authority.issue(CLIENT))
