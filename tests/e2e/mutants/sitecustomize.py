"""Takes one guard out of the provider in every process of an Airflow, to show that the end-to-end test misses it.

On ``PYTHONPATH`` together with ``KFTRAIN_MUTANT``; changes a module right after it was imported.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any


def without_state_check(module: Any) -> None:
    """on_kill believes that it is called only when somebody ended the task."""

    async def believed(_: Any) -> str:
        return "failed"

    module.TrainingJobTrigger._task_state = believed


def decide_without_tokens(module: Any) -> None:
    """Any job that a label search finds counts as this try's own."""
    decide = module.decide

    def trusting(own: Any, earlier: Any, jobs: Sequence[dict[str, Any]], **options: Any) -> Any:
        for job in jobs:
            job["metadata"].setdefault("annotations", {})["kftrain/ti"] = own.token
        return decide(replace(own, phase=type(own.phase)("created")), earlier, jobs, **options)

    module.decide = trusting


def read_without_tokens(module: Any) -> None:
    """A job that is read again is taken for whose it was thought to be."""
    read_owned = module.read_owned

    async def trusting(
        cluster: Any, resource: Any, name: str, namespace: str, *, uid: Any, owner: Any
    ) -> Any:
        job = await cluster.get(resource, name, namespace)
        found = module.token(job)
        return await read_owned(cluster, resource, name, namespace, uid=uid, owner=found)

    module.read_owned = trusting


MUTANTS: dict[str, dict[str, Callable[[Any], None]]] = {
    "state-check": {"airflow_kftrain.triggers.training_job": without_state_check},
    "ownership-token": {
        "airflow_kftrain.jobs.tries": decide_without_tokens,
        "airflow_kftrain.cluster.ownership": read_without_tokens,
    },
}


class _Mutating(importlib.abc.MetaPathFinder):
    """Finds one module as usual, and changes it once it is executed."""

    def __init__(self, name: str, change: Callable[[Any], None]) -> None:
        self._name = name
        self._change = change

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        if fullname != self._name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_change(module: ModuleType) -> None:
            execute(module)
            self._change(module)

        loader.exec_module = execute_and_change
        return spec


if mutant := os.environ.get("KFTRAIN_MUTANT"):
    for module_name, guard in MUTANTS[mutant].items():
        sys.meta_path.insert(0, _Mutating(module_name, guard))
