"""What Airflow reads of this provider; imported by every ``airflow`` process, so it imports nothing itself."""

from __future__ import annotations

from typing import Any

_INTEGRATION = "KFTrain"

_CONNECTION_FIELDS: dict[str, dict[str, Any]] = {
    "namespace": {
        "label": "Namespace",
        "description": "Namespace of jobs whose operator names none; `default` when empty",
        "schema": {"type": ["string", "null"], "default": None},
    },
    "kube_config_path": {
        "label": "Kube config path",
        "description": "A kubeconfig file that triggerers and workers can read",
        "schema": {"type": ["string", "null"], "default": None},
    },
    "kube_config": {
        "label": "Kube config (JSON format)",
        "description": "The content of a kubeconfig; stored encrypted",
        "schema": {"type": ["string", "null"], "format": "password", "default": None},
    },
    "cluster_context": {
        "label": "Cluster context",
        "description": "The context of the kubeconfig; its current one when empty",
        "schema": {"type": ["string", "null"], "default": None},
    },
    "in_cluster": {
        "label": "In cluster configuration",
        "description": "Use the service account of the pod that Airflow runs in",
        "schema": {"type": ["boolean", "null"], "default": None},
    },
}


def _option(
    description: str, default: str | None, *, kind: str = "string", example: str | None = None
) -> dict[str, Any]:
    return {
        "description": description,
        "version_added": "0.1.0",
        "type": kind,
        "example": example,
        "default": default,
    }


_OPTIONS: dict[str, dict[str, Any]] = {
    "instance": _option(
        "Name of this Airflow on its clusters, the same for all its parts. Two Airflows with different\n"
        "names never touch each other's jobs. At most 63 characters, valid as a label value.\n",
        "airflow",
    ),
    "mode": _option(
        "How jobs start when an operator does not say: ``single-job`` (at once) or ``cluster``\n"
        "(admitted into a partition by a planner).\n",
        "single-job",
    ),
    "start_limit": _option(
        "Longest time from admission until the whole gang runs, for operators that set no ``start`` limit.\n"
        "``none`` for no limit.\n",
        "30m",
        example="1h30m",
    ),
    "progress_interval": _option(
        "Least number of seconds between two updates of a job's ``kftrain/progress`` annotation.\n",
        "30",
        kind="float",
    ),
    "job_url": _option(
        "Template of the extra link to a job. Fields: {kind} {plural} {namespace} {name} {uid} {instance}\n"
        "{partition}. No link when empty.\n",
        "",
        example="https://dashboard.example.com/#/{plural}/{namespace}/{name}",
    ),
    "logs_url": _option(
        "Template of the extra link to a job's logs; fields as for ``job_url``. No link when empty.\n",
        "",
        example="https://grafana.example.com/explore?ns={namespace}&job={name}",
    ),
    "plan_url": _option(
        "Template of the extra link to a job's place in the plan; fields as for ``job_url``. No link when empty.\n",
        "",
        example="https://airflow.example.com/plugin/kftrain/{partition}",
    ),
}


def get_provider_info() -> dict[str, Any]:
    """The provider's metadata, in the form of Airflow's ``provider_info.schema.json``."""
    return {
        "package-name": "airflow-kftrain",
        "name": _INTEGRATION,
        "description": (
            "Gang-scheduled distributed training on Kubernetes: `TFJob, PyTorchJob and XGBoostJob"
            " <https://www.kubeflow.org/docs/components/training/>`__ as deferrable tasks"
        ),
        "versions": ["0.1.0"],
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "external-doc-url": "https://www.kubeflow.org/docs/components/training/",
                "tags": ["software"],
            }
        ],
        "operators": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": [
                    "airflow_kftrain.operators.training_job",
                    "airflow_kftrain.operators.tensorflow",
                    "airflow_kftrain.operators.pytorch",
                    "airflow_kftrain.operators.xgboost",
                ],
            }
        ],
        "hooks": [
            {"integration-name": _INTEGRATION, "python-modules": ["airflow_kftrain.hooks.training_job"]}
        ],
        "triggers": [
            {"integration-name": _INTEGRATION, "python-modules": ["airflow_kftrain.triggers.training_job"]}
        ],
        "connection-types": [
            {
                # The same fields as the cncf.kubernetes provider's `kubernetes` type, which works as well.
                "connection-type": "kftrain",
                "hook-name": "KFTrain Kubernetes Cluster",
                "hook-class-name": "airflow_kftrain.hooks.training_job.TrainingJobHook",
                "ui-field-behaviour": {
                    "hidden-fields": ["host", "schema", "login", "password", "port", "extra"],
                    "relabeling": {},
                },
                "conn-fields": _CONNECTION_FIELDS,
            }
        ],
        "extra-links": [
            "airflow_kftrain.links.JobLink",
            "airflow_kftrain.links.JobLogsLink",
            "airflow_kftrain.links.JobPlanLink",
        ],
        "cli": ["airflow_kftrain.cli.airflow_commands.get_kftrain_cli_commands"],
        "config": {
            "kftrain": {
                "description": "Distributed training jobs and the planner that admits them.",
                "options": _OPTIONS,
            }
        },
    }
