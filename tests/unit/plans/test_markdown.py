"""The pull request comment lists destructive changes first, without secrets or active content."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plans.markdown import LIMIT, code, marker, render
from tests.support.documents import CLAIM, CONFIG_MAP, claim, preview, step
from tests.support.previews import RECORDED, recorded


def lines(text: str) -> list[str]:
    return text.splitlines()


def test_first_line_of_the_comment_names_the_stack() -> None:
    assert lines(render(recorded("same"), "lab"))[0] == marker("lab")
    assert marker("lab") != marker("gpu")
    assert marker("lab").startswith("<!--")


def test_comment_reports_a_plan_without_changes() -> None:
    text = render(recorded("same"), "lab")

    assert "Nothing changes; " in text
    assert "####" not in text


def test_replacements_are_listed_first_and_in_bold() -> None:
    text = render(recorded("edited"), "dev")

    assert "**3 replaced**, 1 deleted, 1 created;" in text
    listed = [line for line in lines(text) if line.startswith("- ")]
    assert listed == [
        "- **RandomPet `first` replaced**",
        "- **RandomPet `pet` replaced**",
        "- **RandomString `text` replaced**",
        "- RandomPet `gone` deleted",
        "- RandomPet `come` created",
    ]
    assert "  - `length`: `2` → `3` (forces replacement)" in lines(text)
    assert "| RandomPet | **2** | 1 |  | 1 |" in lines(text)


def test_cost_of_nodes_on_demand_is_shown_without_changes() -> None:
    text = render(preview(logged=("nodes on demand: at most `400` an hour",)), "lab")

    assert lines(text)[-3:] == [
        "#### Costs",
        "",
        "- ``nodes on demand: at most `400` an hour``",
    ]


def test_changed_secret_is_listed_without_its_value() -> None:
    secret = "kubernetes:core/v1:Secret"
    edited = step("update", secret, "key", {"stringData": "[secret]"}, {"stringData": "[secret]"})
    edited["diffReasons"] = ["stringData.password"]

    text = render(preview(edited), "lab")

    assert "  - `stringData.password`" in lines(text)
    assert "[secret]" not in text
    assert "hush" not in render(recorded("edited"), "dev")


def test_changed_lines_of_a_file_are_listed_below_it() -> None:
    before, after = ({"data": {"slurm.conf": text}} for text in ("A=1\nB=2\n", "A=1\nB=3\n"))

    text = render(preview(step("update", CONFIG_MAP, "config", before, after)), "lab")

    place = lines(text).index('  - `data["slurm.conf"]`:')
    assert lines(text)[place + 1 : place + 3] == ["    - `- B=2`", "    - `+ B=3`"]


def test_comment_says_what_users_notice() -> None:
    before, after = {"data": {"a": "1"}}, {"data": {"a": "2"}}

    text = render(preview(step("update", CONFIG_MAP, "config-candidate", before, after)), "lab")

    assert "> **Users**: `slurmctld and the nodes read the new configuration of Slurm" in text


def test_comment_on_a_refused_preview_says_nothing_about_users() -> None:
    text = render(preview(step("update", CLAIM, "jail-claim", claim("2Ti"), claim("1Ti"))), "lab")

    assert "**Refused**" in text
    assert "**Users**" not in text


def test_reasons_for_failure_or_refusal_are_listed_first() -> None:
    text = render(recorded("protected"), "dev")

    assert text.index("**Refused**") < text.index("**Failed**") < text.index("#### Changes")
    assert "RandomPet kept: would be replaced, but is protected" in text
    assert "The preview did not finish" in render(preview(errors=("no passphrase",)), "dev")


def test_comment_shows_cost_differences_as_a_table() -> None:
    plan = preview(
        step("update", CLAIM, "jail", claim("10Gi"), claim("1Ti")),
        step("delete", CLAIM, "old", claim("5Gi")),
        step("update", CLAIM, "same", claim("5Gi"), {**claim("5Gi"), "more": 1}),
    )

    rows = [line for line in lines(render(plan, "lab")) if line.startswith("| Volumes")]
    assert rows == [
        "| Volumes | `jail` | 10 GiB | 1024 GiB | **+1014 GiB** |",
        "| Volumes | `old` | 5 GiB | – | **−5 GiB** |",
    ]


def test_number_of_shown_properties_per_resource_is_limited() -> None:
    old, new = ({f"k{i:02}": value for i in range(40)} for value in (1, 2))

    text = render(preview(step("update", CONFIG_MAP, "a", old, new)), "lab")

    assert "`k11`: `1` → `2`" in text
    assert "`k12`" not in text
    assert "  - … 28 more" in lines(text)


def test_long_comment_is_cut_after_a_resource_with_a_hint() -> None:
    many = [step("create", CONFIG_MAP, f"one-{i:04}", new={}) for i in range(3000)]
    first = step("replace", CLAIM, "jail", {}, {})

    text = render(preview(*many, first), "lab")

    assert len(text.encode()) <= LIMIT
    assert "**PersistentVolumeClaim `jail` replaced**" in text
    listed = len(re.findall("^- ", text, re.MULTILINE))
    assert f"… and {3001 - listed} more resources" in lines(text)[-1]
    assert "make preview STACK=lab ARGS=--markdown" in lines(text)[-1]
    assert listed > 1000


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["create", "update", "replace", "delete"]),
            st.text(min_size=1, max_size=40),
            st.text(max_size=60),
            st.text(max_size=60),
        ),
        max_size=60,
    ),
    st.lists(st.text(max_size=600), max_size=15),
    st.integers(min_value=35_000, max_value=LIMIT),
)
def test_comment_never_exceeds_the_length_limit(
    edits: list[tuple[str, str, str, str]], errors: list[str], limit: int
) -> None:
    steps = [
        step(
            op,
            CONFIG_MAP,
            name,
            None if op == "create" else {"data": {old: old}},
            None if op == "delete" else {"data": {old: new, new: old}},
        )
        for op, name, old, new in edits
    ]

    body = render(preview(*steps, errors=tuple(errors)), "lab", limit)

    assert len(body.encode()) <= limit
    assert body.startswith(marker("lab"))


def test_invalid_unicode_is_replaced() -> None:
    assert "ConfigMap `a?b` created" in render(
        preview(step("create", CONFIG_MAP, "a\ud800b", new={})), "lab"
    )


@given(st.text())
def test_text_from_the_plan_cannot_leave_its_code_span(text: str) -> None:
    written = code(text)

    fence = re.match("`+", written)
    assert fence is not None
    inner = written[len(fence[0]) : -len(fence[0])]
    assert inner.strip() == " ".join(text.split()).strip()
    assert fence[0] not in set(re.findall("`+", inner))
    assert "\n" not in written


@pytest.mark.parametrize("text", ["<img src=x>", "@everyone", "<!-- x", "a | b", "`@everyone`"])
def test_names_in_the_comment_cannot_mention_users_or_embed_content(text: str) -> None:
    body = render(preview(step("create", CONFIG_MAP, text, new={})), "lab")

    (listed,) = [line for line in lines(body) if line.startswith("- ")]
    assert listed == f"- ConfigMap {code(text)} created"


def test_recorded_previews_contain_no_secret() -> None:
    for path in RECORDED.glob("*.json"):
        assert "hush" not in json.dumps(json.loads(path.read_text()))
