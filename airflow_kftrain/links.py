"""Extra links from a task to its job, its logs and its place in the plan, where ``[kftrain]`` has a URL for them."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.settings import SECTION, read_settings

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

FIELDS = ("kind", "plural", "namespace", "name", "uid", "instance", "partition")
"""What a URL template may name."""


def fill(option: str, template: str, values: Mapping[str, Any]) -> str:
    """``template`` with its fields filled in, each quoted for a URL; empty when the template is.

    :param option: the option the template comes from, for the error
    :raises InvalidInput: the template names a field there is none of, or is not well formed
    """
    try:
        names = {name for _, name, _, _ in Formatter().parse(template) if name is not None}
    except ValueError as error:
        raise InvalidInput(f"[{SECTION}] {option}", template, f"write fields as {{name}} ({error})") from None
    if unknown := names.difference(FIELDS):
        raise InvalidInput(
            f"[{SECTION}] {option}", template, f"{sorted(unknown)[0]!r} is no field; use {', '.join(FIELDS)}"
        )
    return template.format(**{name: quote(str(values.get(name) or ""), safe="") for name in FIELDS})


class _Link(BaseOperatorLink):
    """A link whose template is one option; the operator keeps what the fields stand for in ``link_values``."""

    option = ""

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        values = getattr(operator, "link_values", None)
        settings = read_settings()
        return fill(self.option, getattr(settings, self.option), values) if values else ""


class JobLink(_Link):
    """To the job's page (``[kftrain] job_url``)."""

    name = "Training job"
    option = "job_url"


class JobLogsLink(_Link):
    """To the job's logs (``[kftrain] logs_url``)."""

    name = "Training logs"
    option = "logs_url"


class JobPlanLink(_Link):
    """To the job's place in the plan (``[kftrain] plan_url``)."""

    name = "Training plan"
    option = "plan_url"
