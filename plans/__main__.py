"""Explain a preview to reviewers, and check it in pipelines.

python -m plans text preview.json --stack gpu     print the preview for a terminal
python -m plans show preview.json --stack gpu     print the comment on standard output
python -m plans check preview.json                refuse to remove protected resources or data
python -m plans post preview.json --stack gpu     create or update the comment on the pull request
python -m plans fetch plan.json --stack gpu       save the plan of the merged change in plan.json

`text`, `show` and `check` end with exit code 3 if they refuse the plan.

`preview.json` is the output of `pulumi preview --json`; `-` is standard input. Pass the exit code
of the preview command with --status. With --skip-empty, an empty standard input causes no error
message, because the preview command before it in the pipe has already printed an error.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console

from plans import REFUSED, text
from plans.forge import forge
from plans.markdown import marker, render
from plans.protection import refusals
from plans.reading import PlanError, Preview, read


class _EmptyError(PlanError):
    """The preview printed nothing, because it failed."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m plans", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("text", "show", "check", "post", "fetch"):
        command = commands.add_parser(name)
        command.add_argument(
            "file",
            type=Path,
            help=(
                "file with the output of `pulumi preview --json`; for the command fetch, the file"
                " to write"
            ),
        )
        if name != "check":
            command.add_argument("--stack", required=True, help="name of the stack")
        if name != "fetch":
            command.add_argument(
                "--status",
                type=int,
                default=0,
                help="exit code of the command that made the preview",
            )
        if name in ("text", "show"):
            command.add_argument(
                "--skip-empty",
                action="store_true",
                help="if the input is empty, end without an error message",
            )
    return parser


def _preview(file: Path, status: int) -> Preview:
    if str(file) == "-":
        if not (found := sys.stdin.read()):
            raise _EmptyError(
                "standard input is empty: expected the output of `pulumi preview --json`; read the"
                " error that the preview printed"
            )
        return read(found, "standard input", status)
    try:
        return read(file.read_text(), str(file), status)
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(
            f"{file}: cannot be read: {error}; name a file with the output of `pulumi preview"
            " --json`"
        ) from None


def check(preview: Preview) -> int:
    """Print all refusals and errors on standard error. Return the exit code."""
    refused = refusals(preview)
    for line in refused:
        print(f"refused: {line}", file=sys.stderr)
    for line in preview.errors:
        print(f"error: {line}", file=sys.stderr)
    if refused:
        return REFUSED
    return 1 if preview.errors else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Return the exit code: 0 done, 1 failed, 3 refused."""
    options = _parser().parse_args(arguments)
    try:
        match options.command:
            case "text":
                waiting = Console(stderr=True).status(f"previewing {options.stack}")
                with waiting if sys.stderr.isatty() else nullcontext():
                    found = _preview(options.file, options.status)
                text.show(found, options.stack, Console())
                return REFUSED if refusals(found) else 0
            case "show":
                found = _preview(options.file, options.status)
                print(render(found, options.stack))
                return REFUSED if refusals(found) else 0
            case "check":
                return check(_preview(options.file, options.status))
            case "post":
                body = render(_preview(options.file, options.status), options.stack)
                print(forge(os.environ).comment(marker(options.stack), body))
            case "fetch":
                options.file.write_bytes(forge(os.environ).plan(options.stack))
    except _EmptyError as error:
        if not vars(options).get("skip_empty"):
            print(f"error: {error}", file=sys.stderr)
        return 1
    except PlanError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
