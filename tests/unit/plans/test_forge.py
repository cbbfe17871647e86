"""Comments and plans through the APIs of GitHub and GitLab, which a local server imitates."""

import io
import json
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from plans.forge import EVENT, PLAN, WORKFLOW, forge, title
from plans.markdown import marker
from plans.reading import PlanError

MARKER = marker("lab")
HEAD = "b" * 40
MERGED = "a" * 40


class Server:
    """Give the prepared answer for each method and path, and record the requests."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], Any] = {}
        self.asked: list[tuple[str, str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    def answer(self, method: str, target: str, body: bytes) -> tuple[int, bytes]:
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        self.asked.append((method, path, json.loads(body) if body else query))
        found = self.answers.get((method, path))
        if found is None:
            return 404, b'{"message": "Not Found"}'
        if isinstance(found, bytes):
            return 200, found
        if "per_page" in query:
            size, page = int(query["per_page"][0]), int(query.get("page", ["1"])[0])
            part = slice(size * (page - 1), size * page)
            if isinstance(found, list):
                found = found[part]
            elif "jobs" in found:
                found = {"jobs": found["jobs"][part]}
        return 200, json.dumps(found).encode()

    def written(self) -> list[tuple[str, str, Any]]:
        return [asked for asked in self.asked if asked[0] != "GET"]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            state.headers.append(dict(self.headers))
            status, answer = state.answer(self.command, self.path, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = do_PATCH = do_PUT = _any  # noqa: N815 - the protocol's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            return None

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{http.server_port}"
    yield state
    http.shutdown()
    thread.join()
    http.server_close()


@pytest.fixture
def github(server: Server, tmp_path: Path) -> dict[str, str]:
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 12}}))
    return {
        "GITHUB_ACTIONS": "true",
        "GITHUB_API_URL": server.url,
        "GITHUB_EVENT_PATH": str(event),
        "GITHUB_REPOSITORY": "org/lab",
        "GITHUB_SHA": MERGED,
        "GITHUB_TOKEN": "hush",
    }


@pytest.fixture
def gitlab(server: Server) -> dict[str, str]:
    return {
        "CI_API_V4_URL": server.url,
        "CI_COMMIT_SHA": MERGED,
        "CI_MERGE_REQUEST_IID": "5",
        "CI_PROJECT_ID": "77",
        "GITLAB_CI": "true",
        "GITLAB_TOKEN": "hush",
    }


# --- GitHub --------------------------------------------------------------------------------------


COMMENTS = "/repos/org/lab/issues/12/comments"


def comment(number: int, body: str, kind: str = "Bot") -> dict[str, Any]:
    return {"id": number, "body": body, "user": {"type": kind}}


def test_first_push_creates_a_comment(server: Server, github: dict[str, str]) -> None:
    server.answers = {
        ("GET", COMMENTS): [comment(1, "Nice.", "User"), comment(2, f"{marker('gpu')}\nother")],
        ("POST", COMMENTS): {"html_url": "https://example.org/3"},
    }

    assert forge(github).comment(MARKER, f"{MARKER}\nnew") == "https://example.org/3"
    assert server.written() == [("POST", COMMENTS, {"body": f"{MARKER}\nnew"})]
    assert all(headers["Authorization"] == "Bearer hush" for headers in server.headers)


def test_later_push_updates_the_existing_comment(server: Server, github: dict[str, str]) -> None:
    # Many other comments precede this comment, so it is on the second page.
    talk = [comment(number, "Hm.", "User") for number in range(150)]
    path = "/repos/org/lab/issues/comments/900"
    server.answers = {
        ("GET", COMMENTS): [*talk, comment(900, f"{MARKER}\nold")],
        ("PATCH", path): {"html_url": "https://example.org/900"},
    }

    forge(github).comment(MARKER, f"{MARKER}\nnew")

    assert server.written() == [("PATCH", path, {"body": f"{MARKER}\nnew"})]


def test_comment_that_a_person_wrote_is_not_changed(server: Server, github: dict[str, str]) -> None:
    server.answers = {
        ("GET", COMMENTS): [comment(1, f"{MARKER}\nforged", "User")],
        ("POST", COMMENTS): {"html_url": "https://example.org/2"},
    }

    forge(github).comment(MARKER, MARKER)

    assert [asked[0] for asked in server.written()] == ["POST"]


def zipped(**files: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(f"{name}.json", text)
    return content.getvalue()


def artifact(number: int, **changed: Any) -> dict[str, Any]:
    run = {"id": 60 + number, "head_sha": "d" * 40, "repository_id": 1, "head_repository_id": 1}
    expired = changed.pop("expired", False)
    return {"id": number, "expired": expired, "workflow_run": run | changed}


def ran(number: int, conclusion: str = "success", **changed: Any) -> dict[tuple[str, str], Any]:
    """Return the run that produced an artifact.

    As on GitHub for `pull_request_target`, `head_sha` is a commit of the base branch.
    """
    path = f"/repos/org/lab/actions/runs/{60 + number}"
    run = {"event": EVENT, "path": WORKFLOW, "display_title": title(HEAD), "head_sha": "d" * 40}
    jobs = [
        *({"name": f"judge ({n})", "conclusion": "success"} for n in range(100)),
        {"name": "preview (lab)", "conclusion": "success"},
        {"name": "judge (gpu)", "conclusion": "success"},
        {"name": "judge (lab)", "conclusion": conclusion},
    ]
    return {("GET", path): run | changed, ("GET", f"{path}/jobs"): {"jobs": jobs}}


def saved(*artifacts: dict[str, Any], content: bytes | None = None) -> dict[tuple[str, str], Any]:
    pull = {"merged_at": "2026-11-22T00:00:00Z", "head": {"sha": HEAD}}
    return {
        ("GET", f"/repos/org/lab/commits/{MERGED}/pulls"): [{"merged_at": None}, pull],
        ("GET", "/repos/org/lab/actions/artifacts"): {"artifacts": list(artifacts)},
        ("GET", "/repos/org/lab/actions/artifacts/4/zip"): content or zipped(plan=b'{"a": 1}'),
        **ran(4),
    }


def test_plan_comes_from_the_merged_pull_request(server: Server, github: dict[str, str]) -> None:
    server.answers = saved(artifact(4))

    assert forge(github).plan("lab") == b'{"a": 1}'
    assert (
        "GET",
        "/repos/org/lab/actions/artifacts",
        {"name": [f"plan-lab-{HEAD}"]},
    ) in server.asked


@pytest.mark.parametrize(
    "artifacts",
    [
        (),
        (artifact(4, expired=True),),
        (artifact(4, head_repository_id=666),),
    ],
    ids=["missing", "expired", "from a fork"],
)
def test_missing_or_expired_plan_or_plan_of_a_fork_is_refused(
    server: Server, github: dict[str, str], artifacts: tuple[dict[str, Any], ...]
) -> None:
    server.answers = saved(*artifacts)

    with pytest.raises(PlanError, match="no saved plan for the change that commit aaaaaaaaaaaa"):
        forge(github).plan("lab")


@pytest.mark.parametrize(
    "run",
    [
        ran(4, path=".github/workflows/mine.yml"),
        ran(4, event="push"),
        ran(4, event="pull_request"),
        ran(4, display_title=title("c" * 40)),
        ran(4, conclusion="failure"),
        ran(4, conclusion="skipped"),
    ],
    ids=["other workflow", "push", "pull_request", "other commit", "judge failed", "judge skipped"],
)
def test_plan_is_used_only_if_its_judge_job_succeeded(
    server: Server, github: dict[str, str], run: dict[tuple[str, str], Any]
) -> None:
    server.answers = saved(artifact(4)) | run

    with pytest.raises(PlanError, match="no saved plan for the change that commit aaaaaaaaaaaa"):
        forge(github).plan("lab")


def test_forged_artifact_does_not_hide_the_plan(server: Server, github: dict[str, str]) -> None:
    server.answers = saved(artifact(9), artifact(4)) | ran(9, event="push")

    assert forge(github).plan("lab") == b'{"a": 1}'


def test_workflow_path_may_include_the_branch(server: Server, github: dict[str, str]) -> None:
    server.answers = saved(artifact(4)) | ran(4, path=f"{WORKFLOW}@main")

    assert forge(github).plan("lab") == b'{"a": 1}'


def test_commit_without_a_pull_request_has_no_plan(server: Server, github: dict[str, str]) -> None:
    server.answers = {("GET", f"/repos/org/lab/commits/{MERGED}/pulls"): []}

    with pytest.raises(PlanError, match="through a pull request"):
        forge(github).plan("lab")


def test_artifact_without_a_plan_is_refused(server: Server, github: dict[str, str]) -> None:
    for content in (zipped(other=b""), b"no zip"):
        server.answers = saved(artifact(4), content=content)
        with pytest.raises(PlanError, match=f"does not contain {PLAN}"):
            forge(github).plan("lab")


# --- GitLab --------------------------------------------------------------------------------------


NOTES = "/projects/77/merge_requests/5/notes"


def note(number: int, body: str, author: int = 9) -> dict[str, Any]:
    return {"id": number, "body": body, "author": {"id": author}}


def test_merge_request_note_is_created_once_and_then_updated(
    server: Server, gitlab: dict[str, str]
) -> None:
    server.answers = {
        ("GET", "/user"): {"id": 9},
        ("GET", NOTES): [note(1, f"{MARKER}\nforged", author=8)],
        ("POST", NOTES): {"id": 2},
    }
    forge(gitlab).comment(MARKER, f"{MARKER}\nfirst")
    server.answers["GET", NOTES] = [note(1, f"{MARKER}\nforged", author=8), note(2, MARKER)]
    server.answers["PUT", f"{NOTES}/2"] = {"id": 2}
    forge(gitlab).comment(MARKER, f"{MARKER}\nsecond")

    assert server.written() == [
        ("POST", NOTES, {"body": f"{MARKER}\nfirst"}),
        ("PUT", f"{NOTES}/2", {"body": f"{MARKER}\nsecond"}),
    ]
    assert all(headers["PRIVATE-TOKEN"] == "hush" for headers in server.headers)


def test_plan_comes_from_the_last_pipeline_of_the_merge_request(
    server: Server, gitlab: dict[str, str]
) -> None:
    commit = f"/projects/77/repository/commits/{MERGED}/merge_requests"
    jobs = [
        {"id": 29, "name": "preview: [lab]", "status": "success"},
        {"id": 30, "name": "judge: [gpu]", "status": "success"},
        {"id": 31, "name": "judge: [lab]", "status": "success"},
    ]
    server.answers = {
        ("GET", commit): [{"iid": 4, "state": "opened"}, {"iid": 5, "state": "merged"}],
        ("GET", "/projects/77/merge_requests/5"): {"head_pipeline": {"id": 20}},
        ("GET", "/projects/77/pipelines/20/jobs"): jobs,
        ("GET", f"/projects/77/jobs/31/artifacts/{PLAN}"): b"the plan",
    }

    assert forge(gitlab).plan("lab") == b"the plan"

    jobs[2]["status"] = "failed"
    with pytest.raises(PlanError, match="no saved plan"):
        forge(gitlab).plan("lab")
    server.answers["GET", commit] = []
    with pytest.raises(PlanError, match="no saved plan"):
        forge(gitlab).plan("lab")


# --- GitHub and GitLab ---------------------------------------------------------------------------


def test_error_for_a_refused_request_does_not_contain_the_token(
    server: Server, github: dict[str, str]
) -> None:
    with pytest.raises(PlanError) as error:
        forge(github).comment(MARKER, "body")

    assert f"GET {COMMENTS}: HTTP 404" in str(error.value)
    assert "hush" not in str(error.value)
    assert "\n" not in str(error.value)


def test_unreachable_server_is_reported(github: dict[str, str]) -> None:
    with pytest.raises(PlanError, match="ConnectError"):
        forge({**github, "GITHUB_API_URL": "http://127.0.0.1:1"}).plan("lab")


@pytest.mark.parametrize("name", ["GITHUB_TOKEN", "GITHUB_REPOSITORY", "GITHUB_EVENT_PATH"])
def test_error_names_a_missing_variable_of_the_job(
    github: dict[str, str], server: Server, name: str
) -> None:
    del github[name]

    with pytest.raises(PlanError, match=f"{name}: is not set"):
        forge(github).comment(MARKER, "body")
