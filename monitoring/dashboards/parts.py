"""Parts that all dashboards use: panels, links between dashboards, and the common frame."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    prometheus,
    statetimeline,
    timeseries,
)
from grafana_foundation_sdk.builders import (
    stat as stats,
)
from grafana_foundation_sdk.builders import (
    table as tables,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    BigValueTextMode,
    LegendDisplayMode,
    LegendPlacement,
    LineInterpolation,
    SortOrder,
    StackingMode,
    TableColorTextCellOptions,
    TooltipDisplayMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import (
    Dashboard,
    DashboardCursorSync,
    DashboardLink,
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    Panel,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
    VariableHide,
    VariableModel,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

TAG = "slurmstack"
NODE, JOB = "slurmstack-node", "slurmstack-job"
"""Uids of the dashboards of one node and of one job."""
LEADS_TO = {"node": NODE, "job_id": JOB}
"""Labels whose values link to a dashboard, and the uid of that dashboard. The dashboard has a
variable with the name of the label."""

LEAST_STEP = "30s"
"""Minimum time between two points. If it were shorter than the exporter's interval, rates would
have gaps."""
_POINTS = 360
"""Maximum number of points of a series. More points take time to draw, but show no more detail."""
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")

GREEN, ORANGE, RED, BLUE, GREY = "green", "orange", "red", "blue", "text"
Steps = Sequence[tuple[float | None, str]]
"""Colours, each with the lowest value to which it applies. The first colour has None, because it
applies to all lower values."""
PLAIN: Steps = ((None, GREY),)
Words = Mapping[str, tuple[str, str]]
"""Texts and colours that a panel shows instead of a value. The keys are the values."""
YES_NO: Words = {"0": ("no", RED), "1": ("yes", GREEN)}
GOOD_BAD: Words = {"0": ("bad", RED), "1": ("good", GREEN)}

PER_MINUTE = "suffix: /min"
"""Custom unit in Grafana's syntax."""

_HEADERS = {
    "account": "Account",
    "cause": "Cause",
    "check": "Check",
    "device": "Device",
    "finding": "Finding",
    "job_id": "Job",
    "license": "License",
    "machine": "Machine",
    "namespace": "Namespace",
    "node": "Node",
    "partition": "Partition",
    "reservation": "Reservation",
    "state": "State",
    "volume": "Volume",
    "step": "Last step",
    "user": "User",
}


@dataclass(frozen=True)
class Query:
    """A PromQL expression, and the name of its series in a graph."""

    expr: str
    legend: str
    """Name of a series; `{{label}}` stands for the label's value."""


@dataclass(frozen=True)
class Column:
    """A PromQL expression. Its current values are a column of a table."""

    expr: str
    title: str = ""
    """Header of the column. An empty title hides the values, for tables that need only labels."""
    unit: str = units.Short
    steps: Steps = ()
    words: Words | None = None


def rising(warn: float, bad: float) -> Steps:
    """Return the colours of a value that should be low: orange from `warn`, red from `bad`."""
    return ((None, GREEN), (warn, ORANGE), (bad, RED))


def falling(bad: float, warn: float) -> Steps:
    """Return the colours of a value that should be high: orange below `warn`, red below `bad`."""
    return ((None, RED), (bad, ORANGE), (warn, GREEN))


# --- Panels --------------------------------------------------------------------------------------


def stat(  # noqa: PLR0913 -- options of a panel, by keyword
    title: str,
    about: str,
    unit: str,
    expr: str,
    *,
    legend: str = "",
    none: str = "no data",
    steps: Steps = PLAIN,
    words: Words | None = None,
    shows: BigValueTextMode = BigValueTextMode.VALUE,
    width: int = 4,
) -> Builder[Panel]:
    """Show one current value.

    `none` is the text if there is no value. `words` are texts to show instead of numbers.
    """
    panel = (
        stats.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .span(width)
        .height(4)
        .unit(unit)
        .no_value(none)
        .thresholds(_thresholds(steps))
        .color_scheme(dashboard.FieldColor().mode(FieldColorModeId.THRESHOLDS))
        .color_mode(BigValueColorMode.VALUE)
        .graph_mode(BigValueGraphMode.NONE)
        .text_mode(shows)
        .reduce_options(common.ReduceDataOptions().calcs(["last"]))
        .with_target(_query(expr, "A").instant().legend_format(legend))
    )
    return panel.mappings([_words(words)]) if words else panel


