"""Names, labels and annotations of what we make; they are a contract for kubectl users.

A job's name is a pure function of the task instance and its try. Ownership is the annotation :data:`TI` on the job
alone; labels are for people and selectors, and are never compared to decide it.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_kftrain.exceptions import InvalidInput

MANAGED = "kftrain/managed"
INSTANCE = "kftrain/instance"
PARTITION = "kftrain/partition"

TI = "kftrain/ti"
REQUEST = "kftrain/request"
STATUS = "kftrain/status"
HOLD = "kftrain/hold"
PROGRESS = "kftrain/progress"
ORIGINAL = "kftrain/original"
TIMES = "kftrain/times"

# What the training operator (v1.8.1, pkg/apis/kubeflow.org/v1/common_types.go) puts on pods and services.
JOB_NAME = "training.kubeflow.org/job-name"
JOB_ROLE = "training.kubeflow.org/job-role"
OPERATOR_NAME = "training.kubeflow.org/operator-name"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"

LONGEST_LABEL = 63
LARGEST_INDEX = 99_999
# Room for "-evaluator-99999", the longest that follows a job's name in a pod, a service or a label: a name then
# stays valid whatever the job grows to.
_SUFFIX = len(f"-evaluator-{LARGEST_INDEX}")
LONGEST_JOB_NAME = LONGEST_LABEL - _SUFFIX
_HASH = 8
LONGEST_PREFIX = LONGEST_JOB_NAME - _HASH - 1

_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"


@dataclass(frozen=True, slots=True)
class TaskKey:
    """One try of one task instance.

    :param map_index: None (or Airflow's -1) when the task is not mapped
    :param instance: the Airflow it belongs to; two instances with equal DAGs get different names
    """

    dag_id: str
    task_id: str
    run_id: str
    try_number: int
    map_index: int | None = None
    instance: str = "airflow"

    @property
    def mapped(self) -> bool:
        """Whether the task instance is one of a mapped task."""
        return self.map_index is not None and self.map_index >= 0


def job_name(key: TaskKey, *, prefix: str | None = None) -> str:
    """A name for the job of ``key``, valid for every pod, service and label that follows from it.

    It has at most :data:`LONGEST_JOB_NAME` characters: a readable part and a hash of the whole key.

    :param prefix: readable part (a given ``metadata.name``); made from DAG and task when absent
    :raises InvalidInput: ``prefix`` is no DNS label or too long
    """
    readable = _readable(key) if prefix is None else check_prefix(prefix)
    return f"{readable}-{_hash(key)}"


def replica_name(replica_type: str, index: int | str) -> str:
    """What a replica is called in logs and messages, for instance ``worker-0``."""
    return f"{replica_type.lower()}-{index}"


def pod_name(job: str, replica_type: str, index: int | str) -> str:
    """The name of a replica's pod and of its service."""
    return f"{job}-{replica_name(replica_type, index)}"


def check_prefix(prefix: str, *, field: str = "metadata.name") -> str:
    """``prefix`` without a hyphen at its end, if names can begin with it.

    :raises InvalidInput: it is no DNS label that starts with a letter, or too long
    """
    checked = check_dns_label(prefix.rstrip("-"), field=field)
    if len(checked) > LONGEST_PREFIX:
        raise InvalidInput(
            field,
            prefix,
            f"it has {len(checked)} characters; give at most {LONGEST_PREFIX}, since a hash, the replica type "
            f"and its index follow, and names end at {LONGEST_LABEL}",
        )
    return checked


def check_dns_label(name: str, *, field: str) -> str:
    """``name``, if it is a DNS label that starts with a letter (RFC 1035; services need it).

    :raises InvalidInput: it is not
    """
    if not isinstance(name, str) or not _DNS_1035.fullmatch(name):
        raise InvalidInput(
            field, name, "use lower-case letters, digits and '-'; start with a letter, end with none but '-'"
        )
    if len(name) > LONGEST_LABEL:
        raise InvalidInput(field, name, f"it has {len(name)} characters; give at most {LONGEST_LABEL}")
    return name


def labels(key: TaskKey, *, partition: str | None = None) -> dict[str, str]:
    """The labels of the job and its pods; ``map_index`` is absent when unmapped."""
    found = {
        "dag_id": safe_label_value(key.dag_id),
        "task_id": safe_label_value(key.task_id),
        "run_id": safe_label_value(key.run_id),
        "try_number": str(key.try_number),
        MANAGED: "true",
        INSTANCE: safe_label_value(key.instance),
    }
    if key.mapped:
        found["map_index"] = str(key.map_index)
    if partition is not None:
        found[PARTITION] = safe_label_value(partition)
    return found


def selector(key: TaskKey, *, any_try: bool = False) -> str:
    """A label selector for the jobs of ``key``.

    :param any_try: those of all tries of the task instance
    """
    wanted = labels(key)
    if any_try:
        del wanted["try_number"]
    terms = [f"{name}={value}" for name, value in sorted(wanted.items())]
    return ",".join(terms if key.mapped else [*terms, "!map_index"])


def token(obj: Mapping[str, Any]) -> str | None:
    """The ownership token of a job object: UUID of the task instance that owns it, None for a stranger's."""
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    found = annotations.get(TI)
    return found if isinstance(found, str) and found else None


def safe_label_value(text: str) -> str:
    """``text`` as a label value: what the cncf.kubernetes provider makes of it, so that selectors agree.

    Text that must change loses what labels cannot hold and gains nine digits of its MD5. Where nothing of it is
    left (an id in another script) the digits stand alone: the provider's leading hyphen would be refused.
    """
    safe = re.sub(r"[^a-zA-Z0-9_.-]", "", re.sub(r"^[^a-zA-Z0-9]+|[^a-zA-Z0-9]+\Z", "", text))
    if safe == text and len(safe) <= LONGEST_LABEL:
        return safe
    digits = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:9]
    return f"{safe[: LONGEST_LABEL - len(digits) - 1]}-{digits}" if safe else digits


def _readable(key: TaskKey) -> str:
    """DAG and task, as much of both as fits, starting with a letter."""
    dag, task = _slug(key.dag_id), _slug(key.task_id)
    room = LONGEST_PREFIX - len("j-")
    task = task[: max(room // 2, room - len(dag))]
    joined = f"{dag[: room - len(task)].rstrip('-')}-{task}".strip("-") or "job"
    return joined if joined[0].isalpha() else f"j{joined}"


def _slug(text: str) -> str:
    """The letters and digits of ``text`` (accents dropped) with single hyphens between; may be empty."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")


def _hash(key: TaskKey) -> str:
    """Forty bits of the whole key, in letters and digits a DNS label may hold."""
    map_index = key.map_index if key.mapped else None
    parts = [key.instance, key.dag_id, key.task_id, key.run_id, map_index, key.try_number]
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    number = int.from_bytes(digest[:5], "big")
    return "".join(_BASE32[number >> 5 * n & 31] for n in range(_HASH))
