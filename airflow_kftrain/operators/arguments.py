"""From an operator's arguments to a job manifest; pure, so that a wrong argument is found when the DAG is parsed."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs.frameworks import Framework
from airflow_kftrain.jobs.resources import parse_quantity

GPU = "nvidia.com/gpu"
_DEVICE = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-\w.]*[A-Za-z0-9])?", re.ASCII)
REPLICA_FIELDS = (
    "replicas",
    "image",
    "command",
    "args",
    "env",
    "gpus",
    "cpu",
    "memory",
    "restart_policy",
    "template",
)


@dataclass(frozen=True)
class Arguments:
    """What an operator was given, after rendering (see :mod:`.training_job` for what each means).

    :param counts: replica type to number, in the framework's own words
    :param replicas: replica type to what differs there
    :param options: fields under ``spec`` that only the kind has, as manifests write them
    """

    framework: Framework
    image: Any = None
    command: Any = None
    args: Any = None
    env: Any = None
    gpus: Any = None
    cpu: Any = None
    memory: Any = None
    counts: Mapping[str, Any] = field(default_factory=dict)
    replicas: Mapping[str, Any] = field(default_factory=dict)
    run_policy: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def build(arguments: Arguments) -> dict[str, Any]:
    """The manifest, without metadata, that the arguments stand for.

    :raises InvalidInput: an argument cannot be used; the error names it as it was written
    """
    framework = arguments.framework
    overrides = _overrides(framework, arguments.replicas)
    counts = {name: count for name, count in arguments.counts.items() if count is not None}
    for name, override in overrides.items():
        if "replicas" in override or name not in counts:
            counts[name] = override.get("replicas", 1)
    replica_specs = {
        name: _replica_spec(arguments, name, counts[name], overrides.get(name, {}))
        for name in framework.ordered(counts)
    }
    spec: dict[str, Any] = {framework.replica_specs_field: replica_specs, **arguments.options}
    if arguments.run_policy:
        spec["runPolicy"] = as_json("run_policy", arguments.run_policy)
    return {"apiVersion": framework.api_version, "kind": framework.kind, "spec": spec}


def whole(name: str, value: Any, *, least: int = 1) -> int:
    """``value`` as a whole number; text of digits (a rendered template) is one. :raises InvalidInput: it is none"""
    number = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
    if isinstance(number, bool) or not isinstance(number, int):
        raise InvalidInput(name, value, "give a whole number")
    if number < least:
        raise InvalidInput(name, value, f"give {least} or more")
    return number


def as_json(name: str, value: Any) -> Any:
    """A copy of ``value`` in plain JSON types; models of the ``kubernetes`` client become their API form.

    :raises InvalidInput: something in it is no JSON
    """
    if hasattr(value, "attribute_map") and hasattr(value, "to_dict"):
        from kubernetes.client import ApiClient

        return as_json(name, ApiClient().sanitize_for_serialization(value))
    if isinstance(value, Mapping):
        return {str(key): as_json(f"{name}.{key}", item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [as_json(f"{name}[{n}]", item) for n, item in enumerate(value)]
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise InvalidInput(
            name, value, "give what JSON can hold: text, numbers, booleans, lists, mappings"
        ) from None
    return copy.copy(value)


def _overrides(framework: Framework, given: Any) -> dict[str, Mapping[str, Any]]:
    """What differs, by replica type."""
    if not isinstance(given, Mapping):
        raise InvalidInput("replicas", given, "give a mapping of replica types to Replica(...)")
    found: dict[str, Mapping[str, Any]] = {}
    for name, override in given.items():
        replica_type = _replica_type(framework, name)
        if replica_type in found:
            raise InvalidInput("replicas", name, f"{replica_type} is there already; give it once")
        if not isinstance(override, Mapping):
            raise InvalidInput(f"replicas.{replica_type}", override, "give a Replica(...) or a mapping")
        found[replica_type] = override
    return found


def _replica_type(framework: Framework, given: str) -> str:
    found = framework.replica_type(str(given))
    if found is None:
        raise InvalidInput(
            "replicas",
            given,
            f"a {framework.kind} has no such replica type; it has {', '.join(framework.replica_types)}",
        )
    return found


def _replica_spec(arguments: Arguments, name: str, count: Any, override: Mapping[str, Any]) -> dict[str, Any]:
    where = f"replicas.{name}"
    for unknown in set(override).difference(REPLICA_FIELDS):
        raise InvalidInput(
            f"{where}.{unknown}", override[unknown], f"give one of {', '.join(REPLICA_FIELDS)}"
        )
    spec: dict[str, Any] = {
        "replicas": whole(_count_field(arguments, name, override), count),
        "template": _template(arguments, where, override),
    }
    if override.get("restart_policy") is not None:
        spec["restartPolicy"] = override["restart_policy"]
    return spec


def _count_field(arguments: Arguments, name: str, override: Mapping[str, Any]) -> str:
    """How the person wrote the number of this replica type."""
    if "replicas" in override or name not in arguments.counts:
        return f"replicas.{name}.replicas"
    return {"Worker": "workers"}.get(name, name.lower())


def _template(arguments: Arguments, where: str, override: Mapping[str, Any]) -> dict[str, Any]:
    given_template = {"template": as_json(f"{where}.template", override.get("template"))}
    template = _mapping(given_template, "template", where)
    container, place = _training_container(template, arguments.framework.container, f"{where}.template")

    def given(name: str) -> tuple[str, Any]:
        if override.get(name) is not None:
            return f"{where}.{name}", override[name]
        return name, getattr(arguments, name)

    _fill_image(container, *given("image"))
    for name in ("command", "args"):
        field_name, value = given(name)
        if value is not None:
            container[name] = _words(field_name, value)
    _fill_env(container, place, ("env", arguments.env), (f"{where}.env", override.get("env")))
    _fill_resources(container, place, given("gpus"), given("cpu"), given("memory"))
    return template


def _training_container(template: dict[str, Any], name: str, where: str) -> tuple[dict[str, Any], str]:
    """The container of a pod template that trains, put first when there is none; and its place."""
    containers = _mappings(_mapping(template, "spec", where), "containers", f"{where}.spec")
    named = next((n for n, container in enumerate(containers) if container.get("name") == name), None)
    if named is None:
        containers.insert(0, {"name": name})
    return containers[named or 0], f"{where}.spec.containers[{named or 0}]"


def _mapping(holder: dict[str, Any], name: str, where: str) -> dict[str, Any]:
    """What ``holder`` has under ``name``, made there when it is absent or null."""
    if holder.get(name) is None:
        holder[name] = {}
    if not isinstance(holder[name], dict):
        raise InvalidInput(f"{where}.{name}", holder[name], "give a mapping of names to values")
    held: dict[str, Any] = holder[name]
    return held


def _mappings(holder: dict[str, Any], name: str, where: str) -> list[dict[str, Any]]:
    """The list of mappings that ``holder`` has under ``name``, made there when it is absent or null."""
    if holder.get(name) is None:
        holder[name] = []
    if not isinstance(holder[name], list) or not all(isinstance(item, dict) for item in holder[name]):
        raise InvalidInput(f"{where}.{name}", holder[name], "give a list of mappings")
    held: list[dict[str, Any]] = holder[name]
    return held


def _fill_image(container: dict[str, Any], name: str, value: Any) -> None:
    if value is not None:
        container["image"] = value
    image = container.get("image")
    if not isinstance(image, str) or not image.strip():
        raise InvalidInput(name, image, "name the container image to run")
    if len(image.split()) > 1 or image != image.strip():
        raise InvalidInput(name, image, "the name of an image has no white space")


def _words(name: str, value: Any) -> list[str]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise InvalidInput(name, value, "give a list of words, for instance ['python', 'train.py']")
    for n, word in enumerate(value):
        if word is None or isinstance(word, Mapping | list | tuple | bytes):
            raise InvalidInput(f"{name}[{n}]", word, "give a word: text or a number")
    return [str(word) for word in value]


def _fill_env(container: dict[str, Any], place: str, *given: tuple[str, Any]) -> None:
    """Add to the container's environment; a later value of the same name wins."""
    if all(value is None for _, value in given):
        return
    merged: dict[str, dict[str, Any]] = {}
    for name, value in ((f"{place}.env", container.get("env")), *given):
        if value is not None:
            merged |= {entry["name"]: entry for entry in _env(name, value)}
    container["env"] = list(merged.values())


