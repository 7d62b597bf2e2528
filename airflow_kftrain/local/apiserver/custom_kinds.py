"""The kinds that real clusters get from CustomResourceDefinitions: the training jobs and the PodGroup.

Names, columns and subresources are those of training-operator v1.8.1's and scheduler-plugins' definitions: the job
kinds have no short names, and only the PyTorchJob can be scaled.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from airflow_kftrain.jobs.frameworks import FRAMEWORKS
from airflow_kftrain.jobs.schema import custom_resource_definition
from airflow_kftrain.local.apiserver.core_schemas import model_schema
from airflow_kftrain.local.apiserver.kinds import Column, Kind, Scale

Json = dict[str, Any]

_INT_OR_STRING = {"x-kubernetes-int-or-string": True}
_TEXT = {"type": "string"}
_TEXTS = {"type": "object", "additionalProperties": _TEXT}
_COUNT = {"type": "integer", "format": "int32"}
# What controller-gen leaves of the metadata that is embedded in a custom kind.
_EMBEDDED_METADATA = {
    "type": "object",
    "properties": {
        "annotations": _TEXTS,
        "finalizers": {"type": "array", "items": _TEXT},
        "labels": _TEXTS,
        "name": _TEXT,
        "namespace": _TEXT,
    },
}

POD_GROUP_DEFINITION: Json = {
    "spec": {
        "group": "scheduling.x-k8s.io",
        "names": {
            "kind": "PodGroup",
            "plural": "podgroups",
            "singular": "podgroup",
            "shortNames": ["pg", "pgs"],
        },
        "versions": [
            {
                "name": "v1alpha1",
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "minMember": {**_COUNT, "minimum": 1},
                                    "minResources": {
                                        "type": "object",
                                        "additionalProperties": _INT_OR_STRING,
                                    },
                                    "scheduleTimeoutSeconds": _COUNT,
                                },
                            },
                            "status": {
                                "type": "object",
                                "properties": {
                                    "phase": _TEXT,
                                    "occupiedBy": _TEXT,
                                    **dict.fromkeys(("scheduled", "running", "succeeded", "failed"), _COUNT),
                                    "scheduleStartTime": {"type": "string", "format": "date-time"},
                                },
                            },
                        },
                    }
                },
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
                    {"name": "MinMember", "type": "integer", "jsonPath": ".spec.minMember"},
                    {"name": "Running", "type": "integer", "jsonPath": ".status.running"},
                    {"name": "Succeeded", "type": "integer", "jsonPath": ".status.succeeded"},
                    {"name": "Failed", "type": "integer", "jsonPath": ".status.failed"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }
        ],
    },
}


@cache
def custom_kinds() -> tuple[Kind, ...]:
    """The job kinds of every framework, and the PodGroup."""
    template = pod_template_schema()
    jobs = [custom_resource_definition(framework, pod_template=template) for framework in FRAMEWORKS.values()]
    return tuple(kind_of(definition) for definition in (*jobs, POD_GROUP_DEFINITION))


def kind_of(definition: Mapping[str, Any]) -> Kind:
    """A served kind from (the parts that count of) a CustomResourceDefinition with one version."""
    spec = definition["spec"]
    names, version = spec["names"], spec["versions"][0]
    subresources = version.get("subresources") or {}
    return Kind(
        spec["group"],
        version["name"],
        names["plural"],
        names["kind"],
        namespaced=spec.get("scope", "Namespaced") == "Namespaced",
        singular=names.get("singular", ""),
        short=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        custom=True,
        status="status" in subresources,
        generation=True,
        scale=_scale(subresources.get("scale")),
        columns=tuple(
            Column(c["name"], c["jsonPath"].removeprefix("."), c["type"], c.get("priority", 0))
            for c in version.get("additionalPrinterColumns") or ()
        ),
        schema=version["schema"]["openAPIV3Schema"],
    )


def _scale(paths: Mapping[str, str] | None) -> Scale | None:
    if not paths:
        return None

    def keys(name: str) -> tuple[str, ...]:
        return tuple(paths[name].strip(".").split("."))

    return Scale(keys("specReplicasPath"), keys("statusReplicasPath"), keys("labelSelectorPath"))


def pod_template_schema() -> Json:
    """A pod template inside a custom kind: the core schema, but quantities stay as they were written."""
    template = model_schema("V1PodTemplateSpec")
    spec: Json = _embedded(template["properties"]["spec"])
    for field in ("containers", "initContainers", "ephemeralContainers"):
        # The one default of the real definitions below the template: the protocol is part of a port's list-map key.
        port = spec["properties"][field]["items"]["properties"]["ports"]["items"]
        port["properties"]["protocol"]["default"] = "TCP"
    return {**template, "properties": {"metadata": _EMBEDDED_METADATA, "spec": spec}}


def _embedded(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "quantity":
        return _INT_OR_STRING
    return {key: _embedded(value) for key, value in schema.items()}
