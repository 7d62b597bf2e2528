"""Spans of time as people write them."""

from __future__ import annotations

import datetime as dt
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90), ("90s", 90), ("15m", 900), ("6h", 21600), ("2d", 172800), ("1w", 604800), ("1h30m", 5400),
        (" 1h 30m ", 5400), ("1.5h", 5400), ("250ms", 0.25), ("2H", 7200), (45, 45), (0.5, 0.5),
        (dt.timedelta(minutes=2), 120),
    ],
)  # fmt: skip
def test_a_span_is_read(text, seconds):
    assert parse_duration("run", text).total_seconds() == seconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "soon",
        "-1h",
        "1y",
        "h",
        "1h-",
        "1h30",
        0,
        -5,
        "0s",
        True,
        None,
        [],
        math.inf,
        math.nan,
        1e300,
    ],
)
def test_what_is_no_span_is_one_error(value):
    with pytest.raises(InvalidInput, match=r"limits\.run: .*1h30m"):
        parse_duration("limits.run", value)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (45, "45s"),
        (125, "2m 5s"),
        (3600, "1h"),
        (11400, "3h 10m"),
        (187200, "2d 4h"),
        (86405, "1d"),
    ],
)
def test_a_span_is_shown_in_at_most_two_units(seconds, text):
    assert format_duration(seconds) == text


@given(st.integers(1, 60 * 60 - 1))
def test_what_is_shown_of_less_than_an_hour_reads_back(seconds):
    assert parse_duration("x", format_duration(seconds)).total_seconds() == seconds
