"""Run the Pulumi program with the `pulumi` command or with the embedded engine (`engine/`).

`python -m local.deploy up|preview|destroy|down [--stack dev] [--engine pulumi|embedded]
[--policy-pack policy] [--program FOLDER] [-- …]`
`python -m local.deploy preview --json`: print the preview as JSON, for other programs
`python -m local.deploy preview --markdown`: print the preview as a comment on a pull request

The default engine is the `pulumi` command if it is on PATH, otherwise the embedded engine. A local
stack keeps its state and its passphrase below `.local/`. For any other stack, the operator sets
PULUMI_BACKEND_URL and the passphrase in the environment.

`down` does the same as `destroy`, except for a stack on a local cluster. There, `down` only deletes
the state, because `python -m local down` removes the cluster.

With `--program`, the program and its stack files come from another checkout. The engine, the policy
pack and this module come from this checkout, so that a pull request cannot edit the code that
checks it.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from components.conventions import PROJECT
from components.settings import LocalCluster, Settings, SettingsError, read_stack, require_file
from local.paths import ROOT
from plans import REFUSED
from plans.keys import refused_keys


def environment(stack: str, root: Path, outer: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for the engine.

    For a stack with a passphrase in `.local/`, add the paths of its state and of its passphrase,
    unless `outer` sets these variables.
    """
    kept = root / ".local" / stack / "passphrase"
    result = dict(outer)
    if kept.exists():
        result.setdefault("PULUMI_BACKEND_URL", f"file://{root / '.local/state'}")
        if "PULUMI_CONFIG_PASSPHRASE" not in outer:
            result.setdefault("PULUMI_CONFIG_PASSPHRASE_FILE", str(kept))
    return result


def commands(
    verb: str,
    stack: str,
    engine: str,
    extra: Sequence[str],
    python: str,
    packs: Sequence[str] = (),
    program: Path | None = None,
) -> list[list[str]]:
    """Return the commands to run, in order.

    `packs` are folders of policy packs. With a pack, both engines run a preview before they change
    resources. `program` is the program's folder if it is not the working directory.
    """
    judged = () if verb == "destroy" else packs
    policies = [word for pack in judged for word in ("--policy-pack", pack)]
    answer = [] if verb == "preview" else ["--yes"]
    place = [] if program is None else ["--cwd", str(program)]
    named = ["--stack", stack, *place]
    if engine == "embedded":
        return [[python, "-m", "engine", verb, *named, *answer, *policies, *extra]]
    if answer and not policies:
        answer.append("--skip-preview")
    return [
        ["pulumi", "stack", "select", "--create", stack, *place],
        ["pulumi", verb, *named, *answer, *policies, *extra],
    ]


def default_engine() -> str:
    """Return the engine that runs if the user does not choose one."""
    return "pulumi" if shutil.which("pulumi") else "embedded"


def engine_command(engine: str) -> list[str]:
    """Return the words with which each command of the engine begins."""
    return ["pulumi"] if engine == "pulumi" else [sys.executable, "-m", "engine"]


