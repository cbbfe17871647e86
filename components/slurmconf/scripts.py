"""Scripts of the settings, wherever their text stands."""

from collections.abc import Collection, Mapping
from pathlib import Path

from components.conventions import PROJECT, SCRIPTS
from components.settings import Script, Settings, SettingsError
from components.settings.slurm import Lua

SHIPPED: Mapping[str, str] = {"prolog": "Prolog", "epilog": "Epilog"}
"""Settings below `slurm`, and slurm.conf's keys, of scripts that slurmctld sends to every node with
the configuration: it does so for those named without a path (configless documentation)."""
MOUNTED: Mapping[str, str] = {
    "task_prolog": "TaskProlog",
    "task_epilog": "TaskEpilog",
    "health_check": "HealthCheckProgram",
}
"""The same of scripts that it does not send."""


def script_files(
    settings: Settings, root: Path = Path(), names: Collection[str] = MOUNTED
) -> dict[str, str]:
    """Scripts by file name, which is their setting's; files are read below `root`.

    Raises `SettingsError` for a file that cannot be used.
    """
    found = {name: getattr(settings.slurm, name) for name in names}
    return {
        name: text_of(f"slurm.{name}", script, root)
        for name, script in sorted(found.items())
        if script
    }


def script_paths(settings: Settings) -> dict[str, str]:
    """What slurm.conf's keys for scripts say."""
    places = {
        **{key: (name, name) for name, key in SHIPPED.items()},
        **{key: (name, f"{SCRIPTS}/{name}") for name, key in MOUNTED.items()},
    }
    return {key: path for key, (name, path) in places.items() if getattr(settings.slurm, name)}


def text_of(key: str, source: Script | Lua, root: Path) -> str:
    """The text of a script; `key` is where it stands in the settings."""
    if source.text is not None:
        return source.text
    text = read_text(f"{key}.file", str(source.file), root)
    problem = source.problem(text)
    if problem:
        raise SettingsError(f"{PROJECT}:{key}.file: {source.file}: {problem}")
    return text


def read_text(key: str, file: str, root: Path) -> str:
    """What a file of the project says; `key` is where the settings name it.

    Raises `SettingsError` where it cannot be read.
    """
    try:
        return (root / file).read_text()
    except (OSError, ValueError) as error:  # a name or a text with what is no character
        reason = error.strerror if isinstance(error, OSError) else "is no text"
        raise SettingsError(
            f"{PROJECT}:{key}: {file}: {reason}; give a file of the project"
        ) from None
