"""Helpers that tests of several folders share."""
