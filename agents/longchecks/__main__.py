"""`python3 -m agents.longchecks run NAME [--node NODE …]`: measure nodes, and drain bad ones.

    run NAME        measure the given nodes, or all nodes of the check, with jobs on free nodes
    record NAME     read an output of the check's script from stdin, and record the measured value
    script NAME     print the check's script
    history [NAME]  show the time series
    serve           serve the newest values as metrics until SIGTERM (docs/metrics.md)

The exit code of `run` and `record` is:

    0  all measured nodes are good; the output lists the nodes that were not measured
    1  Slurm is unavailable, or the run is not finished; run the same command again to continue
    2  the arguments or the settings are invalid
    3  a node is bad
    4  jobs ran, but none of them measured a value

Environment variables:

    REST_URL     URL of slurmrestd
    JWT_KEY      file with the key of slurmctld's JWT tokens
    LONG_CHECKS  file with the settings
    SERIES       folder of the time series
    OUTPUTS      folder of the jobs' outputs in this pod
    PORT         port of the metrics
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from agents import metrics
from agents.longchecks.metrics import Newest
from agents.longchecks.plan import in_order
from agents.longchecks.registry import CHECKS
from agents.longchecks.run import Runner, Summary
from agents.longchecks.series import BusyError, Record, Series
from agents.longchecks.wanted import Wanted
from agents.say import fail
from agents.slurm import Client, SlurmError, from_key

DONE, FAILED, UNUSABLE, BAD, NOTHING = range(5)
ADMINISTRATOR = "slurm"
"""Name of SlurmUser, who may change all nodes."""

Connect = Callable[[str], Client]
"""Function that creates a client with the rights of a user."""


def main(
    arguments: Sequence[str] | None = None,
    environment: Mapping[str, str] = os.environ,
    connect: Connect | None = None,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    options = _parser().parse_args(arguments)
    try:
        if options.command == "serve":
            return _serve(environment)
        path = Path(_variable(environment, "LONG_CHECKS"))
        wanted = Wanted.model_validate_json(path.read_bytes())
        series = Series(Path(_variable(environment, "SERIES")), wanted.keep)
        if options.command == "history":
            return _history(options, series)
        check = wanted.check(options.name)
        if options.command == "script":
            print(check.script(wanted.logs), end="")
            return DONE
        ask = connect or _connect(environment)
        runner = Runner(
            check,
            wanted,
            ask(ADMINISTRATOR),
            ask(wanted.user),
            series,
            Path(_variable(environment, "OUTPUTS")),
            clock=clock,
            sleep=sleep,
            # With --json, stdout contains only JSON.
            say=lambda line: print(line, file=sys.stderr if options.json else sys.stdout),
        )
        if options.command == "record":
            summary = runner.record(_target(options.node, check.nodes), sys.stdin.read())
        else:
            summary = runner.run(options.node, options.reservation)
    except (ValidationError, ValueError) as error:
        return _fail(UNUSABLE, f"cannot carry out this command: {error}")
    except (BusyError, OSError, SlurmError) as error:
        return _fail(
            FAILED,
            f"the long check is not finished: {error}; when this is solved, run this command again",
        )
    if options.json:
        print(json.dumps(asdict(summary)))
    return _code(summary)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agents.longchecks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure nodes with Slurm jobs, and drain bad nodes")
    record = commands.add_parser(
        "record", help="record a measurement: the output of the check's script, read from stdin"
    )
    script = commands.add_parser("script", help="print the script that measures a node")
    history = commands.add_parser("history", help="show the earlier measurements of nodes")
    commands.add_parser("serve", help="serve the newest measurements as metrics")
    for command in (run, record, script):
        command.add_argument("name", choices=sorted(CHECKS))
    history.add_argument("name", nargs="?", choices=sorted(CHECKS))
    for command in (run, record, history):
        command.add_argument(
            "--node",
            action="append",
            default=[],
            help="name of a node to measure or show; can be repeated",
        )
        command.add_argument("--json", action="store_true", help="print JSON")
    run.add_argument("--reservation", help="name of a Slurm reservation that contains the nodes")
    return parser


def _variable(environment: Mapping[str, str], name: str) -> str:
    """Return an environment variable. Raises ValueError if it is not set."""
    if name not in environment:
        raise ValueError(
            f"environment variable {name}: not set; run the command in the pod of the long "
            "checks: kubectl -n NAMESPACE exec deploy/longchecks -- python3 -m "
            "agents.longchecks COMMAND"
        )
    return environment[name]


def _connect(environment: Mapping[str, str]) -> Connect:
    url = _variable(environment, "REST_URL")
    key = Path(_variable(environment, "JWT_KEY"))
    return lambda user: Client(url, from_key(key, user))


def _target(nodes: Sequence[str], size: int) -> Sequence[str]:
    if len(nodes) != size:
        raise ValueError(
            f"--node: given {len(nodes)} times, expected {size} times for one measurement of this "
            "check"
        )
    return nodes


def _code(summary: Summary) -> int:
    if summary.bad:
        return BAD
    return NOTHING if summary.is_without_value else DONE


def _fail(code: int, text: str) -> int:
    fail(text)
    return code


def _serve(environment: Mapping[str, str]) -> int:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    collector = Newest(
        Path(_variable(environment, "LONG_CHECKS")), Path(_variable(environment, "SERIES"))
    )
    metrics.serve(collector, int(_variable(environment, "PORT")))
    stop.wait()
    return DONE


# --- Output --------------------------------------------------------------------------------------


def _history(options: argparse.Namespace, series: Series) -> int:
    for name in [options.name] if options.name else sorted(CHECKS):
        for node in in_order(options.node or series.nodes(name)):
            for record in series.of(name, node):
                print(_plain(name, node, record) if options.json else _line(name, node, record))
    return DONE


def _plain(check: str, node: str, record: Record) -> str:
    return json.dumps({"check": check, "node": node, **asdict(record)})


def _line(check: str, node: str, record: Record) -> str:
    when = datetime.fromtimestamp(record.at, UTC)
    others = [name for name in record.nodes if name != node]
    beside = f" with {others[0]}" if others else ""
    return f"{when:%Y-%m-%d %H:%MZ} {check} {node}{beside}: {record.verdict}: {record.text}"


if __name__ == "__main__":
    sys.exit(main())
