"""Pods: defaults of ``k8s.io/kubernetes/pkg/apis/core/v1/defaults.go``, the checks that matter here, immutability."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from airflow_kftrain.jobs.resources import is_whole_unit, parse_quantity
from airflow_kftrain.local.apiserver.errors import (
    Cause,
    duplicate,
    forbidden_field,
    required,
    unsupported,
    wrong,
)
from airflow_kftrain.local.apiserver.metadata import container_name_fault
from airflow_kftrain.local.apiserver.rules.base import Json, Rules, World, unnull

_SYSTEM_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE_DEFAULTS = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_SPEC_DEFAULTS: Json = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "terminationGracePeriodSeconds": 30,
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
}
_FILE_SOURCES = ("configMap", "secret", "projected", "downwardAPI")
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_IMMUTABLE_TEXT = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def containers(spec: Json) -> Iterator[tuple[str, Json]]:
    """All containers with their paths, the init containers first."""
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or ()):
            yield f"spec.{group}[{index}]", container


def create(pod: Json, world: World) -> Iterator[Cause]:
    """Begin a pod's status and resolve its priority class."""
    spec = pod["spec"]
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        text = "Scheduling is blocked due to non-empty scheduling gates"
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": text}
        pod["status"]["conditions"] = [gated]
    name = spec.get("priorityClassName", "")
    found: Json | None = (
        {"value": _SYSTEM_PRIORITIES[name]} if name in _SYSTEM_PRIORITIES else world.priority_class(name)
    )
    if found is None and name:
        yield forbidden_field("spec.priorityClassName", f"no PriorityClass with name {name} was found")
        return
    found = found or {"value": 0}
    if not name and "metadata" in found:
        spec["priorityClassName"] = found["metadata"]["name"]
    if spec.setdefault("priority", found["value"]) != found["value"]:
        text = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority "
        )
        yield forbidden_field("spec.priority", f"{text}admission controller computed {found['value']}")
    spec.setdefault("preemptionPolicy", found.get("preemptionPolicy", "PreemptLowerPriority"))


