"""What makes a job impossible to run, as the validating webhook of training-operator v1.8.1 sees it.

Where that webhook (or the local API) is in place such a job never gets here. Where it is not, the controller fails
the job with these texts in place of crashing on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from airflow_kftrain.jobs.frameworks import Framework

_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_POLICIES = ("Always", "OnFailure", "Never", "ExitCode")


def faults(framework: Framework, job: dict[str, Any]) -> list[str]:
    """All faults of a job, each as field and remedy; empty when it can run."""
    return list(_faults(framework, job))


def _faults(framework: Framework, job: dict[str, Any]) -> Iterator[str]:
    name = job["metadata"]["name"]
    if not _DNS_1035.fullmatch(name):
        yield (
            f"metadata.name: {name!r} must be a DNS label of at most 63 characters that starts with a letter: "
            "services bear it"
        )
    spec = job.get("spec") or {}
    elastic = spec.get("elasticPolicy") or {}
    if elastic.get("nProcPerNode") is not None and spec.get("nprocPerNode") is not None:
        yield "spec.elasticPolicy.nProcPerNode: must not be given beside spec.nprocPerNode, its newer place"
    where = f"spec.{framework.replica_specs_field}"
    given = spec.get(framework.replica_specs_field)
    if not isinstance(given, dict) or not given:
        yield f"{where}: must be given, with at least one of {', '.join(framework.replica_types)}"
        return
    types = {framework.replica_type(spelled) or spelled for spelled in given}
    for required in framework.required:
        if required not in types:
            yield f"{where}[{required}]: must be present"
    if sum(leader in types for leader in framework.leaders) > 1:
        yield f"{where}: must not have more than one of {', '.join(framework.leaders)}"
    for spelled, replica in given.items():
        yield from _replica_faults(framework, f"{where}[{spelled}]", spelled, replica or {})


def _replica_faults(framework: Framework, where: str, spelled: str, replica: dict[str, Any]) -> Iterator[str]:
    replica_type = framework.replica_type(spelled)
    if replica_type is None:
        yield f"{where}: no such replica type; use {', '.join(framework.replica_types)}"
    count = replica.get("replicas", 1)
    if not isinstance(count, int) or count < 0:
        yield f"{where}.replicas: {count!r} must be a number from 0"
    elif replica_type in framework.singletons and count != 1:
        yield f"{where}.replicas: must be 1"
    if replica.get("restartPolicy") not in (None, "", *_POLICIES):
        yield f"{where}.restartPolicy: {replica['restartPolicy']!r} must be one of {', '.join(_POLICIES)}"
    containers = ((replica.get("template") or {}).get("spec") or {}).get("containers") or []
    inside = f"{where}.template.spec.containers"
    for position, container in enumerate(containers):
        if not container.get("image"):
            yield f"{inside}[{position}].image: must be given"
    if not any(container.get("name") == framework.container for container in containers):
        yield f"{inside}: must have at least one container with name {framework.container}"
