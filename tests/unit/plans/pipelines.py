"""Run the scripts of a pipeline job in checkouts whose programs only record that they ran.

The `Makefile`, `.ci/cloud` and `.ci/install` of a checkout record the origin of their code: the
default branch (BASE) or the pull request (CHANGE). Only BASE has the real `.ci/preview`.
`.venv/bin/python` records the checkout in which it runs, because `python -m` loads modules from
the working directory.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from local.paths import ROOT

WORKFLOWS: Final = ROOT / ".github/workflows"
GITLAB: Final = ROOT / ".gitlab-ci.yml"
BASE: Final = "base"
CHANGE: Final = "change"
HEAD: Final = "b" * 40
SAME_REPOSITORY: Final = "github.event.pull_request.head.repo.full_name == github.repository"

_PYTHON: Final = """#!/bin/sh
printf '%s\\t%s\\t%s\\n' "$STEP" "$(cat origin)" "python $*" >>"$RAN"
case "$*" in
  *"local.deploy preview"*) env --null >"$RAN.environment"; echo '{}'; exit "$PREVIEW_ENDS" ;;
  *"plans check"*) exit "$CHECK_ENDS" ;;
esac
"""
_MAKEFILE: Final = """
.venv/ready:
\t@printf '%s\\t%s\\t%s\\n' "$$STEP" ORIGIN "make in $$(cat origin)" >>"$$RAN"
\t@mkdir -p .venv/bin && cp "$$STUBS/python" .venv/bin/python && touch $@
"""
_CLOUD: Final = """
printf '%s\\t%s\\t%s\\n' "$STEP" ORIGIN cloud >>"$RAN"
export NEBIUS_IAM_TOKEN=of-the-cloud
"""
_INSTALL: Final = """#!/bin/sh
printf '%s\\t%s\\t%s\\n' "$STEP" ORIGIN "install $1" >>"$RAN"
"""
_GIT: Final = """#!/bin/sh
while [ "$#" -gt 1 ]; do
  [ "$1" != --branch ] || [ "$2" = main ] || exit 1
  shift
done
cp -R "$STUBS/base/." "$1"
"""


@dataclass(frozen=True)
class Ran:
    """A program that ran: its step, the origin of its code, and its command line."""

    step: str
    origin: str
    words: str


@dataclass(frozen=True)
class Outcome:
    """Result of a job."""

    ran: tuple[Ran, ...]
    failed: tuple[str, ...]
    """Steps that failed."""
    environment: Mapping[str, str]
    """Environment variables of the preview."""
    workspace: Path
    kept: Mapping[str, tuple[str, ...]]
    """Names of the files in each artifact, by the artifact's name (empty on GitLab)."""

    def words(self, part: str) -> Ran:
        """Return the only program whose command line contains this text."""
        (found,) = [ran for ran in self.ran if part in ran.words]
        return found


def load(path: Path) -> dict[str, Any]:
    """Load a pipeline file."""
    document: dict[Any, Any] = yaml.safe_load(path.read_text())
    # PyYAML reads the key `on` as a boolean.
    return {"on" if key is True else key: value for key, value in document.items()}


def gitlab_job(name: str) -> dict[str, Any]:
    """Return a job of the GitLab file, merged with the jobs that it extends."""
    job: dict[str, Any] = load(GITLAB)[name]
    if "extends" not in job:
        return job
    outer = gitlab_job(job["extends"])
    variables = {**outer.get("variables", {}), **job.get("variables", {})}
    return {**outer, **job, "variables": variables}


