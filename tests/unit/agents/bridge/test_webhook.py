"""The API server can ask the bridge over HTTPS about new pods."""

import base64
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agents.bridge.wanted import Wanted
from agents.bridge.webhook import Webhook
from agents.wanted import WantedError
from components.identity.certificates import certificate
from components.identity.hostkeys import host_key
from tests.unit.agents.bridge import things

HOST, SEED = "bridge.slurm.svc", "a seed"
WANTED = things.wanted(things.rule()).model_copy(update={"namespaces": ("lab",)})


class Settings:
    """Settings that tests can make unreadable."""

    def __init__(self) -> None:
        self.are_readable = True

    def __call__(self) -> Wanted:
        if not self.are_readable:
            raise WantedError("bridge.json: is missing")
        return WANTED


@pytest.fixture
def settings() -> Settings:
    return Settings()


@pytest.fixture
def webhook(tmp_path: Path, settings: Settings) -> Iterator[Webhook]:
    (tmp_path / "tls.crt").write_text(certificate(SEED, HOST))
    (tmp_path / "tls.key").write_text(host_key(SEED))
    with Webhook(0, tmp_path, settings) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def post(server: Webhook, body: bytes, seed: str = SEED, host: str = HOST) -> tuple[int, Any]:
    """Send a request as a client that trusts only the certificate of this seed."""
    trusted = ssl.create_default_context(cadata=certificate(seed, HOST))
    with (
        socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as plain,
        trusted.wrap_socket(plain, server_hostname=host) as secure,
        closing(http.client.HTTPConnection(host)) as connection,
    ):
        connection.sock = secure
        connection.request("POST", "/pods", body)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None


def review(spec: dict[str, Any]) -> bytes:
    pod = {"metadata": {"generateName": "train-"}, "spec": spec}
    asked = {"uid": "7", "namespace": "lab", "operation": "CREATE", "object": pod}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "request": asked}).encode()


SPEC = {"schedulerName": "default-scheduler", "containers": [{"name": "main"}]}


def test_new_pod_gets_a_patch(webhook: Webhook) -> None:
    status, answer = post(webhook, review(SPEC))
    response = answer["response"]
    changes = json.loads(base64.b64decode(response["patch"]))

    assert status == http.client.OK
    assert (answer["kind"], answer["apiVersion"]) == ("AdmissionReview", "admission.k8s.io/v1")
    assert (response["uid"], response["allowed"], response["patchType"]) == (
        *("7", True),
        "JSONPatch",
    )
    assert {one["path"] for one in changes} == {"/spec/schedulerName", "/spec/containers"}


def test_pod_with_an_unknown_quantity_is_refused_with_the_reason(webhook: Webhook) -> None:
    wrong = {"name": "main", "resources": {"requests": {"cpu": "much"}}}
    _, answer = post(webhook, review({**SPEC, "containers": [wrong]}))
    assert not answer["response"]["allowed"]
    assert "'much': expected a quantity" in answer["response"]["status"]["message"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"request": {"uid": "7"}}'])
def test_request_that_is_no_review_is_refused(webhook: Webhook, body: bytes) -> None:
    assert post(webhook, body) == (http.client.BAD_REQUEST, None)


def test_unreadable_settings_refuse_the_pod(webhook: Webhook, settings: Settings) -> None:
    settings.are_readable = False
    assert post(webhook, review(SPEC)) == (http.client.SERVICE_UNAVAILABLE, None)


def test_client_that_sends_nothing_does_not_block_others(webhook: Webhook) -> None:
    with socket.create_connection(("127.0.0.1", webhook.server_port)):
        status, _ = post(webhook, review(SPEC))
    assert status == http.client.OK


# --- Certificate ---------------------------------------------------------------------------------


def test_certificate_is_the_same_in_each_deploy() -> None:
    assert certificate(SEED, HOST) == certificate(SEED, HOST)
    assert certificate("other", HOST) != certificate(SEED, HOST)


def test_client_trusts_only_the_certificate_of_the_seed_and_its_name(webhook: Webhook) -> None:
    for other in ({"seed": "other"}, {"host": "bridge.other.svc"}):
        with pytest.raises(ssl.SSLCertVerificationError):
            post(webhook, review(SPEC), **other)
