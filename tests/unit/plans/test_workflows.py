"""All commands that the pipelines run exist, and the pipelines have minimal rights."""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from components.settings import LocalCluster, read_stack
from local.paths import ROOT
from plans.forge import EVENT, JUDGE, WORKFLOW, title
from tests.support.stack import FILES
from tests.unit.plans.pipelines import (
    BASE,
    CHANGE,
    GITLAB,
    HEAD,
    SAME_REPOSITORY,
    Outcome,
    gitlab_job,
    load,
    on_github,
    on_gitlab,
    value,
)
from tests.unit.plans.pipelines import WORKFLOWS as FOLDER

WORKFLOWS = sorted(FOLDER.glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()
PROGRAMS = ROOT / ".ci/programs"
RIGHTS = {
    ("check.yml", None): {"contents": "read"},
    ("preview.yml", None): {"contents": "read"},
    ("preview.yml", "judge"): {"contents": "read", "pull-requests": "write"},
    ("deploy.yml", None): {"contents": "read"},
    ("deploy.yml", "up"): {"contents": "read", "actions": "read", "pull-requests": "read"},
}
"""Rights of `github.token` by file and job. A job that is not listed has its file's rights."""


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
    """Return the scripts of a pipeline, and the scripts that those scripts call."""
    found = _scripts(path)
    called = re.findall(r"\.ci/(?:preview|up)\b", "\n".join(found))
    return [*found, *((ROOT / name).read_text() for name in called)]


def _scripts(path: Path) -> list[str]:
    if path == GITLAB:
        found = gitlab_jobs().values()
        return [
            line
            for job in found
            for line in (*job.get("before_script", ()), *job.get("script", ()))
        ]
    return [step["run"] for _, step in steps(path) if "run" in step]


def commands(path: Path) -> str:
    """Return all commands of a pipeline, each on one line."""
    return "\n".join(scripts(path)).replace("\\\n", " ")


PIPELINES = [*WORKFLOWS, GITLAB]
STACKED = [path for path in PIPELINES if path.name != "check.yml"]
"""Pipelines that run jobs for each stack."""
each = pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.name)
each_stacked = pytest.mark.parametrize("path", STACKED, ids=lambda path: path.name)
each_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)


# --- What the pipelines run exists ---------------------------------------------------------------


@each
def test_every_make_target_of_a_pipeline_exists(path: Path) -> None:
    # Skip lines in which `make` is a package name: `apt-get install … make python3`.
    lines = [line for line in commands(path).splitlines() if "apt-get install" not in line]
    called = re.findall(r"\bmake (?:--\S+ )*([a-z][a-z-]*|\.venv/ready)", "\n".join(lines))

    assert called
    for target in called:
        assert re.search(rf"^{re.escape(target)}:", MAKEFILE, re.MULTILINE), target


@each_stacked
def test_every_python_module_of_a_pipeline_exists(path: Path) -> None:
    called = re.findall(r"-m ([a-z_.]+)", commands(path))

    assert called
    for module in called:
        place = ROOT / module.replace(".", "/")
        assert (place / "__main__.py").exists() or place.with_suffix(".py").exists(), module


@each_stacked
def test_every_plans_command_of_a_pipeline_exists(path: Path) -> None:
    verbs = re.findall(r"-m plans ([a-z]+)", commands(path))

    assert verbs
    assert set(verbs) <= {"show", "check", "post", "fetch"}


def test_pipelines_preview_every_committed_stack_that_is_not_local() -> None:
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


def test_pulumi_command_has_the_version_of_the_sdk() -> None:
    (version,) = re.findall(r"^pulumi==([\d.]+)$", (ROOT / "requirements.in").read_text(), re.M)

    assert f"\nPULUMI_VERSION={version}\n" in PROGRAMS.read_text()
    assert not [path for path in PIPELINES if version in path.read_text()]


# --- Rights of jobs ------------------------------------------------------------------------------


