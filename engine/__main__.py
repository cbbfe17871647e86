"""Deploy a Pulumi program. Each command except `encrypt` works as in the `pulumi` command.

The option `--refresh` does less than in `pulumi`: it only creates deleted objects again.

python -m engine up --stack dev --yes
python -m engine preview --stack dev --expect-no-changes
python -m engine stack output login_host_key --stack dev --show-secrets
python -m engine encrypt --stack dev <password.txt
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from getpass import getpass
from pathlib import Path
from typing import Any, Final

from engine.backend import Backend
from engine.display import choose
from engine.errors import EngineError
from engine.project import PackProject, Project, find_pack, find_project
from engine.secrets import PassphraseCrypter, passphrase_from_environment
from engine.show import redacted
from engine.state import Checkpoint, in_the_clear
from engine.update import INTERRUPTED, Request, encrypt, run
from engine.values import plain
from engine.work import describe_bug

_PARALLEL: Final = 16


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--stack",
        default=os.environ.get("PULUMI_STACK"),
        help="name of the stack (default: the value of the variable PULUMI_STACK)",
    )
    common.add_argument(
        "--cwd", type=Path, default=Path(), help="folder of the project (default: this folder)"
    )
    common.add_argument(
        "--json", action="store_true", help="print the result as JSON on standard output"
    )
    deploys = argparse.ArgumentParser(add_help=False, parents=[common])
    deploys.add_argument(
        "--parallel",
        type=_count,
        default=_PARALLEL,
        help="maximum number of operations at the same time (default: 16)",
    )
    changes = argparse.ArgumentParser(add_help=False, parents=[deploys])
    changes.add_argument("--yes", action="store_true", help="do not ask for confirmation")

    parser = argparse.ArgumentParser(prog="python -m engine", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", parents=[changes], help="deploy the program")
    preview = commands.add_parser(
        "preview", parents=[deploys], help="show what `up` would change, but change nothing"
    )
    for command in (up, preview):
        command.add_argument(
            "--expect-no-changes",
            action="store_true",
            help="exit with an error if any resource changes",
        )
        command.add_argument(
            "--refresh",
            action="store_true",
            help=(
                "create objects again that were deleted outside Pulumi (does not undo other"
                " changes made outside Pulumi)"
            ),
        )
        command.add_argument(
            "--policy-pack",
            type=Path,
            action="append",
            default=[],
            metavar="PATH",
            help="check the resources with the policy pack in this folder; may be repeated",
        )
    commands.add_parser("destroy", parents=[changes], help="delete all resources of the stack")
    _add_stack_command(commands, common)
    commands.add_parser(
        "encrypt",
        parents=[common],
        help="encrypt the text on standard input, and print it as a value for the stack file",
    )
    return parser


def _add_stack_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    common: argparse.ArgumentParser,
) -> None:
    stack = commands.add_parser("stack", help="print the stack's outputs or state")
    reads = stack.add_subparsers(dest="read", required=True)
    output = reads.add_parser("output", parents=[common], help="print the stack's outputs")
    output.add_argument(
        "name", nargs="?", help="name of the only output to print (default: all outputs)"
    )
    export = reads.add_parser("export", parents=[common], help="print the state as JSON")
    for command in (output, export):
        command.add_argument(
            "--show-secrets", action="store_true", help="print secrets in plain text"
        )


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}': expected a whole number of 1 or more")
    return int(text)


def _stack_name(options: argparse.Namespace) -> str:
    if not options.stack:
        raise EngineError(
            "the name of the stack is not set; pass --stack NAME, or set the variable PULUMI_STACK"
        )
    return str(options.stack)


def _change(options: argparse.Namespace, project: Project, kind: str) -> int:
    """Run `up` or `destroy`. Without --yes, first show a preview and ask for confirmation."""
    name = _stack_name(options)
    packs = _packs(options)
    if not options.yes and (options.json or not (sys.stdin.isatty() and sys.stdout.isatty())):
        raise EngineError(
            "cannot ask for confirmation without a terminal or with --json; pass --yes, to"
            " run without a question"
        )
    refresh = getattr(options, "refresh", False)
    # With policy packs, always preview first, to show violations before anything changes.
    if packs or not options.yes:
        look = Request(kind, True, options.parallel, packs=packs, refresh=refresh)
        seen = run(project, name, look, choose(options.json, only_failure=True))
        if seen:
            return seen
    if not options.yes and not _agreed(options.command, name):
        print(
            "stopped without confirmation: no resource was changed; to continue, run the"
            " command again, and answer y",
            file=sys.stderr,
        )
        return 1
    expect = getattr(options, "expect_no_changes", False)
    request = Request(kind, False, options.parallel, expect, packs, refresh)
    return run(project, name, request, choose(options.json))


def _packs(options: argparse.Namespace) -> tuple[PackProject, ...]:
    return tuple(find_pack(path) for path in getattr(options, "policy_pack", ()))


def _agreed(command: str, stack: str) -> bool:
    try:
        return input(f"Run `{command}` on the stack {stack!r}? [y/N] ").strip().lower() in (
            "y",
            "yes",
        )
    except EOFError:
        return False


def _checkpoint(options: argparse.Namespace, project: Project) -> Checkpoint:
    name = _stack_name(options)
    backend = Backend(project.state_directory(), project.name, name)
    checkpoint = backend.read()
    if checkpoint is None:
        raise EngineError(
            f"stack {name!r}: no state of this stack in {backend.root}; deploy the stack first"
        )
    return checkpoint


def _crypter(checkpoint: Checkpoint) -> PassphraseCrypter | None:
    if checkpoint.salt is None:
        return None
    return PassphraseCrypter.from_state(passphrase_from_environment(), checkpoint.salt)


def _output(options: argparse.Namespace, project: Project) -> int:
    checkpoint = _checkpoint(options, project)
    # Without --show-secrets, hide the secrets. This requires no passphrase.
    crypter = _crypter(checkpoint) if options.show_secrets else None
    outputs = checkpoint.open(crypter).outputs
    value: Any = plain(outputs) if options.show_secrets else redacted(outputs)
    if options.name is None:
        if options.json:
            print(json.dumps(value, indent=2, ensure_ascii=False))
        else:
            for name in sorted(value):
                print(f"{name}: {_text(value[name])}")
        return 0
    if options.name not in value:
        known = f"known: {', '.join(sorted(value))}" if value else "deploy the stack first"
        raise EngineError(f"output {options.name!r}: no such output; {known}")
    one = value[options.name]
    print(json.dumps(one, ensure_ascii=False) if options.json else _text(one))
    return 0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _export(options: argparse.Namespace, project: Project) -> int:
    checkpoint = _checkpoint(options, project)
    deployment: Any = checkpoint.deployment
    if options.show_secrets:
        deployment = in_the_clear(deployment, _crypter(checkpoint))
    print(json.dumps({"version": 3, "deployment": deployment}, indent=2, ensure_ascii=False))
    return 0


def _encrypt(options: argparse.Namespace, project: Project) -> int:
    name = _stack_name(options)
    text = getpass("value: ") if sys.stdin.isatty() else sys.stdin.read().removesuffix("\n")
    if not text:
        raise EngineError("no text to encrypt; pass the text on standard input")
    encrypted = {"secure": encrypt(project, name, text)}
    print(json.dumps(encrypted) if options.json else f"secure: {encrypted['secure']}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code: 0 done, 1 failed, 130 stopped by the user."""
    options = _parser().parse_args(arguments)
    try:
        project = find_project(options.cwd)
        if options.command == "stack":
            read = _output if options.read == "output" else _export
            return read(options, project)
        if options.command == "encrypt":
            return _encrypt(options, project)
        if options.command == "preview":
            expect = options.expect_no_changes
            packs = _packs(options)
            request = Request("update", True, options.parallel, expect, packs, options.refresh)
            report = choose(options.json, preview=True)
            return run(project, _stack_name(options), request, report)
        kind = "update" if options.command == "up" else "destroy"
        return _change(options, project, kind)
    except EngineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped by Ctrl-C: no resource was changed", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        print(f"error: {describe_bug(error)}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
