"""HTTP clients of GitHub and GitLab for pull requests; the variables of CI jobs configure them.

GitHub: REST API, version 2022-11-28 (issue comments, pull requests of a commit, artifacts, runs).
GitLab: REST API v4 (notes of merge requests, merge requests of a commit, jobs' artifacts).
"""

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import httpx

from plans.reading import PlanError

PLAN: Final = "plan.json"
"""File name of the saved plan in an artifact."""
WORKFLOW: Final = ".github/workflows/preview.yml"
"""GitHub workflow that makes the plans to deploy."""
EVENT: Final = "pull_request_target"
"""Event of `WORKFLOW`. For this event, GitHub runs the workflow file of the default branch, never
the file of a pull request."""
JUDGE: Final = "judge"
"""Job that checks plans. A plan may be deployed only if this job succeeded for its stack."""
_SECONDS: Final = 30.0
_PAGE: Final = 100
_MOST_PAGES: Final = 50


class Forge(Protocol):
    """Interface of both clients. All methods raise `PlanError`."""

    def comment(self, marker: str, body: str) -> str:
        """Create or update the comment that begins with the marker; return its address."""
        ...

    def plan(self, stack: str) -> bytes:
        """Return the saved plan of the change that this job's commit merged."""
        ...


def forge(environment: Mapping[str, str]) -> Forge:
    """Return the client for this job. Raises `PlanError` outside of GitHub and GitLab jobs."""
    if environment.get("GITHUB_ACTIONS"):
        return GitHub(environment)
    if environment.get("GITLAB_CI"):
        return GitLab(environment)
    raise PlanError(
        "neither GITHUB_ACTIONS nor GITLAB_CI is set: run this command in a job of GitHub Actions"
        " or GitLab CI; outside of jobs, `make preview ARGS=--markdown` prints the comment"
    )


class _Api:
    """Client for JSON over HTTP. Errors are one line without credentials."""

    def __init__(self, base: str, headers: Mapping[str, str]) -> None:
        self._client = httpx.Client(
            base_url=base, headers=dict(headers), timeout=_SECONDS, follow_redirects=True
        )

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            response = self._client.request(method, path, **more)
        except httpx.HTTPError as error:
            raise PlanError(
                f"{method} {path}: {type(error).__name__}: {error}; check the network, and run the"
                " job again"
            ) from None
        if not response.is_success:
            answer = " ".join(response.text.split())[:200]
            status = response.status_code
            remedy = "give the job's token the rights that docs/ci.md lists"
            if status == httpx.codes.TOO_MANY_REQUESTS or response.is_server_error:
                remedy = "run the job again later"
            raise PlanError(f"{method} {path}: HTTP {status}: {answer}; {remedy}")
        return response

    def json(self, method: str, path: str, **more: Any) -> Any:
        return self.ask(method, path, **more).json()

    def pages(self, path: str, key: str = "") -> Iterator[Mapping[str, Any]]:
        """Yield all entries of a list that the API returns in pages.

        If `key` is set, each answer is an object, and its field `key` contains the entries.
        """
        for page in range(1, _MOST_PAGES + 1):
            answer = self.json("GET", path, params={"per_page": _PAGE, "page": page})
            entries = answer[key] if key else answer
            yield from entries
            if len(entries) < _PAGE:
                return


