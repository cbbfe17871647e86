"""Requests to Kubernetes, and the errors of failed requests."""

import json
from typing import Any

import httpx
import pytest

from agents import kubernetes
from agents.kubernetes import Api, KubernetesError
from tests.support.kubeanswers import Answers, api


def test_list_is_read_page_by_page_to_its_end() -> None:
    pages = [
        {"items": [{"n": 1}], "metadata": {"continue": "next"}},
        {"items": [{"n": 2}], "metadata": {}},
    ]
    cluster = Answers(nodes=pages)

    seen = api(cluster).items("/api/v1/nodes", dict[str, int], labelSelector="a=b")
    assert list(seen) == [{"n": 1}, {"n": 2}]
    first, second = (dict(request.url.params) for request in cluster.asked)
    assert first == {"limit": "500", "labelSelector": "a=b"}
    assert second == {**first, "continue": "next"}
    assert cluster.asked[0].headers["Authorization"] == "Bearer token"
    assert cluster.asked[0].headers["Accept-Encoding"] == "identity"


def test_complete_list_has_a_version() -> None:
    pages = [
        {"items": [{"n": 1}], "metadata": {"continue": "next", "resourceVersion": "7"}},
        {"items": [{"n": 2}], "metadata": {"resourceVersion": "7"}},
    ]

    found, version = api(Answers(nodes=pages)).listed("/api/v1/nodes", dict[str, int])
    assert (found, version) == ([{"n": 1}, {"n": 2}], "7")


def changes(*events: tuple[str, dict[str, Any]]) -> httpx.Response:
    return httpx.Response(
        200, text="".join(json.dumps({"type": kind, "object": one}) + "\n" for kind, one in events)
    )


def watched(answer: httpx.Response) -> list[kubernetes.Event[dict[str, Any]]]:
    return list(api(Answers(nodes=answer)).watch("/api/v1/nodes", dict[str, Any], "5"))


def test_watch_yields_each_change_with_the_version_of_the_list() -> None:
    one, two, late = ({"metadata": {"resourceVersion": version}} for version in ("6", "7", "9"))
    added, deleted, bookmark = watched(
        changes(("ADDED", one), ("DELETED", two), ("BOOKMARK", late))
    )

    assert (added.version, added.object, added.is_deleted) == ("6", one, False)
    assert (deleted.version, deleted.object, deleted.is_deleted) == ("7", two, True)
    assert (bookmark.version, bookmark.object) == ("9", None)


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(410, json={"message": "too old resource version"}),
        changes(("ERROR", {"code": 410, "message": "too old resource version"})),
    ],
)
def test_watch_from_a_version_that_the_server_no_longer_knows_is_an_error(
    answer: httpx.Response,
) -> None:
    with pytest.raises(KubernetesError, match="too old resource version") as caught:
        watched(answer)
    assert caught.value.status == httpx.codes.GONE


GONE = httpx.Response(410, json={"kind": "Status", "message": "The continue token has expired"})


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (httpx.ConnectError("no way"), "no way; check that the API server of Kubernetes runs"),
        (httpx.ReadTimeout("slow"), "slow; check that the API server of Kubernetes runs"),
        (httpx.Response(403, json={"message": "nodes is forbidden"}), "forbidden; deploy again"),
        (httpx.Response(503, text="down"), "HTTP 503"),
        (httpx.Response(200, text="<html>"), "unexpected format"),
        (httpx.Response(200, json=[]), "unexpected format"),
        (GONE, "410 The continue token has expired"),
    ],
)
def test_failed_request_is_reported_in_one_line(answer: Any, message: str) -> None:
    with pytest.raises(KubernetesError) as caught:
        list(api(Answers(nodes=answer)).items("/api/v1/nodes", dict[str, Any]))

    assert message in str(caught.value)
    assert str(caught.value).startswith("Kubernetes: GET /api/v1/nodes: ")
    assert "\n" not in str(caught.value)


def test_unreadable_token_is_an_error() -> None:
    def token() -> str:
        raise FileNotFoundError("token")

    with pytest.raises(KubernetesError):
        Api("http://k", token, transport=httpx.MockTransport(Answers())).ask("GET", "/x")


def test_missing_credentials_outside_a_cluster_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    with pytest.raises(
        KubernetesError, match="KUBERNETES_SERVICE_HOST is not set, so this is not a pod"
    ):
        kubernetes.in_cluster()
