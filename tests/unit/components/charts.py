"""Copies of Helm charts, for tests that hold values against them."""

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
"""Charts that lie in a Go module of the same version, which Go's registry has: module, folder."""

ENDINGS = ("Chart.yaml", "values.yaml", "values.schema.json")


@cache
def files(name: str, version: str) -> Mapping[str, str]:
    """A chart's own files, by path below its folder; skips where there is no copy.

    CHARTS_DIR has the archives, as `helm pull` names them; else they are looked for where Helm
    keeps what it has fetched, and then in the Go module that has the chart.
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
    """The same of a module that Go fetches unless it has it; skips where Go cannot."""
    call = ["go", "mod", "download", "-json", f"{module}@v{version}"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    told = json.loads(done.stdout or "{}")
    if done.returncode:
        pytest.skip(f"{module} {version}: {told.get('Error') or done.stderr.strip()}")
    top = Path(told["Dir"], folder)
    return {
        str(path.relative_to(top)): path.read_text()
        for path in top.rglob("*.*")
        if path.name.endswith(ENDINGS)
    }


def defaults(found: Mapping[str, str]) -> Values:
    """The values that a chart and the charts in it have by themselves."""
    own: Values = yaml.safe_load(found["values.yaml"]) or {}
    for path in sorted(found):
        folder, _, file = path.rpartition("/")
        above, _, inner = folder.rpartition("/")
        if above == "charts" and file == "values.yaml":
            below: Values = yaml.safe_load(found[path]) or {}
            own[inner] = {**below, **(own.get(inner) or {})}
    return own
