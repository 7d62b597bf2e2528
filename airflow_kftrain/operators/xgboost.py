"""The operator for XGBoostJobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_kftrain.operators.training_job import TrainingJobOperator


class XGBoostJobOperator(TrainingJobOperator):
    """Runs an XGBoostJob: one Master and ``workers`` Workers, all with the same command.

    Arguments are those of :class:`~airflow_kftrain.operators.training_job.TrainingJobOperator`.
    """

    kind = "XGBoostJob"

    def counts(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"Master": 1, "Worker": 1 if given.get("workers") is None else given["workers"]}