class GitHub:
    """Client for a job of GitHub Actions."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._repository = f"/repos/{_needed(environment, 'GITHUB_REPOSITORY')}"
        self._api = _Api(
            environment.get("GITHUB_API_URL", "https://api.github.com"),
            {
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {_needed(environment, 'GITHUB_TOKEN')}",
                "X-GitHub-Api-Version": "2022-11-28",
            },
        )

    def comment(self, marker: str, body: str) -> str:
        """Create or update the comment on the pull request that started this job."""
        issue = f"{self._repository}/issues/{self._pull_request()}/comments"
        for entry in self._api.pages(issue):
            # Any user can write the marker, so update only comments of bots.
            if entry["body"].startswith(marker) and entry["user"]["type"] == "Bot":
                path = f"{self._repository}/issues/comments/{entry['id']}"
                return str(self._api.json("PATCH", path, json={"body": body})["html_url"])
        return str(self._api.json("POST", issue, json={"body": body})["html_url"])

    def _pull_request(self) -> int:
        event = json.loads(Path(_needed(self._environment, "GITHUB_EVENT_PATH")).read_text())
        if "pull_request" not in event:
            raise PlanError(
                "GITHUB_EVENT_PATH: expected the event of a pull request; run this command in a job"
                " that a pull request starts"
            )
        return int(event["pull_request"]["number"])

    def plan(self, stack: str) -> bytes:
        """Return the plan of the pull request that merged the commit."""
        commit = _needed(self._environment, "GITHUB_SHA")
        found = self._api.json("GET", f"{self._repository}/commits/{commit}/pulls")
        merged = [pull for pull in found if pull.get("merged_at")]
        if not merged:
            raise _no_plan(stack, commit)
        head = merged[0]["head"]["sha"]
        listed = self._api.json(
            "GET", f"{self._repository}/actions/artifacts", params={"name": f"plan-{stack}-{head}"}
        )
        for artifact in listed["artifacts"]:
            run = artifact["workflow_run"]
            # A fork can give its artifacts any name, so ignore artifacts of forks.
            ours = run["head_repository_id"] == run["repository_id"]
            if ours and not artifact["expired"] and self._passed(run["id"], stack, head):
                path = f"{self._repository}/actions/artifacts/{artifact['id']}/zip"
                return _unzipped(self._api.ask("GET", path).content)
        raise _no_plan(stack, commit)

    def _passed(self, run: int, stack: str, head: str) -> bool:
        """Return whether a run of `WORKFLOW` previewed this commit, and its job `JUDGE` passed.

        The artifact's name does not prove this, because a workflow in any branch can give its
        artifacts any name. Read the commit from the title of the run, because `head_sha` of the run
        is the commit of the base branch.
        """
        path = f"{self._repository}/actions/runs/{run}"
        found = self._api.json("GET", path)
        # GitHub can append the branch: `.github/workflows/preview.yml@main`.
        workflow = found["path"].partition("@")[0]
        if (found["event"], workflow, found["display_title"]) != (EVENT, WORKFLOW, title(head)):
            return False
        return (f"{JUDGE} ({stack})", "success") in {
            (job["name"], job["conclusion"]) for job in self._api.pages(f"{path}/jobs", "jobs")
        }


class GitLab:
    """Client for a job of GitLab CI. `GITLAB_TOKEN` is a project access token with scope `api`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._project = f"/projects/{_needed(environment, 'CI_PROJECT_ID')}"
        self._api = _Api(
            _needed(environment, "CI_API_V4_URL"),
            {"PRIVATE-TOKEN": _needed(environment, "GITLAB_TOKEN")},
        )

    def comment(self, marker: str, body: str) -> str:
        """Create or update the note on the merge request that started this job."""
        merge_request = _needed(self._environment, "CI_MERGE_REQUEST_IID")
        notes = f"{self._project}/merge_requests/{merge_request}/notes"
        own = self._api.json("GET", "/user")["id"]
        for entry in self._api.pages(notes):
            if entry["body"].startswith(marker) and entry["author"]["id"] == own:
                self._api.json("PUT", f"{notes}/{entry['id']}", json={"body": body})
                return f"note {entry['id']} of !{merge_request}"
        made = self._api.json("POST", notes, json={"body": body})
        return f"note {made['id']} of !{merge_request}"

    def plan(self, stack: str) -> bytes:
        """Return the plan of the merge request that merged the commit."""
        commit = _needed(self._environment, "CI_COMMIT_SHA")
        path = f"{self._project}/repository/commits/{commit}/merge_requests"
        merged = [one for one in self._api.json("GET", path) if one["state"] == "merged"]
        if not merged:
            raise _no_plan(stack, commit)
        whole = self._api.json("GET", f"{self._project}/merge_requests/{merged[0]['iid']}")
        pipeline = whole["head_pipeline"]["id"]
        for job in self._api.pages(f"{self._project}/pipelines/{pipeline}/jobs"):
            if job["name"] == f"{JUDGE}: [{stack}]" and job["status"] == "success":
                path = f"{self._project}/jobs/{job['id']}/artifacts/{PLAN}"
                return self._api.ask("GET", path).content
        raise _no_plan(stack, commit)


def title(head: str) -> str:
    """Return the title (`run-name`) of the workflow run that previews a commit."""
    return f"preview of {head}"


def _needed(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name)
    if not value:
        raise PlanError(f"{name}: is not set; set it in the job, as docs/ci.md describes")
    return value


def _no_plan(stack: str, commit: str) -> PlanError:
    return PlanError(
        f"stack {stack}: no saved plan for the change that commit {commit[:12]} merged; merge"
        " changes through a pull request whose preview succeeded, and deploy them before the saved"
        " plan expires"
    )


def _unzipped(content: bytes) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return archive.read(PLAN)
    except (zipfile.BadZipFile, KeyError) as error:
        raise PlanError(
            f"the artifact of the preview does not contain {PLAN}: {error}; run the preview of the"
            " pull request again"
        ) from None