@each_workflow
def test_job_tokens_have_minimal_rights(path: Path) -> None:
    assert load(path)["permissions"] == RIGHTS[path.name, None]
    for name, job in jobs(path).items():
        assert job.get("permissions") == RIGHTS.get((path.name, name)), name


@each_workflow
def test_every_action_is_pinned_to_a_commit_with_its_version(path: Path) -> None:
    used = [step["uses"] for _, step in steps(path) if "uses" in step]

    assert used
    for action in used:
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", action), action
        assert re.search(rf"{re.escape(action)} # v\d+\.\d+\.\d+$", path.read_text(), re.MULTILINE)


@each_workflow
def test_checkouts_store_no_credential(path: Path) -> None:
    checkouts = [step for _, step in steps(path) if "checkout@" in step.get("uses", "")]

    assert len(checkouts) >= len(jobs(path))
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


@each_workflow
def test_pull_request_cannot_define_a_job_with_secrets_or_rights(path: Path) -> None:
    events = set(load(path)["on"])

    assert events <= {"pull_request", "pull_request_target", "push"}
    for name, job in jobs(path).items():
        text = str(job)
        holds = "secrets." in text or "github.token" in text or "environment" in job
        if holds or "write" in str(job.get("permissions")):
            assert "pull_request" not in events, name


def test_pull_request_of_a_fork_gets_neither_preview_nor_comment() -> None:
    for name, job in jobs(ROOT / WORKFLOW).items():
        conditions = job["if"].removeprefix("${{ ").removesuffix(" }}").split(" && ")
        assert SAME_REPOSITORY in conditions, name


def test_before_the_merge_only_the_preview_job_has_secrets() -> None:
    holding = {name for name, job in jobs(ROOT / WORKFLOW).items() if "secrets." in str(job)}

    assert holding == {"preview"}
    assert jobs(ROOT / WORKFLOW)["preview"]["environment"] == "preview-${{ matrix.stack }}"


def test_only_comment_and_fetch_steps_have_a_token() -> None:
    holding = {
        (path.name, job, step["name"])
        for path in WORKFLOWS
        for job, step in steps(path)
        if "github.token" in str(step)
    }

    assert holding == {("preview.yml", JUDGE, "Comment"), ("deploy.yml", "up", "Plan")}


def test_gitlab_preview_and_judge_jobs_use_different_environments() -> None:
    scopes = [gitlab_job(name)["environment"] for name in ("preview", JUDGE)]

    assert scopes == [
        {"name": "preview/$STACK", "action": "access"},
        {"name": "judge/$STACK", "action": "access"},
    ]


@each_workflow
def test_jobs_use_no_cache(path: Path) -> None:
    # The program of a pull request could write to a cache that the default branch uses.
    for _, step in steps(path):
        assert "cache" not in step.get("uses", "")
        assert "cache" not in step.get("with", {})


@each_workflow
def test_workflow_scripts_contain_no_workflow_expressions(path: Path) -> None:
    assert not [script for script in scripts(path) if "${{" in script]


@each
def test_pipelines_print_no_secret(path: Path) -> None:
    for line in commands(path).splitlines():
        assert "set -x" not in line
        assert not re.search(r"echo.*\$\{?(\w*(PASS|TOKEN|KUBECONFIG_TEXT))", line)


def test_gitlab_does_not_run_forks_with_variables_of_this_project() -> None:
    for name in ("preview", JUDGE):
        (rule,) = gitlab_job(name)["rules"]
        conditions = rule["if"].split(" && ")
        assert "$CI_MERGE_REQUEST_SOURCE_PROJECT_ID == $CI_PROJECT_ID" in conditions
        assert "$CI_MERGE_REQUEST_TARGET_BRANCH_NAME == $CI_DEFAULT_BRANCH" in conditions
    assert "script" not in gitlab_jobs()[".stacks"]
    assert "before_script" not in gitlab_jobs()["check"]


@each
def test_images_of_jobs_have_a_version(path: Path) -> None:
    images = re.findall(r"^\s*(?:image|container): (\S+)", path.read_text(), re.MULTILINE)

    assert all(re.search(r":[\w.-]+(@|$)", image) and "latest" not in image for image in images)


