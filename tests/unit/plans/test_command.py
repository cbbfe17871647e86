"""Output and exit codes of `python -m plans`."""

import io
from pathlib import Path

import pytest

from plans import REFUSED
from plans.__main__ import main
from plans.markdown import marker
from tests.support.previews import RECORDED


def test_show_reads_a_file_or_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RECORDED / "edited.json"
    assert main(["show", str(file), "--stack", "dev"]) == 0
    shown = capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.StringIO(file.read_text()))
    assert main(["show", "-", "--stack", "dev"]) == 0

    assert shown.startswith(marker("dev"))
    assert capsys.readouterr().out == shown


def test_check_lists_refusals_and_ends_with_its_own_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check", str(RECORDED / "protected.json")]) == REFUSED

    output = capsys.readouterr()
    assert output.out == ""
    refused = [line for line in output.err.splitlines() if line.startswith("refused: ")]
    assert len(refused) == 2
    assert all("is protected" in line for line in refused)


@pytest.mark.parametrize("verb", ["text", "show"])
@pytest.mark.parametrize(("name", "status"), [("protected", REFUSED), ("edited", 0)])
def test_shown_preview_fails_if_it_is_refused(
    capsys: pytest.CaptureFixture[str], verb: str, name: str, status: int
) -> None:
    assert main([verb, str(RECORDED / f"{name}.json"), "--stack", "dev"]) == status
    assert ("Refused" in capsys.readouterr().out) == bool(status)


def test_plan_without_loss_of_data_passes_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(RECORDED / "edited.json")]) == 0
    assert main(["check", str(RECORDED / "same.json")]) == 0
    assert capsys.readouterr().err == ""


def test_failed_preview_fails_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "preview.json"
    file.write_text('{"steps": [], "diagnostics": [{"severity": "error", "message": "no way"}]}')

    assert main(["check", str(file)]) == 1
    assert capsys.readouterr().err == "error: no way\n"


@pytest.mark.parametrize("document", ["{}", '{"diagnostics": [], "steps": []}'])
def test_preview_without_steps_fails_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], document: str
) -> None:
    file = tmp_path / "preview.json"
    file.write_text(document)

    assert main(["check", str(file)]) == 1
    assert "the preview failed" in capsys.readouterr().err


def test_preview_that_failed_silently_is_reported_with_its_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    same = str(RECORDED / "same.json")

    assert main(["check", same, "--status", "2"]) == 1
    assert capsys.readouterr().err == (
        "error: the preview failed (exit code 2), or a policy refused it; read the output of the"
        " preview, for example in the log of the job\n"
    )
    assert main(["show", same, "--stack", "dev", "--status", "2"]) == 0
    assert "**Failed**" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["check", "show", "post"])
def test_invalid_plan_file_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    stack = [] if verb == "check" else ["--stack", "dev"]
    empty = tmp_path / "preview.json"
    empty.write_text("")
    for file in (empty, tmp_path / "none.json"):
        assert main([verb, str(file), *stack]) == 1
        output = capsys.readouterr().err
        assert output.startswith(f"error: {file}: ")
        assert output.count("\n") == 1


def test_post_command_requires_a_pipeline(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GITHUB_ACTIONS", "GITLAB_CI"):
        monkeypatch.delenv(name, raising=False)

    assert main(["post", str(RECORDED / "same.json"), "--stack", "dev"]) == 1
    assert "make preview ARGS=--markdown" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["text", "show"])
def test_error_of_a_failed_preview_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))

    assert main([verb, "-", "--stack", "dev", "--skip-empty"]) == 1
    assert capsys.readouterr() == ("", "")


def test_empty_preview_on_standard_input_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))

    assert main(["check", "-"]) == 1
    assert "standard input is empty: expected the output of" in capsys.readouterr().err
