"""Hostlist expressions, as Slurm writes and reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.hostlist import compress, expand

NAMES = st.sets(
    st.builds(
        lambda prefix, number: f"{prefix}{number}",
        st.sampled_from(["cpu-", "gpu-", "gpu-1-", "n"]),
        st.one_of(st.integers(0, 300).map(str), st.integers(0, 99).map(lambda n: f"{n:03d}")),
    )
    | st.sampled_from(["login", "controller"])
)


@pytest.mark.parametrize(
    ("names", "expression"),
    [
        ([], ""),
        (["cpu-0"], "cpu-0"),
        (["cpu-1", "cpu-0"], "cpu-[0-1]"),
        (["cpu-0", "cpu-2", "cpu-3"], "cpu-[0,2-3]"),
        (["gpu-9", "gpu-10", "cpu-0"], "cpu-0,gpu-[9-10]"),
        (["n08", "n09", "n10"], "n10,n[08-09]"),
        (["login", "cpu-0", "cpu-0"], "cpu-0,login"),
        (["gpu-1-0", "gpu-1-1", "gpu-2"], "gpu-2,gpu-1-[0-1]"),
    ],
)
def test_host_names_are_compressed_to_an_expression(names: list[str], expression: str) -> None:
    assert compress(names) == expression


@given(NAMES)
def test_compressed_list_expands_to_the_same_names(names: set[str]) -> None:
    assert not names or set(expand(compress(names))) == names


@given(NAMES)
def test_order_of_names_does_not_change_the_expression(names: set[str]) -> None:
    assert compress(sorted(names)) == compress(sorted(names, reverse=True))


def test_ten_thousand_nodes_are_one_range() -> None:
    assert compress(f"cpu-{n}" for n in range(10_000)) == "cpu-[0-9999]"


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("gpu-[0-1,3]", ("gpu-0", "gpu-1", "gpu-3")),
        ("a,b-[08-10]", ("a", "b-08", "b-09", "b-10")),
    ],
)
def test_expression_expands_to_its_host_names(expression: str, names: tuple[str, ...]) -> None:
    assert expand(expression) == names


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("", "not a host name"),
        ("gpu-[0-3", "not a hostlist"),
        ("gpu-[a]", "not a hostlist"),
        ("gpu-[3-1]", "is descending"),
        ("gpu-[1-]", "not a range"),
        ("gpu-[0-99999999]", "more than"),
        ("gpu-[0-60000],cpu-[0-60000]", "more than"),
        ("gpu 0", "not a host name"),
        ("gpu-0,,gpu-1", "not a host name"),
        ("rack[0-1]-[0-3]", "not a hostlist"),
    ],
)
def test_invalid_hostlist_is_refused(expression: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        expand(expression)