def test_images_of_jobs_with_secrets_are_pinned_by_digest() -> None:
    for name in ("preview", JUDGE, "up"):
        job = gitlab_job(name)
        for image in (job["image"], *(one["name"] for one in job.get("services", ()))):
            assert re.search(r"@sha256:[0-9a-f]{64}$", image), name


# --- Behaviour of jobs ---------------------------------------------------------------------------


Job = Callable[..., Outcome]


def run_github(name: str, folder: Path, **given: Any) -> Outcome:
    return on_github("preview.yml", name, folder, **given)


each_forge = pytest.mark.parametrize("run", [run_github, on_gitlab], ids=["github", "gitlab"])


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Return the artifact that the preview job passes to the judge job."""
    folder = tmp_path / "made"
    folder.mkdir()
    (folder / "preview.json").write_text("{}")
    (folder / "plan.json").write_text('{"a": 1}')
    (folder / "status").write_text("0\n")
    return folder


@each_forge
@pytest.mark.parametrize("state", ["", "s3://states"], ids=["no state", "a state"])
def test_preview_runs_no_pipeline_script_of_the_pull_request(
    run: Job, tmp_path: Path, state: str
) -> None:
    outcome = run("preview", tmp_path, PULUMI_BACKEND_URL=state)

    assert outcome.failed == ()
    assert {ran.origin for ran in outcome.ran} == {BASE}
    made_in = [ran.words for ran in outcome.ran if ran.words.startswith("make")]
    assert made_in == [f"make in {BASE}", f"make in {CHANGE}"], (
        "each checkout must have its own .venv"
    )


@each_forge
def test_judge_runs_no_code_of_the_pull_request(run: Job, tmp_path: Path, made: Path) -> None:
    outcome = run(JUDGE, tmp_path / "machine", made=made)

    assert outcome.failed == ()
    assert {ran.origin for ran in outcome.ran} == {BASE}
    assert not [ran for ran in outcome.ran if CHANGE in ran.words]
    posted, checked = outcome.words("plans post"), outcome.words("plans check")
    assert outcome.ran.index(posted) < outcome.ran.index(checked)


@each_forge
def test_preview_uses_the_policy_of_the_default_branch(run: Job, tmp_path: Path) -> None:
    outcome = run("preview", tmp_path, PULUMI_BACKEND_URL="s3://states")

    asked = outcome.words("local.deploy preview").words.split()
    program = outcome.workspace / asked[asked.index("--program") + 1]
    assert (program / "origin").read_text().strip() == CHANGE
    assert asked[asked.index("--policy-pack") + 1] == "policy", "the policy must come from BASE"
    assert asked[asked.index("--engine") + 1] == "pulumi"


@each_forge
def test_preview_with_a_state_backend_saves_its_plan(run: Job, tmp_path: Path) -> None:
    outcome = run("preview", tmp_path, PULUMI_BACKEND_URL="s3://states")

    asked = outcome.words("local.deploy preview").words
    assert re.search(r" --json -- --non-interactive --save-plan /\S+/plan\.json$", asked)
    assert outcome.environment["PULUMI_BACKEND_URL"] == "s3://states"
    assert outcome.environment["NEBIUS_IAM_TOKEN"] == "of-the-cloud"
    installed = outcome.words("install pulumi")
    assert outcome.ran.index(installed) < outcome.ran.index(outcome.words("local.deploy"))


@each_forge
def test_preview_without_a_state_backend_needs_no_credential(run: Job, tmp_path: Path) -> None:
    outcome = run("preview", tmp_path)

    asked = outcome.words("local.deploy preview").words
    assert " --engine embedded " in asked
    assert asked.endswith(" --json --")
    assert outcome.environment["PULUMI_BACKEND_URL"].startswith("file:///")
    assert "KUBECONFIG" not in outcome.environment
    assert "NEBIUS_IAM_TOKEN" not in outcome.environment
    assert not [ran for ran in outcome.ran if ran.words.startswith(("install", "cloud"))]


@each_forge
def test_judge_job_gets_the_result_of_a_failed_preview(
    run: Job, tmp_path: Path, made: Path
) -> None:
    outcome = run("preview", tmp_path / "preview", PREVIEW_ENDS="255")

    assert outcome.failed == ()
    (kept,) = outcome.kept.values()
    assert {"preview.json", "status"} <= set(kept)

    (made / "status").write_text("255\n")
    programs = run(JUDGE, tmp_path / "judge", made=made).ran
    judged = [ran.words for ran in programs if "-m plans" in ran.words]
    assert judged
    assert all(words.endswith(" --status 255") for words in judged)


@each_forge
def test_judge_keeps_the_plan_only_if_nothing_is_refused(
    run: Job, tmp_path: Path, made: Path
) -> None:
    assert set(run(JUDGE, tmp_path / "good", made=made).kept.values()) == {("plan.json",)}

    refused = run(JUDGE, tmp_path / "refused", made=made, CHECK_ENDS="3")
    assert refused.failed
    assert not refused.kept


@each_forge
def test_judge_job_never_uses_a_plan_file_of_the_branch(
    run: Job, tmp_path: Path, made: Path
) -> None:
    if run is run_github:
        (made / "plan.json").unlink()
    else:
        (made / "plan.json").write_text("")
    outcome = run(JUDGE, tmp_path / "machine", made=made)

    assert outcome.failed == ()
    assert set(outcome.kept.values()) == {()}, "a plan in the branch must not be used"


def test_deploy_finds_the_plan_by_names_that_the_workflow_sets() -> None:
    workflow = load(ROOT / WORKFLOW)
    uploads = [step for _, step in steps(ROOT / WORKFLOW) if "upload-art" in step.get("uses", "")]

    assert set(workflow["on"]) == {EVENT}
    assert value(workflow["run-name"], {}) == title(HEAD)
    assert value(uploads[-1]["with"]["name"], {}) == f"plan-gpu-{HEAD}"
    # If a matrix job sets no `name`, GitHub names it after the job's key and its matrix values.
    assert "name" not in workflow["jobs"][JUDGE]
    assert list(workflow["jobs"][JUDGE]["strategy"]["matrix"]) == ["stack"]


def test_judge_job_runs_even_after_a_failed_preview() -> None:
    job = jobs(ROOT / WORKFLOW)[JUDGE]

    assert job["needs"] == "preview"
    assert job["if"] == "${{ !cancelled() && " + SAME_REPOSITORY + " }}"
    assert not [step for _, step in steps(ROOT / WORKFLOW) if "continue-on-error" in step]


@each
def test_merged_change_is_deployed_with_its_plan_and_the_policy(path: Path) -> None:
    text = commands(path)
    ups = re.findall(r"^.*local\.deploy up .*$", text, re.MULTILINE)

    assert len(ups) == (1 if path.name in ("deploy.yml", GITLAB.name) else 0)
    for command in ups:
        assert '--policy-pack policy --plan "$1"' in command
        assert text.index("plans fetch plan.json") < text.index("\n.ci/up plan.json")


def test_deployment_is_disabled_by_default() -> None:
    (up,) = jobs(ROOT / ".github/workflows/deploy.yml").values()

    assert up["if"] == "vars.DEPLOY == 'true'"
    assert '$DEPLOY == "true"' in gitlab_jobs()["up"]["rules"][0]["if"]


@each
def test_every_script_has_valid_shell_syntax(path: Path) -> None:
    for script in scripts(path):
        read = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
        assert read.returncode == 0, f"{script}: {read.stderr}"


# --- Downloads -----------------------------------------------------------------------------------


def downloader(folder: Path, program: str, content: bytes, checksum: str | None = None) -> None:
    """Set up `.ci` and a `curl` that returns `content`. By default, the checksum matches."""
    shutil.copytree(ROOT / ".ci", folder / ".ci")
    (folder / "served").write_bytes(content)
    expected = hashlib.sha256(content).hexdigest() if checksum is None else checksum
    name = f"{program.upper()}_SHA256"
    text = re.sub(rf"^{name}=.*$", f"{name}={expected}", PROGRAMS.read_text(), flags=re.MULTILINE)
    (folder / ".ci/programs").write_text(text)
    curl = folder / "curl"
    curl.write_text(
        f'#!/bin/sh\necho "$@" >>{folder}/asked\n'
        f'while [ "$1" != --output ]; do shift; done; cp {folder}/served "$2"\n'
    )
    curl.chmod(0o755)


def installed(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [".ci/install", program, str(folder / "place")],
        cwd=folder,
        env={"PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def archive(tmp_path: Path) -> bytes:
    """Return an archive like that of Pulumi's release. Its program only prints a word."""
    (tmp_path / "packed/pulumi").mkdir(parents=True)
    (tmp_path / "packed/pulumi/pulumi").write_text("#!/bin/sh\necho pulumi\n")
    (tmp_path / "packed/pulumi/pulumi").chmod(0o755)
    path = tmp_path / "packed.tar.gz"
    subprocess.run(["tar", "-czf", path, "-C", tmp_path / "packed", "pulumi"], check=True)
    return path.read_bytes()


