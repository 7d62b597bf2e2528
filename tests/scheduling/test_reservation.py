"""Calendar reservations: clock changes, exceptions, refusals."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.scheduling.model import Estimate
from airflow_kftrain.scheduling.reservation import Reservation, accept, windows_between
from tests.support.gangs import gpus, request, running

UTC = dt.UTC


def at(text: str) -> float:
    return dt.datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def told(made: Reservation, after: str, before: str) -> list[tuple[str, str]]:
    """The windows as UTC texts."""
    return [
        (
            f"{dt.datetime.fromtimestamp(w.start, UTC):%m-%d %H:%M}",
            f"{dt.datetime.fromtimestamp(w.end, UTC):%m-%d %H:%M}",
        )
        for w in made.windows(at(after), at(before))
    ]


def nightly(**more: Any) -> Reservation:
    start = dt.datetime(2025, 3, 1, 2, 30)
    return Reservation.between(
        "night", "p", gpus(2), start, dt.time(4, 0), "Europe/Berlin", rrule="FREQ=DAILY", **more
    )


def test_b24_a_skipped_hour_shifts_the_window_forward() -> None:
    assert told(nightly(), "2025-03-29", "2025-03-31T12:00") == [
        ("03-29 01:30", "03-29 03:00"),
        ("03-30 01:30", "03-30 03:00"),  # 02:30 does not exist: 03:30 to 05:00 CEST
        ("03-31 00:30", "03-31 02:00"),
    ]


def test_b24_of_a_doubled_hour_the_first_is_meant() -> None:
    assert told(nightly(), "2025-10-25T12:00", "2025-10-27T12:00") == [
        ("10-26 00:30", "10-26 02:00"),  # 02:30 CEST, the first one; 90 minutes of elapsed time
        ("10-27 01:30", "10-27 03:00"),
    ]


def test_b24_a_window_over_a_midnight_that_does_not_exist() -> None:
    weekly = Reservation.between(
        "w",
        "p",
        gpus(1),
        dt.datetime(2018, 10, 6, 23, 30),
        dt.time(0, 30),
        "America/Sao_Paulo",
        rrule="FREQ=WEEKLY",
    )
    assert told(weekly, "2018-11-01", "2018-11-12") == [
        ("11-04 02:30", "11-04 03:30"),  # 23:30 to 01:30 on the dial, one hour of elapsed time
        ("11-11 01:30", "11-11 02:30"),
    ]


def test_b24_a_naive_start_is_meant_in_the_named_zone_and_an_aware_one_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert told(nightly(), "2025-06-01", "2025-06-02") == [("06-01 00:30", "06-01 02:00")]
    with pytest.raises(InvalidInput, match="wall time without an offset"):
        Reservation("r", "p", gpus(1), dt.datetime(2025, 3, 1, tzinfo=UTC), "Europe/Berlin", 60.0)


def test_b24_the_next_window_is_always_later() -> None:
    now, made = at("2025-03-29"), nightly()
    for _ in range(5):
        (first, *_) = made.windows(now, now + 3 * 86400)
        assert first.end > now
        now = first.end


def test_an_hourly_rule_gives_one_window_where_two_fall_on_the_same_instant() -> None:
    hourly = Reservation(
        "h", "p", gpus(1), dt.datetime(2025, 3, 29, 0, 30), "Europe/Berlin", 600.0, rrule="FREQ=HOURLY"
    )
    starts = [w.start for w in hourly.windows(at("2025-03-30"), at("2025-03-30T03:00"))]
    assert len(starts) == len(set(starts)) == 3


def test_exceptions_leave_out_a_day_or_an_occurrence() -> None:
    made = nightly(exceptions=(dt.date(2025, 6, 2), dt.datetime(2025, 6, 4, 2, 30)))
    days = [start[:5] for start, _ in told(made, "2025-06-01", "2025-06-06")]
    assert days == ["06-01", "06-03", "06-05"]


def test_until_in_utc_is_understood() -> None:
    made = Reservation(
        "r",
        "p",
        gpus(1),
        dt.datetime(2025, 6, 1, 2),
        "Europe/Berlin",
        60.0,
        rrule="FREQ=DAILY;UNTIL=20250603T000000Z",
    )
    assert len(made.windows(at("2025-05-01"), at("2025-07-01"))) == 3


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"zone": "Mars/Base"}, "zone", "IANA"),
        ({"zone": "../etc/passwd"}, "zone", "IANA"),
        ({"duration": 0.0}, "duration", "positive"),
        ({"duration": -5.0}, "duration", "positive"),
        ({"duration": float("nan")}, "duration", "positive"),
        ({"rrule": "FREQ=SOMETIMES"}, "rrule", "RFC 5545"),
        ({"rrule": "FREQ=SECONDLY"}, "rrule", "hourly at most"),
        ({"lead": -1.0}, "lead", "zero or more"),
        ({"amount": gpus(0)}, "amount", "reserve something"),
    ],
)
def test_bad_input_names_the_field(change: dict[str, Any], field: str, says: str) -> None:
    given = {
        "amount": gpus(1),
        "start": dt.datetime(2025, 1, 1),
        "zone": "Europe/Berlin",
        "duration": 60.0,
        **change,
    }
    with pytest.raises(InvalidInput, match=says) as raised:
        Reservation("r", "p", **given)
    assert raised.value.field == f"reservation.{field}"


def test_a_window_longer_than_its_interval_is_refused() -> None:
    daily = Reservation("r", "p", gpus(1), dt.datetime(2025, 1, 1), "Etc/UTC", 90_000.0, rrule="FREQ=DAILY")
    with pytest.raises(InvalidInput, match="longer than its rule's interval"):
        daily.windows(at("2025-01-01"), at("2025-01-09"))


def test_a_reservation_is_refused_where_others_hold_too_much() -> None:
    one = nightly().windows(at("2025-06-01"), at("2025-06-05"))
    refused = accept(one, gpus(3), one[1:2], (), at("2025-06-01"))
    assert refused is not None
    assert (refused.at, refused.free, refused.amount) == (one[1].start, gpus(1), 0.5)
    assert "2025-06-02 00:30 UTC only {'nvidia.com/gpu': '1'}" in refused.sentence()
    assert "50% of it could be had" in refused.sentence()
    assert accept(one, gpus(4), one[1:2], (), at("2025-06-01")) is None


@pytest.mark.parametrize(
    ("gang", "accepted"),
    [
        ({"resumable": True}, True),
        ({"run_limit": 3600.0}, True),
        ({}, False),
        ({"run_limit": 86400.0}, False),
    ],
    ids=["can be suspended", "is over by then", "may run for ever", "may still run"],
)
def test_only_what_is_surely_out_of_the_way_does_not_count(gang: dict[str, Any], accepted: bool) -> None:
    now = at("2025-06-01T20:00")
    windows = nightly().windows(now, now + 86400)
    held = running(request("r", 3, estimate=Estimate.exactly(60.0), **gang), ("all", 1), since=now)
    assert (accept(windows, gpus(4), (), [held], now) is None) is accepted


def test_windows_of_many_reservations_come_in_order() -> None:
    other = Reservation("late", "p", gpus(1), dt.datetime(2025, 6, 1, 20), "Etc/UTC", 60.0)
    found = windows_between([other, nightly()], at("2025-06-01"), at("2025-06-03"))
    assert [w.reservation for w in found] == ["night", "late", "night"]
