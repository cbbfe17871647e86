"""The site's scripts; their text is in the settings or in files."""

from collections.abc import Collection, Mapping
from pathlib import Path

from components.conventions import CHECKS, PROJECT, SCRIPTS
from components.settings import Script, Settings, SettingsError
from components.settings.slurm import Lua

SHIPPED: Mapping[str, str] = {"prolog": "Prolog", "epilog": "Epilog"}
"""Scripts that slurmctld sends to every node with the configuration: for each file name, the key in
slurm.conf. slurmctld sends a script if slurm.conf gives only its file name, without a folder
(source: Slurm's documentation of configless mode)."""
MOUNTED: Mapping[str, str] = {
    "task_prolog": "TaskProlog",
    "task_epilog": "TaskEpilog",
    "health_check": "HealthCheckProgram",
}
"""Scripts that slurmctld does not send, so pods mount them: for each file name, the key in
slurm.conf."""


def script_files(
    settings: Settings, root: Path = Path(), names: Collection[str] = MOUNTED
) -> dict[str, str]:
    """Return the scripts' texts by file name; paths in the settings are relative to `root`.

    Raises `SettingsError` if a file cannot be used.
    """
    found = {name: _source(settings, name) for name in sorted(names)}
    return {name: text_of(key, script, root) for name, (key, script) in found.items() if script}


def script_paths(settings: Settings) -> dict[str, str]:
    """Return the values of slurm.conf's keys for scripts."""
    places = {
        **{key: (name, name) for name, key in SHIPPED.items()},
        **{key: (name, f"{SCRIPTS}/{name}") for name, key in MOUNTED.items()},
    }
    found = {key: path for key, (name, path) in places.items() if _source(settings, name)[1]}
    if settings.health.enabled:
        # This program runs the checks, and then the site's own script.
        found["HealthCheckProgram"] = f"{CHECKS}/interval"
    return found


def _source(settings: Settings, name: str) -> tuple[str, Script | None]:
    """Return the key of a script in the settings, and the script."""
    if name == "health_check":
        return "health.script", settings.health.script
    return f"slurm.{name}", getattr(settings.slurm, name)


def text_of(key: str, source: Script | Lua, root: Path) -> str:
    """Return the text of a script; `key` is its key in the settings."""
    if source.text is not None:
        return source.text
    text = read_text(f"{key}.file", str(source.file), root)
    problem = source.problem(text)
    if problem:
        raise SettingsError(f"{PROJECT}:{key}.file: {source.file}: {problem}")
    return text


def read_text(key: str, file: str, root: Path) -> str:
    """Return the text of a file in the project; `key` is its key in the settings.

    Raises `SettingsError` if the file cannot be read.
    """
    try:
        return (root / file).read_text()
    except (OSError, ValueError) as error:  # invalid characters in a name or a text
        reason = error.strerror if isinstance(error, OSError) else "is not text"
        raise SettingsError(
            f"{PROJECT}:{key}: {file}: {reason}; expected a text file in the project"
        ) from None