def split_at_dashes(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments before `--`, for this module, and after `--`, for the engine."""
    words = list(arguments)
    end = words.index("--") if "--" in words else len(words)
    return words[:end], words[end + 1 :]


def forget(stack: str, root: Path) -> None:
    """Remove a stack's state, with its history, backups and locks, below `.local/`."""
    state = root / ".local/state/.pulumi"
    for path in (
        *(state / "stacks" / PROJECT).glob(f"{stack}.json*"),
        *(state / folder / PROJECT / stack for folder in ("backups", "history")),
        state / "locks/organization" / PROJECT / stack,
    ):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def goes_with_its_cluster(stack: str, root: Path) -> bool:
    """Return whether the stack's cluster is a local one, which `python -m local down` removes.

    Raises `SettingsError`.
    """
    return isinstance(read_stack(stack, root).cluster, LocalCluster)


def without_salt(text: str) -> str:
    """Return a stack file without the salt of its passphrase."""
    return "".join(
        line for line in text.splitlines(keepends=True) if not line.startswith("encryptionsalt:")
    )


@contextmanager
def committed_file_kept(stack: str, root: Path) -> Iterator[None]:
    """Restore the stack file after the `with` block.

    The `pulumi` command reformats the file and adds the salt of the passphrase. Restore the file
    only if the passphrase is in `.local/`. `make down` deletes such a passphrase. If its salt were
    committed, the next passphrase would not match this salt. The salt is not lost, because the
    state contains it too. Keep edits that the user makes during the block.
    """
    path = root / f"Pulumi.{stack}.yaml"
    if not (root / ".local" / stack / "passphrase").exists() or not path.exists():
        yield
        return
    text, meaning = path.read_text(), _settings(stack, root)
    try:
        yield
    finally:
        if path.read_text() != text:
            same = meaning is not None and _settings(stack, root) == meaning
            path.write_text(text if same else without_salt(path.read_text()))


def _settings(stack: str, root: Path) -> Settings | None:
    try:
        return read_stack(stack, root)
    except SettingsError:
        return None  # the program will report the error


def run(
    commands: Sequence[Sequence[str]],
    root: Path,
    env: Mapping[str, str],
    reader: Sequence[str] = (),
) -> int:
    """Run the commands until one fails; return its exit code.

    Only the last command writes to standard output. If `reader` is given, this output goes to the
    command `reader` instead.
    """
    for command in commands[:-1]:
        status = wait(subprocess.Popen(command, cwd=root, env=env, stdout=sys.stderr))
        if status:
            return status
    if not reader:
        return wait(subprocess.Popen(commands[-1], cwd=root, env=env))
    writing = subprocess.Popen(commands[-1], cwd=root, env=env, stdout=subprocess.PIPE)
    reading = subprocess.Popen(reader, cwd=root, env=env, stdin=writing.stdout)
    if writing.stdout:
        writing.stdout.close()  # the reader has its own copy of this end of the pipe
    read = wait(reading)
    return wait(writing) or read


def _refused(
    stack: str, root: Path, engine: str, env: Mapping[str, str], extra: Sequence[str]
) -> bool:
    """Return whether an `up` would remove an authentication key that pods use; print the reason.

    Other reasons why `make preview` refuses a change need no check here: either the deploy itself
    also fails, or the operator has set `protect_data` so that this data may be deleted. Accept a
    stack without a state. Also accept invalid settings, because the deploy reports them.
    """
    other_file = any(word.startswith("--config-file") for word in extra)
    settings = None if other_file else _settings(stack, root)
    if settings is None:
        return False
    named = ("--stack", stack, "--cwd", str(root))
    command = [*engine_command(engine), "stack", "export", *named]
    exported = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    if exported.returncode:
        return False
    resources = json.loads(exported.stdout)["deployment"].get("resources") or []
    names = (resource["urn"].rpartition("::")[2] for resource in resources)
    lines = refused_keys(names, settings.auth.rotations)
    for line in lines:
        print(f"refused: {line}", file=sys.stderr)
    return bool(lines)


def wait(process: subprocess.Popen[bytes]) -> int:
    """Wait for a process, and return its exit code. Ignore Ctrl-C: the process handles it."""
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m local.deploy", description=__doc__)
    parser.add_argument("verb", choices=["up", "preview", "destroy", "down"])
    parser.add_argument("--stack", default="dev")
    parser.add_argument("--engine", choices=["pulumi", "embedded"])
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help="print the preview as JSON")
    formats.add_argument("--markdown", action="store_true", help="print the preview as Markdown")
    parser.add_argument("--policy-pack", action="append", default=[], metavar="FOLDER")
    parser.add_argument(
        "--program",
        type=Path,
        metavar="FOLDER",
        help="the program's folder (default: this checkout)",
    )
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run the engine and return its exit code."""
    parser = _parser()
    own, extra = split_at_dashes(arguments)
    options = parser.parse_args(own)
    if (options.json or options.markdown) and options.verb != "preview":
        parser.error("--json and --markdown are valid only for the command `preview`; omit them")
    program: Path | None = options.program and options.program.resolve()
    root = program or ROOT
    try:
        if options.verb in ("up", "preview") and "--config-file" not in " ".join(extra):
            require_file(options.stack, root)
        if options.verb == "down" and goes_with_its_cluster(options.stack, root):
            forget(options.stack, root)
            return 0
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.verb == "down":
        options.verb = "destroy"
    engine = options.engine or default_engine()
    if engine == "pulumi" and not shutil.which("pulumi"):
        print(
            "error: --engine pulumi: the command `pulumi` is not on PATH; install it, or pass"
            " --engine embedded",
            file=sys.stderr,
        )
        return 1
    state = root / ".local" / "state"
    state.mkdir(parents=True, exist_ok=True)
    # Close the folder to other users: the `pulumi` command writes world-readable backups into it.
    state.chmod(0o700)
    inner = environment(options.stack, root, os.environ)
    if options.verb == "up" and _refused(options.stack, root, engine, inner, extra):
        return REFUSED
    return _run(options, extra, engine, inner, program)


def _run(
    options: argparse.Namespace,
    extra: Sequence[str],
    engine: str,
    inner: Mapping[str, str],
    program: Path | None,
) -> int:
    packs = options.policy_pack
    if program:
        # Make the paths absolute: the `pulumi` command resolves them in the program's folder.
        packs = [str(ROOT / pack) for pack in packs]
    form = "show" if options.markdown else "text"
    reader = [sys.executable, "-m", "plans", form, "-", "--stack", options.stack, "--skip-empty"]
    is_read = options.markdown or (options.verb == "preview" and not options.json)
    in_json = ["--json", *extra] if options.json or is_read else extra
    ask = partial(commands, options.verb, options.stack, engine, python=sys.executable)
    with committed_file_kept(options.stack, program or ROOT):
        if engine == "embedded" or not packs or not is_read or options.markdown:
            asked = ask(extra=in_json, packs=packs, program=program)
            return run(asked, ROOT, inner, reader if is_read else ())
        # The JSON of the `pulumi` command does not contain the violations of a policy pack. Run two
        # previews. The first preview shows the costs and what users notice. The second preview
        # shows the violations.
        read = run(ask(extra=in_json, program=program), ROOT, inner, reader)
        if read not in (0, REFUSED):
            return read
        return run(ask(extra=extra, packs=packs, program=program)[-1:], ROOT, inner) or read


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
