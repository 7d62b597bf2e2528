"""Bytes of a container's log to lines of text, whatever the bytes are."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass

LONGEST_LINE = 16 * 1024
"""Bytes of a line that are kept; what is beyond is counted and dropped."""

# RFC 3339 with a fraction of up to nine digits, as the kubelet writes it in front of a line.
_STAMP = re.compile(
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)(?: |$)",
)
_LONGEST_STAMP = len("2026-01-02T03:04:05.000000001+00:00 ")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log.

    :param text: without its end; bytes that are not UTF-8 are replaced, what was dropped is noted at its end
    :param stamp: nanoseconds since 1970 in UTC, when the log has stamps and this line one
    :param transient: it ended with a carriage return (a progress bar draws itself anew): show it if there is time
    """

    text: str
    stamp: int | None = None
    transient: bool = False


class LineSplitter:
    """Cuts chunks into lines; it holds at most one line of :data:`LONGEST_LINE` bytes between two chunks.

    :param stamps: every line of the log begins with a time stamp (``timestamps=true``); lines without are kept
    :param longest: bytes of a line to keep
    """

    def __init__(self, *, stamps: bool = False, longest: int = LONGEST_LINE) -> None:
        self._stamps = stamps
        self._longest = longest + (_LONGEST_STAMP if stamps else 0)
        self._held = bytearray()
        self._dropped = 0
        self._stamp: int | None = None
        self._in_line = False
        self._after_return = False

    def feed(self, chunk: bytes) -> list[Line]:
        """The lines that ``chunk`` completes."""
        found: list[Line] = []
        for part in re.split(rb"([\r\n])", chunk):
            if self._after_return and part:
                # "\\r\\n" is one end of a line; a "\\r" before anything else ends a drawing of a progress bar.
                self._after_return = False
                if part != b"\n":
                    self._end(found, transient=True)
            if part == b"\n":
                self._end(found, transient=False)
            elif part == b"\r":
                self._after_return = True
            else:
                self._hold(part)
        return found

    def close(self) -> list[Line]:
        """The last line, when the log did not end with one's end."""
        found: list[Line] = []
        if self._held or self._dropped or self._after_return:
            self._end(found, transient=self._after_return)
        self._after_return = False
        return found

    def _hold(self, part: bytes) -> None:
        room = self._longest - len(self._held)
        self._held += part[:room]
        self._dropped += max(0, len(part) - room)

    def _end(self, found: list[Line], *, transient: bool) -> None:
        if self._stamps and not self._in_line:
            self._stamp = self._take_stamp()
        text = bytes(self._held).decode("utf-8", "replace")
        if self._dropped:
            text += f" … ({self._dropped:,} bytes left out)"
        if text or not (transient or self._in_line):
            found.append(Line(text, self._stamp, transient))
        self._held.clear()
        self._dropped = 0
        self._in_line = transient

    def _take_stamp(self) -> int | None:
        match = _STAMP.match(self._held)
        if match is None:
            return None
        stamp = _nanoseconds(match[1].decode(), (match[2] or b"").decode(), match[3].decode())
        if stamp is not None:
            del self._held[: match.end()]
        return stamp


class Fresh:
    """Tells new lines from those already given, when a log is read again from an earlier moment.

    Lines with the newest stamp are counted: after a reconnection the log repeats them in their order.
    """

    def __init__(self) -> None:
        self._latest: int | None = None
        self._given_at_latest = 0
        self._to_skip = 0
        self._repeating = False

    @property
    def latest(self) -> dt.datetime | None:
        """When the newest line was written, to the second: the moment to read from after a break."""
        return None if self._latest is None else dt.datetime.fromtimestamp(self._latest // 10**9, dt.UTC)

    def reconnected(self) -> None:
        """The log is read again, from :attr:`latest` or earlier."""
        self._repeating = self._latest is not None
        self._to_skip = self._given_at_latest

    def is_new(self, line: Line) -> bool:
        """Whether the line has not been given before.

        Without a stamp it goes with the line before it.
        """
        if self._repeating and self._is_repeated(line):
            return False
        if line.stamp is not None:
            self._note(line.stamp)
        return True

    def _is_repeated(self, line: Line) -> bool:
        assert self._latest is not None
        if line.stamp is None or line.stamp < self._latest:
            return True
        if line.stamp == self._latest and self._to_skip:
            self._to_skip -= 1
            return True
        self._repeating = False
        return False

    def _note(self, stamp: int) -> None:
        if self._latest is None or stamp > self._latest:
            self._latest, self._given_at_latest = stamp, 1
        elif stamp == self._latest:
            self._given_at_latest += 1


def _nanoseconds(seconds: str, fraction: str, zone: str) -> int | None:
    try:
        moment = dt.datetime.fromisoformat(f"{seconds}{zone}")
    except ValueError:
        return None
    return int(moment.timestamp()) * 10**9 + int(fraction.ljust(9, "0"))
