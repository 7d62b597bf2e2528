"""The kinds of training job: one file each, and one line in :data:`FRAMEWORKS`."""

from __future__ import annotations

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs.fields import nearest
from airflow_kftrain.jobs.frameworks.base import Framework, LiveResize
from airflow_kftrain.jobs.frameworks.pytorch import PYTORCH
from airflow_kftrain.jobs.frameworks.tensorflow import TENSORFLOW
from airflow_kftrain.jobs.frameworks.xgboost import XGBOOST

__all__ = ["FRAMEWORKS", "PYTORCH", "TENSORFLOW", "XGBOOST", "Framework", "LiveResize", "framework"]

FRAMEWORKS: dict[str, Framework] = {f.kind: f for f in (TENSORFLOW, PYTORCH, XGBOOST)}


def framework(kind: str, *, field: str = "kind") -> Framework:
    """The framework of a Kubernetes kind, for instance ``XGBoostJob``.

    :param field: what an error names
    :raises InvalidInput: there is no such kind
    """
    found = FRAMEWORKS.get(kind)
    if found is None:
        near = nearest(kind, FRAMEWORKS)
        hint = f"did you mean {near}? " if near else ""
        raise InvalidInput(field, kind, f"{hint}give one of {', '.join(FRAMEWORKS)}")
    return found
