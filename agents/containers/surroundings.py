"""Environment variables, working directory and entrypoint of an image.

Each of the three has its own file next to the image's root. `spank/containers/start.c` reads the
files.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agents.containers.errors import ImageError
from agents.containers.faults import describe

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=[^\0]*", re.DOTALL)
_DIRECTORY: Final = re.compile(
    r"""^\s*cd (?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>\S+))""", re.MULTILINE | re.DOTALL
)
_SPECIAL: Final = re.compile(r'([\\"$`])')
"""Characters that a shell interprets in double quotes."""
_ESCAPED: Final = re.compile(r'\\([\\"$`])')
_EXPORT: Final = re.compile(
    r"""^\[ -n "\$\{(?P<name>\w+)\+x\}" \] \|\| export (?P=name)='(?P<value>(?:[^']|'"'"')*)'$""",
    re.MULTILINE,
)
"""Pattern for a line that `export` writes."""
_QUOTE: Final = "'\"'\"'"
"""A single quote, written so that it can stand between single quotes of a shell."""
_CHARLIECLOUD: Final = "ch/metadata.json"
_ENROOT_SCRIPT: Final = "etc/rc"
_ENROOT_VARIABLES: Final = "etc/environment"


@dataclass(frozen=True)
class Surroundings:
    """Variables, working directory and entrypoint with which programs of an image start."""

    variables: tuple[str, ...] = ()
    """Items of the form NAME=VALUE."""
    directory: str = "/"
    entrypoint: tuple[str, ...] = ()

    def write(self, folder: Path) -> None:
        """Write the files into the image's directory."""
        replace(folder / "environment", _words(self.variables))
        replace(folder / "entrypoint", _words(self.entrypoint))
        replace(folder / "directory", self.directory.encode())


def replace(file: Path, content: bytes) -> None:
    """Replace a file atomically: other job steps may read the file at the same time."""
    temporary = file.with_name(f"{file.name}.{os.uname().nodename}-{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(file)


def _words(words: Sequence[str]) -> bytes:
    return b"".join(word.encode() + b"\0" for word in words)


def of_config(config: Mapping[str, Any]) -> Surroundings:
    """Read an OCI image's configuration. Values of a wrong type are ignored.

    Raises ImageError if a value is not valid Unicode.
    """
    said = config.get("config") if isinstance(config, dict) else None
    if not isinstance(said, dict):
        return Surroundings()
    entrypoint = tuple(_texts(said.get("Entrypoint")))
    return Surroundings(
        variables=variables_of(said.get("Env")),
        directory=directory_of(said.get("WorkingDir")),
        entrypoint=entrypoint,
    )


def variables_of(value: object) -> tuple[str, ...]:
    """Return the items of a list that have the form NAME=VALUE."""
    return tuple(text for text in _texts(value) if _VARIABLE.fullmatch(text))


def _texts(value: object) -> list[str]:
    if not isinstance(value, list):
        return []
    return [valid(text) for text in value if isinstance(text, str) and "\0" not in text]


def valid(text: str) -> str:
    """Return the text. Raises ImageError if it is not valid Unicode."""
    # JSON can contain half of a character, such as \ud800. A file in UTF-8 cannot contain it.
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ImageError(
            f"the image's configuration contains {text[:60]!a}, which is not valid Unicode: "
            "build the image again"
        ) from None
    return text


def directory_of(value: object) -> str:
    """Return the value if it is an absolute path. Otherwise return /."""
    usable = isinstance(value, str) and value.startswith("/") and "\0" not in value
    return valid(str(value)) if usable else "/"


def of_files(root: Path) -> Surroundings:
    """Read the files that enroot, Charliecloud and `--container-save` write into an image."""
    script, variables = (_read(root / name) for name in (_ENROOT_SCRIPT, _ENROOT_VARIABLES))
    built = _of_charliecloud(_read(root / _CHARLIECLOUD))
    lines = [line.strip() for line in variables.split("\n")]
    exports, script_without = _exports(script)
    found = _DIRECTORY.search(script_without)
    read = [*lines, *exports]
    return Surroundings(
        variables=(*built.variables, *(line for line in read if _VARIABLE.fullmatch(line))),
        directory=directory_of(_directory(found)) if found else built.directory,
        entrypoint=("/bin/sh", f"/{_ENROOT_SCRIPT}") if script else (),
    )


def quote(directory: str) -> str:
    """Quote a directory's path for a shell script, so that `of_files` can read it there."""
    escaped = _SPECIAL.sub(r"\\\1", directory)
    return f'"{escaped}"'


def _directory(found: re.Match[str]) -> str:
    return _ESCAPED.sub(r"\1", found["quoted"]) if found["quoted"] else str(found["plain"])


def export(variable: str) -> str:
    """Return a line for a shell script. The line sets and exports a variable.

    If the user has already set this variable, the line leaves it unchanged.
    """
    name, _, value = variable.partition("=")
    quoted = value.replace("'", _QUOTE)
    return f"""[ -n "${{{name}+x}}" ] || export {name}='{quoted}'\n"""


def _exports(script: str) -> tuple[list[str], str]:
    """Return the variables that a script exports, and the script without these exports."""
    found = list(_EXPORT.finditer(script))
    variables = [f"{each['name']}={each['value'].replace(_QUOTE, chr(39))}" for each in found]
    return variables, _EXPORT.sub("", script)


def _of_charliecloud(text: str) -> Surroundings:
    try:
        said = json.loads(text)
        variables = variables_of([f"{name}={value}" for name, value in said["env"].items()])
        return Surroundings(variables=variables, directory=directory_of(said.get("cwd")))
    except (AttributeError, KeyError, TypeError, ValueError):
        return Surroundings()


def _read(path: Path) -> str:
    try:
        # Do not follow links, because a link in an image may point anywhere.
        if path.is_symlink() or path.parent.is_symlink() or not path.is_file():
            return ""
        return path.read_text(errors="replace")
    except OSError as error:
        raise ImageError(
            f"image: cannot read a file of the image: {describe(error)}: make the file readable"
        ) from None