def test_verified_download_is_installed(tmp_path: Path, archive: bytes) -> None:
    for program, content, place in (
        ("pulumi", archive, "place/pulumi/pulumi"),
        ("nebius", b"#!/bin/sh\n", "place/nebius"),
    ):
        folder = tmp_path / program
        folder.mkdir()
        downloader(folder, program, content)

        assert installed(folder, program).returncode == 0
        assert os.access(folder / place, os.X_OK)


@pytest.mark.parametrize("program", ["pulumi", "nebius"])
def test_download_with_a_wrong_checksum_is_not_installed(
    tmp_path: Path, archive: bytes, program: str
) -> None:
    downloader(tmp_path, program, archive, "0" * 64)
    ended = installed(tmp_path, program)

    assert ended.returncode == 1
    assert not (tmp_path / "place").exists()
    assert ended.stderr.startswith(f"error: .ci/programs: {program.upper()}_SHA256: 0000")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("program", ["pulumi", "nebius"])
def test_program_without_a_checksum_is_not_downloaded(tmp_path: Path, program: str) -> None:
    downloader(tmp_path, program, b"", checksum="")
    ended = installed(tmp_path, program)

    assert ended.returncode == 1
    assert not (tmp_path / "asked").exists()
    assert ended.stderr.startswith(f"error: .ci/programs: {program.upper()}_SHA256: is empty;")
    assert ended.stderr.count("\n") == 1


