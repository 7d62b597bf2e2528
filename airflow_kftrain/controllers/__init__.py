"""Controllers of training jobs, for any Kubernetes API.

They make what training-operator v1.8.1 makes, and run where it is not: in the local cluster, or on a real one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_kftrain.controllers.job_controller import JobController
    from airflow_kftrain.controllers.lease import LeaseSettings
    from airflow_kftrain.controllers.manager import ControllerManager

__all__ = ["ControllerManager", "JobController", "LeaseSettings"]

_WHERE = {"ControllerManager": "manager", "JobController": "job_controller", "LeaseSettings": "lease"}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
