"""Container logs: one file per container start, in the CRI format, in segments that rotate.

A record is ``<RFC 3339 time> stdout F <line>``; ``P`` in place of ``F`` marks a piece of a line that goes on.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from airflow_kftrain.clock import Clock

SEGMENT_BYTES = 10 * 1024 * 1024
SEGMENTS = 5
"""A container start keeps about SEGMENTS x SEGMENT_BYTES of its log, the newest (the kubelet's own defaults)."""

_LONGEST_RECORD = 16 * 1024
_CHUNK = 256 * 1024


@dataclass(frozen=True)
class LogOptions:
    """What of a log is wanted; the fields are those of the API's ``log`` subresource.

    :param since: records from this instant on
    :param tail_lines: only the last so many lines of what there is at the start
    """

    follow: bool = False
    tail_lines: int | None = None
    since: dt.datetime | None = None
    timestamps: bool = False
    limit_bytes: int | None = None


class ContainerLog:
    """Writes the log of one container start."""

    def __init__(self, directory: Path, start: int, clock: Clock) -> None:
        self._directory = directory
        self._start = start
        self._clock = clock
        self._segment = 0
        self._partial = b""
        self._grown = asyncio.Event()
        self.closed = False
        """Whether this start has ended."""
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = _segment_path(directory, start, 0).open("ab")

    def write(self, chunk: bytes) -> None:
        """Append output as it came; lines are stamped when they are complete, long ones in pieces."""
        *lines, rest = (self._partial + chunk).split(b"\n")
        stamp = _stamp(self._clock.now())
        records = [piece for line in lines for piece in _pieces(line, stamp)]
        while len(rest) > _LONGEST_RECORD:
            records.append(b"%s stdout P %s\n" % (stamp, rest[:_LONGEST_RECORD]))
            rest = rest[_LONGEST_RECORD:]
        self._partial = rest
        self._append(b"".join(records))

    def close(self) -> None:
        """Write what is left of a last line without its end, and let followers finish."""
        if self.closed:
            return
        self.closed = True
        if self._partial:
            stamp = _stamp(self._clock.now())
            # Marked as a piece: readers give it back without an end of line, as it was written.
            self._append(b"%s stdout P %s\n" % (stamp, self._partial))
        self._file.close()
        self._wake()

    def growth(self) -> asyncio.Event:
        """Set at the next write or the end; take it before reading, so that nothing falls between."""
        return self._grown

    def _append(self, data: bytes) -> None:
        if not data:
            return
        self._file.write(data)
        self._file.flush()
        if self._file.tell() >= SEGMENT_BYTES:
            self._rotate()
        self._wake()

    def _rotate(self) -> None:
        self._file.close()
        self._segment += 1
        self._file = _segment_path(self._directory, self._start, self._segment).open("ab")
        _segment_path(self._directory, self._start, self._segment - SEGMENTS).unlink(missing_ok=True)

    def _wake(self) -> None:
        waiting, self._grown = self._grown, asyncio.Event()
        waiting.set()


class LogBook:
    """All logs of a node's containers.

    :param root: holds one directory per pod uid, and in it one per container
    """

    def __init__(self, root: Path, clock: Clock) -> None:
        self._root = root
        self._clock = clock
        self._open: dict[Path, dict[int, ContainerLog]] = {}

    def begin(self, pod_uid: str, container: str, start: int) -> ContainerLog:
        """The log of a container's start number ``start`` (0, then 1 after its first restart)."""
        directory = self._root / pod_uid / container
        # Only the last two starts can be asked for.
        for old in directory.glob("*.log"):
            if _start_of(old) < start - 1:
                old.unlink(missing_ok=True)
        log = ContainerLog(directory, start, self._clock)
        self._open[directory] = {start: log}
        return log

    def starts(self, pod_uid: str, container: str) -> list[int]:
        """The starts whose logs are there, oldest first."""
        return sorted({_start_of(path) for path in (self._root / pod_uid / container).glob("*.log")})

    def forget(self, pod_uid: str) -> None:
        """Remove all logs of a pod; who follows one sees its end."""
        directory = self._root / pod_uid
        for path in [path for path in self._open if path.parent == directory]:
            for log in self._open.pop(path).values():
                log.close()
        shutil.rmtree(directory, ignore_errors=True)

    async def read(
        self, pod_uid: str, container: str, start: int, options: LogOptions
    ) -> AsyncIterator[bytes]:
        """One start's log in chunks of whole lines; with ``follow``, until that start has ended."""
        directory = self._root / pod_uid / container
        left = options.limit_bytes
        form = _Form(options)
        async for records in self._records(directory, start, options):
            chunk = b"".join(map(form.shown, records))
            if left is not None:
                chunk = chunk[:left]
                left -= len(chunk)
            if chunk:
                yield chunk
            if left == 0:
                return

    def tail(self, pod_uid: str, container: str, start: int, *, lines: int, limit: int) -> str:
        """The last lines of a start, at most ``limit`` bytes; for a failed container's message."""
        records = list(_all_records(self._root / pod_uid / container, start))[-lines:]
        text = b"".join(map(_Form(LogOptions()).shown, records))
        return text[-limit:].decode("utf-8", "replace")

    async def _records(self, directory: Path, start: int, options: LogOptions) -> AsyncIterator[list[bytes]]:
        log = self._open.get(directory, {}).get(start)
        reader = _Reader(directory, start)
        present = reader.fresh()
        if options.tail_lines is not None:
            present = iter([[*_last(present, options.tail_lines)]])
        for records in present:
            yield records
            await asyncio.sleep(0)
        while options.follow and log is not None:
            growth, ended = log.growth(), log.closed
            for records in reader.fresh():
                yield records
            if ended:
                return
            await growth.wait()


class _Form:
    """How records are shown; it knows whether the last one was the first part of a line."""

    def __init__(self, options: LogOptions) -> None:
        self._stamped = options.timestamps
        self._since = _stamp(options.since) if options.since is not None else b""
        self._inside = False

    def shown(self, record: bytes) -> bytes:
        stamp, _, tag, content = record.split(b" ", 3)
        inside, self._inside = self._inside, tag == b"P"
        if stamp < self._since:
            return b""
        text = content if tag == b"F" else content[:-1]
        return stamp + b" " + text if self._stamped and not inside else text


class _Reader:
    """Reads the records of one start, segment after segment, from where it stopped."""

    def __init__(self, directory: Path, start: int) -> None:
        self._directory = directory
        self._start = start
        self._segment = min(self._segments(), default=0)
        self._offset = 0

    def fresh(self) -> Iterator[list[bytes]]:
        """All whole records written since the last call, in chunks."""
        while True:
            path = _segment_path(self._directory, self._start, self._segment)
            yield from self._rest_of(path)
            later = [n for n in self._segments() if n > self._segment]
            if not later:
                return
            # The writer is past this segment: what it holds now is all it will ever hold.
            yield from self._rest_of(path)
            # A slow reader may find that segments were rotated away meanwhile: it goes on with the oldest there is.
            self._segment, self._offset = min(later), 0

    def _segments(self) -> list[int]:
        return [_segment_of(path) for path in self._directory.glob(f"{self._start}.*.log")]

    def _rest_of(self, path: Path) -> Iterator[list[bytes]]:
        try:
            with path.open("rb") as file:
                file.seek(self._offset)
                while lines := file.readlines(_CHUNK):
                    whole = [line for line in lines if line.endswith(b"\n")]
                    self._offset += sum(map(len, whole))
                    if whole:
                        yield whole
                    if len(whole) < len(lines):
                        return
        except FileNotFoundError:  # rotated away, or its pod is gone
            return


def since_seconds(now: dt.datetime, seconds: float) -> dt.datetime:
    """The instant ``seconds`` before ``now``."""
    return now - dt.timedelta(seconds=seconds)


def _all_records(directory: Path, start: int) -> Iterator[bytes]:
    for records in _Reader(directory, start).fresh():
        yield from records


def _last(chunks: Iterator[list[bytes]], count: int) -> list[bytes]:
    """The records of the last ``count`` lines; pieces belong to the line that they begin."""
    lines: list[list[bytes]] = [[]]
    for records in chunks:
        for record in records:
            lines[-1].append(record)
            if _tag(record) == b"F":
                lines.append([])
        lines = lines[-(count + 1) :]
    if not lines[-1]:
        lines.pop()
    return [record for line in lines[-count:] for record in line] if count > 0 else []


def _tag(record: bytes) -> bytes:
    return record.split(b" ", 3)[2]


def _pieces(line: bytes, stamp: bytes) -> Iterator[bytes]:
    while len(line) > _LONGEST_RECORD:
        yield b"%s stdout P %s\n" % (stamp, line[:_LONGEST_RECORD])
        line = line[_LONGEST_RECORD:]
    yield b"%s stdout F %s\n" % (stamp, line)


def _stamp(instant: dt.datetime) -> bytes:
    """Fixed width, so that stamps compare as text."""
    return instant.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode()


def _segment_path(directory: Path, start: int, segment: int) -> Path:
    return directory / f"{start}.{segment:06d}.log"


def _segment_of(path: Path) -> int:
    return int(path.name.split(".")[1])


def _start_of(path: Path) -> int:
    return int(path.name.split(".")[0])
