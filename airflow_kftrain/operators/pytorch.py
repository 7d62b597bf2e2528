"""The operator for PyTorchJobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_kftrain.operators.training_job import TrainingJobOperator


class PyTorchJobOperator(TrainingJobOperator):
    """Runs a PyTorchJob: one Master and ``workers`` Workers, all with the same command; Workers alone when elastic.

    Further arguments are those of :class:`~airflow_kftrain.operators.training_job.TrainingJobOperator`.

    :param elastic: the job's ``elasticPolicy``, as Kubernetes writes it (``{"minReplicas": 2, "maxReplicas": 4}``)
    :param nproc_per_node: processes that torchrun starts per replica: a number, ``auto``, ``cpu`` or ``gpu``
    """

    kind = "PyTorchJob"
    typed_options: ClassVar[tuple[str, ...]] = ("elastic", "nproc_per_node")
    template_fields: Sequence[str] = (*TrainingJobOperator.template_fields, "elastic", "nproc_per_node")

    def __init__(
        self,
        *,
        elastic: Mapping[str, Any] | None = None,
        nproc_per_node: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        self.elastic = elastic
        self.nproc_per_node = nproc_per_node
        super().__init__(**kwargs)

    def counts(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        workers = 1 if given.get("workers") is None else given["workers"]
        return {"Worker": workers} if given.get("elastic") else {"Master": 1, "Worker": workers}

    def options(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        said = {"elasticPolicy": given.get("elastic"), "nprocPerNode": given.get("nproc_per_node")}
        return {name: value for name, value in said.items() if value is not None}
