"""Where examples run: Airflow with a home of its own, on a local cluster."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATIENCE = 420.0
"""Seconds that a whole DAG run may take: a loaded machine imports a framework for half a minute."""


@dataclass(frozen=True)
class Ended:
    """A DAG run that has ended.

    :param values: what each task returned
    :param log: all that the tasks wrote
    """

    state: str
    states: Mapping[str, str]
    values: Mapping[str, Any]
    log: str

    def said(self, pattern: str) -> list[tuple[str, ...]]:
        """The groups of ``pattern`` in each line of a replica that matches; the replica's name comes first."""
        found = re.finditer(rf"\[(?P<replica>[a-z]+-\d+)\] {pattern}", self.log)
        return [(match["replica"], *match.groups()[1:]) for match in found]


class Running:
    """A DAG run in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._log: list[str] = []
        self._more = asyncio.Condition()
        self._reader = asyncio.create_task(self._read())

    async def until_said(self, pattern: str, *, after: int = 0, patience: float = 120.0) -> int:
        """Wait for a line that matches, from line ``after`` on; the number of the line that follows it."""
        number = after
        try:
            async with asyncio.timeout(patience), self._more:
                while True:
                    while number < len(self._log):
                        number += 1
                        if re.search(pattern, self._log[number - 1]):
                            return number
                    assert not self._reader.done(), f"the run has ended without {pattern!r}: {self.tail}"
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError(f"nobody said {pattern!r}: {self.tail}") from None

    async def ended(self) -> Ended:
        async with asyncio.timeout(PATIENCE):
            await asyncio.shield(self._reader)
            code = await self._process.wait()
        assert code == 0, self.tail
        return Ended(**json.loads(self._log[-1]), log="\n".join(self._log[:-1]))

    async def stop(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await self._process.wait()
        await asyncio.gather(self._reader, return_exceptions=True)

    @property
    def tail(self) -> str:
        return "\n".join(self._log)[-6000:]

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            async with self._more:
                self._log.append(line.decode("utf-8", "replace").rstrip("\n"))
                self._more.notify_all()
        async with self._more:
            self._more.notify_all()


@dataclass(frozen=True)
class Stage:
    """An Airflow and the cluster that it reaches.

    :param home: Airflow's home, its database migrated
    :param kubeconfig: leads to the cluster
    :param connection: variables by which Airflow's connection leads there
    :param machine: directory of the kubelet that runs the pods as processes
    :param namespace: where the connection's jobs go
    """

    home: Path
    kubeconfig: Path
    connection: Mapping[str, str]
    machine: Path
    namespace: str = "default"

    @contextlib.asynccontextmanager
    async def running(self, module: str, conf: Mapping[str, Any] | None = None) -> AsyncIterator[Running]:
        """Run the DAG of a module, ``module:name`` where it is not called ``dag``."""
        run = Running(
            await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.examples.dag_run", module, json.dumps(conf or {}),
                env=airflow_environment(self.home) | dict(self.connection),
                cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, limit=1 << 20,
            )
        )  # fmt: skip
        try:
            yield run
        finally:
            await run.stop()

    async def run(self, module: str, conf: Mapping[str, Any] | None = None) -> Ended:
        """Run a DAG to its end, which must be a success."""
        async with self.running(module, conf) as run:
            ended = await run.ended()
        assert ended.state == "success", ended.log[-6000:]
        return ended


def airflow_environment(home: Path) -> dict[str, str]:
    """Variables of an Airflow process with that home."""
    return {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "example_dags"),
        "PYTHONPATH": str(ROOT),
        "NO_COLOR": "1",
    }


def migrate(home: Path) -> None:
    """Make Airflow's database in that home."""
    subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"],
        env=airflow_environment(home), cwd=ROOT, check=True, capture_output=True, timeout=300,
    )  # fmt: skip
