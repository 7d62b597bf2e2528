"""The operator for TFJobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_kftrain.operators.training_job import TrainingJobOperator

_ROLES = {"chief": "Chief", "ps": "PS", "evaluator": "Evaluator"}


class TFJobOperator(TrainingJobOperator):
    """Runs a TFJob: ``workers`` Workers, and a Chief, parameter servers or an Evaluator where they are asked for.

    Further arguments are those of :class:`~airflow_kftrain.operators.training_job.TrainingJobOperator`.

    :param chief: 1 for a Chief
    :param ps: number of parameter servers
    :param evaluator: number of Evaluators
    :param success_policy: ``AllWorkers``, or the default: the Chief, else worker 0, decides
    :param dynamic_workers: Workers may come and go while the job runs
    """

    kind = "TFJob"
    typed_options: ClassVar[tuple[str, ...]] = (*_ROLES, "success_policy", "dynamic_workers")
    template_fields: Sequence[str] = (*TrainingJobOperator.template_fields, *typed_options)

    def __init__(
        self,
        *,
        chief: int | str | None = None,
        ps: int | str | None = None,
        evaluator: int | str | None = None,
        success_policy: str | None = None,
        dynamic_workers: bool | None = None,
        **kwargs: Any,
    ) -> None:
        self.chief = chief
        self.ps = ps
        self.evaluator = evaluator
        self.success_policy = success_policy
        self.dynamic_workers = dynamic_workers
        super().__init__(**kwargs)

    def counts(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        roles = {role: given[name] for name, role in _ROLES.items() if given.get(name) is not None}
        return {**roles, "Worker": 1 if given.get("workers") is None else given["workers"]}

    def options(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        said = {
            "successPolicy": given.get("success_policy"),
            "enableDynamicWorker": given.get("dynamic_workers"),
        }
        return {name: value for name, value in said.items() if value is not None}
