"""The dashboards for Grafana are complete and consistent, and use only existing metrics."""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.bridge import metrics as bridge
from agents.exporter import naming
from agents.longchecks.registry import CHECKS
from local.paths import ROOT
from monitoring.dashboards import DASHBOARDS, expressions, rendered, stale, write
from monitoring.dashboards.__main__ import main

UIDS = [
    *("slurmstack-health", "slurmstack-jobs", "slurmstack-job", "slurmstack-nodes"),
    *("slurmstack-node", "slurmstack-gpus", "slurmstack-controller", "slurmstack-storage"),
    *("slurmstack-checks", "slurmstack-pods"),
]
DOCS = ROOT / "docs"
FROM_ELSEWHERE = {
    # Metrics of node-exporter, with their labels
    "node_cpu_seconds_total": "machine cpu mode",
    "node_memory_MemAvailable_bytes": "machine",
    "node_memory_MemTotal_bytes": "machine",
    "node_network_receive_bytes_total": "machine device",
    "node_network_transmit_bytes_total": "machine device",
    "node_infiniband_port_data_received_bytes_total": "machine device port",
    "node_infiniband_port_data_transmitted_bytes_total": "machine device port",
    "node_disk_read_bytes_total": "machine device",
    "node_disk_written_bytes_total": "machine device",
    "node_disk_io_time_seconds_total": "machine device",
    "node_filesystem_avail_bytes": "machine device fstype mountpoint",
    "node_filesystem_size_bytes": "machine device fstype mountpoint",
    # Metrics of DCGM exporter, with their labels
    **{
        f"DCGM_FI_DEV_{name}": "machine gpu UUID modelName Hostname GPU_I_ID"
        for name in (
            *("GPU_UTIL", "GPU_TEMP", "POWER_USAGE", "XID_ERRORS", "FB_USED", "FB_FREE"),
            *("SM_CLOCK", "PCIE_REPLAY_COUNTER", "ROW_REMAP_FAILURE"),
            "UNCORRECTABLE_REMAPPED_ROWS",
        )
    },
}
OF_GRAFANA = {
    *("__rate_interval", "__range", "__interval", "__url_time_range", "__value", "__field"),
}

Json = dict[str, Any]
BOARDS: list[Json] = [json.loads(content) for content in rendered().values()]
PANELS = [(board, panel) for board in BOARDS for panel in board["panels"]]
by_board = pytest.mark.parametrize("board", BOARDS, ids=[board["uid"] for board in BOARDS])
by_panel = pytest.mark.parametrize(
    ("board", "panel"), PANELS, ids=[f"{board['uid']}-{panel['title']}" for board, panel in PANELS]
)


def known_metrics() -> dict[str, set[str]]:
    """Return the labels of all metrics, by metric name."""
    text = (DOCS / "metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (?:counter|gauge) \| (.*?) \|", text, re.M)
    documented = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    return documented | {name: set(labels.split()) for name, labels in FROM_ELSEWHERE.items()}


def metrics(expr: str) -> set[str]:
    """Return the metric names in a PromQL expression.

    These are all words that are not strings, labels, functions or keywords.
    """
    bare = re.sub(r'"[^"]*"', "", expr)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\boffset \w+", " ", bare)
    bare = re.sub(r"\b(?:by|on|group_left) \([^)]*\)", " ", bare)
    words = re.findall(r"\b([a-zA-Z_]\w*)\b(?!\s*\()", bare)
    return set(words) - {"and", "or", "unless"}


def matchers(expr: str) -> Iterator[tuple[str, str, str]]:
    """Yield metric, label and value of each label matcher in an expression."""
    for name, chosen in re.findall(r"(\w+)\{([^}]*)\}", expr):
        for label, value in re.findall(r'(\w+)(?:=|!=|=~|!~)"([^"]*)"', chosen):
            yield name, label, value


