"""Log files: records, rotation, and reading in every form."""

from __future__ import annotations

import asyncio
import datetime as dt
from pathlib import Path

import pytest

from airflow_kftrain.clock import VirtualClock
from airflow_kftrain.local.kubelet import logs
from airflow_kftrain.local.kubelet.logs import LogBook, LogOptions


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def book(tmp_path: Path, clock: VirtualClock) -> LogBook:
    return LogBook(tmp_path, clock)


async def read(book: LogBook, start: int = 0, **options) -> bytes:
    return b"".join([chunk async for chunk in book.read("uid", "main", start, LogOptions(**options))])


@pytest.mark.parametrize(
    "written",
    [
        pytest.param([b"one\ntwo\n"], id="lines"),
        pytest.param([b"o", b"ne", b"\nt", b"wo\n"], id="lines in pieces"),
        pytest.param([b"no end"], id="a last line without its end"),
        pytest.param([b"\n\n"], id="empty lines"),
        pytest.param([b"10%\r20%\r"], id="carriage returns"),
        pytest.param([b"\xc6\xff\n"], id="bytes that are no text"),
        pytest.param(["€".encode()[:1], "€".encode()[1:] + b"\n"], id="a letter cut in two"),
        pytest.param([b"x" * 3_000_000 + b"\nafter\n"], id="a line of 3 MB"),
        pytest.param([b"x" * 70_000, b"y" * 70_000], id="a long line without its end, in pieces"),
        pytest.param([], id="nothing"),
    ],
)
async def test_what_was_written_is_read_back_byte_for_byte(book: LogBook, written: list[bytes]):
    log = book.begin("uid", "main", 0)
    for chunk in written:
        log.write(chunk)
    log.close()
    assert await read(book) == b"".join(written)


async def test_tail_counts_lines_not_pieces(book: LogBook):
    log = book.begin("uid", "main", 0)
    log.write(b"first\n" + b"x" * 40_000 + b"\nlast\n")
    log.close()
    assert await read(book, tail_lines=2) == b"x" * 40_000 + b"\nlast\n"
    assert await read(book, tail_lines=0) == b""
    assert await read(book, tail_lines=9) == await read(book)


async def test_times_stand_before_lines_once(book: LogBook, clock: VirtualClock):
    log = book.begin("uid", "main", 0)
    log.write(b"a\n" + b"x" * 40_000 + b"\n")
    await clock.advance(90)
    log.write(b"b\n")
    log.close()
    lines = (await read(book, timestamps=True)).split(b"\n")
    assert lines[0] == b"2026-01-01T00:00:00.000000000Z a"
    assert lines[1] == b"2026-01-01T00:00:00.000000000Z " + b"x" * 40_000
    assert lines[2] == b"2026-01-01T00:01:30.000000000Z b"
    since = clock.now() - dt.timedelta(seconds=60)
    assert await read(book, since=since) == b"b\n"


async def test_a_log_rotates_and_keeps_the_newest(book: LogBook, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(logs, "SEGMENT_BYTES", 1000)
    log = book.begin("uid", "main", 0)
    for number in range(500):
        log.write(b"line %d\n" % number)
    log.close()
    kept = (await read(book)).splitlines()
    assert kept[-1] == b"line 499"
    assert kept == [b"line %d" % n for n in range(500 - len(kept), 500)]
    assert len(list((tmp_path / "uid" / "main").iterdir())) == logs.SEGMENTS


async def test_a_follower_sees_every_line_across_rotations_and_then_the_end(book: LogBook, monkeypatch):
    monkeypatch.setattr(logs, "SEGMENT_BYTES", 1000)
    log = book.begin("uid", "main", 0)
    log.write(b"line 0\n")
    following = asyncio.create_task(read(book, follow=True))
    for number in range(1, 300):
        await asyncio.sleep(0)
        log.write(b"line %d\n" % number)
    assert not following.done()
    log.close()
    seen = await asyncio.wait_for(following, 5)
    assert seen.splitlines() == [b"line %d" % n for n in range(300)]


async def test_a_follower_that_is_too_slow_misses_lines_and_goes_on(book: LogBook, monkeypatch):
    monkeypatch.setattr(logs, "SEGMENT_BYTES", 1000)
    log = book.begin("uid", "main", 0)
    log.write(b"line 0\n")
    following = asyncio.create_task(read(book, follow=True))
    await asyncio.sleep(0.01)
    # In one go: the reader gets no turn, and the first segments are rotated away.
    for number in range(1, 1000):
        log.write(b"line %d\n" % number)
    log.close()
    seen = (await asyncio.wait_for(following, 5)).splitlines()
    assert seen[0] == b"line 0"
    kept = len(seen) - 1
    assert 50 < kept < 500
    assert seen[1:] == [b"line %d" % number for number in range(1000 - kept, 1000)]


async def test_a_follower_with_a_tail_starts_there(book: LogBook):
    log = book.begin("uid", "main", 0)
    log.write(b"a\nb\n")
    following = asyncio.create_task(read(book, follow=True, tail_lines=1))
    await asyncio.sleep(0.01)
    log.write(b"c\n")
    log.close()
    assert await asyncio.wait_for(following, 5) == b"b\nc\n"


async def test_only_the_last_two_starts_are_kept(book: LogBook):
    for start in range(4):
        log = book.begin("uid", "main", start)
        log.write(b"start %d\n" % start)
        log.close()
    assert book.starts("uid", "main") == [2, 3]
    assert await read(book, 2) == b"start 2\n"


async def test_a_limit_cuts_bytes(book: LogBook):
    log = book.begin("uid", "main", 0)
    log.write(b"one\ntwo\n")
    log.close()
    assert await read(book, limit_bytes=5) == b"one\nt"


async def test_a_log_of_an_earlier_process_is_read_to_its_end(tmp_path: Path, clock: VirtualClock):
    log = LogBook(tmp_path, clock).begin("uid", "main", 0)
    log.write(b"before the kill\n")
    fresh = LogBook(tmp_path, clock)
    assert fresh.starts("uid", "main") == [0]
    assert await asyncio.wait_for(read(fresh, follow=True), 5) == b"before the kill\n"
    assert fresh.starts("other", "main") == []


async def test_the_logs_of_a_pod_that_is_gone_are_gone_and_followers_end(book: LogBook):
    log = book.begin("uid", "main", 0)
    log.write(b"a\n")
    following = asyncio.create_task(read(book, follow=True))
    await asyncio.sleep(0.01)
    book.forget("uid")
    assert await asyncio.wait_for(following, 5) == b"a\n"
    assert book.starts("uid", "main") == []
