"""Keys and passwords are only in the pods that need them."""

import base64
import json

import pytest

from tests.support.cluster import Cluster


@pytest.fixture(scope="module")
def keys(cluster: Cluster) -> list[str]:
    """Each key, in every form in which a program could write it."""
    forms = []
    for secret, entry in (
        *(("auth-key", "0"), ("login-host-key", "host_key"), ("node-ssh", "key")),
        ("database-password", "password"),
    ):
        encoded = cluster.kubectl(
            "get", "secret", secret, "-o", f"jsonpath={{.data.{entry.replace('.', chr(92) + '.')}}}"
        )
        raw = base64.b64decode(encoded)
        assert len(raw) >= 40, "a key has at least 40 bytes"
        forms += [encoded, raw.hex(), json.dumps(raw.decode("latin-1"))[1:-1]]
    return forms


def test_no_key_is_in_the_logs_of_pods(cluster: Cluster, keys: list[str]) -> None:
    for pod in cluster.objects("pods"):
        name = pod["metadata"]["name"]
        logs = cluster.kubectl("logs", name, "--all-containers")
        assert not any(key in logs for key in keys), name


@pytest.mark.parametrize("kind", ["configmaps", "pods", "statefulsets", "jobs", "events"])
def test_only_the_secret_contains_a_key(cluster: Cluster, keys: list[str], kind: str) -> None:
    text = json.dumps(cluster.objects(kind))

    assert not any(key in text for key in keys)


def test_state_contains_keys_only_in_encrypted_form(cluster: Cluster, keys: list[str]) -> None:
    for path in cluster.state_file.parents[2].rglob("*.json*"):
        text = path.read_text()
        assert not any(key in text for key in keys), path.name
        assert "PRIVATE KEY" not in text, path.name
    assert '"ciphertext"' in cluster.state_file.read_text()


def test_only_the_owner_can_read_files_with_secrets(cluster: Cluster) -> None:
    for name in ("kubeconfig", "id_ed25519", "passphrase"):
        assert (cluster.directory / name).stat().st_mode & 0o077 == 0, name