def _dashed() -> list[DynamicConfigValue]:
    return [
        _color(RED),
        DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [8, 8]}),
        DynamicConfigValue("custom.fillOpacity", 0),
    ]


def graph(  # noqa: PLR0913 -- options of a panel, by keyword
    title: str,
    about: str,
    unit: str,
    *queries: Query,
    none: str = "no data",
    width: int = 12,
    highest: float | None = None,
    stacked: bool = False,
    stepped: bool = False,
    colors: Mapping[str, str] | None = None,
    dashed: Sequence[str] = (),
) -> Builder[Panel]:
    """Show values over time. A gap in the graph means that no value is known.

    `highest` is the end of the axis. `stepped` shows each value until the next one. `colors` maps
    names of series to colours. `dashed` names series of reference values.
    """
    panel = (
        timeseries.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .span(width)
        .height(8)
        .unit(unit)
        .no_value(none)
        .min(0)
        .span_nulls(False)
        .max_data_points(_POINTS)
        .show_points(VisibilityMode.AUTO)
        .fill_opacity(25 if stacked else 8)
        .stacking(
            common.StackingConfig()
            .mode(StackingMode.NORMAL if stacked else StackingMode.NONE)
            .group("A")
        )
        .line_interpolation(LineInterpolation.STEP_AFTER if stepped else LineInterpolation.LINEAR)
        .legend(_legend(queries))
        .tooltip(
            common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING)
        )
        .data_links(_links(queries))
    )
    if highest is not None:
        panel.max(highest)
    for name, color in (colors or {}).items():
        panel.override_by_name(name, [_color(color)])
    for name in dashed:
        panel.override_by_name(name, _dashed())
    for ref, query in zip(ascii_uppercase, queries, strict=False):
        panel.with_target(_query(query.expr, ref).range().legend_format(query.legend))
    return panel


def timeline(title: str, about: str, query: Query, words: Words, none: str) -> Builder[Panel]:
    """Show each series as a bar while the series exists."""
    return (
        statetimeline.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .span(24)
        .height(5)
        .unit(units.NoUnit)
        .no_value(none)
        .mappings([_words(words)])
        .show_value(VisibilityMode.NEVER)
        .legend(common.VizLegendOptions().show_legend(False))
        .with_target(_query(query.expr, "A").range().legend_format(query.legend))
    )


def table(
    title: str,
    about: str,
    labels: Sequence[str],
    *columns: Column,
    none: str = "none",
    width: int = 12,
    sort: str = "",
) -> Builder[Panel]:
    """Show a row for each set of labels, with the values of all columns for these labels.

    `sort` is the title of the column to sort by, highest first; the default is the first label.
    """
    values = {
        # Grafana omits the letter if there is only one query, or only one query has a result.
        "Value": columns[0].title,
        **{f"Value #{ref}": one.title for ref, one in zip(ascii_uppercase, columns, strict=False)},
    }
    order = [*labels, *values]
    panel = (
        tables.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .span(width)
        .height(8)
        .unit(units.Short)
        .no_value(none)
        .filterable(True)
        .with_transformation(DataTransformerConfig("merge", options={}))
        .with_transformation(
            DataTransformerConfig(
                "organize",
                options={
                    "excludeByName": {
                        name: True for name in ("Time", *values) if not values.get(name)
                    },
                    "indexByName": {name: index for index, name in enumerate(order)},
                    "renameByName": {
                        **{label: _HEADERS[label] for label in labels},
                        **{name: title for name, title in values.items() if title},
                    },
                },
            )
        )
    )
    for label in labels:
        if label in LEADS_TO:
            panel.override_by_name(
                _HEADERS[label],
                [DynamicConfigValue("links", [_link(label, "${__value.text}").build()])],
            )
    for ref, column in zip(ascii_uppercase, columns, strict=False):
        panel.with_target(_query(column.expr, ref).instant().format(PromQueryFormat.TABLE))
        if column.title:
            panel.override_by_name(column.title, _column(column))
    order_by = common.TableSortByFieldState().display_name(sort or _HEADERS[labels[0]])
    return panel.sort_by([order_by.desc(bool(sort))])


