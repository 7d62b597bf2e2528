"""Services: defaults, cluster addresses, checks."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from airflow_kftrain.local.apiserver.errors import Cause, forbidden_field, required, unsupported, wrong
from airflow_kftrain.local.apiserver.rules.base import Json, Rules, World, unnull

# The default service network of kubeadm; nothing listens there.
_NETWORK = ipaddress.ip_network("10.96.0.0/16")
_RESERVED = 10
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


def create(service: Json, world: World) -> Iterator[Cause]:
    """Give a service its cluster address, unless it is headless or has an external name."""
    spec = service["spec"]
    service["status"] = {"loadBalancer": {}}
    if spec["type"] == "ExternalName":
        return
    address = spec.get("clusterIP")
    if address == "None":
        spec["clusterIPs"] = ["None"]
        return
    taken = world.service_addresses()
    if address in taken:
        yield wrong("spec.clusterIPs", [address], "failed to allocate IP: provided IP is already allocated")
        return
    spec["clusterIP"] = address or _free_address(taken)
    spec["clusterIPs"] = [spec["clusterIP"]]


def _free_address(taken: set[str]) -> str:
    first = int(_NETWORK.network_address) + _RESERVED
    number = first + len(taken)
    while str(ipaddress.ip_address(number)) in taken:
        number += 1
    return str(ipaddress.ip_address(number))


def default(service: Json) -> None:
    """Fill in what a service leaves open."""
    spec = unnull(service, "spec")
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["type"] != "ExternalName":
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        spec.setdefault("internalTrafficPolicy", "Cluster")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def check(service: Json) -> Iterator[Cause]:
    """What is wrong with a service."""
    spec = service["spec"]
    if spec["type"] not in _TYPES:
        yield unsupported("spec.type", spec["type"], _TYPES)
    ports = spec.get("ports") or []
    if not ports and spec.get("clusterIP") != "None" and spec["type"] != "ExternalName":
        yield required("spec.ports")
    for index, port in enumerate(ports):
        if not 0 < port["port"] < 65536:
            yield wrong(f"spec.ports[{index}].port", port["port"], "must be between 1 and 65535, inclusive")
        if len(ports) > 1 and not port.get("name"):
            yield required(f"spec.ports[{index}].name")


def check_update(old: Json, new: Json) -> Iterator[Cause]:
    """A cluster address stays."""
    was, now = old["spec"].get("clusterIP"), new["spec"].get("clusterIP")
    if was != now and new["spec"]["type"] != "ExternalName":
        yield forbidden_field("spec.clusterIPs[0]", f"may not change once set (was {was})")


RULES = Rules(create=create, default=default, check=check, check_update=check_update)
