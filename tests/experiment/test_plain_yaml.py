"""YAML 1.2's core schema: values of plain text, and round trips."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sad_hpc.experiment import plain_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10:00:00", "10:00:00"),
        ("[010, +7, -0, 0o10, 0x1F]", [10, 7, 0, 8, 31]),
        ("[on, off, yes, no, y, n]", ["on", "off", "yes", "no", "y", "n"]),
        ("[true, True, FALSE, ~, null, NULL]", [True, True, False, None, None, None]),
        ("[1e-3, .5, 2., -1.5E+4, 1_000, 0b1]", [1e-3, 0.5, 2.0, -1.5e4, "1_000", "0b1"]),
        ("{1: 3, on: 4, 2.0: 5, true: 6}", {"1": 3, "on": 4, "2.0": 5, "true": 6}),
        ("[2024-01-01, '1', \"true\", =, <<]", ["2024-01-01", "1", "true", "=", "<<"]),
        ("a:\n", {"a": None}),
        ("", None),
        ("[.inf, -.INF]", [math.inf, -math.inf]),
    ],
)
def test_a_value_is_that_of_the_core_schema(text: str, value: Any) -> None:
    found = plain_yaml.parse(text)
    assert found == value and repr(found) == repr(value)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
WORDS = st.sampled_from(
    ["on", "010", "1e3", "~", "null", "12:00:00", "0x1", ".5", "<<", "a: b", ""]
)


@given(st.dictionaries(st.text(), VALUES | WORDS, max_size=4))
@settings(derandomize=True, deadline=None, database=None, max_examples=100)
def test_what_is_written_is_read_back(value: dict[str, Any]) -> None:
    assert plain_yaml.parse(plain_yaml.written(value)) == value


FRAGMENTS = st.sampled_from(
    ["[", "{", "- ", "? ", ": ", "&a ", "*a", "!t ", "\n", "'", '"', "\\", "|\n", "%YAML 1.1\n",
     "---\n", "...\n", "]", "}", "\t", '"\\ud800"', '"\\UFFFFFFFF"', "1" * 5000, "<<"]
)  # fmt: skip


@given(st.lists(FRAGMENTS | st.text(max_size=4), max_size=40).map("".join))
@settings(derandomize=True, deadline=None, database=None, max_examples=300)
def test_any_text_is_a_value_or_one_line(text: str) -> None:
    try:
        plain_yaml.parse(text)
    except ValueError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("start", ["[", "{a: ", "- ", "? ", "{", "[a, "])
def test_depth_has_a_limit(start: str) -> None:
    with pytest.raises(ValueError, match=r"deeper than 32|a key must be a word"):
        plain_yaml.parse(2000 * start)