def _env(name: str, value: Any) -> list[dict[str, Any]]:
    if isinstance(value, Mapping):
        return [
            {"name": _env_name(name, key), "value": _env_value(f"{name}.{key}", item)}
            for key, item in value.items()
        ]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_env_var(f"{name}[{n}]", entry) for n, entry in enumerate(as_json(name, value))]
    raise InvalidInput(name, value, "give a mapping of names to values, or a list of Kubernetes EnvVars")


def _env_var(where: str, entry: Any) -> dict[str, Any]:
    if not isinstance(entry, dict) or not entry.get("name"):
        raise InvalidInput(where, entry, "give a Kubernetes EnvVar: a mapping with a name")
    _env_name(where, entry["name"])
    if entry.get("value") is None:
        return entry
    return {**entry, "value": _env_value(f"{where}.value", entry["value"])}


def _env_name(where: str, name: Any) -> str:
    """Kubernetes' rule for the name of a variable."""
    if not isinstance(name, str) or not name or "=" in name or not (name.isascii() and name.isprintable()):
        raise InvalidInput(where, name, "name a variable with printable ASCII characters other than '='")
    return name


def _env_value(name: str, value: Any) -> str:
    if value is None:
        raise InvalidInput(name, value, "give a value, or leave the variable out")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    return json.dumps(as_json(name, value))


def _fill_resources(container: dict[str, Any], place: str, *given: tuple[str, Any]) -> None:
    """Requests for all, and limits as well for GPUs, which Kubernetes wants equal."""
    (gpus_name, gpus), (cpu_name, cpu), (memory_name, memory) = given
    devices = _devices(gpus_name, gpus)
    requests: dict[str, Any] = dict(devices)
    for resource, name, value in (("cpu", cpu_name, cpu), ("memory", memory_name, memory)):
        if value is not None:
            parse_quantity(value, field=name)
            requests[resource] = str(value)
    if not requests:
        return
    resources = _mapping(container, "resources", place)
    _mapping(resources, "requests", f"{place}.resources").update(requests)
    if devices:
        _mapping(resources, "limits", f"{place}.resources").update(devices)


def _devices(name: str, value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, Mapping):
        for kind in value:
            if not isinstance(kind, str) or not _DEVICE.fullmatch(kind):
                raise InvalidInput(name, kind, f"name a resource with its domain, such as {GPU!r}")
        return {kind: str(whole(f"{name}.{kind}", count)) for kind, count in value.items()}
    number = whole(name, value, least=0)
    return {GPU: str(number)} if number else {}
