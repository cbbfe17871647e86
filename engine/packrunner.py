"""Run a policy pack as Pulumi's language host does, and end the pack when the engine ends.

The engine starts this file with the pack's Python in the pack's folder. Standard input stays open
while the engine runs. This file requires only the Pulumi SDK.
"""

import sys

# Do not import from this directory: its module `secrets` would hide the standard library's.
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
    # Arguments: the engine's address, which packs in Python ignore, and the pack's folder.
    sys.argv = ["pulumi.policy", "", str(Path.cwd())]
    runpy.run_module("pulumi.policy", run_name="__main__", alter_sys=True)
