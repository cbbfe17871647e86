"""The pipelines as data: what they run exists, and they may do no more than they must."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.settings import LocalCluster, read_stack
from local.paths import ROOT
from tests.support.stack import FILES

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()
GITLAB = ROOT / ".gitlab-ci.yml"
RIGHTS = {
    ("preview.yml", None): {"contents": "read"},
    ("preview.yml", "preview"): {"contents": "read", "pull-requests": "write"},
    ("deploy.yml", None): {"contents": "read"},
    ("deploy.yml", "up"): {"contents": "read", "actions": "read", "pull-requests": "read"},
}
"""By file and job, what the job's token may do; a job that is not here has its file's rights."""


def load(path: Path) -> dict[str, Any]:
    document: dict[Any, Any] = yaml.safe_load(path.read_text())
    # To PyYAML, GitHub's `on` is a boolean.
    return {"on" if key is True else key: value for key, value in document.items()}


def jobs(path: Path) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = load(path)["jobs"]
    return found


def steps(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, job in jobs(path).items():
        for step in job["steps"]:
            yield name, step


def gitlab_jobs() -> dict[str, Mapping[str, Any]]:
    words = {"stages", "workflow"}
    return {name: job for name, job in load(GITLAB).items() if name not in words}


def scripts(path: Path) -> list[str]:
    if path == GITLAB:
        found = gitlab_jobs().values()
        return [
            line
            for job in found
            for line in (*job.get("before_script", ()), *job.get("script", ()))
        ]
    return [step["run"] for _, step in steps(path) if "run" in step]


def commands(path: Path) -> str:
    """All of them, each on one line."""
    return "\n".join(scripts(path)).replace("\\\n", " ")


PIPELINES = [*WORKFLOWS, GITLAB]
each = pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.name)
each_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)


# --- What they run exists ------------------------------------------------------------------------


@each
def test_every_make_target_is_in_the_makefile(path: Path) -> None:
    # Not `make` where it is a package's name: `install … make python3`.
    lines = [line for line in commands(path).splitlines() if "apt-get install" not in line]
    called = re.findall(r"\bmake (?:--silent )?([a-z][a-z-]*|\.venv/ready)", "\n".join(lines))

    assert called
    for target in called:
        assert re.search(rf"^{re.escape(target)}:", MAKEFILE, re.MULTILINE), target


@each
def test_every_module_is_one_of_ours(path: Path) -> None:
    called = re.findall(r"-m ([a-z_.]+)", commands(path))

    assert called
    for module in called:
        place = ROOT / module.replace(".", "/")
        assert (place / "__main__.py").exists() or place.with_suffix(".py").exists(), module


@each
def test_every_verb_of_plans_is_one_that_it_has(path: Path) -> None:
    verbs = re.findall(r"-m plans ([a-z]+)", commands(path))

    assert verbs
    assert set(verbs) <= {"show", "check", "post", "fetch"}


def test_every_stack_that_is_committed_is_previewed_but_those_on_ones_own_machine() -> None:
    (gitlab,) = load(GITLAB)[".stacks"]["parallel"]["matrix"]
    named = [
        job["strategy"]["matrix"]["stack"]
        for p in WORKFLOWS
        for job in jobs(p).values()
        if "strategy" in job
    ]

    there = sorted(path.name.split(".")[1] for path in FILES)
    assert gitlab["STACK"] == [
        name for name in there if not isinstance(read_stack(name, ROOT).cluster, LocalCluster)
    ]
    assert all(stacks == gitlab["STACK"] for stacks in named)


def test_the_command_is_the_sdks_version_everywhere() -> None:
    (version,) = re.findall(r"^pulumi==([\d.]+)$", (ROOT / "requirements.in").read_text(), re.M)
    told = [
        job["env"]["PULUMI_VERSION"] for p in WORKFLOWS for job in jobs(p).values() if "env" in job
    ]

    assert set(told) == {version}
    assert load(GITLAB)[".stacks"]["image"].endswith(f":{version}")


# --- What they may do ----------------------------------------------------------------------------


@each_workflow
def test_a_token_has_the_least_rights(path: Path) -> None:
    assert load(path)["permissions"] == RIGHTS[path.name, None]
    for name, job in jobs(path).items():
        assert job.get("permissions") == RIGHTS.get((path.name, name)), name


@each_workflow
def test_every_action_is_pinned_to_a_commit_with_its_version_beside_it(path: Path) -> None:
    used = [step["uses"] for _, step in steps(path) if "uses" in step]

    assert used
    for action in used:
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", action), action
        assert re.search(rf"{re.escape(action)} # v\d+\.\d+\.\d+$", path.read_text(), re.MULTILINE)


@each_workflow
def test_what_is_checked_out_holds_no_credential(path: Path) -> None:
    checkouts = [step for _, step in steps(path) if "checkout@" in step.get("uses", "")]

    assert len(checkouts) == len(jobs(path))
    assert all(step["with"] == {"persist-credentials": False} for step in checkouts)


@each_workflow
def test_no_foreign_code_runs_with_rights_of_this_repository(path: Path) -> None:
    assert set(load(path)["on"]) <= {"pull_request", "push"}, "and never pull_request_target"
    for name, job in jobs(path).items():
        told = yaml.safe_dump(job)
        if "secrets." in told and "pull_request" in load(path)["on"]:
            assert job["if"] == (
                "github.event.pull_request.head.repo.full_name == github.repository"
            ), name


@each_workflow
def test_nothing_that_others_write_is_pasted_into_a_shell(path: Path) -> None:
    assert not [script for script in scripts(path) if "${{" in script]


@each
def test_no_secret_is_printed(path: Path) -> None:
    for line in commands(path).splitlines():
        assert "set -x" not in line
        assert not re.search(r"echo.*\$\{?(\w*(PASS|TOKEN|KUBECONFIG_TEXT))", line)


def test_gitlab_runs_no_forks_program_with_this_projects_variables() -> None:
    found = gitlab_jobs()

    (rule,) = found["preview"]["rules"]
    assert "$CI_MERGE_REQUEST_SOURCE_PROJECT_ID == $CI_PROJECT_ID" in rule["if"]
    assert "script" not in found[".stacks"]
    assert "before_script" not in found["check"]


@each
def test_images_have_a_version(path: Path) -> None:
    images = re.findall(r"^\s*(?:image|container): (\S+)", path.read_text(), re.MULTILINE)

    assert all(re.search(r":[\w.-]+$", image) and not image.endswith("latest") for image in images)


# --- What they are for ---------------------------------------------------------------------------


PREVIEWS = [ROOT / ".github/workflows/preview.yml", GITLAB]
each_preview = pytest.mark.parametrize("path", PREVIEWS, ids=lambda path: path.name)


def previewed(path: Path, folder: Path, **given: str) -> tuple[list[str], dict[str, str]]:
    """What `make` is asked for by the script of a preview, and in which environment."""
    (script,) = [script for script in scripts(path) if "make --silent preview" in script]
    folder.mkdir(exist_ok=True)
    (folder / ".ci").mkdir()
    (folder / ".ci/cloud").write_text("export NEBIUS_IAM_TOKEN=of-the-cloud\n")
    (folder / ".venv/bin").mkdir(parents=True)
    programs = {
        "make": 'printf "%s\\0" "$@" >asked; env --null >environment; echo "{}"',
        ".venv/bin/python": "exit 0",
    }
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    told = {"PULUMI_BACKEND_URL": "", "KUBECONFIG_TEXT": "", "STACK": "gpu", **given}
    outside = {name: str(folder / name) for name in ("GITHUB_ENV", "HOME")}
    subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=folder,
        env={
            **outside,
            "RUNNER_TEMP": str(folder),
            "PATH": f"{folder}:{os.environ['PATH']}",
            **told,
        },
        check=True,
    )
    environment = (folder / "environment").read_text().rstrip("\0").split("\0")
    return (
        (folder / "asked").read_text().rstrip("\0").split("\0"),
        dict(line.split("=", 1) for line in environment),
    )


@each_preview
def test_a_preview_of_a_stack_with_a_state_goes_by_the_policy_and_saves_its_plan(
    path: Path, tmp_path: Path
) -> None:
    asked, environment = previewed(path, tmp_path, PULUMI_BACKEND_URL="s3://states")

    assert {"preview", "ENGINE=pulumi", "POLICY=policy"} <= set(asked)
    (told,) = [word for word in asked if word.startswith("ARGS=")]
    assert told == "ARGS=--json -- --non-interactive --save-plan plan.json"
    assert environment["PULUMI_BACKEND_URL"] == "s3://states"
    assert environment["NEBIUS_IAM_TOKEN"] == "of-the-cloud"


@each_preview
def test_without_a_state_a_preview_is_by_the_engine_that_needs_no_credential(
    path: Path, tmp_path: Path
) -> None:
    asked, environment = previewed(path, tmp_path)

    assert {"preview", "ENGINE=embedded", "POLICY=policy"} <= set(asked)
    (told,) = [word for word in asked if word.startswith("ARGS=")]
    assert told.split() == ["ARGS=--json", "--"]
    assert environment["PULUMI_BACKEND_URL"].startswith(f"file://{tmp_path}")
    assert "KUBECONFIG" not in environment
    assert "NEBIUS_IAM_TOKEN" not in environment


@each
def test_what_is_merged_is_deployed_by_the_plan_and_the_policy(path: Path) -> None:
    text = commands(path)
    ups = re.findall(r"^.*local\.deploy up .*$", text, re.MULTILINE)

    assert len(ups) == (0 if path.name == "preview.yml" else 1)
    for command in ups:
        assert "--policy-pack policy --plan plan.json" in command
        assert text.index("plans fetch plan.json") < text.index(command)


def test_a_plan_is_kept_only_where_nothing_failed_and_nothing_was_refused() -> None:
    told = [step for _, step in steps(ROOT / ".github/workflows/preview.yml")]
    kept = next(i for i, step in enumerate(told) if "upload-artifact@" in step.get("uses", ""))
    checked = next(i for i, step in enumerate(told) if "plans check" in step.get("run", ""))

    assert checked < kept
    assert "if" not in told[kept], "without a condition of its own a step follows success alone"
    assert not [step for step in told if "continue-on-error" in step]
    assert gitlab_jobs()["preview"]["artifacts"]["when"] == "on_success"


@each
def test_what_a_preview_ended_with_is_handed_on(path: Path) -> None:
    for line in commands(path).splitlines():
        if "-m plans" in line and "plans fetch" not in line:
            assert re.search(r'--status "\$(status|\{STATUS:-1\})"', line), line


def test_a_comment_is_written_of_a_preview_that_failed_too() -> None:
    told = {step.get("name"): step for _, step in steps(ROOT / ".github/workflows/preview.yml")}

    assert told["Comment"]["if"] == told["Refuse"]["if"] == "${{ !cancelled() }}"
    assert told["Comment"]["env"] == {"GITHUB_TOKEN": "${{ github.token }}"}


def test_nothing_is_deployed_before_somebody_wants_it() -> None:
    (up,) = jobs(ROOT / ".github/workflows/deploy.yml").values()

    assert up["if"] == "vars.DEPLOY == 'true'"
    assert '$DEPLOY == "true"' in gitlab_jobs()["up"]["rules"][0]["if"]


@each
def test_every_script_is_one_that_a_shell_can_read(path: Path) -> None:
    for script in scripts(path):
        read = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
        assert read.returncode == 0, f"{script}: {read.stderr}"


# --- Credentials of clouds -----------------------------------------------------------------------

CLOUD = ROOT / ".ci/cloud"


def reached(folder: Path, **secrets: str) -> dict[str, str]:
    """The environment after `.ci/cloud`, whose commands are written down instead of run."""
    folder.mkdir(exist_ok=True)
    programs = {
        "curl": 'while [ "$1" != --output ]; do shift; done; cp nebius "$2"',
        "nebius": f'echo "nebius $@" >>{folder}/ran; [ "$1" != iam ] || echo t0ken',
        "apt-get": f'echo "apt-get $@" >>{folder}/ran',
    }
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    for name in ("bash", "cat", "chmod", "cp", "env", "mkdir"):
        (folder / name).symlink_to(shutil.which(name) or name)
    told = subprocess.run(
        ["bash", "-eu", "-c", f". {CLOUD}; env --null"],
        cwd=folder,
        env={"HOME": str(folder), "PATH": str(folder), **secrets},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split("=", 1) for line in told.stdout.rstrip("\0").split("\0"))


def test_who_has_no_secret_of_a_cloud_installs_nothing(tmp_path: Path) -> None:
    found = reached(tmp_path, NEBIUS_CREDENTIALS="", AWS_ACCESS_KEY_ID="")

    assert not (tmp_path / "ran").exists()
    assert "NEBIUS_IAM_TOKEN" not in found


@pytest.mark.parametrize("of_type_file", [False, True], ids=["GitHub", "GitLab"])
def test_a_kubeconfig_of_nebius_finds_its_command_and_the_provider_a_token(
    tmp_path: Path, of_type_file: bool
) -> None:
    text = '{"subject-credentials": {}}\n'
    (tmp_path / "given").write_text(text)
    given = str(tmp_path / "given") if of_type_file else text.strip()
    found = reached(tmp_path, NEBIUS_CREDENTIALS=given)

    key = tmp_path / ".nebius/credentials.json"
    assert key.read_text() == text
    assert key.stat().st_mode & 0o077 == 0, "nobody else reads it"
    assert f"--service-account-file {key}" in (tmp_path / "ran").read_text()
    assert found["NEBIUS_IAM_TOKEN"] == "t0ken"
    assert "NEBIUS_CREDENTIALS" not in found, "the program gets the token alone"
    assert found["PATH"].startswith(f"{tmp_path}/.nebius/bin:")


def test_a_kubeconfig_of_eks_finds_its_command(tmp_path: Path) -> None:
    reached(tmp_path, AWS_ACCESS_KEY_ID="AKIA0")

    assert "awscli" in (tmp_path / "ran").read_text()


@pytest.mark.parametrize(
    "path", [ROOT / ".github/workflows/deploy.yml", GITLAB], ids=["github", "gitlab"]
)
def test_a_deploy_reaches_the_cloud_that_it_is_of(path: Path) -> None:
    text = commands(path)

    assert text.rindex(". .ci/cloud") < text.index("local.deploy up")


@each_workflow
def test_only_the_step_that_needs_them_has_credentials_of_clouds(path: Path) -> None:
    for name, step in steps(path):
        needs = ". .ci/cloud" in step.get("run", "")
        has = "NEBIUS_CREDENTIALS" in step.get("env", {})
        assert needs == has, name


def test_a_stack_is_deployed_by_one_at_a_time_and_none_is_cut_off() -> None:
    (up,) = jobs(ROOT / ".github/workflows/deploy.yml").values()

    assert up["concurrency"] == {"group": "stack-${{ matrix.stack }}", "cancel-in-progress": False}
    assert gitlab_jobs()["up"]["resource_group"] == "stack-$STACK"
    assert gitlab_jobs()["up"]["interruptible"] is False
