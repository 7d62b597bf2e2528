"""The resource API: one method of one target, from a parsed request to a plain answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_kftrain.clock import Clock
from airflow_kftrain.local.apiserver.apply import applied
from airflow_kftrain.local.apiserver.deletes import DeleteOptions, Deleter
from airflow_kftrain.local.apiserver.errors import (
    bad_request,
    conflict,
    invalid,
    method_not_allowed,
    no_such_path,
    not_found,
    required,
)
from airflow_kftrain.local.apiserver.kinds import Kind
from airflow_kftrain.local.apiserver.patch import APPLY_PATCH, patched
from airflow_kftrain.local.apiserver.reads import flag
from airflow_kftrain.local.apiserver.scale import scale_of, scaled
from airflow_kftrain.local.apiserver.selectors import selection
from airflow_kftrain.local.apiserver.store import Json, Record, Store
from airflow_kftrain.local.apiserver.targets import Target
from airflow_kftrain.local.apiserver.writes import Options, Writer, identify

_VALIDATIONS = ("", "Ignore", "Warn", "Strict")


@dataclass(frozen=True)
class Call:
    """One request, decoded."""

    method: str
    target: Target
    query: Mapping[str, str]
    content_type: str = ""
    body: Any = None


@dataclass
class Answer:
    """What a call is answered with."""

    obj: Json
    code: int = 200
    warnings: list[str] = field(default_factory=list)


class Resources:
    """Answers every call but lists, watches and logs; each in one synchronous step."""

    def __init__(self, store: Store, writer: Writer, deleter: Deleter, clock: Clock) -> None:
        self._store = store
        self._writer = writer
        self._deleter = deleter
        self._clock = clock
        self._methods: dict[str, Callable[[Call, Options], Answer]] = {
            "GET": self._get,
            "POST": self._post,
            "PUT": self._put,
            "PATCH": self._patch,
            "DELETE": self._delete,
        }

    def answer(self, call: Call) -> Answer:
        """:raises StatusError: whatever the API server would refuse"""
        method = self._methods.get(call.method)
        if method is None:
            raise method_not_allowed()
        options = _options(call)
        answer = method(call, options)
        answer.warnings = options.warnings
        return answer

    def record(self, target: Target) -> Record:
        """:raises StatusError: 404"""
        found = self._store.get(target.kind, target.space, target.name)
        if found is None:
            raise not_found(target.kind, target.name)
        return found

    def _get(self, call: Call, _: Options) -> Answer:
        record = self.record(call.target)
        match call.target.subresource:
            case "" | "status":
                return Answer(record.obj)
            case "scale" if record.kind.scale:
                return Answer(scale_of(record, record.kind.scale))
        raise no_such_path(call.target.subresource)

    def _post(self, call: Call, options: Options) -> Answer:
        target = call.target
        if target.subresource in ("binding", "eviction") and _is_pod(target.kind):
            act = self._bind if target.subresource == "binding" else self._evict
            return act(self.record(target), call, options)
        if target.name:
            raise method_not_allowed()
        if target.kind.namespaced and target.namespace is None:
            raise bad_request("an empty namespace may not be set during creation")
        return Answer(self._writer.create(target.kind, target.space, call.body, options), 201)

    def _put(self, call: Call, options: Options) -> Answer:
        self._must_have_name(call)
        record = self.record(call.target)
        return self._write(record, call, call.body, options, unconditional=not record.kind.custom)

    def _patch(self, call: Call, options: Options) -> Answer:
        self._must_have_name(call)
        if call.content_type == APPLY_PATCH:
            return self._apply(call, options)
        record = self.record(call.target)
        kind = record.kind
        if call.target.subresource == "scale" and kind.scale:
            given = patched(kind, call.content_type, scale_of(record, kind.scale), call.body)
        else:
            given = patched(kind, call.content_type, record.copy(), call.body)
        return self._write(record, call, given, options)

    def _write(
        self, record: Record, call: Call, given: Any, options: Options, *, unconditional: bool = True
    ) -> Answer:
        kind = record.kind
        match call.target.subresource:
            case "":
                return Answer(self._writer.update(record, given, options, unconditional=unconditional))
            case "status" if kind.status:
                new = self._writer.update(record, given, options, status=True, unconditional=unconditional)
                return Answer(new)
            case "scale" if kind.scale:
                self._writer.update(record, scaled(kind, record, kind.scale, given), options)
                return Answer(scale_of(self.record(call.target), kind.scale))
            case "finalize" if kind.kind == "Namespace":
                return Answer(self._writer.update(record, given, options))
        raise no_such_path(call.target.subresource)

    def _apply(self, call: Call, options: Options) -> Answer:
        target = call.target
        if not options.manager:
            raise bad_request(
                "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required for apply patch"
            )
        config = identify(target.kind, call.body)
        record = self._store.get(target.kind, target.space, target.name)
        force, now = flag(call.query, "force"), self._clock.now()
        new = applied(target.kind, record.obj if record else None, config, options.manager, force, now)
        if record is not None:
            return self._write(record, call, new, options)
        if target.subresource:
            raise not_found(target.kind, target.name)
        if config["metadata"].get("name", target.name) != target.name:
            raise bad_request(
                f"metadata.name ({config['metadata']['name']}) does not match the URL ({target.name})"
            )
        new["metadata"]["name"] = target.name
        return Answer(self._writer.create(target.kind, target.space, new, options), 201)

    def _delete(self, call: Call, _: Options) -> Answer:
        asked = DeleteOptions.read(call.query, call.body)
        if call.target.name:
            if call.target.subresource:
                raise method_not_allowed()
            return Answer(self._deleter.delete(self.record(call.target), asked))
        return self._delete_all(call, asked)

    def _delete_all(self, call: Call, asked: DeleteOptions) -> Answer:
        kind, query = call.target.kind, call.query
        if kind.namespaced and call.target.namespace is None:
            raise method_not_allowed()
        matches = selection(kind, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        chosen = [r for r in self._store.list(kind, call.target.space) if not matches or matches(r.obj)]
        for record in chosen:
            self._deleter.delete(record, asked)
        metadata = {"resourceVersion": str(self._store.revision)}
        items = [record.obj for record in chosen]
        return Answer(
            {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": metadata, "items": items}
        )

    def _bind(self, record: Record, call: Call, options: Options) -> Answer:
        """Give a pod its node; only once, and only to a pod that is not ending."""
        body = call.body if isinstance(call.body, dict) else {}
        node = (body.get("target") or {}).get("name")
        if not node:
            raise invalid(record.kind, record.name, [required("target.name")])
        uid = (body.get("metadata") or {}).get("uid")
        new = record.copy()
        if uid and uid != new["metadata"]["uid"]:
            text = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {new['metadata']['uid']}"
            raise conflict(record.kind, record.name, text)
        if "deletionTimestamp" in new["metadata"]:
            raise conflict(
                record.kind, record.name, f"pod {record.name} is being deleted, cannot be assigned to a host"
            )
        if new["spec"].get("nodeName"):
            text = f'pod {record.name} is already assigned to node "{new["spec"]["nodeName"]}"'
            raise conflict(record.kind, record.name, text)
        if new["spec"].get("schedulingGates"):
            raise conflict(record.kind, record.name, f"pod {record.name} has non-empty .spec.schedulingGates")
        new["spec"]["nodeName"] = node
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
        conditions = [c for c in new["status"].get("conditions") or () if c.get("type") != "PodScheduled"]
        stamp = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        new["status"]["conditions"] = [*conditions, {**scheduled, "lastTransitionTime": stamp}]
        if not options.dry_run:
            self._store.put(record.kind, new)
        return Answer(
            {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201
        )

    def _evict(self, record: Record, call: Call, options: Options) -> Answer:
        """Delete a pod as drain does; there are no disruption budgets here."""
        body = call.body if isinstance(call.body, dict) else {}
        query = {"dryRun": "All"} if options.dry_run else {}
        self._deleter.delete(record, DeleteOptions.read(query, body.get("deleteOptions")))
        return Answer(
            {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201
        )

    @staticmethod
    def _must_have_name(call: Call) -> None:
        if not call.target.name:
            raise method_not_allowed()


def _options(call: Call) -> Options:
    query = call.query
    dry_run, validation = query.get("dryRun", ""), query.get("fieldValidation", "")
    if dry_run not in ("", "All"):
        raise bad_request(f'dryRun: Unsupported value: "{dry_run}": supported values: "All"')
    if validation not in _VALIDATIONS:
        raise bad_request(
            f'fieldValidation: Unsupported value: "{validation}": supported values: {_VALIDATIONS[1:]}'
        )
    return Options(bool(dry_run), validation or "Warn", query.get("fieldManager", ""))


def _is_pod(kind: Kind) -> bool:
    return kind.kind == "Pod" and not kind.custom


__all__ = ["Answer", "Call", "Resources"]
