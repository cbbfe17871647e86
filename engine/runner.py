"""Run a Pulumi program. The engine starts this file with the program's own Python.

This file requires only the Pulumi SDK. It reads its settings as JSON from standard input, so that
no secret is on a command line. Exit codes: 0 done, 1 failed with a message, 3 stopped because the
deployment had stopped.
"""

import sys

# Do not import from this directory: its module `secrets` would hide the standard library's.
sys.path.pop(0)

import asyncio
import gc
import json
import logging
import os
import runpy
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

FAILED = 1
STOPPED = 3


def _imported_sdk() -> Any:
    try:
        import pulumi
        import pulumi.runtime
    except ImportError as error:
        print(
            f"{sys.executable} cannot import the Pulumi SDK ({error}); install the program's"
            " requirements for this Python",
            file=sys.stderr,
        )
        sys.exit(FAILED)
    return pulumi


def _read_settings() -> dict[str, Any]:
    """Read the engine's settings from standard input, then redirect standard input from /dev/null.

    A thread keeps the pipe open. When the engine exits, the pipe closes, and the program exits too.
    """
    stream = os.fdopen(os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    settings: dict[str, Any] = json.loads(stream.readline())

    def watch() -> None:
        stream.read()
        os._exit(STOPPED)

    threading.Thread(target=watch, daemon=True).start()
    return settings


def _user_traceback(error: BaseException, main: Path) -> str:
    """Return the traceback without the frames above the program, such as those of this file."""
    frames = traceback.extract_tb(error.__traceback__)
    files = {str(main), str(main / "__main__.py")}
    first = next((i for i, frame in enumerate(frames) if frame.filename in files), 0)
    lines = traceback.format_list(frames[first:])
    return "".join([*lines, *traceback.format_exception_only(error)]).rstrip()


def _run(pulumi: Any, settings: dict[str, Any]) -> int:
    main = Path(settings["main"])
    config = settings["config"]
    os.environ["PULUMI_CONFIG"] = json.dumps(config)
    os.environ["PULUMI_CONFIG_SECRET_KEYS"] = json.dumps(settings["secret_keys"])
    pulumi.runtime.set_all_config(config, settings["secret_keys"])
    pulumi.runtime.configure(
        pulumi.runtime.Settings(
            monitor=settings["address"],
            engine=settings["address"],
            project=settings["project"],
            stack=settings["stack"],
            parallel=settings["parallel"],
            dry_run=settings["dry_run"],
            organization=settings["organization"],
            root_directory=settings["root"],
        )
    )
    os.chdir(main if main.is_dir() else main.parent)
    sys.argv = [str(main)]
    sys.path.insert(0, str(main if main.is_dir() else main.parent))
    # Hide asyncio's warnings about tasks that are unfinished when a deployment stops.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    # Disable debug messages. The SDK sends several of them for each resource, each in a separate
    # request, and the engine discards them. Without them, a preview of 110 resources takes a fifth
    # less time.
    pulumi.log.debug = lambda *_, **__: None
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    executor = ThreadPoolExecutor(max_workers=max(settings["parallel"], 1) * 4)
    loop.set_default_executor(executor)

    def program() -> None:
        runpy.run_path(str(main), run_name="__main__")

    try:
        loop.run_until_complete(pulumi.runtime.run_in_stack(program))
    except pulumi.RunError as error:
        if "Resource monitor has terminated" in str(error):
            return STOPPED
        pulumi.log.error(str(error))
    except SystemExit as error:
        if isinstance(error.code, str):
            pulumi.log.error(error.code)
        else:
            pulumi.log.error(
                f"the Pulumi program ended early, because it called sys.exit({error.code}); read"
                " its output above"
            )
    except Exception as error:
        pulumi.log.error("the Pulumi program failed:\n" + _user_traceback(error, main))
    else:
        return 0
    return FAILED


if __name__ == "__main__":
    # Collect garbage rarely: the process ends soon, and its objects are in use until then.
    gc.set_threshold(500_000)
    sdk = _imported_sdk()
    code = _run(sdk, _read_settings())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # do not join threads: they wait for responses that will not arrive