def queries(board: Json) -> Iterator[str]:
    """Yield the Prometheus queries of a dashboard's panels and variables."""
    for panel in board["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]


def titles(panel: Json) -> set[str]:
    """Return the titles of the columns that a table panel shows."""
    organize = panel["transformations"][-1]["options"]
    return {
        title
        for name, title in organize["renameByName"].items()
        if name not in organize["excludeByName"]
    }


def urls(board: Json) -> list[str]:
    return re.findall(r'"url": "(/[^"]*)"', json.dumps(board))


# --- The files -----------------------------------------------------------------------------------


def test_committed_dashboards_match_the_code() -> None:
    assert stale() == [], "these files are stale: run `make dashboards`"


def test_write_repairs_missing_changed_and_leftover_dashboard_files(
    tmp_path: Path,
) -> None:
    write(tmp_path)
    assert stale(tmp_path) == []
    (tmp_path / "slurmstack-job.json").unlink()
    (tmp_path / "slurmstack-node.json").write_text("{}\n")
    (tmp_path / "slurmstack-old.json").write_text("{}\n")

    assert stale(tmp_path) == [f"slurmstack-{name}.json" for name in ("job", "node", "old")]
    write(tmp_path)
    assert stale(tmp_path) == []


def test_check_option_reports_stale_files_and_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--check"]) == 0
    monkeypatch.setattr("monitoring.dashboards.__main__.stale", lambda: ["slurmstack-job.json"])

    assert main(["--check"]) == 1
    assert capsys.readouterr().err.endswith(
        "slurmstack-job.json: this dashboard differs from its source; run `make dashboards`\n"
    )
    assert stale() == []


def test_uids_of_dashboards_are_fixed_for_links_and_bookmarks() -> None:
    assert [board.uid for board in DASHBOARDS] == UIDS
    assert list(rendered()) == [f"{uid}.json" for uid in UIDS]


def test_documentation_names_each_dashboard() -> None:
    rows = re.findall(
        r"^\| (.+?) \| `(slurmstack-\w+)` \|", (DOCS / "dashboards.md").read_text(), re.M
    )
    assert rows == [(board["title"].removeprefix("Slurm / "), board["uid"]) for board in BOARDS]


@by_board
def test_dashboard_works_with_any_data_source(board: Json) -> None:
    first, *queried = board["templating"]["list"]

    assert (first["type"], first["name"]) == ("datasource", "datasource")
    for one in (*board["panels"], *queried):
        assert one["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert json.dumps(board).count('"datasource": {') == len(board["panels"]) + len(queried)
    assert "id" not in board


@by_board
def test_dashboard_shows_current_data_in_the_browser_time_zone(board: Json) -> None:
    assert (board["refresh"], board["timezone"]) == ("30s", "browser")
    assert board["time"]["to"] == "now"
    assert board["tags"] == ["slurmstack"]
    assert board["description"]


# --- Panels --------------------------------------------------------------------------------------


@by_panel
def test_panel_has_title_unit_and_description_with_remedy(board: Json, panel: Json) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert len(re.split(r"(?<=[.:]) ", panel["description"])) >= 2, (
        "the description must say what to do"
    )
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["fieldConfig"]["defaults"]["noValue"], (
        "the panel must have a text for missing data"
    )
    assert panel["targets"]
    assert panel["type"] != "piechart"


@by_board
def test_panels_have_unique_titles_and_ids_and_do_not_overlap(board: Json) -> None:
    panels = board["panels"]
    for field in ("title", "id"):
        assert len({panel[field] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for grid in (panel["gridPos"] for panel in panels)
        for x, y in itertools.product(
            range(grid["x"], grid["x"] + grid["w"]), range(grid["y"], grid["y"] + grid["h"])
        )
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


@by_panel
def test_queries_have_consecutive_letters_and_a_minimum_step(board: Json, panel: Json) -> None:
    letters = [target["refId"] for target in panel["targets"]]
    assert letters == list("ABCDEFGHIJKL"[: len(letters)])
    assert {target["interval"] for target in panel["targets"]} == {"30s"}


@by_panel
def test_legends_use_only_labels_of_their_queries(board: Json, panel: Json) -> None:
    for target in panel["targets"]:
        legend = target.get("legendFormat", "")
        assert legend or panel["type"] in ("stat", "table")
        for label in re.findall(r"\{\{(\w+)\}\}", legend):
            groups = re.findall(r"\bby \(([^)]*)\)", target["expr"])
            assert any(label in group.split(", ") for group in groups)


@pytest.mark.parametrize(
    "panel",
    [panel for _, panel in PANELS if panel["type"] == "table"],
    ids=lambda panel: panel["title"],
)
def test_tables_show_only_labels_and_columns_of_their_queries(panel: Json) -> None:
    rename = panel["transformations"][-1]["options"]["renameByName"]
    first = panel["targets"][0]["expr"]
    labels = [name for name in rename if not name.startswith("Value")]
    assert labels
    for label in labels:
        assert any(label in group.split(", ") for group in re.findall(r"\bby \((.*?)\)", first))

    shown = titles(panel)
    assert len(shown) >= 2
    styled = {one["matcher"]["options"] for one in panel["fieldConfig"]["overrides"]}
    assert styled <= shown
    assert {one["displayName"] for one in panel["options"]["sortBy"]} <= shown


# --- Expressions ---------------------------------------------------------------------------------


def test_list_of_expressions_has_the_queries_of_all_panels() -> None:
    assert [(one.dashboard, one.panel, one.expr) for one in expressions()] == [
        (board["uid"], panel["title"], target["expr"])
        for board, panel in PANELS
        for target in panel["targets"]
    ]


@by_board
def test_dashboard_uses_only_existing_metrics_and_labels(board: Json) -> None:
    labels_by_metric = known_metrics()
    for query in queries(board):
        found = re.fullmatch(r"label_values\((\w+), (\w+)\)", query)
        if found:
            assert found[2] in labels_by_metric[found[1]]
            continue
        expr = re.sub(r"^query_result\((.*)\)$", r"\1", query)
        assert metrics(expr) - labels_by_metric.keys() == set(), expr
        assert metrics(expr), expr
        for name, label, _ in matchers(expr):
            assert label in labels_by_metric[name], expr


@by_board
def test_dashboard_uses_only_existing_label_values(board: Json) -> None:
    words = {
        **dict.fromkeys(("slurm_nodes", "slurm_node_state"), naming.NODE_STATES),
        **dict.fromkeys(("slurm_jobs", "slurm_partition_jobs"), naming.JOB_STATES),
        **dict.fromkeys(("slurm_account_jobs", "slurm_user_jobs"), naming.JOB_STATES),
        "slurmstack_bridge_pods": bridge.STATES,
    }
    for query in queries(board):
        for name, label, value in matchers(query):
            if label == "state" and not value.startswith("$"):
                assert set(value.split("|")) <= set(words[name])


def test_metric_names_are_extracted_from_an_expression() -> None:
    expr = (
        'max by (a) (up{b="or x"} * on (c) group_left () (rate(y_total[$__range:5m] offset 5m)))'
        " > 1e6 or 0 * sum(z) and on () z"
    )
    assert metrics(expr) == {"up", "y_total", "z"}


@by_board
def test_variables_are_defined_and_used(board: Json) -> None:
    defined = [variable["name"] for variable in board["templating"]["list"]]
    texts = [*queries(board), *urls(board), json.dumps(board["panels"][0]["datasource"])]
    used = {name for text in texts for name in re.findall(r"\$\{?(\w+)", text)}

    assert used - OF_GRAFANA == set(defined)
    assert len(defined) == len(set(defined))


@by_board
def test_links_use_existing_dashboards_and_variables(board: Json) -> None:
    variables = {
        one["uid"]: {variable["name"] for variable in one["templating"]["list"]} for one in BOARDS
    }
    for url in urls(board):
        uid = url.removeprefix("/d/").partition("?")[0]
        assert uid in variables
        assert set(re.findall(r"[?&]var-(\w+)=", url)) <= variables[uid]
    assert [(link["type"], link["tags"]) for link in board["links"]] == [
        ("dashboards", ["slurmstack"])
    ]


@by_panel
def test_node_names_and_job_ids_link_to_their_dashboards(board: Json, panel: Json) -> None:
    named = json.dumps([target.get("legendFormat", "") for target in panel["targets"]])
    if panel["type"] == "table":
        renamed = panel["transformations"][-1]["options"]["renameByName"]
        named = json.dumps([f"{{{{{label}}}}}" for label in renamed])
    links = json.dumps(panel["fieldConfig"])
    for label, uid in (("node", "slurmstack-node"), ("job_id", "slurmstack-job")):
        assert (f"{{{{{label}}}}}" in named) == (f"/d/{uid}?" in links)


def test_dashboards_show_the_values_of_every_long_check() -> None:
    shown = {
        value
        for one in expressions()
        if one.dashboard == "slurmstack-checks"
        for name, label, value in matchers(one.expr)
        if (name, label) == ("slurmstack_longcheck_value", "check")
    }
    assert shown == CHECKS.keys()
