"""Lists, and pages of them that all show one moment."""

from __future__ import annotations

import base64
import binascii
import json
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_kftrain.clock import Clock
from airflow_kftrain.local.apiserver.errors import bad_request, expired
from airflow_kftrain.local.apiserver.kinds import Kind
from airflow_kftrain.local.apiserver.selectors import selection
from airflow_kftrain.local.apiserver.store import Record, Store

_SNAPSHOTS = 256
_SNAPSHOT_SECONDS = 300.0


@dataclass(frozen=True)
class Page:
    """A part of a list.

    :param token: where the next page begins; empty on the last one
    :param remaining: how many more objects there are; None where a selector makes that unknown
    """

    records: list[Record]
    revision: int
    token: str = ""
    remaining: int | None = None


@dataclass
class _Snapshot:
    records: list[Record]
    revision: int
    taken: float


class Lister:
    """Lists objects; pages come from the snapshot that the first page took."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._snapshots: OrderedDict[str, _Snapshot] = OrderedDict()

    def list(self, kind: Kind, namespace: str | None, query: Mapping[str, str]) -> Page:
        """What ``query`` asks for: selectors, ``limit``, ``continue``.

        :raises StatusError: 400, a query that means nothing; 410, a page of a list that is too old
        """
        matches = selection(kind, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        limit = number(query, "limit")
        if query.get("continue"):
            return self._next(query["continue"], limit, whole=matches is None)
        records = self._store.list(kind, namespace)
        if matches is not None:
            records = [record for record in records if matches(record.obj)]
        if not limit or limit >= len(records):
            return Page(records, self._store.revision)
        key = secrets.token_hex(8)
        self._forget_old()
        self._snapshots[key] = _Snapshot(records, self._store.revision, self._clock.monotonic())
        return self._page(key, 0, limit, matches is None)

    def _next(self, token: str, limit: int, whole: bool) -> Page:
        try:
            place = json.loads(base64.urlsafe_b64decode(token))
            key, start = str(place["snapshot"]), int(place["start"])
        except (binascii.Error, ValueError, KeyError, TypeError):
            raise bad_request(f"continue key is not valid: {token!r}") from None
        self._forget_old()
        if key not in self._snapshots:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. "
                "You can start a new list without the continue parameter."
            )
        return self._page(key, start, limit, whole)

    def _page(self, key: str, start: int, limit: int, whole: bool) -> Page:
        snapshot = self._snapshots[key]
        end = start + limit if limit else len(snapshot.records)
        records = snapshot.records[start:end]
        remaining = len(snapshot.records) - end
        if remaining <= 0:
            return Page(records, snapshot.revision)
        token = base64.urlsafe_b64encode(json.dumps({"snapshot": key, "start": end}).encode()).decode()
        return Page(records, snapshot.revision, token, remaining if whole else None)

    def _forget_old(self) -> None:
        oldest = self._clock.monotonic() - _SNAPSHOT_SECONDS
        while self._snapshots and next(iter(self._snapshots.values())).taken < oldest:
            self._snapshots.popitem(last=False)
        while len(self._snapshots) >= _SNAPSHOTS:
            self._snapshots.popitem(last=False)


def number(query: Mapping[str, str], name: str) -> int:
    """A query parameter that is a count; 0 when it is not given.

    :raises StatusError: 400, not a number
    """
    text = query.get(name, "")
    if not text:
        return 0
    if not text.isdigit():
        raise bad_request(f"query parameter {name}: {text!r} is not a number that is zero or more")
    return int(text)


def flag(query: Mapping[str, str], name: str) -> bool:
    """A query parameter that is a truth value; clients also write ``True`` and ``1``."""
    return query.get(name, "").lower() in ("true", "1")
