"""Colours of the states of nodes and jobs, the same on all dashboards."""

from collections.abc import Mapping

from monitoring.dashboards.parts import BLUE, GREEN, ORANGE, RED

NODE_COLORS: Mapping[str, str] = {
    "allocated": "dark-green",
    "mixed": GREEN,
    "idle": "light-green",
    "completing": "semi-dark-green",
    "planned": BLUE,
    "reserved": BLUE,
    "maintenance": BLUE,
    "draining": ORANGE,
    "drained": "dark-orange",
    "not_responding": "light-red",
    "invalid": "semi-dark-red",
    "fail": RED,
    "down": "dark-red",
}
JOB_COLORS: Mapping[str, str] = {
    "running": GREEN,
    "pending": BLUE,
    "configuring": "light-green",
    "completing": "semi-dark-green",
    "suspended": ORANGE,
}
