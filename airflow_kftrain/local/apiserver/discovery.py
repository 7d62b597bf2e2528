"""Discovery documents, version, and the reviews that ask who may do what."""

from __future__ import annotations

import platform
from typing import Any

from airflow_kftrain.local.apiserver.kinds import Kind, Registry
from airflow_kftrain.local.apiserver.security import USER

Json = dict[str, Any]

# The API level that is modelled; clients compare the minor version with their own.
VERSION = ("1", "34")
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_EXTRA: dict[str, tuple[tuple[str, str, str, str, list[str]], ...]] = {
    "pods": (
        ("binding", "", "v1", "Binding", ["create"]),
        ("eviction", "policy", "v1", "Eviction", ["create"]),
        ("log", "", "v1", "Pod", ["get"]),
    )
}
# (group, version, plural, kind, namespaced): answered at once, never stored.
REVIEWS = (
    ("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False),
    ("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", False),
    ("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False),
    ("authorization.k8s.io", "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview", True),
    ("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False),
)


def version() -> Json:
    """What ``/version`` answers."""
    return {
        "major": VERSION[0],
        "minor": VERSION[1],
        "gitVersion": f"v{VERSION[0]}.{VERSION[1]}.0+kftrain",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": f"{platform.system().lower()}/{platform.machine().lower()}",
    }


def discovery(registry: Registry, path: str, address: str) -> Json | None:
    """The discovery document at ``path``; None when there is none.

    :param address: ``host:port`` of this server
    """
    groups = _groups(registry)
    match path.strip("/").split("/"):
        case ["api"]:
            server = {"clientCIDR": "0.0.0.0/0", "serverAddress": address}
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [server]}
        case ["apis"]:
            listed = [_group(name, versions) for name, versions in groups.items() if name]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
        case ["apis", group] if group in groups:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, groups[group])}
        case ["api", wanted] if wanted in groups[""]:
            return _resources(registry, "", wanted)
        case ["apis", group, wanted] if wanted in groups.get(group, ()):
            return _resources(registry, group, wanted)
    return None


def _groups(registry: Registry) -> dict[str, list[str]]:
    groups = {group: list(versions) for group, versions in registry.groups().items()}
    for group, version_, *_ in REVIEWS:
        groups.setdefault(group, [version_])
    return groups


def _group(name: str, versions: list[str]) -> Json:
    listed = [{"groupVersion": f"{name}/{version_}", "version": version_} for version_ in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resources(registry: Registry, group: str, version_: str) -> Json:
    kinds = registry.groups().get(group, {}).get(version_, [])
    reviews = [
        {
            "name": plural,
            "singularName": kind.lower(),
            "namespaced": namespaced,
            "kind": kind,
            "verbs": ["create"],
        }
        for review_group, review_version, plural, kind, namespaced in REVIEWS
        if (review_group, review_version) == (group, version_)
    ]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version_}" if group else version_,
        "resources": [*(entry for kind in kinds for entry in _entries(kind)), *reviews],
    }


def _entries(kind: Kind) -> list[Json]:
    base: Json = {"singularName": kind.single, "namespaced": kind.namespaced, "kind": kind.kind}
    main = {"name": kind.plural, **base, "verbs": _VERBS}
    if kind.short:
        main["shortNames"] = list(kind.short)
    if kind.categories:
        main["categories"] = list(kind.categories)
    entries = [main]
    below = {**base, "singularName": "", "verbs": ["get", "patch", "update"]}
    if kind.status:
        entries.append({"name": f"{kind.plural}/status", **below})
    if kind.scale:
        scale = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        entries.append({"name": f"{kind.plural}/scale", **below, **scale})
    for name, group, version_, other, verbs in _EXTRA.get(kind.plural, ()) if not kind.group else ():
        typed = {"group": group, "version": version_} if group else {}
        entries.append({"name": f"{kind.plural}/{name}", **below, **typed, "kind": other, "verbs": verbs})
    return entries


def review(path: str, body: Any) -> Json | None:
    """The answer to an access review POSTed at ``path``: there is one user, who may do everything."""
    plural = path.rstrip("/").rpartition("/")[2]
    for group, version_, name, kind, _ in REVIEWS:
        if name == plural and path.startswith(f"/apis/{group}/{version_}/"):
            spec = body.get("spec", {}) if isinstance(body, dict) else {}
            typed = {"kind": kind, "apiVersion": f"{group}/{version_}", "metadata": {}}
            return {**typed, "spec": spec, "status": _REVIEW_STATUS.get(kind, {"allowed": True})}
    return None


_EVERYTHING = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
_REVIEW_STATUS: dict[str, Json] = {
    "SelfSubjectReview": {
        "userInfo": {"username": USER, "groups": ["system:masters", "system:authenticated"]}
    },
    "SelfSubjectRulesReview": {
        "resourceRules": [_EVERYTHING],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        "incomplete": False,
    },
}
