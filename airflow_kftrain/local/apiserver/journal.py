"""The write-ahead log: every write is in SQLite's WAL before anybody is told of it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from airflow_kftrain.exceptions import LocalClusterError

_FORMAT = 1
_SCHEMA = f"""
PRAGMA user_version = {_FORMAT};
CREATE TABLE IF NOT EXISTS objects (id INTEGER PRIMARY KEY, resource TEXT NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS revision (id INTEGER PRIMARY KEY CHECK (id = 0), value INTEGER NOT NULL);
"""
_CHECKPOINT_WRITES = 2000

Committed = Callable[[int, BaseException | None], None]


@dataclass(frozen=True, slots=True)
class Row:
    """One object as it stands on disk.

    :param id: the object's own number, for its whole life
    :param data: its JSON; None means that it was removed
    """

    id: int
    resource: str
    data: bytes | None


class Journal:
    """Writes rows in order; all that one turn of the event loop brings is one transaction.

    A row counts as written when its transaction is committed to the WAL (``synchronous=NORMAL``): it survives the
    death of the process, and of the machine up to the last checkpoint. A commit is a write to the page cache (about
    40 µs), so it is made in the loop; checkpoints, which wait for the disk, are made in a thread.

    :param path: the database file; made when missing
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._batch: list[tuple[int, Row]] = []
        self._committed: Committed | None = None
        self._since_checkpoint = 0
        self._checkpoint: asyncio.Task[None] | None = None

    def open(self, committed: Committed) -> tuple[int, list[Row]]:
        """The last revision and all rows that are on disk.

        :raises LocalClusterError: the file is damaged, or of another format
        :param committed: called with the last revision of each transaction, and its error if it failed
        """
        try:
            self._connection = self._connect()
            found = self._connection.execute("SELECT value FROM revision").fetchone()
            rows = self._connection.execute("SELECT id, resource, data FROM objects").fetchall()
        except sqlite3.DatabaseError as error:
            raise LocalClusterError(
                f"{self._path} cannot be read: {error}; `kftrain local reset` begins anew"
            ) from error
        self._committed = committed
        return (found[0] if found else 0), [Row(*row) for row in rows]

    def write(self, revision: int, row: Row) -> None:
        """Queue one row for the end of this turn of the loop; revisions must grow."""
        if not self._batch:
            asyncio.get_running_loop().call_soon(self._flush)
        self._batch.append((revision, row))

    async def close(self) -> None:
        """Write what is queued."""
        if self._connection is None:
            return
        self._flush()
        if self._checkpoint is not None:
            await self._checkpoint
        connection, self._connection = self._connection, None
        connection.close()  # the last connection's end is a checkpoint

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=2.0)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint=0")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version not in (0, _FORMAT):
            raise sqlite3.DatabaseError(f"it has format {version}, this version reads {_FORMAT}")
        if version == 0:
            connection.executescript(_SCHEMA)
        return connection

    def _flush(self) -> None:
        batch, self._batch = self._batch, []
        if not batch or self._connection is None or self._committed is None:
            return
        try:
            _commit(self._connection, batch)
        except sqlite3.Error as error:
            self._committed(batch[-1][0], error)
            return
        self._committed(batch[-1][0], None)
        self._since_checkpoint += len(batch)
        if self._since_checkpoint >= _CHECKPOINT_WRITES and (
            self._checkpoint is None or self._checkpoint.done()
        ):
            self._since_checkpoint = 0
            self._checkpoint = asyncio.get_running_loop().create_task(
                asyncio.to_thread(self._move_to_database)
            )

    def _move_to_database(self) -> None:
        with closing(self._connect()) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


def _commit(connection: sqlite3.Connection, batch: list[tuple[int, Row]]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for _, row in batch:
        if row.data is None:
            connection.execute("DELETE FROM objects WHERE id = ?", (row.id,))
        else:
            connection.execute(
                "INSERT OR REPLACE INTO objects VALUES (?, ?, ?)", (row.id, row.resource, row.data)
            )
    connection.execute("INSERT OR REPLACE INTO revision VALUES (0, ?)", (batch[-1][0],))
    connection.execute("COMMIT")
