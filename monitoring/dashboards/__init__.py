"""Grafana's dashboards as typed code; `built/` contains them as JSON for Grafana.

`make dashboards` writes those files; a test fails if they are stale.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from monitoring.dashboards import (
    checks,
    controller,
    gpus,
    health,
    job,
    jobs,
    node,
    nodes,
    pods,
    storage,
)

BUILT = Path(__file__).parent / "built"
"""Folder with a file `<uid>.json` for each dashboard, and no other files."""

DASHBOARDS: tuple[Dashboard, ...] = tuple(
    module.DASHBOARD
    for module in (health, jobs, job, nodes, node, gpus, controller, storage, checks, pods)
)


@dataclass(frozen=True)
class Expression:
    """A panel's query to Prometheus. It may contain Grafana's variables, such as `$node`."""

    dashboard: str
    """Uid of the dashboard."""
    panel: str
    """Title of the panel."""
    expr: str


def expressions() -> Iterator[Expression]:
    """Yield the queries of all panels, in the panels' order."""
    for content in rendered().values():
        board = json.loads(content)
        for panel in board["panels"]:
            for target in panel["targets"]:
                yield Expression(board["uid"], panel["title"], target["expr"])


def rendered() -> Mapping[str, str]:
    """Return the JSON that each file must have, by file name."""
    return {
        f"{one.uid}.json": json.dumps(
            one, cls=JSONEncoder, ensure_ascii=False, indent=2, sort_keys=True
        )
        + "\n"
        for one in DASHBOARDS
    }


def stale(folder: Path = BUILT) -> list[str]:
    """Return the sorted names of files that are missing, differ from the code or are left over."""
    wanted = rendered()
    found = {path.name: path.read_text() for path in folder.glob("*.json")}
    return sorted(
        name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)
    )


def write(folder: Path = BUILT) -> None:
    """Write the files that are stale, and delete files without a dashboard."""
    wanted = rendered()
    for name in stale(folder):
        if name in wanted:
            (folder / name).write_text(wanted[name])
        else:
            (folder / name).unlink()
