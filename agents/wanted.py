"""Read the settings files that the deploy writes for agents."""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound=BaseModel)


class WantedError(Exception):
    """The settings file is unusable. The message is one line with the reason."""


def read(path: Path, model: type[M]) -> M:
    """Read the settings. Raises `WantedError` if the file is unusable."""
    try:
        return model.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        said = " ".join(str(error).split())
        raise WantedError(
            f"{path}: cannot read the agent's settings: {said}; deploy again, so that all "
            "images have the same version"
        ) from error
