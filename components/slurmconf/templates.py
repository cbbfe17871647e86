"""Render Slurm's files from the templates in this folder."""

from collections.abc import Mapping

from jinja2 import Environment, PackageLoader, StrictUndefined

_templates = Environment(
    loader=PackageLoader(__package__, "."),
    undefined=StrictUndefined,
    keep_trailing_newline=True,
    trim_blocks=True,
    lstrip_blocks=True,
    autoescape=False,  # noqa: S701  # Slurm's files are not HTML
)


def render(name: str, values: Mapping[str, object]) -> str:
    """Render the file `name` from the template `<name>.j2`."""
    return _templates.get_template(f"{name}.j2").render(values)
