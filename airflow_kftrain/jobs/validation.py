"""Whether a training job can run as it is written; each fault is one :class:`InvalidInput` that names its path."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs import identity
from airflow_kftrain.jobs.fields import nearest, read_mapping, read_record, shapes, write_record
from airflow_kftrain.jobs.frameworks import Framework
from airflow_kftrain.jobs.pod_fields import unknown_pod_fields
from airflow_kftrain.jobs.resources import Resources, is_whole_unit
from airflow_kftrain.jobs.spec import ReplicaSpec, RunPolicy, SchedulingPolicy, TrainingJobSpec

_LABEL_NAME = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)")
_LABEL_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_DNS_1123 = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def check(spec: TrainingJobSpec) -> None:
    """Check everything that can be known without a cluster.

    :raises InvalidInput: the first fault found
    """
    kind = spec.framework
    check_metadata(spec)
    for replica_type, replica in spec.replicas.items():
        check_replica(kind, replica_type, replica)
    read_record(type(spec.run_policy), write_record(spec.run_policy), "spec.runPolicy")
    read_record(kind.options, write_record(spec.options), "spec")
    kind.check_replicas(spec.counts, spec.options)
    _check_min_available(spec)
    _check_name_fits(spec)


def check_metadata(spec: TrainingJobSpec) -> None:
    """Check name, namespace, labels and annotations.

    :raises InvalidInput: one of them would be refused by the API server
    """
    if spec.name is not None:
        identity.check_dns_label(spec.name, field="metadata.name")
    if spec.namespace is not None and not _DNS_1123.fullmatch(spec.namespace):
        raise InvalidInput(
            "metadata.namespace", spec.namespace, "use at most 63 lower-case letters, digits and inner '-'"
        )
    for name, value in spec.labels.items():
        _check_key(name, f"metadata.labels.{name}")
        if value and not _LABEL_NAME.fullmatch(value):
            raise InvalidInput(
                f"metadata.labels.{name}",
                value,
                "use at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
            )
    for name in spec.annotations:
        _check_key(name, f"metadata.annotations.{name}")


def check_replica(kind: Framework, replica_type: str, replica: ReplicaSpec) -> None:
    """Check the replicas of one type: that the kind has it, its number, its policy, its pod template.

    :raises InvalidInput: the first fault found
    """
    where = f"spec.{kind.replica_specs_field}.{replica_type}"
    if replica_type not in kind.replica_types:
        raise unknown_replica_type(kind, replica_type, replica.replicas)
    read_record(ReplicaSpec, write_record(replica), where)
    if replica.replicas > identity.LARGEST_INDEX + 1:
        raise InvalidInput(
            f"{where}.replicas", replica.replicas, f"give at most {identity.LARGEST_INDEX + 1}"
        )
    _check_template(kind, replica.template, f"{where}.template")


def unknown_replica_type(kind: Framework, given: str, value: object) -> InvalidInput:
    """The error for a replica type that the kind does not have."""
    near = nearest(given, kind.replica_types)
    hint = f"did you mean {near}? " if near else ""
    return InvalidInput(
        f"spec.{kind.replica_specs_field}.{given}",
        value,
        f"{kind.kind} has no such replica type; {hint}it has {', '.join(kind.replica_types)}",
    )


def places(kind: Framework) -> dict[str, str]:
    """The fields of a job: name to the path where each belongs."""
    records: dict[str, type[Any]] = {
        f"spec.{kind.replica_specs_field}.{kind.first(())}": ReplicaSpec,
        "spec.runPolicy.schedulingPolicy": SchedulingPolicy,
        "spec.runPolicy": RunPolicy,
        "spec": kind.options,
    }
    found = {name: f"{path}.{name}" for path, record in records.items() for name in shapes(record)}
    return {**found, **{name: f"spec.{name}" for name in ("runPolicy", kind.replica_specs_field)}}


def concerns(spec: TrainingJobSpec) -> list[str]:
    """What is likely a mistake and yet no error, one sentence each; to be shown once as warnings."""
    return [*_unknown_pod_fields(spec), *_evaluator_cut_short(spec)]


def _unknown_pod_fields(spec: TrainingJobSpec) -> Iterator[str]:
    found = [
        text
        for replica_type, replica in spec.replicas.items()
        for text in unknown_pod_fields(
            replica.template,
            f"spec.{spec.framework.replica_specs_field}.{replica_type}.template",
            places(spec.framework),
        )
    ]
    if found:
        yield f"Kubernetes may drop what it does not know: {'; '.join(found)}"


def _evaluator_cut_short(spec: TrainingJobSpec) -> Iterator[str]:
    policy = spec.run_policy.clean_pod_policy
    if "Evaluator" in spec.replicas and policy in ("Running", "All"):
        yield (
            f"the Evaluator is killed in the middle of its work when the job has finished, since cleanPodPolicy is "
            f"{policy}; set spec.runPolicy.cleanPodPolicy to None to keep it"
        )


def _check_key(name: str, field: str) -> None:
    prefix, slash, rest = name.rpartition("/")
    if (slash and not _LABEL_PREFIX.fullmatch(prefix)) or not _LABEL_NAME.fullmatch(rest):
        raise InvalidInput(
            field,
            name,
            "name it 'word' or 'domain/word': at most 63 letters, digits, '-', '_' and '.' a word",
        )


def _check_min_available(spec: TrainingJobSpec) -> None:
    if spec.min_available > spec.total:
        raise InvalidInput(
            "spec.runPolicy.schedulingPolicy.minAvailable",
            spec.min_available,
            f"the gang has {spec.total} replicas and would wait for ever; give at most that",
        )


def _check_name_fits(spec: TrainingJobSpec) -> None:
    if spec.name is None:
        return
    longest = max(
        (identity.pod_name(spec.name, t, count - 1) for t, count in spec.counts.items()),
        key=len,
    )
    if len(longest) > identity.LONGEST_LABEL:
        room = identity.LONGEST_LABEL - (len(longest) - len(spec.name))
        raise InvalidInput(
            "metadata.name",
            spec.name,
            f"it has {len(spec.name)} characters; give at most {room}, so that its pod {longest} "
            f"has a name of at most {identity.LONGEST_LABEL}",
        )


def _check_template(kind: Framework, template: Mapping[str, Any], where: str) -> None:
    pod = read_mapping(template.get("spec"), f"{where}.spec")
    path = f"{where}.spec.containers"
    names = [container.get("name") for container in _containers(pod, "containers", f"{where}.spec")]
    if kind.container not in names:
        raise InvalidInput(
            path, names, f"the container that trains must be named {kind.container!r}; name one of them so"
        )
    for field in ("initContainers", "containers"):
        for n, container in enumerate(_containers(pod, field, f"{where}.spec")):
            _check_container(container, f"{where}.spec.{field}[{n}]")


def _containers(pod: Mapping[str, Any], field: str, where: str) -> list[dict[str, Any]]:
    found = pod.get(field) or []
    if not isinstance(found, list | tuple):
        raise InvalidInput(f"{where}.{field}", found, "give a list of containers")
    return [read_mapping(container, f"{where}.{field}[{n}]") for n, container in enumerate(found)]


def _check_container(container: Mapping[str, Any], where: str) -> None:
    if not container.get("image"):
        raise InvalidInput(f"{where}.image", container.get("image"), "name the image to run")
    resources = read_mapping(container.get("resources") or {}, f"{where}.resources")
    amounts = {
        kind: Resources(
            read_mapping(resources.get(kind) or {}, f"{where}.resources.{kind}"),
            field=f"{where}.resources.{kind}",
        )
        for kind in ("limits", "requests")
    }
    _check_requests(amounts["requests"], amounts["limits"], f"{where}.resources.requests")


def _check_requests(requests: Resources, limits: Resources, where: str) -> None:
    """A request is at most its limit; what cannot be shared (GPUs) is limited to just what is requested."""
    for name in requests:
        shown = requests.to_dict()[name]
        if is_whole_unit(name) and requests.amount(name) != limits.amount(name):
            raise InvalidInput(f"{where}.{name}", shown, "give the same amount under limits")
        if name in limits and requests.amount(name) > limits.amount(name):
            raise InvalidInput(
                f"{where}.{name}",
                shown,
                f"it is above its limit ({limits.to_dict()[name]}); change one of them",
            )