def _query(expr: str, ref: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(expr).ref_id(ref).interval(LEAST_STEP)


def _thresholds(steps: Steps) -> dashboard.ThresholdsConfig:
    return (
        dashboard.ThresholdsConfig()
        .mode(ThresholdsMode.ABSOLUTE)
        .steps([Threshold(value, color) for value, color in steps])
    )


def _words(words: Words) -> ValueMap:
    return ValueMap(
        {
            value: ValueMappingResult(text, color, index=index)
            for index, (value, (text, color)) in enumerate(words.items())
        }
    )


def _color(color: str) -> DynamicConfigValue:
    return DynamicConfigValue("color", {"mode": "fixed", "fixedColor": color})


def _column(column: Column) -> list[DynamicConfigValue]:
    properties = [
        DynamicConfigValue("unit", column.unit),
        # Without this text, each empty cell would show the text for an empty table.
        DynamicConfigValue("noValue", "–"),
    ]
    if column.steps:
        properties.append(DynamicConfigValue("thresholds", _thresholds(column.steps).build()))
    if column.words:
        properties.append(DynamicConfigValue("mappings", [_words(column.words)]))
    if column.steps or column.words:
        properties.append(DynamicConfigValue("custom.cellOptions", TableColorTextCellOptions()))
    return properties


def _legend(queries: Sequence[Query]) -> common.VizLegendOptions:
    """Return a table at the right if the names of series vary, else a list below the graph."""
    if all("{{" not in query.legend for query in queries):
        return (
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
        )
    return (
        common.VizLegendOptions()
        .show_legend(True)
        .display_mode(LegendDisplayMode.TABLE)
        .placement(LegendPlacement.RIGHT)
        .calcs(["mean", "max"])
        .sort_by("Mean")
        .sort_desc(True)
    )


# --- Links ---------------------------------------------------------------------------------------


def _link(label: str, value: str) -> dashboard.DashboardLink:
    """Return a link to the dashboard of a label, with the same time range and data source."""
    return dashboard.DashboardLink(f"This {label.removesuffix('_id')}").url(
        f"/d/{LEADS_TO[label]}?var-datasource=${{datasource}}&var-{label}={value}"
        "&${__url_time_range}"
    )


def _links(queries: Sequence[Query]) -> list[Builder[DashboardLink]]:
    return [
        _link(label, f"${{__field.labels.{label}}}")
        for label in LEADS_TO
        if any(f"{{{{{label}}}}}" in query.legend for query in queries)
    ]


# --- Dashboards ----------------------------------------------------------------------------------


def variable(name: str, label: str, query: str, sort: VariableSort) -> dashboard.QueryVariable:
    """Return a variable for choosing one of the values that occur in the shown time range."""
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(sort)
    )


def all_of(of: dashboard.QueryVariable) -> dashboard.QueryVariable:
    """Allow readers to choose several values of a variable. The default is all values."""
    return (
        of.multi(True)
        .include_all(True)
        .current(VariableOption(selected=True, text="All", value="$__all"))
    )


def machines(query: str) -> Builder[VariableModel]:
    """Return the hidden variable `machine`: all machines in the result of `query`."""
    found = variable("machine", "Machines", query, VariableSort.ALPHABETICAL_ASC)
    return all_of(found.regex('/machine="([^"]+)"/')).hide(VariableHide.HIDE_VARIABLE)


def board(
    uid: str,
    title: str,
    about: str,
    *panels: Builder[Panel],
    variables: Sequence[Builder[VariableModel]] = (),
    since: str = "now-6h",
) -> Dashboard:
    """Build a dashboard. Its panels fill one line after the other, from left to right.

    Never change a `uid`: links contain it.
    """
    made = (
        dashboard.Dashboard(f"Slurm / {title}")
        .uid(uid)
        .description(about)
        .tags([TAG])
        .timezone("browser")
        .refresh("30s")
        .time(since, "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard.DashboardLink("Slurm")
            .type(DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(True)
            .keep_time(True)
            .include_vars(True)
        )
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
        )
    )
    for one in variables:
        made.with_variable(one)
    for number, panel in enumerate(panels, 1):
        made.with_panel(_Numbered(panel, number))
    return made.build()


@dataclass(frozen=True)
class _Numbered(Builder[Panel]):
    """Builder of a panel with a fixed ID, because Grafana's links to the panel contain the ID."""

    panel: Builder[Panel]
    number: int

    def build(self) -> Panel:
        made = self.panel.build()
        made.id_val = self.number
        return made
