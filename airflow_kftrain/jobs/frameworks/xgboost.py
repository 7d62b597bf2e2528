"""XGBoostJob: a master that runs the tracker, and workers; all of them train."""

from __future__ import annotations

from airflow_kftrain.jobs.frameworks.base import Framework

XGBOOST = Framework(
    name="xgboost",
    kind="XGBoostJob",
    plural="xgboostjobs",
    replica_specs_field="xgbReplicaSpecs",
    replica_types=("Master", "Worker"),
    leaders=("Master",),
    singletons=("Master",),
    required=("Master",),
    container="xgboost",
    port_name="xgboostjob-port",
    port=9999,
    restart_policy="Never",
)
