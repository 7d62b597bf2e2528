"""Create and update: from what a client sent to what is stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from airflow_kftrain.clock import Clock
from airflow_kftrain.local.apiserver import metadata as meta
from airflow_kftrain.local.apiserver.core_schemas import metadata_schema, model_schema
from airflow_kftrain.local.apiserver.errors import (
    Cause,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
    wrong,
)
from airflow_kftrain.local.apiserver.kinds import Kind, Registry
from airflow_kftrain.local.apiserver.quota import Quotas
from airflow_kftrain.local.apiserver.rules import rules_of
from airflow_kftrain.local.apiserver.schema import Conformer
from airflow_kftrain.local.apiserver.store import Json, Record, Store

_GENERATE_TRIES = 8


@dataclass
class Options:
    """What a client asks of a write, and what it is told beside the answer.

    :param dry_run: go through everything, store nothing
    :param field_validation: what unknown fields mean: ``Ignore``, ``Warn`` or ``Strict``
    :param manager: who writes
    :param warnings: filled by the write
    """

    dry_run: bool = False
    field_validation: str = "Warn"
    manager: str = ""
    warnings: list[str] = field(default_factory=list)


@cache
def object_schema(kind: Kind) -> Json:
    """The schema of a whole object of ``kind``."""
    if kind.schema is None:
        return model_schema(kind.model)
    text = {"type": "string"}
    properties = {"apiVersion": text, "kind": text, "metadata": metadata_schema()}
    return {**kind.schema, "properties": {**kind.schema.get("properties", {}), **properties}}


@cache
def _conformer(kind: Kind) -> Conformer:
    return Conformer(object_schema(kind), drop_nulls=not kind.custom)


@cache
def _metadata_conformer() -> Conformer:
    return Conformer(metadata_schema(), drop_nulls=True)


def identify(kind: Kind, obj: Any) -> Json:
    """``obj`` with its type and a metadata dict, all its own.

    :raises StatusError: 400, it is an object of another type or none
    """
    if not isinstance(obj, dict):
        raise bad_request(f"the body must be a {kind.kind} object, not {type(obj).__name__}")
    given = obj.get("apiVersion", kind.api_version), obj.get("kind", kind.kind)
    if given != (kind.api_version, kind.kind):
        text = f"{given[1]} in version {given[0]!r} cannot be handled as a {kind.kind} ({kind.api_version})"
        raise bad_request(f"the object provided is unrecognized: {text}")
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict | None):
        raise bad_request(f"{kind.kind}: metadata must be an object, not {type(metadata).__name__}")
    named = {"apiVersion": kind.api_version, "kind": kind.kind}
    return {**named, **obj, **named, "metadata": dict(metadata or {})}


class Writer:
    """Creates and updates objects, one synchronous step each."""

    def __init__(self, registry: Registry, store: Store, clock: Clock, quotas: Quotas) -> None:
        self._registry = registry
        self._store = store
        self._clock = clock
        self._quotas = quotas

    def create(self, kind: Kind, namespace: str, given: Any, options: Options) -> Json:
        """Store a new object.

        :raises StatusError: 400, 403, 404 (its namespace), 409 or 422
        """
        obj = identify(kind, given)
        metadata = obj["metadata"]
        self._place(kind, namespace, metadata)
        self._name(kind, namespace, metadata)
        if kind.status and kind.kind != "Node":
            obj.pop("status", None)
        obj = self._conform(kind, obj, options)
        rules = rules_of(kind)
        rules.default(obj)
        causes = [*meta.faults(kind, obj["metadata"]), *rules.check(obj)]
        self._refuse(kind, obj, causes)
        meta.begin(kind, obj["metadata"], self._clock.now())
        self._refuse(kind, obj, rules.create(obj, self))
        self._admit_namespace(kind, namespace, obj["metadata"]["name"])
        self._quotas.admit(kind, obj)
        if self._store.get(kind, namespace, obj["metadata"]["name"]) is not None:
            raise already_exists(kind, obj["metadata"]["name"])
        return obj if options.dry_run else self._store.put(kind, obj).obj

    def update(
        self,
        record: Record,
        given: Any,
        options: Options,
        *,
        status: bool = False,
        unconditional: bool = True,
    ) -> Json:
        """Store a new version of an object; its last finalizer's removal may also end it.

        :param status: change the status alone; otherwise the status stays as it is
        :param unconditional: whether ``given`` needs no resourceVersion
        :raises StatusError: 400, 409 or 422
        """
        kind, old = record.kind, record.obj
        new = identify(kind, given)
        self._same_object(record, new["metadata"], unconditional)
        meta.carry_over(kind, old["metadata"], new["metadata"])
        new = self._conform(kind, self._isolated(kind, old, new, status), options)
        if not status:
            self._check_update(kind, old, new)
        if kind.generation and not status and _wanted(old) != _wanted(new):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if new == old:
            return old
        if options.dry_run:
            return new
        return self._keep_or_end(record, new)

    def _keep_or_end(self, record: Record, new: Json) -> Json:
        if is_over(record.kind, new):
            return self._store.remove(record, new).obj
        return self._store.put(record.kind, new).obj

    def _check_update(self, kind: Kind, old: Json, new: Json) -> None:
        rules = rules_of(kind)
        rules.default(new)
        causes = [
            *meta.faults(kind, new["metadata"]),
            *meta.deletion_faults(old["metadata"], new["metadata"]),
            *rules.check(new),
            *rules.check_update(old, new),
        ]
        self._refuse(kind, new, causes)

    def _place(self, kind: Kind, namespace: str, metadata: Json) -> None:
        given = metadata.get("namespace") or namespace
        if given != namespace:
            text = f"the namespace of the provided object does not match the namespace sent on the request: {given!r}"
            raise bad_request(text)
        if kind.namespaced:
            metadata["namespace"] = namespace
        else:
            metadata.pop("namespace", None)

    def _name(self, kind: Kind, namespace: str, metadata: Json) -> None:
        prefix = metadata.get("generateName")
        if metadata.get("name") or not prefix or not isinstance(prefix, str):
            return
        for _ in range(_GENERATE_TRIES):
            metadata["name"] = meta.generated_name(prefix)
            if self._store.get(kind, namespace, metadata["name"]) is None:
                return

    def _same_object(self, record: Record, metadata: Json, unconditional: bool) -> None:
        kind = record.kind
        for name, stored in (("name", record.name), ("namespace", record.namespace)):
            given = metadata.setdefault(name, stored) if stored else metadata.get(name, "")
            if given != stored:
                text = f"the {name} of the object ({given}) does not match the {name} on the URL ({stored})"
                raise bad_request(text)
        version = metadata.get("resourceVersion")
        if not version and not unconditional:
            text = "must be specified for an update"
            raise invalid(kind, record.name, [wrong("metadata.resourceVersion", "0x0", text)])
        if version and version != record.obj["metadata"]["resourceVersion"]:
            raise conflict(kind, record.name)

    @staticmethod
    def _isolated(kind: Kind, old: Json, new: Json, status: bool) -> Json:
        """What of ``new`` counts: everything but the status, or nothing but the status."""
        if status:
            metadata = (
                old["metadata"] if kind.custom else {**old["metadata"], **_open_metadata(new["metadata"])}
            )
            return _with_status({**old, "metadata": metadata}, new.get("status"))
        return _with_status(new, old.get("status")) if kind.status else new

    def _conform(self, kind: Kind, obj: Json, options: Options) -> Json:
        head = _metadata_conformer().conform(obj["metadata"], "metadata")
        verdict = _conformer(kind).conform({**obj, "metadata": {}})
        causes, unknown = [*head.causes, *verdict.causes], [*head.unknown, *verdict.unknown]
        if (head.mistyped or verdict.mistyped) and not kind.custom:
            problems = "; ".join(map(str, causes))
            text = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {problems}'
            raise bad_request(text)
        self._refuse(kind, obj, causes)
        self._unknown_fields(kind, unknown, options)
        made: Json = verdict.value
        made["metadata"] = head.value
        return made

    @staticmethod
    def _unknown_fields(kind: Kind, unknown: list[str], options: Options) -> None:
        texts = [f'unknown field "{path}"' for path in unknown]
        if not texts or options.field_validation == "Ignore":
            return
        if options.field_validation == "Strict":
            text = f"strict decoding error: {', '.join(texts)}"
            raise bad_request(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {text}'
            )
        options.warnings.extend(texts)

    @staticmethod
    def _refuse(kind: Kind, obj: Json, causes: Iterable[Cause]) -> None:
        found = list(causes)
        if found:
            raise invalid(kind, obj["metadata"].get("name", ""), found)

    def _admit_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        if not kind.namespaced:
            return
        namespaces = self._registry.core("namespaces")
        found = self._store.get(namespaces, "", namespace)
        if found is None:
            raise not_found(namespaces, namespace)
        if "deletionTimestamp" in found.obj["metadata"]:
            text = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise forbidden(kind, name, text)

    def priority_class(self, name: str) -> Json | None:
        """See :class:`~airflow_kftrain.local.apiserver.rules.World`."""
        kind = self._registry.at("scheduling.k8s.io", "v1", "priorityclasses")
        if kind is None:
            return None
        if name:
            found = self._store.get(kind, "", name)
            return found.obj if found else None
        defaults = [r.obj for r in self._store.list(kind) if r.obj.get("globalDefault")]
        return max(defaults, key=lambda priority: priority["value"], default=None)

    def service_addresses(self) -> set[str]:
        """See :class:`~airflow_kftrain.local.apiserver.rules.World`."""
        services = self._store.list(self._registry.core("services"))
        return {r.obj["spec"].get("clusterIP", "") for r in services} - {"", "None"}


def is_over(kind: Kind, obj: Json) -> bool:
    """Whether nothing holds an object that is being deleted any longer."""
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    if kind.kind == "Namespace" and not kind.custom:
        return not obj.get("spec", {}).get("finalizers")
    return not metadata.get("deletionGracePeriodSeconds")


def _wanted(obj: Json) -> Json:
    return {name: value for name, value in obj.items() if name not in ("metadata", "status")}


def _with_status(obj: Json, status: Any) -> Json:
    rest = {name: value for name, value in obj.items() if name != "status"}
    return rest if status is None else {**rest, "status": status}


def _open_metadata(metadata: Json) -> Json:
    return {name: metadata[name] for name in ("labels", "annotations") if name in metadata}


__all__ = ["Options", "Writer", "identify", "is_over", "object_schema"]