def default(pod: Json) -> None:
    """Fill in what a pod leaves open."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return
    for name, value in _SPEC_DEFAULTS.items():
        spec.setdefault(name, value)
    unnull(spec, "securityContext")
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    for _, container in containers(spec):
        _default_container(container)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)


def _default_container(container: Json) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", _pull_policy(container.get("image", "")))
    resources = unnull(container, "resources")
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for env in container.get("env") or ():
        reference = (env.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")
    for probe in (container[name] for name in _PROBES if name in container):
        for name, value in _PROBE_DEFAULTS.items():
            probe.setdefault(name, value)


def _pull_policy(image: str) -> str:
    name, _, tag = image.rpartition("/")[2].partition(":")
    return "Always" if tag == "latest" or (not tag and "@" not in name) else "IfNotPresent"


def _default_volume(volume: Json) -> None:
    if not any(name != "name" for name in volume):
        volume["emptyDir"] = {}
    for name in _FILE_SOURCES:
        if isinstance(volume.get(name), dict):
            volume[name].setdefault("defaultMode", 0o644)
    if isinstance(volume.get("hostPath"), dict):
        volume["hostPath"].setdefault("type", "")


def qos_class(spec: Json) -> str:
    """``Guaranteed``, ``Burstable`` or ``BestEffort`` by requests and limits of cpu and memory."""
    amounts = [
        (resources.get("requests", {}).get(name), resources.get("limits", {}).get(name))
        for resources in (container.get("resources") or {} for _, container in containers(spec))
        for name in ("cpu", "memory")
    ]
    if all(request is None and limit is None for request, limit in amounts):
        return "BestEffort"
    guaranteed = all(limit is not None and request == limit for request, limit in amounts)
    return "Guaranteed" if guaranteed else "Burstable"


def check(pod: Json) -> Iterator[Cause]:
    """What is wrong with a pod."""
    spec = pod.get("spec")
    if spec is None:
        yield required("spec")
        return
    if not spec.get("containers"):
        yield required("spec.containers")
    if spec["restartPolicy"] not in ("Always", "OnFailure", "Never"):
        yield unsupported("spec.restartPolicy", spec["restartPolicy"], ("Always", "OnFailure", "Never"))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 0 < deadline < 2**31:
        yield wrong("spec.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive")
    volumes = [volume["name"] for volume in spec.get("volumes") or ()]
    yield from _names("spec.volumes", volumes)
    seen: list[str] = []
    for path, container in containers(spec):
        yield from _check_container(path, container, volumes)
        if container["name"] in seen:
            yield duplicate(f"{path}.name", container["name"])
        seen.append(container["name"])


def _names(path: str, names: list[str]) -> Iterator[Cause]:
    for index, name in enumerate(names):
        if text := container_name_fault(name):
            yield wrong(f"{path}[{index}].name", name, text)
        if name in names[:index]:
            yield duplicate(f"{path}[{index}].name", name)


def _check_container(path: str, container: Json, volumes: list[str]) -> Iterator[Cause]:
    if text := container_name_fault(container["name"]):
        yield wrong(f"{path}.name", container["name"], text)
    if not container.get("image"):
        yield required(f"{path}.image")
    if container["imagePullPolicy"] not in ("Always", "IfNotPresent", "Never"):
        yield unsupported(
            f"{path}.imagePullPolicy", container["imagePullPolicy"], ("Always", "IfNotPresent", "Never")
        )
    for index, env in enumerate(container.get("env") or ()):
        if not _ENV_NAME.fullmatch(env["name"]):
            text = "a valid environment variable name must consist only of printable ASCII other than '='"
            yield wrong(f"{path}.env[{index}].name", env["name"], text)
        if env.get("value") and env.get("valueFrom"):
            yield wrong(
                f"{path}.env[{index}].valueFrom", "", "may not be specified when `value` is not empty"
            )
    yield from _check_places(path, container, volumes)
    yield from _check_resources(f"{path}.resources", container["resources"])


def _check_places(path: str, container: Json, volumes: list[str]) -> Iterator[Cause]:
    for index, port in enumerate(container.get("ports") or ()):
        if not 0 < port["containerPort"] < 65536:
            text = "must be between 1 and 65535, inclusive"
            yield wrong(f"{path}.ports[{index}].containerPort", port["containerPort"], text)
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if mount["name"] not in volumes:
            text = f'Not found: "{mount["name"]}"'
            yield Cause("FieldValueNotFound", text, f"{path}.volumeMounts[{index}].name")


def _check_resources(path: str, resources: Json) -> Iterator[Cause]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, amount in requests.items():
        limit = limits.get(name)
        if limit is None:
            if "/" in name:
                yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif parse_quantity(amount) > parse_quantity(limit):
            text = f"must be less than or equal to {name} limit of {limit}"
            yield wrong(f"{path}.requests", amount, text)
        elif "/" in name and parse_quantity(amount) != parse_quantity(limit):
            yield wrong(f"{path}.requests", amount, f"must be equal to {name} limit of {limit}")
    for where, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            if is_whole_unit(name) and parse_quantity(amount).denominator != 1:
                yield wrong(f"{path}.{where}[{name}]", amount, "must be an integer")


def check_update(old: Json, new: Json) -> Iterator[Cause]:
    """A pod's spec stays as it is, but for images, the active deadline, and added tolerations."""
    before, after = old["spec"], new["spec"]
    if _frozen(before) != _frozen(after):
        yield forbidden_field("spec", _IMMUTABLE_TEXT + _difference(before, after))
    kept = after.get("tolerations") or []
    if any(toleration not in kept for toleration in before.get("tolerations") or ()):
        yield forbidden_field(
            "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
        )
    was, now = before.get("activeDeadlineSeconds"), after.get("activeDeadlineSeconds")
    if was is not None and (now is None or now > was):
        text = (
            "must not update from a positive integer to nil value"
            if now is None
            else (f"must be less than or equal to previous value {was}")
        )
        yield wrong("spec.activeDeadlineSeconds", now, text)


def _frozen(spec: Json) -> Json:
    """The part of a spec that may not change; taking away a scheduling gate may."""
    open_fields = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
    frozen = {name: value for name, value in spec.items() if name not in open_fields}
    for group in ("initContainers", "containers"):
        frozen[group] = [{**container, "image": ""} for container in spec.get(group) or ()]
    return frozen


def _difference(before: Json, after: Json) -> str:
    """The differing fields, as a line for people."""
    fields = sorted({*before, *after})
    changed = [name for name in fields if _value(before, name) != _value(after, name)]
    return f" (changed: {', '.join(changed)})"


def _value(spec: Json, name: str) -> Any:
    return spec.get(name)


RULES = Rules(create=create, default=default, check=check, check_update=check_update)
