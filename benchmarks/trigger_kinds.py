"""Triggers of the benchmark: each writes down when it began and when it gave its event."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.providers.cncf.kubernetes.triggers.job import KubernetesJobTrigger
from airflow.providers.cncf.kubernetes.triggers.pod import KubernetesPodTrigger
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_kftrain.triggers.training_job import TrainingJobTrigger

MARKS = "KFTRAIN_BENCH_MARKS"


def mark(what: str, name: str) -> None:
    """One line, appended whole, in a file that the benchmark reads."""
    descriptor = os.open(os.environ[MARKS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{what} {name} {time.time():.6f}\n".encode())
    os.close(descriptor)


class IdleTrigger(BaseTrigger):
    """Waits for nothing: Airflow's own floor."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__qualname__}", {"name": self.name}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        mark("begin", self.name)
        await asyncio.Event().wait()
        yield TriggerEvent({})


class TimedTrainingJobTrigger(TrainingJobTrigger):
    """Ours."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        mark("begin", self.job["name"])
        async for event in super().run():
            mark("event", self.job["name"])
            yield event


class TimedJobTrigger(KubernetesJobTrigger):
    """The cncf.kubernetes provider's trigger for batch Jobs."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        mark("begin", self.job_name)
        async for event in super().run():
            mark("event", self.job_name)
            yield event


class TimedPodTrigger(KubernetesPodTrigger):
    """The cncf.kubernetes provider's trigger for pods."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        mark("begin", self.pod_name)
        async for event in super().run():
            mark("event", self.pod_name)
            yield event
