"""Runs the program with Pulumi's command or with the embedded engine.

`python -m local.deploy up|preview|destroy --stack dev [--engine pulumi|embedded] [-- ARGUMENT…]`

The command is taken where it is on PATH, the embedded engine where it is not. A stack that `make
up` made keeps its state and its passphrase below `.local/`; for any other stack both are what the
operator's environment says.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def environment(stack: str, root: Path, outer: Mapping[str, str]) -> dict[str, str]:
    """The environment of the engine: what is set already goes before what is kept in `.local/`."""
    kept = root / ".local" / stack / "passphrase"
    result = dict(outer)
    if kept.exists():
        result.setdefault("PULUMI_BACKEND_URL", f"file://{root / '.local/state'}")
        if "PULUMI_CONFIG_PASSPHRASE" not in outer:
            result.setdefault("PULUMI_CONFIG_PASSPHRASE_FILE", str(kept))
    return result


def commands(
    verb: str, stack: str, engine: str, extra: Sequence[str], python: str
) -> list[list[str]]:
    """The commands to run, one after the other."""
    if engine == "embedded":
        answer = [] if verb == "preview" else ["--yes"]
        return [[python, "-m", "engine", verb, "--stack", stack, *answer, *extra]]
    answer = [] if verb == "preview" else ["--yes", "--skip-preview"]
    return [
        ["pulumi", "stack", "select", "--create", stack],
        ["pulumi", verb, "--stack", stack, *answer, *extra],
    ]


def main(arguments: Sequence[str]) -> int:
    """Exit code of the engine."""
    parser = argparse.ArgumentParser(prog="python -m local.deploy", description=__doc__)
    parser.add_argument("verb", choices=["up", "preview", "destroy"])
    parser.add_argument("--stack", default="dev")
    parser.add_argument("--engine", choices=["pulumi", "embedded"])
    parser.add_argument("extra", nargs="*", help="arguments for the engine, after --")
    options = parser.parse_args(arguments)
    engine = options.engine or ("pulumi" if shutil.which("pulumi") else "embedded")
    if engine == "pulumi" and not shutil.which("pulumi"):
        print(
            "error: engine 'pulumi': not on PATH; install it, or take --engine embedded",
            file=sys.stderr,
        )
        return 1
    state = ROOT / ".local" / "state"
    state.mkdir(parents=True, exist_ok=True)
    inner = environment(options.stack, ROOT, os.environ)
    for command in commands(options.verb, options.stack, engine, options.extra, sys.executable):
        # The engine answers Ctrl-C itself, and ends in order.
        process = subprocess.Popen(command, cwd=ROOT, env=inner)
        while True:
            try:
                status = process.wait()
                break
            except KeyboardInterrupt:
                continue
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
