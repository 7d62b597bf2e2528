from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("2D", 172800),
        ("1w", 604800),
        ("250ms", 0.25),
        ("1.5h", 5400),
        ("90", 90),
        (90, 90),
        (0.5, 0.5),
        (dt.timedelta(hours=6), 21600),
    ],
)
def test_spans_are_read_as_people_write_them(value, seconds):
    assert parse_duration("limits.run", value) == dt.timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "value",
    [
        *("", "h", "6 hours", "1h30", "-1h", "1h-30m", "0", "0s", "1d!", "9" * 400),
        *(0, -1, True, None, [], dt.timedelta(0), float("nan"), float("inf"), 1e300),
    ],
    ids=repr,
)
def test_what_is_no_positive_span_is_one_clear_error(value):
    with pytest.raises(InvalidInput, match=r"^limits\.run: .*'15m'"):
        parse_duration("limits.run", value)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.4, "0s"),
        (45, "45s"),
        (125, "2m 5s"),
        (3600, "1h"),
        (3605, "1h"),
        (11400, "3h 10m"),
        (187200, "2d 4h"),
        (-5, "0s"),
    ],
)
def test_spans_are_shown_in_at_most_two_units(seconds, text):
    assert format_duration(seconds) == text


@given(st.integers(1, 10**7))
def test_what_is_shown_is_never_longer_than_the_span_and_short_of_it_by_less_than_its_last_unit(seconds):
    shown = parse_duration("x", format_duration(seconds)).total_seconds()
    unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}[format_duration(seconds)[-1]]
    assert 0 <= seconds - shown < unit
