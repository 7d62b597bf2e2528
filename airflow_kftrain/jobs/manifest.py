"""Specs to manifests and back: ``from_manifest(to_manifest(spec)) == spec``."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs import identity
from airflow_kftrain.jobs.fields import (
    ListOf,
    Text,
    Texts,
    UnknownField,
    Untouched,
    declared,
    read_mapping,
    read_record,
    shapes,
    write_record,
)
from airflow_kftrain.jobs.frameworks import FRAMEWORKS, Framework, framework
from airflow_kftrain.jobs.spec import ReplicaSpec, RunPolicy, TrainingJobSpec
from airflow_kftrain.jobs.validation import check, concerns, places, unknown_replica_type

# What an API server adds; a manifest copied from a live object holds it, and it says nothing about the job.
_SERVER_METADATA = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "managedFields",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)


class ManifestWarning(UserWarning):
    """Something in a manifest is likely a mistake, and yet no error."""


@dataclass(frozen=True, slots=True)
class _Metadata:
    name: str | None = declared("name", Text())
    generate_name: str | None = declared("generateName", Text())
    namespace: str | None = declared("namespace", Text())
    labels: Mapping[str, str] | None = declared("labels", Texts())
    annotations: Mapping[str, str] | None = declared("annotations", Texts())
    finalizers: tuple[str, ...] | None = declared("finalizers", ListOf(Text()))
    owner_references: tuple[dict[str, Any], ...] | None = declared("ownerReferences", ListOf(Untouched()))


def to_manifest(spec: TrainingJobSpec) -> dict[str, Any]:
    """The Kubernetes object of ``spec``; it shares nothing with it.

    :raises InvalidInput: the job cannot run as it is written
    """
    check(spec)
    metadata = _Metadata(
        name=spec.name,
        namespace=spec.namespace,
        labels=spec.labels or None,
        annotations=spec.annotations or None,
        finalizers=spec.finalizers or None,
        owner_references=tuple(map(dict, spec.owner_references)) or None,
    )
    run_policy = write_record(spec.run_policy)
    return {
        "apiVersion": spec.framework.api_version,
        "kind": spec.kind,
        "metadata": write_record(metadata),
        "spec": {
            **({"runPolicy": run_policy} if run_policy else {}),
            **write_record(spec.options),
            spec.framework.replica_specs_field: {t: write_record(spec.replicas[t]) for t in spec.counts},
        },
    }


def from_manifest(manifest: Mapping[str, Any] | str, *, warn: bool = True) -> TrainingJobSpec:
    """The checked spec of a manifest, which may be an object read from a cluster.

    ``generateName`` alone gives the name without its last hyphens. Replica types are known in any case.
    ``status`` and what API servers add to the metadata are left out.

    :param manifest: mapping, or YAML (or JSON) text of one document
    :param warn: issue a :class:`ManifestWarning` for each concern, all unknown pod fields in one
    :raises InvalidInput: a field is unknown at job level, holds what it must not, or the job cannot run
    """
    if isinstance(manifest, str):
        from airflow_kftrain.jobs.yaml_text import load_yaml

        manifest = load_yaml(manifest)
    given = read_mapping(manifest, "")
    kind = _kind(given)
    try:
        spec = _read(kind, given)
    except UnknownField as error:
        raise _placed(error, kind) from None
    check(spec)
    if warn:
        for concern in concerns(spec):
            warnings.warn(concern, ManifestWarning, stacklevel=2)
    return spec


def _kind(given: Mapping[str, Any]) -> Framework:
    for name in ("apiVersion", "kind"):
        if not isinstance(given.get(name), str):
            raise InvalidInput(name, given.get(name), "a manifest must say it")
    kind = framework(given["kind"])
    if given["apiVersion"] != kind.api_version:
        raise InvalidInput("apiVersion", given["apiVersion"], f"{kind.kind} is of {kind.api_version}")
    return kind


def _read(kind: Framework, given: dict[str, Any]) -> TrainingJobSpec:
    known = ("apiVersion", "kind", "metadata", "spec", "status")
    for name in given:
        if name not in known:
            raise UnknownField(name, given[name], known[:-1])
    metadata = _read_metadata(given.get("metadata") or {})
    spec = read_mapping(given.get("spec"), "spec")
    replicas, run_policy = spec.pop(kind.replica_specs_field, None), spec.pop("runPolicy", None)
    options = _read_options(kind, spec)  # first: a misspelt name is not a missing one
    return TrainingJobSpec(
        kind=kind.kind,
        replicas=_read_replicas(kind, replicas),
        name=_name(metadata),
        namespace=metadata.namespace,
        labels=metadata.labels or {},
        annotations=metadata.annotations or {},
        run_policy=read_record(RunPolicy, run_policy or {}, "spec.runPolicy"),
        options=options,
        finalizers=metadata.finalizers or (),
        owner_references=metadata.owner_references or (),
    )


def _read_metadata(given: Any) -> _Metadata:
    kept = {n: v for n, v in read_mapping(given, "metadata").items() if n not in _SERVER_METADATA}
    return read_record(_Metadata, kept, "metadata")


def _name(metadata: _Metadata) -> str | None:
    if metadata.name is not None:
        return metadata.name
    if metadata.generate_name is None:
        return None
    return identity.check_prefix(metadata.generate_name, field="metadata.generateName")


def _read_replicas(kind: Framework, given: Any) -> dict[str, ReplicaSpec]:
    where = f"spec.{kind.replica_specs_field}"
    if given is None:
        raise InvalidInput(where, given, f"give at least one of {', '.join(kind.replica_types)}")
    found: dict[str, ReplicaSpec] = {}
    for name, value in read_mapping(given, where).items():
        replica_type = kind.replica_type(name)
        if replica_type is None:
            raise unknown_replica_type(kind, name, value)
        if replica_type in found:
            raise InvalidInput(f"{where}.{name}", value, f"{replica_type} is there already; give it once")
        found[replica_type] = read_record(ReplicaSpec, value, f"{where}.{name}")
    return found


def _read_options(kind: Framework, spec: dict[str, Any]) -> Any:
    try:
        return read_record(kind.options, spec, "spec")
    except UnknownField as error:
        if error.field.count(".") > 1:
            raise
        known = (kind.replica_specs_field, "runPolicy", *shapes(kind.options))
        raise UnknownField(error.field, error.value, known) from None


def _placed(error: UnknownField, kind: Framework) -> InvalidInput:
    """The error with the place where a field of that name belongs, if there is one."""
    place = places(kind).get(error.name)
    if place is not None:
        return InvalidInput(error.field, error.value, f"it belongs at {place}; move it there")
    other = next((f.kind for f in FRAMEWORKS.values() if error.name in places(f)), None)
    if other is not None:
        return InvalidInput(error.field, error.value, f"only {other} has it; take it out")
    return error
