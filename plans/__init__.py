"""Explain the effect of a deploy to its reviewers in a comment, and refuse dangerous deploys."""
