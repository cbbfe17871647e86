"""Explain the effect of a deploy to its reviewers in a comment, and refuse dangerous deploys."""

from typing import Final

REFUSED: Final = 3
"""Exit code of `text`, `show` and `check` if they refuse a plan. Other failures have code 1."""
