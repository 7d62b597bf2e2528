"""The environment and the command line that a pod's container asks for, as the API's fields define them."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs.resources import parse_quantity
from airflow_kftrain.local.kubelet.refusal import ContainerRefused

Object = Mapping[str, Any]
_VARIABLE = re.compile(r"\$\$|\$\((?P<name>[^()\s]+)\)")
_SUBSCRIPT = re.compile(r"metadata\.(?P<map>labels|annotations)\['(?P<key>[^']+)'\]")
_NAME = re.compile(r"[^=\x00]+")


@dataclass(frozen=True)
class Sources:
    """What an environment or a volume may read from: ConfigMaps and Secrets of the pod's namespace, by name."""

    config_maps: Mapping[str, Object] = field(default_factory=dict)
    secrets: Mapping[str, Object] = field(default_factory=dict)

    def values(self, kind: str, name: str) -> dict[str, bytes] | None:
        """All entries of a ``configmap`` or ``secret``; None when there is no such object."""
        found = (self.config_maps if kind == "configmap" else self.secrets).get(name)
        if found is None:
            return None
        decoded = {key: text.encode() for key, text in _plain(kind, found).items()}
        for key, text in (found.get("data" if kind == "secret" else "binaryData") or {}).items():
            try:
                decoded[key] = base64.b64decode(text)
            except (binascii.Error, ValueError) as error:
                raise ContainerRefused(
                    "CreateContainerConfigError", f"{kind} {name!r}: key {key!r} is not base64"
                ) from error
        return decoded


def _plain(kind: str, found: Object) -> Mapping[str, str]:
    return found.get("stringData" if kind == "secret" else "data") or {}


def references(pod: Object) -> set[tuple[str, str]]:
    """``("configmap" | "secret", name)`` of all that the pod's environment and volumes read."""
    found: set[tuple[str, str]] = set()
    for container in all_containers(pod):
        for entry in container.get("env") or ():
            found |= _referred(entry.get("valueFrom") or {}, "configMapKeyRef", "secretKeyRef", "name")
        for entry in container.get("envFrom") or ():
            found |= _referred(entry, "configMapRef", "secretRef", "name")
    for volume in pod["spec"].get("volumes") or ():
        found |= _referred(volume, "configMap", "", "name") | _referred(volume, "", "secret", "secretName")
        for source in (volume.get("projected") or {}).get("sources") or ():
            found |= _referred(source, "configMap", "secret", "name")
    return found


def _referred(holder: Object, config_map: str, secret: str, name: str) -> set[tuple[str, str]]:
    pairs = (("configmap", holder.get(config_map)), ("secret", holder.get(secret)))
    return {(kind, ref[name]) for kind, ref in pairs if ref and ref.get(name)}


def all_containers(pod: Object) -> list[Object]:
    """Init containers, then the others, in order."""
    return [*(pod["spec"].get("initContainers") or ()), *(pod["spec"].get("containers") or ())]


@dataclass(frozen=True)
class Environment:
    """A container's variables as the API means them, before anything local.

    :param values: by name, in the order of definition
    :param identities: those that come from the pod's own fields (its name, not an address)
    :param templates: values that held ``$(VAR)``, as written
    """

    values: dict[str, str]
    identities: frozenset[str]
    templates: Mapping[str, str]


def resolve_environment(pod: Object, container: Object, sources: Sources, ip: str) -> Environment:
    """``envFrom``, then ``env`` in order, with ``$(VAR)`` expanded from what came before.

    :param ip: what ``status.podIP`` and ``status.hostIP`` read
    :raises ContainerRefused: a reference cannot be resolved and is not optional
    """
    values: dict[str, str] = {}
    for entry in container.get("envFrom") or ():
        values.update(_all_of(entry, sources))
    identities: set[str] = set()
    templates: dict[str, str] = {}
    for entry in container.get("env") or ():
        name, origin = entry["name"], entry.get("valueFrom")
        if _NAME.fullmatch(name) is None:
            raise ContainerRefused("CreateContainerConfigError", f"env: {name!r} cannot be a variable's name")
        identities.discard(name)
        templates.pop(name, None)
        if not origin:
            text = str(entry.get("value") or "")
            values[name] = expand(text, values)
            if "$(" in text:
                templates[name] = text
            continue
        found = _value_of(origin, pod, container, sources, ip)
        if found is not None:
            values[name] = found
        if "fieldRef" in origin:
            identities.add(name)
    return Environment(values, frozenset(identities), templates)


def expand(text: str, values: Mapping[str, str]) -> str:
    """``$(VAR)`` replaced where ``VAR`` is known, kept where not; ``$$`` is a plain ``$``."""

    def replaced(match: re.Match[str]) -> str:
        name = match["name"]
        return "$" if name is None else values.get(name, match[0])

    return _VARIABLE.sub(replaced, text)