class Machine:
    """A folder that represents the new machine on which a job runs."""

    def __init__(self, folder: Path, given: Mapping[str, str]) -> None:
        self.folder = folder
        self.workspace = folder / "workspace"
        self.workspace.mkdir(parents=True)
        self._given = given
        self._stubs = folder / "stubs"
        self._stubs.mkdir()
        for name, text in {"python": _PYTHON, "git": _GIT, "apt-get": "#!/bin/sh\n"}.items():
            (self._stubs / name).write_text(text)
            (self._stubs / name).chmod(0o755)
        self.check_out(BASE, self._stubs / "base")
        self._ran = folder / "ran"
        self._ran.touch()
        self.failed: list[str] = []

    def check_out(self, origin: str, folder: Path) -> None:
        (folder / ".ci").mkdir(parents=True)
        (folder / "origin").write_text(f"{origin}\n")
        for name, text in {
            "Makefile": _MAKEFILE,
            ".ci/cloud": _CLOUD,
            ".ci/install": _INSTALL,
        }.items():
            (folder / name).write_text(text.replace("ORIGIN", origin))
        (folder / ".ci/install").chmod(0o755)
        if origin == BASE:
            shutil.copy(ROOT / ".ci/preview", folder / ".ci")

    def run(self, step: str, script: str, environment: Mapping[str, str]) -> None:
        ended = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=self.workspace,
            env={
                "PATH": f"{self._stubs}:{os.environ['PATH']}",
                "HOME": str(self.folder),
                "TMPDIR": str(self.folder),
                "RUNNER_TEMP": str(self.folder),
                "GITHUB_PATH": str(self.folder / "path"),
                "GITHUB_ENV": str(self.folder / "env"),
                "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
                "STUBS": str(self._stubs),
                "RAN": str(self._ran),
                "STEP": step,
                "PREVIEW_ENDS": self._given.get("PREVIEW_ENDS", "0"),
                "CHECK_ENDS": self._given.get("CHECK_ENDS", "0"),
                **environment,
            },
            capture_output=True,
            text=True,
        )
        if ended.returncode:
            self.failed.append(step)

    def outcome(self, kept: Mapping[str, tuple[str, ...]]) -> Outcome:
        records = [line.split("\t") for line in self._ran.read_text().splitlines()]
        environment = self._ran.with_suffix(".environment")
        lines = environment.read_text().rstrip("\0").split("\0") if environment.exists() else []
        return Outcome(
            tuple(Ran(*line) for line in records),
            tuple(self.failed),
            dict(line.split("=", 1) for line in lines),
            self.workspace,
            kept,
        )


def on_github(
    file: str, name: str, folder: Path, made: Path | None = None, **given: str
) -> Outcome:
    """Run a job of a workflow. `made`: the artifact that the job downloads. `given`: secrets."""
    workflow = load(WORKFLOWS / file)
    job = workflow["jobs"][name]
    machine = Machine(folder, given)
    kept: dict[str, tuple[str, ...]] = {}
    for index, step in enumerate(job["steps"]):
        if machine.failed and "cancelled()" not in step.get("if", ""):
            continue
        chosen, uses = step.get("with", {}), step.get("uses", "")
        if "checkout@" in uses:
            # For the event `pull_request`, GitHub checks out the merged pull request by default.
            foreign = "pull_request" in workflow["on"] or "ref" in chosen
            origin = CHANGE if foreign else BASE
            machine.check_out(origin, machine.workspace / chosen.get("path", "."))
        elif "download-artifact@" in uses and made:
            shutil.copytree(made, machine.workspace / chosen["path"])
        elif "upload-artifact@" in uses:
            path = machine.workspace / chosen["path"]
            files = path.iterdir() if path.is_dir() else [path] if path.exists() else []
            kept[value(chosen["name"], given)] = tuple(sorted(file.name for file in files))
        elif "run" in step:
            environment = {**job.get("env", {}), **step.get("env", {})}
            machine.run(
                step.get("name", str(index)),
                step["run"],
                {key: value(text, given) for key, text in environment.items()},
            )
    return machine.outcome(kept)


def on_gitlab(name: str, folder: Path, made: Path | None = None, **given: str) -> Outcome:
    """Run a job of a merge request. `made`: artifact of the previous job. `given`: variables."""
    job = gitlab_job(name)
    machine = Machine(folder, given)
    machine.check_out(CHANGE, machine.workspace)
    # A branch may contain a file that has the same name as the plan of the job.
    (machine.workspace / "plan.json").write_text("forged")
    if made:
        shutil.copytree(made, machine.workspace / "made/gpu")
    environment = {
        "CI_DEFAULT_BRANCH": "main",
        "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "evil",
        "CI_PROJECT_DIR": str(machine.workspace),
        "CI_REPOSITORY_URL": "https://gitlab.example/group/project.git",
        "STACK": "gpu",
        **job.get("variables", {}),
        **given,
    }
    machine.run(name, "\n".join([*job["before_script"], *job["script"]]), environment)
    (kept,) = job["artifacts"]["paths"]
    path = machine.workspace / kept
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    there = tuple(sorted(file.name for file in files if file.exists()))
    return machine.outcome({} if machine.failed else {"": there})


def value(text: str, given: Mapping[str, str]) -> str:
    """Return a text of a workflow, with its expressions replaced by their values."""

    def replaced(match: re.Match[str]) -> str:
        expression = match.group(1)
        if expression.startswith("secrets."):
            return given.get(expression.removeprefix("secrets."), "")
        return {
            "github.event.pull_request.head.sha": HEAD,
            "github.token": "t0ken",
            "matrix.stack": "gpu",
        }[expression]

    return re.sub(r"\$\{\{ (.+?) \}\}", replaced, text)
