"""The write-ahead log: every write is in SQLite's WAL before anybody is told of it."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
  resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (resource, namespace, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS revision (id INTEGER PRIMARY KEY CHECK (id = 0), value INTEGER NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One object as it stands on disk; ``data`` None means that it was removed."""

    resource: str
    namespace: str
    name: str
    data: bytes | None


class Journal:
    """Writes rows in order, several at a time, in a thread of its own.

    A row counts as written when its transaction is committed to the WAL (``synchronous=NORMAL``): it survives the
    death of the process, and of the machine up to the last checkpoint.

    :param path: the database file; made when missing
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._queue: queue.SimpleQueue[tuple[int, Row] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def load(self) -> tuple[int, list[Row]]:
        """The last revision and all rows that are on disk."""
        with closing(self._connect()) as connection:
            found = connection.execute("SELECT value FROM revision").fetchone()
            rows = connection.execute("SELECT resource, namespace, name, data FROM objects").fetchall()
        return (found[0] if found else 0), [Row(*row) for row in rows]

    def start(
        self, loop: asyncio.AbstractEventLoop, committed: Callable[[int, BaseException | None], None]
    ) -> None:
        """Begin to write; ``committed(revision, error)`` is called in ``loop`` after each transaction."""
        self._thread = threading.Thread(
            target=self._run, args=(loop, committed), name="apiserver-journal", daemon=True
        )
        self._thread.start()

    def write(self, revision: int, row: Row) -> None:
        """Queue one row; revisions must grow."""
        self._queue.put((revision, row))

    async def stop(self) -> None:
        """Write what is queued and end the thread."""
        if self._thread is not None:
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.executescript(_SCHEMA)
        return connection

    def _run(
        self, loop: asyncio.AbstractEventLoop, committed: Callable[[int, BaseException | None], None]
    ) -> None:
        with closing(self._connect()) as connection:
            while batch := self._next_batch():
                error: BaseException | None = None
                try:
                    self._commit(connection, batch)
                except sqlite3.Error as failed:
                    error = failed
                try:
                    loop.call_soon_threadsafe(committed, batch[-1][0], error)
                except RuntimeError:
                    return  # the loop is closed: nobody is left to tell
                if error is not None:
                    return

    def _next_batch(self) -> list[tuple[int, Row]]:
        """Whatever is queued, at least one row; empty when there will be no more."""
        first = self._queue.get()
        if first is None:
            return []
        batch = [first]
        while not self._queue.empty():
            following = self._queue.get()
            if following is None:
                self._queue.put(None)
                break
            batch.append(following)
        return batch

    @staticmethod
    def _commit(connection: sqlite3.Connection, batch: list[tuple[int, Row]]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        for _, row in batch:
            key = (row.resource, row.namespace, row.name)
            if row.data is None:
                connection.execute(
                    "DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?", key
                )
            else:
                connection.execute("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)", (*key, row.data))
        connection.execute("INSERT OR REPLACE INTO revision VALUES (0, ?)", (batch[-1][0],))
        connection.execute("COMMIT")
