"""Arguments of `python -m local`."""

import pytest

from local.__main__ import Command, access_options, main, parse
from local.api import ApiError
from local.errors import LocalError
from tests.support.stack import VALID, settings


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["up"], Command("up", "dev")),
        (["up", "--stack", "gpu"], Command("up", "gpu")),
        (["--stack", "gpu", "up"], Command("up", "gpu")),
        (["down", "--stack=gpu"], Command("down", "gpu")),
        (["status"], Command("status", "dev")),
        (["clear"], Command("clear", "dev")),
        (["load", "a:1", "b:2", "--stack", "gpu"], Command("load", "gpu", ("a:1", "b:2"))),
        (["kubectl", "get", "pods", "-A"], Command("kubectl", "dev", ("get", "pods", "-A"))),
        (["kubectl", "get", "pods", "--stack", "gpu"], Command("kubectl", "gpu", ("get", "pods"))),
        (["--stack", "gpu", "kubectl", "get", "-o", "json"],
         Command("kubectl", "gpu", ("get", "-o", "json"))),
        (["kubectl", "--stack=gpu", "--help"], Command("kubectl", "gpu", ("--help",))),
        (["kubectl", "exec", "p", "--", "x", "--stack", "y"],
         Command("kubectl", "dev", ("exec", "p", "--", "x", "--stack", "y"))),
    ],
)  # fmt: skip
def test_option_stack_may_stand_anywhere_before_a_double_dash(
    arguments: list[str], expected: Command
) -> None:
    assert parse(arguments) == expected


@pytest.mark.parametrize("stack", ["cache", "state", "../up", "", "-x y"])
def test_reserved_or_invalid_stack_name_is_refused(stack: str) -> None:
    with pytest.raises(LocalError, match="--stack"):
        parse(["up", f"--stack={stack}"])


@pytest.mark.parametrize(
    ("cluster", "options"),
    [
        ({}, []),  # kubectl's own defaults
        (
            {"kubeconfig": "/lab.yaml", "context": "a"},
            ["--kubeconfig", "/lab.yaml", "--context", "a"],
        ),
    ],
)
def test_kubectl_uses_the_kubeconfig_and_context_of_the_settings(
    cluster: dict[str, str], options: list[str]
) -> None:
    stack = settings(base={**VALID, "cluster": {"kind": "existing", **cluster}})
    assert access_options("lab", stack) == options


@pytest.mark.parametrize("arguments", [[], ["start"], ["load"], ["up", "now"]])
def test_invalid_arguments_print_the_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ending:
        parse(arguments)
    assert ending.value.code == 2
    assert "usage: python -m local" in capsys.readouterr().err


def test_unknown_stack_fails_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--stack", "nowhere"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "nowhere" in error


def test_error_of_kubernetes_is_one_line_with_the_remedy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_command: Command) -> int:
        raise ApiError(403, "DELETE /api/v1/nodes/node-2: HTTP 403: forbidden")

    monkeypatch.setattr("local.__main__.run", fail)

    assert main(["up"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.endswith(
        "HTTP 403: forbidden; check the nodes with `python -m local status`, then run the command"
        " again\n"
    )
