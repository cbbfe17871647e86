"""Local copies of Helm charts, for tests that check the program's values against the charts."""

import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

Values = dict[str, Any]
MODULES = {"cilium": ("github.com/cilium/cilium", "install/kubernetes/cilium")}
"""Charts that a Go module of the same version contains. For each chart: the module's path, and the
chart's folder in the module."""

ENDINGS = ("Chart.yaml", "values.yaml", "values.schema.json")


@cache
def files(name: str, version: str) -> Mapping[str, str]:
    """Return files of a chart and its subcharts, by path in the chart.

    Only files whose names end with one of `ENDINGS` are returned.

    The environment variable CHARTS_DIR names a folder of archives, with the file names that `helm
    pull` uses. Without the variable, the folder is Helm's cache. If the archive of a chart in
    `MODULES` is missing, the files come from the Go module. If there is no copy at all, the test is
    skipped.
    """
    cached = os.environ.get("HELM_CACHE_HOME", "~/.cache/helm")
    folder = Path(os.environ.get("CHARTS_DIR", f"{cached}/repository")).expanduser()
    archive = folder / f"{name}-{version}.tgz"
    if archive.is_file():
        return packed(archive)
    if name in MODULES and shutil.which("go"):
        return in_module(*MODULES[name], version)
    pytest.skip(f"no copy of {archive.name}: set CHARTS_DIR to a folder with one")


def packed(archive: Path) -> Mapping[str, str]:
    with tarfile.open(archive) as members:
        return {
            member.name.partition("/")[2]: extracted.read().decode()
            for member in members
            if member.name.endswith(ENDINGS) and (extracted := members.extractfile(member))
        }


def in_module(module: str, folder: str, version: str) -> Mapping[str, str]:
    """Return a chart's files from a Go module. If Go cannot get the module, skip the test."""
    call = ["go", "mod", "download", "-json", f"{module}@v{version}"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout or "{}")
    if done.returncode:
        pytest.skip(f"{module} {version}: {answer.get('Error') or done.stderr.strip()}")
    top = Path(answer["Dir"], folder)
    return {
        str(path.relative_to(top)): path.read_text()
        for path in top.rglob("*.*")
        if path.name.endswith(ENDINGS)
    }


def defaults(found: Mapping[str, str]) -> Values:
    """Return the default values of a chart and of its subcharts."""
    own: Values = yaml.safe_load(found["values.yaml"]) or {}
    for path in sorted(found):
        folder, _, file = path.rpartition("/")
        above, _, inner = folder.rpartition("/")
        if above == "charts" and file == "values.yaml":
            below: Values = yaml.safe_load(found[path]) or {}
            own[inner] = {**below, **(own.get(inner) or {})}
    return own
