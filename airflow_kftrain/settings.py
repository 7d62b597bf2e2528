"""The ``[kftrain]`` section of Airflow's configuration, read on demand into one value that is passed down."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs.durations import parse_duration

SECTION = "kftrain"
DEFAULT_INSTANCE = "airflow"
MODES = ("single-job", "cluster")


@dataclass(frozen=True)
class Settings:
    """The options, checked.

    :param instance: name of this Airflow on its clusters; a valid label value
    :param mode: ``single-job`` or ``cluster``
    :param start_limit: default ``start`` limit in seconds; ``None`` for none
    :param progress_interval: least seconds between two updates of the ``kftrain/progress`` annotation
    :param job_url: URL template of the link to a job; empty: no link
    :param logs_url: the same for a job's logs
    :param plan_url: the same for a job's place in the plan
    """

    instance: str = DEFAULT_INSTANCE
    mode: str = "single-job"
    start_limit: float | None = 1800.0
    progress_interval: float = 30.0
    job_url: str = ""
    logs_url: str = ""
    plan_url: str = ""


def read_settings() -> Settings:
    """The present configuration. :raises InvalidInput: an option cannot be used; the text names it"""
    return Settings(
        instance=_instance(_option("instance", DEFAULT_INSTANCE)),
        mode=check_mode(f"[{SECTION}] mode", _option("mode", "single-job")),
        start_limit=_limit(_option("start_limit", "30m")),
        progress_interval=parse_duration(
            f"[{SECTION}] progress_interval", _option("progress_interval", "30")
        ).total_seconds(),
        job_url=_option("job_url", ""),
        logs_url=_option("logs_url", ""),
        plan_url=_option("plan_url", ""),
    )


def check_mode(field: str, value: Any) -> str:
    """``value`` if it is a mode. :raises InvalidInput: it is none"""
    if value not in MODES:
        raise InvalidInput(field, value, f"use one of {', '.join(MODES)}")
    return str(value)


def _option(name: str, default: str) -> str:
    from airflow.sdk.configuration import conf

    return str(conf.get(SECTION, name, fallback=default) or default).strip()


def _limit(text: str) -> float | None:
    if text.lower() == "none":
        return None
    return parse_duration(f"[{SECTION}] start_limit", text).total_seconds()


def _instance(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", text):
        raise InvalidInput(
            f"[{SECTION}] instance",
            text,
            "use at most 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends",
        )
    return text
