"""TFJob: chief, parameter servers, workers and an evaluator around ``TF_CONFIG``."""

# ruff: noqa: ARG002 (the methods are an interface: a kind uses what it needs)
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs.fields import Boolean, Text, declared
from airflow_kftrain.jobs.frameworks.base import Framework, LiveResize


@dataclass(frozen=True, slots=True)
class TensorFlowOptions:
    """What only a TFJob has.

    :param success_policy: ``""``, the default (Chief, else worker 0, decides), or ``AllWorkers``
    :param enable_dynamic_worker: workers may come and go; each is told only of itself and the PS
    """

    success_policy: str | None = declared("successPolicy", Text(("", "AllWorkers")))
    enable_dynamic_worker: bool | None = declared("enableDynamicWorker", Boolean())


class _TensorFlow(Framework):
    def check(self, replicas: Mapping[str, int], options: TensorFlowOptions) -> None:
        if {"Chief", "Master"} <= replicas.keys():
            raise InvalidInput(
                f"spec.{self.replica_specs_field}",
                sorted(replicas),
                "Master is an old name of Chief; give one of them",
            )
        if not {"Chief", "Master", "Worker"} & replicas.keys():
            raise InvalidInput(
                f"spec.{self.replica_specs_field}",
                sorted(replicas),
                "nothing here decides when the job is done; add a Chief or Workers",
            )

    def live_resize(self, options: TensorFlowOptions, replicas: Mapping[str, int]) -> LiveResize | None:
        dynamic = options.enable_dynamic_worker and "Worker" in replicas
        return LiveResize("Worker", minimum=1, maximum=None) if dynamic else None

    def default_options(self, options: TensorFlowOptions, replicas: Mapping[str, int]) -> TensorFlowOptions:
        return replace(
            options,
            success_policy=options.success_policy or "",
            enable_dynamic_worker=bool(options.enable_dynamic_worker),
        )


TENSORFLOW = _TensorFlow(
    name="tensorflow",
    kind="TFJob",
    plural="tfjobs",
    replica_specs_field="tfReplicaSpecs",
    replica_types=("Chief", "Master", "Worker", "PS", "Evaluator"),
    leaders=("Chief", "Master"),
    singletons=("Chief", "Master"),
    container="tensorflow",
    port_name="tfjob-port",
    port=2222,
    restart_policy="Never",
    options=TensorFlowOptions,
)
