"""Deletion: at once, after a grace period, or when the last finalizer is gone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_kftrain.clock import Clock
from airflow_kftrain.local.apiserver import metadata as meta
from airflow_kftrain.local.apiserver.errors import bad_request, conflict, forbidden, success
from airflow_kftrain.local.apiserver.kinds import Kind
from airflow_kftrain.local.apiserver.store import Json, Record, Store
from airflow_kftrain.local.apiserver.writes import is_over

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
_FINALIZERS = {"Orphan": ORPHAN, "Foreground": FOREGROUND}
_POLICIES = ("Background", "Foreground", "Orphan")
_DEFAULT_GRACE = 30
PERMANENT_NAMESPACES = ("default", "kube-system", "kube-public")


@dataclass(frozen=True)
class DeleteOptions:
    """What a DELETE asks for.

    :param grace: seconds until the process is killed; None means what the pod says
    :param policy: what becomes of dependents: ``Background`` (default), ``Foreground`` or ``Orphan``
    :param uid: the object must have it
    :param resource_version: the object must have it
    """

    grace: int | None = None
    policy: str = "Background"
    uid: str | None = None
    resource_version: str | None = None
    dry_run: bool = False

    @classmethod
    def read(cls, query: Mapping[str, str], body: Any) -> DeleteOptions:
        """From a request; the body wins over the query.

        :raises StatusError: 400, a value that means nothing
        """
        options = body if isinstance(body, dict) else {}
        preconditions = options.get("preconditions") or {}
        grace = options.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
        policy = options.get("propagationPolicy") or query.get("propagationPolicy")
        if policy is None:
            orphans = str(options.get("orphanDependents", query.get("orphanDependents", ""))).lower()
            policy = "Orphan" if orphans == "true" else "Background"
        if policy not in _POLICIES:
            raise bad_request(f"propagationPolicy: {policy!r} is none of {', '.join(_POLICIES)}")
        try:
            seconds = None if grace in (None, "") else int(grace)
        except (TypeError, ValueError):
            raise bad_request(f"gracePeriodSeconds: {grace!r} is not a number of seconds") from None
        return cls(
            seconds,
            policy,
            preconditions.get("uid"),
            preconditions.get("resourceVersion"),
            bool(options.get("dryRun") or query.get("dryRun")),
        )


class Deleter:
    """Deletes objects, one synchronous step each."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def delete(self, record: Record, options: DeleteOptions) -> Json:
        """Begin or complete a deletion; returns what the client is told.

        :raises StatusError: 409, a precondition does not hold; 403, a namespace that always is
        """
        self._check(record, options)
        if record.kind.kind == "Namespace" and record.name in PERMANENT_NAMESPACES:
            raise forbidden(record.kind, record.name, "this namespace may not be deleted")
        new = self._marked(record, options)
        if options.dry_run:
            return new
        if is_over(record.kind, new):
            gone = self._store.remove(record, new).obj
            if record.kind.returns_object:
                return gone
            return success(record.kind, record.name, gone["metadata"]["uid"])
        if new == record.obj:
            return record.obj
        if new["metadata"].get("generation") and "deletionTimestamp" not in record.obj["metadata"]:
            new["metadata"]["generation"] += 1
        return self._store.put(record.kind, new).obj

    def _check(self, record: Record, options: DeleteOptions) -> None:
        metadata = record.obj["metadata"]
        for name, wanted, found in (
            ("UID", options.uid, metadata["uid"]),
            ("ResourceVersion", options.resource_version, metadata["resourceVersion"]),
        ):
            if wanted and wanted != found:
                text = (
                    f"the {name} in the precondition ({wanted}) does not match the {name} in record ({found}). "
                    "The object might have been modified or deleted and then recreated"
                )
                raise conflict(record.kind, record.name, text)

    def _marked(self, record: Record, options: DeleteOptions) -> Json:
        """The object as it is while it is being deleted."""
        new = record.copy()
        metadata = new["metadata"]
        grace = self._grace(record.kind, new, options.grace)
        now = self._clock.now()
        running = metadata.get("deletionGracePeriodSeconds")
        if "deletionTimestamp" not in metadata or (running and grace < running):
            metadata["deletionTimestamp"] = meta.timestamp(now + dt.timedelta(seconds=grace))
            metadata["deletionGracePeriodSeconds"] = grace
        kept = [name for name in metadata.pop("finalizers", ()) if name not in (ORPHAN, FOREGROUND)]
        finalizers = [*kept, *([_FINALIZERS[options.policy]] if options.policy in _FINALIZERS else [])]
        if finalizers:
            metadata["finalizers"] = finalizers
        if record.kind.kind == "Namespace":
            new["status"] = {**new.get("status", {}), "phase": "Terminating"}
        return new

    @staticmethod
    def _grace(kind: Kind, obj: Json, asked: int | None) -> int:
        """Seconds of grace: only a pod that runs on a node gets any."""
        if kind.kind != "Pod" or not obj["spec"].get("nodeName"):
            return 0
        if obj.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return 0
        own = obj["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE)
        return max(own if asked is None else asked, 0)
