from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kftrain.jobs.lines import Fresh, Line, LineSplitter

STAMP = b"2026-01-02T03:04:05.000000001Z "
NANOSECONDS = int(dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC).timestamp()) * 10**9 + 1


def split(*chunks, **options):
    splitter = LineSplitter(**options)
    return [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.close()


def texts(*chunks, **options):
    return [line.text for line in split(*chunks, **options)]


def test_b17_bytes_that_are_not_utf8_are_replaced():
    assert split(STAMP + b"loss 0.1 \xc6\xff\n", stamps=True) == [Line("loss 0.1 \ufffd\ufffd", NANOSECONDS)]


def test_b17_a_line_without_stamp_is_kept_whole():
    assert split(b"no stamp here\n", stamps=True) == [Line("no stamp here")]


def test_b17_a_progress_bar_is_several_passing_lines():
    assert split(b"10%\r20%\r30%\n") == [
        Line("10%", transient=True),
        Line("20%", transient=True),
        Line("30%"),
    ]
    assert split(STAMP + b"10%\r20%\n", stamps=True) == [
        Line("10%", NANOSECONDS, True),
        Line("20%", NANOSECONDS),
    ]


def test_b17_a_line_of_three_megabytes_is_bounded():
    (line,) = split(*[b"x" * 65536] * 48, b"\n")
    assert len(line.text) < 17_000
    assert line.text.endswith("… (3,129,344 bytes left out)")
    assert texts(b"x" * 3_000_000 + b"\nnext\n")[1] == "next"


def test_b17_a_letter_cut_by_a_chunks_border_is_whole():
    letters = "Prüfung 試験".encode()
    assert texts(*(bytes([byte]) for byte in letters)) == ["Prüfung 試験"]


@pytest.mark.parametrize("end", [b"", b"\n", b"\r", b"\r\n"])
def test_b17_the_last_line_needs_no_end(end):
    assert texts(b"first\nlast" + end) == ["first", "last"]


def test_b17_an_end_of_two_bytes_may_be_cut_by_a_chunks_border():
    assert split(b"one\r", b"\ntwo\r", b"three\r\n") == [
        Line("one"),
        Line("two", transient=True),
        Line("three"),
    ]


def test_empty_lines_are_kept_and_empty_drawings_are_not():
    assert texts(b"\n\r\r\n\na\n") == ["", "", "a"]


any_log = st.lists(
    st.sampled_from([b"a", b"\r", b"\n", b"\xff", "ü".encode(), STAMP, b"x" * 40]), max_size=25
).map(b"".join)


@given(any_log, st.data(), st.booleans())
def test_b17_lines_do_not_depend_on_the_chunks(log, data, stamps):
    whole = split(log, stamps=stamps, longest=30)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=8)))
    chunks = [log[a:b] for a, b in zip([0, *cuts], [*cuts, len(log)], strict=True)]
    assert split(*chunks, stamps=stamps, longest=30) == whole


@given(st.lists(st.binary(max_size=50), max_size=5), st.booleans())
def test_b17_no_bytes_raise_and_no_line_is_longer_than_it_may_be(chunks, stamps):
    for line in split(*chunks, stamps=stamps, longest=10):
        assert len(line.text) < 10 + 36 + 40
        line.text.encode()


@given(st.text(alphabet=st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=40))
def test_a_plain_line_comes_back_as_it_was(text):
    assert texts(text.encode() + b"\n", longest=200) == [text]


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        (b"2026-01-02T03:04:05Z", NANOSECONDS - 1),
        (b"2026-01-02T03:04:05.5Z", NANOSECONDS - 1 + 500_000_000),
        (b"2026-01-02T05:04:05.000000001+02:00", NANOSECONDS),
    ],
)
def test_stamps_are_read_to_the_nanosecond(stamp, expected):
    assert split(stamp + b" text\n", stamps=True) == [Line("text", expected)]


@pytest.mark.parametrize(
    "line", [b"2026-13-02T03:04:05Z text", b"2026-01-02 text", b"2026-01-02T03:04:05Ztext"]
)
def test_what_only_looks_like_a_stamp_stays_in_the_line(line):
    assert split(line + b"\n", stamps=True) == [Line(line.decode())]


def test_without_stamps_asked_for_a_stamp_is_text():
    assert texts(STAMP + b"x\n") == [(STAMP + b"x").decode()]


def given_by(fresh, lines):
    return [line.text for line in lines if fresh.is_new(line)]


def test_airflow33498_lines_repeated_after_a_reconnection_are_given_once():
    first = [Line("a", 1), Line("b", 2), Line("c", 2)]
    fresh = Fresh()
    assert given_by(fresh, first) == ["a", "b", "c"]
    fresh.reconnected()
    assert given_by(fresh, [*first, Line("d", 2), Line("e", 3)]) == ["d", "e"]
    fresh.reconnected()
    assert given_by(fresh, [Line("e", 3), Line("f", 4)]) == ["f"]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.data())
def test_airflow33498_nothing_is_lost_or_doubled_wherever_the_log_breaks(stamps, data):
    log = [Line(str(n), stamp) for n, stamp in enumerate(sorted(stamps))]
    fresh = Fresh()
    found = []
    for _ in range(3):
        found += given_by(fresh, log[: data.draw(st.integers(len(found), len(log)))])
        fresh.reconnected()
    found += given_by(fresh, log)
    assert found == [line.text for line in log]


def test_without_a_break_lines_out_of_order_are_all_new():
    fresh = Fresh()
    assert given_by(fresh, [Line("a", 5), Line("b", 3), Line("c"), Line("d", 5)]) == ["a", "b", "c", "d"]
    assert fresh.latest == dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def test_a_reconnection_before_any_line_skips_nothing():
    fresh = Fresh()
    fresh.reconnected()
    assert fresh.latest is None
    assert given_by(fresh, [Line("a"), Line("b", 1)]) == ["a", "b"]