def _all_of(entry: Object, sources: Sources) -> dict[str, str]:
    kind, ref = (
        ("configmap", entry["configMapRef"]) if entry.get("configMapRef") else ("secret", entry["secretRef"])
    )
    found = sources.values(kind, ref["name"])
    if found is None:
        if ref.get("optional"):
            return {}
        raise ContainerRefused("CreateContainerConfigError", f'{kind} "{ref["name"]}" not found')
    prefix = entry.get("prefix") or ""
    return {f"{prefix}{key}": value.decode("utf-8", "replace") for key, value in found.items()}


def _value_of(origin: Object, pod: Object, container: Object, sources: Sources, ip: str) -> str | None:
    if "fieldRef" in origin:
        return field_value(pod, origin["fieldRef"].get("fieldPath", ""), ip)
    if "resourceFieldRef" in origin:
        return resource_value(pod, container, origin["resourceFieldRef"])
    kind, ref = (
        ("configmap", origin["configMapKeyRef"])
        if "configMapKeyRef" in origin
        else ("secret", origin.get("secretKeyRef") or {})
    )
    if not ref:
        raise ContainerRefused(
            "CreateContainerConfigError", f"env: a valueFrom of {sorted(origin)} cannot be read here"
        )
    return _key_of(kind, ref, sources)


def _key_of(kind: str, ref: Object, sources: Sources) -> str | None:
    found = sources.values(kind, ref["name"])
    if found is not None and ref["key"] in found:
        return found[ref["key"]].decode("utf-8", "replace")
    if ref.get("optional"):
        return None
    text = (
        f'{kind} "{ref["name"]}" not found'
        if found is None
        else f'couldn\'t find key {ref["key"]} in {kind} "{ref["name"]}"'
    )
    raise ContainerRefused("CreateContainerConfigError", text)


def field_value(pod: Object, path: str, ip: str) -> str:
    """A field of the downward API. :raises ContainerRefused: it is not one of them"""
    meta, spec = pod["metadata"], pod["spec"]
    subscript = _SUBSCRIPT.fullmatch(path)
    if subscript:
        return str((meta.get(subscript["map"]) or {}).get(subscript["key"], ""))
    readers: dict[str, Callable[[], Any]] = {
        "metadata.name": lambda: meta["name"],
        "metadata.namespace": lambda: meta["namespace"],
        "metadata.uid": lambda: meta["uid"],
        "metadata.labels": lambda: _as_lines(meta.get("labels")),
        "metadata.annotations": lambda: _as_lines(meta.get("annotations")),
        "spec.nodeName": lambda: spec.get("nodeName", ""),
        "spec.serviceAccountName": lambda: spec.get("serviceAccountName", "default"),
        "status.hostIP": lambda: ip,
        "status.podIP": lambda: ip,
        "status.hostIPs": lambda: ip,
        "status.podIPs": lambda: ip,
    }
    if path not in readers:
        raise ContainerRefused("CreateContainerConfigError", f"fieldPath {path!r} cannot be read")
    return str(readers[path]())


def _as_lines(values: Mapping[str, str] | None) -> str:
    quoted = (f'{key}="{_escaped(value)}"' for key, value in sorted((values or {}).items()))
    return "\n".join(quoted)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource_value(pod: Object, container: Object, ref: Object) -> str:
    """A ``resourceFieldRef``: the amount in units of its divisor, rounded up; without a limit, its request or 0."""
    name = ref.get("containerName")
    chosen = next((c for c in all_containers(pod) if c["name"] == name), container) if name else container
    side, _, resource = str(ref.get("resource", "")).partition(".")
    declared = chosen.get("resources") or {}
    if side not in ("limits", "requests") or not resource:
        raise ContainerRefused(
            "CreateContainerConfigError", f"resource {ref.get('resource')!r} cannot be read"
        )
    amount = (declared.get(side) or {}).get(resource)
    if amount is None and side == "requests":
        amount = (declared.get("limits") or {}).get(resource)
    divisor = ref.get("divisor") or "1"
    try:
        quotient = parse_quantity(amount or 0) / (parse_quantity(divisor) or Fraction(1))
    except InvalidInput as error:
        raise ContainerRefused("CreateContainerConfigError", str(error)) from error
    return str(-(-quotient // 1))


def command_line(container: Object) -> list[str]:
    """``command`` and ``args`` as written.

    :raises ContainerRefused: both are empty; there is no image whose entry point could run
    """
    written: Sequence[str] = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not container.get("command"):
        raise ContainerRefused(
            "CreateContainerError",
            f"container {container['name']!r} has no command: images are not run here, so an image's entry point "
            "is not known; give spec.containers[].command",
        )
    return [str(part) for part in written]