def test_recorded_checksum_is_empty_or_a_sha256() -> None:
    checksums = dict(re.findall(r"^(\w+_SHA256)=(.*)$", PROGRAMS.read_text(), re.MULTILINE))

    assert set(checksums) == {"PULUMI_SHA256", "NEBIUS_SHA256"}
    assert all(re.fullmatch(r"([0-9a-f]{64})?", value) for value in checksums.values())


def test_only_the_script_that_verifies_checksums_downloads_files() -> None:
    texts = {path.name: commands(path) for path in PIPELINES}
    texts |= {path.name: path.read_text() for path in (ROOT / ".ci").iterdir()}
    downloading = {
        name for name, text in texts.items() if re.search(r"^\s*[^#\n]*\b(curl|wget) -", text, re.M)
    }

    assert downloading == {"install"}


# --- Credentials of clouds -----------------------------------------------------------------------


def reached(folder: Path, **secrets: str) -> dict[str, str]:
    """Return the environment after `.ci/cloud`. Fake programs record the commands that it runs."""
    folder.mkdir(exist_ok=True)
    nebius = f'#!/bin/sh\necho "nebius $@" >>{folder}/ran; [ "$1" != iam ] || echo t0ken\n'
    downloader(folder, "nebius", nebius.encode())
    (folder / "apt-get").write_text(f'#!/bin/sh\necho "apt-get $@" >>{folder}/ran\n')
    (folder / "apt-get").chmod(0o755)
    tools = "bash cat chmod cp dirname env mkdir mktemp rm sh sha256sum"
    for name in tools.split():
        (folder / name).symlink_to(shutil.which(name) or name)
    shell = subprocess.run(
        ["bash", "-eu", "-c", ". .ci/cloud; env --null"],
        cwd=folder,
        env={"HOME": str(folder), "PATH": str(folder), **secrets},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split("=", 1) for line in shell.stdout.rstrip("\0").split("\0"))


