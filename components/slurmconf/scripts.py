"""Scripts of the settings, wherever their text stands."""

from collections.abc import Mapping
from pathlib import Path

from components.conventions import PROJECT
from components.settings import Script, Settings, SettingsError
from components.settings.slurm import Lua

SCRIPTS: Mapping[str, str] = {
    "prolog": "Prolog",
    "epilog": "Epilog",
    "task_prolog": "TaskProlog",
    "task_epilog": "TaskEpilog",
    "health_check": "HealthCheckProgram",
}
"""Settings below `slurm` that are scripts, the names of their files too; with slurm.conf's keys."""


def script_files(settings: Settings, root: Path = Path()) -> dict[str, str]:
    """The scripts that workers run, by file name; files are read below `root`.

    Raises `SettingsError` for a file that cannot be used.
    """
    found = {name: getattr(settings.slurm, name) for name in SCRIPTS}
    return {
        name: text_of(f"slurm.{name}", script, root)
        for name, script in sorted(found.items())
        if script
    }


def text_of(key: str, source: Script | Lua, root: Path) -> str:
    """The text of a script; `key` is where it stands in the settings."""
    if source.text is not None:
        return source.text
    path = root / str(source.file)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text"
        raise SettingsError(
            f"{PROJECT}:{key}.file: {source.file}: {reason}; give a file of the project"
        ) from None
    problem = source.problem(text)
    if problem:
        raise SettingsError(f"{PROJECT}:{key}.file: {source.file}: {problem}")
    return text
