"""Make backups, and restore them.

`python3 -m agents.backup COMMAND [NAME=FOLDER …]`:

- `backup`: dump the accounting database, and remove old dumps;
- `restore`: load the dump SNAPSHOT (`latest`, or a dump's name) into an empty database;
- `set-database`, `set-files NAME=FOLDER …`: add the database or folders to the set SET. The folder
  `jail` is the last part: it completes the set, and then old sets are removed. While RESTORE has
  a value, these commands fail, because the cluster may be restored only in part;
- `restore-database`, `restore-files NAME=FOLDER …`: restore parts of the set RESTORE (`latest`, or
  a set's id), each only if the database or the folder is empty.

The last line of a failed run is the reason. The exit code is 1 after a failure. Environment
variables: see `agents.backup.restic`; EXCLUDE (patterns, one in each line), LARGEST (MiB) and
UPLOAD (KiB/s).
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from agents.backup import database, files, sets
from agents.backup.database import Database
from agents.backup.files import Limits, Part
from agents.backup.restic import BackupError, Restic


def _backup(restic: Restic, environment: Mapping[str, str], parts: Sequence[Part]) -> None:
    restic.open()
    line = database.dump(restic, Database(environment["DATABASE"]))
    done = database.thin(restic)
    if done.code != 0:
        dumped = line.partition(" of ")[0]
        raise BackupError(f"{dumped} is complete, but old dumps cannot be removed: {done.reason}")
    print(f"backup: {line}; the store has:\n{database.listed(restic)}", flush=True)


def _restore(restic: Restic, environment: Mapping[str, str], parts: Sequence[Part]) -> None:
    wanted = environment["SNAPSHOT"]
    loaded = database.load(
        restic, Database(environment["DATABASE"]), lambda: database.find(restic, wanted)
    )
    print(f"restore: {loaded}", flush=True)


def _set_database(restic: Restic, environment: Mapping[str, str], parts: Sequence[Part]) -> None:
    _refuse_during_restore(environment)
    restic.open()
    tags = sets.tags(environment["SET"], sets.ACCOUNTING)
    print(f"backup: {database.dump(restic, Database(environment['DATABASE']), tags)}", flush=True)


def _set_files(restic: Restic, environment: Mapping[str, str], parts: Sequence[Part]) -> None:
    _refuse_during_restore(environment)
    restic.open()
    identity = environment["SET"]
    errors = []
    for part in parts:
        try:
            line = files.back_up(restic, part, identity, _limits(environment))
        except BackupError as error:
            errors.append(str(error))
        else:
            print(f"backup: {line}", flush=True)
    if errors:
        if any("no space left" in error for error in errors):
            # Free the space of incomplete sets, and of old sets if an operator has lowered their
            # number.
            sets.thin(restic, datetime.now(UTC), "--max-repack-size=0")
        raise BackupError("; ".join(errors))
    if parts[-1].name == sets.JAIL:
        sets.complete(restic, identity)
        listed = sets.table(sets.thin(restic, datetime.now(UTC)))
        print(f"backup: the set '{identity}' is complete; the store has:\n{listed}")


def _limits(environment: Mapping[str, str]) -> Limits:
    return Limits(
        exclude=tuple(environment.get("EXCLUDE", "").splitlines()),
        largest=int(environment.get("LARGEST", "0")) or None,
        upload=int(environment.get("UPLOAD", "0")) or None,
    )


def _refuse_during_restore(environment: Mapping[str, str]) -> None:
    if environment.get("RESTORE"):
        raise BackupError(
            "no sets are made while 'backup.restore' is set; remove it from the stack's config, "
            "and deploy"
        )


def _restore_database(
    restic: Restic, environment: Mapping[str, str], parts: Sequence[Part]
) -> None:
    def find() -> str:
        chosen = sets.choose(sets.sets(restic.snapshots()), environment["RESTORE"])
        dumped = chosen.parts.get(sets.ACCOUNTING)
        if dumped is None:
            raise BackupError(
                f"the set '{chosen.id}' has no accounting; choose another set in "
                "'backup.restore', or set 'accounting.backup.restore' to a dump"
            )
        return dumped.id[:8]

    loaded = database.load(restic, Database(environment["DATABASE"]), find)
    print(f"restore: {loaded}", flush=True)


def _restore_files(restic: Restic, environment: Mapping[str, str], parts: Sequence[Part]) -> None:
    for part in parts:
        print(f"restore: {files.restore(restic, part, environment['RESTORE'])}", flush=True)


Command = Callable[[Restic, Mapping[str, str], Sequence[Part]], None]
_COMMANDS: Mapping[str, Command] = {
    "backup": _backup,
    "restore": _restore,
    "set-database": _set_database,
    "set-files": _set_files,
    "restore-database": _restore_database,
    "restore-files": _restore_files,
}


def main(
    arguments: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ
) -> int:
    parser = argparse.ArgumentParser(prog="agents.backup", description=__doc__)
    parser.add_argument("command", choices=_COMMANDS)
    parser.add_argument("parts", nargs="*", metavar="NAME=FOLDER", type=Part.of)
    options = parser.parse_args(arguments)
    # The kernel does not end the first process of a container by a signal without a handler.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(1))
    name = "restore" if options.command.startswith("restore") else "backup"
    try:
        _COMMANDS[options.command](Restic(environment), environment, options.parts)
    except BackupError as error:
        print(f"{name}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