def test_nothing_is_installed_without_cloud_credentials(tmp_path: Path) -> None:
    found = reached(tmp_path, NEBIUS_CREDENTIALS="", AWS_ACCESS_KEY_ID="")

    assert not (tmp_path / "ran").exists()
    assert "NEBIUS_IAM_TOKEN" not in found


@pytest.mark.parametrize("of_type_file", [False, True], ids=["GitHub", "GitLab"])
def test_nebius_credentials_provide_the_nebius_command_and_a_token(
    tmp_path: Path, of_type_file: bool
) -> None:
    text = '{"subject-credentials": {}}\n'
    (tmp_path / "given").write_text(text)
    given = str(tmp_path / "given") if of_type_file else text.strip()
    found = reached(tmp_path, NEBIUS_CREDENTIALS=given)

    key = tmp_path / ".nebius/credentials.json"
    assert key.read_text() == text
    assert key.stat().st_mode & 0o077 == 0, "only the owner can read it"
    assert f"--service-account-file {key}" in (tmp_path / "ran").read_text()
    assert found["NEBIUS_IAM_TOKEN"] == "t0ken"
    assert "NEBIUS_CREDENTIALS" not in found, "the program must get only the token"
    assert found["PATH"].startswith(f"{tmp_path}/.nebius/bin:")


def test_aws_credentials_install_the_aws_command(tmp_path: Path) -> None:
    reached(tmp_path, AWS_ACCESS_KEY_ID="AKIA0")

    assert "awscli" in (tmp_path / "ran").read_text()


@pytest.mark.parametrize("of_type_file", [False, True], ids=["GitHub", "GitLab"])
def test_kubeconfig_secret_is_used_and_private(tmp_path: Path, of_type_file: bool) -> None:
    (tmp_path / "given").write_text("apiVersion: v1\n")
    given = {"KUBECONFIG_FILE": str(tmp_path / "given")}
    found = reached(tmp_path, **(given if of_type_file else {"KUBECONFIG_TEXT": "apiVersion: v1"}))

    kubeconfig = Path(found["KUBECONFIG"])
    assert kubeconfig.read_text() == "apiVersion: v1\n"
    assert of_type_file or kubeconfig.stat().st_mode & 0o077 == 0, "only the owner can read it"
    assert "KUBECONFIG_TEXT" not in found


def test_deploy_job_sets_cloud_credentials_first() -> None:
    text = (ROOT / ".ci/up").read_text()

    assert text.index(". .ci/cloud") < text.index("local.deploy up")


@each_workflow
def test_only_steps_that_need_cloud_credentials_have_them(path: Path) -> None:
    for name, step in steps(path):
        needs = re.search(r"\.ci/(preview|up) ", step.get("run", "")) is not None
        has = "NEBIUS_CREDENTIALS" in step.get("env", {})
        assert needs == has, name


def test_deployments_of_one_stack_run_one_at_a_time_uninterrupted() -> None:
    (up,) = jobs(ROOT / ".github/workflows/deploy.yml").values()

    assert up["concurrency"] == {"group": "stack-${{ matrix.stack }}", "cancel-in-progress": False}
    assert gitlab_jobs()["up"]["resource_group"] == "stack-$STACK"
    assert gitlab_jobs()["up"]["interruptible"] is False
