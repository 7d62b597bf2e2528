"""Whose an object is: by its controller reference; labels only make a candidate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from airflow_kftrain.controllers.objects import controller_of, owner_reference
from airflow_kftrain.controllers.replicas import is_terminating
from airflow_kftrain.controllers.view import JobView, Object


@dataclass(frozen=True)
class Claims:
    """Candidates by what is to be done.

    :param owned: the job's own
    :param orphans: bear the job's labels and have no controller: to be adopted
    :param strays: the job's, but their labels say otherwise: to be released
    """

    owned: list[Object] = field(default_factory=list)
    orphans: list[Object] = field(default_factory=list)
    strays: list[Object] = field(default_factory=list)


def claims(job: JobView, labels: Mapping[str, str], candidates: Iterable[Object]) -> Claims:
    """Sort ``candidates``; what has another controller, or is an orphan on its way out, is left out."""
    found = Claims()
    for obj in candidates:
        given = obj["metadata"].get("labels") or {}
        matches = all(given.get(name) == value for name, value in labels.items())
        controller = controller_of(obj)
        if controller is not None and controller.get("uid") == job.uid:
            released = not matches and not is_terminating(obj)
            (found.strays if released else found.owned).append(obj)
        elif controller is None and matches and not is_terminating(obj):
            found.orphans.append(obj)
    return found


def adoption(job: JobView, obj: Object) -> Object:
    """The patch that makes ``job`` the controller of ``obj``."""
    references = obj["metadata"].get("ownerReferences") or []
    return _references(obj, [*references, owner_reference(job)])


def release(job: JobView, obj: Object) -> Object:
    """The patch that sets ``obj`` free."""
    references = obj["metadata"].get("ownerReferences") or []
    return _references(obj, [r for r in references if r.get("uid") != job.uid])


def _references(obj: Object, references: list[Object]) -> Object:
    # Both are preconditions: the object must be this one, unchanged since it was looked at.
    metadata = obj["metadata"]
    return {
        "metadata": {
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "ownerReferences": references,
        }
    }
