"""Runs a policy pack as Pulumi's language host does, and ends it when the engine ends.

Started with the pack's own Python, in the pack's folder. It needs nothing but the Pulumi SDK. The
engine keeps standard input open for as long as it lives.
"""

import sys

# Its own directory is no place to import from: there is a `secrets` in it.
sys.path.pop(0)
sys.path.insert(0, "")

import os
import runpy
import threading
from pathlib import Path


def _watch() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_watch, daemon=True).start()
    # The engine's address, which packs in Python have no use for, and the pack.
    sys.argv = ["pulumi.policy", "", str(Path.cwd())]
    runpy.run_module("pulumi.policy", run_name="__main__", alter_sys=True)
