"""Airflow's own processes for a test: API server, scheduler, DAG processor, triggerers; all ended by id at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx

from tests.e2e.postgres import free_port

T = TypeVar("T")
FINAL = ("success", "failed", "skipped", "upstream_failed", "removed")


def eventually(look: Callable[[], T | None], what: str, seconds: float, pause: float = 0.5) -> T:
    """The first result of ``look`` that is neither None nor False; the pause is between looks at another process."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found is not None and found is not False:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what}")
        time.sleep(pause)


@dataclass
class Component:
    """One of Airflow's processes with all its children (it leads a process group)."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    job_id: int | None = None

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def stop(self) -> None:
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self.signal(signal.SIGKILL)
        self.process.wait(10)


@dataclass
class AirflowStack:
    """A running Airflow.

    :param home: AIRFLOW_HOME; logs of the components are in ``home/components``
    :param dags: folder with the DAG files
    """

    home: Path
    dags: Path
    database_url: str
    environment: Mapping[str, str]
    triggerers: int = 2
    components: dict[str, Component] = field(default_factory=dict)
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self._env = {
            **os.environ,
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "6",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{self.port}/execution/",
            "AIRFLOW__CORE__INTERNAL_API_SECRET_KEY": "end-to-end",
            "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{self.port}",
            "AIRFLOW__API__SECRET_KEY": "end-to-end",
            "AIRFLOW__API_AUTH__JWT_SECRET": "end-to-end-secret-of-sixty-four-bytes-so-that-hs512-is-content-0000",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self.database_url,
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
            "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            **self.environment,
        }
        self._api = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30)

    def airflow(self, *arguments: str, timeout: float = 180) -> str:
        """Run one ``airflow`` command and return what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "airflow", *arguments],
            env=self._env,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, (
            f"airflow {' '.join(arguments)}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        )
        return done.stdout

    def start(self) -> None:
        self.airflow("db", "migrate")
        self._start("api-server", "--port", str(self.port), "--host", "127.0.0.1", "--workers", "1")
        self._start("scheduler", "--skip-serve-logs")
        self._start("dag-processor")
        eventually(self._log_in, "the API server gives out a token", 120)
        for number in range(self.triggerers):
            self._start_triggerer(f"triggerer-{number}")
        eventually(self._healthy, "all of Airflow's components report healthy", 120)

    def _start(self, *command: str, name: str | None = None) -> None:
        name = name or command[0]
        log = self.home / "components" / f"{name}.log"
        log.parent.mkdir(exist_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-m", "airflow", *command],
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=(output := log.open("ab")),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        output.close()
        self.components[name] = Component(name, process, log)

    def _log_in(self) -> bool:
        try:
            token = self._api.get("/auth/token").json()["access_token"]
        except (httpx.HTTPError, ValueError):
            return False
        self._api.headers["Authorization"] = f"Bearer {token}"
        return True

    def _start_triggerer(self, name: str) -> None:
        """Start one, and find out under which job id it runs: Airflow names triggerers by nothing else."""
        known = self._triggerer_jobs()
        self._start("triggerer", "--skip-serve-logs", name=name)
        new = eventually(lambda: self._triggerer_jobs() - known or None, f"{name} has a job", 120)
        self.components[name].job_id = min(new)

    def _triggerer_jobs(self) -> set[int]:
        return {job["id"] for job in self.call("GET", "/jobs?job_type=TriggererJob")["jobs"]}

    def triggerer_of(self, instance: dict[str, Any]) -> Component | None:
        """The triggerer that follows a deferred task instance now."""
        job_id = (instance["trigger"] or {}).get("triggerer_id")
        return next((c for c in self.components.values() if job_id is not None and c.job_id == job_id), None)

    def _healthy(self) -> bool:
        for component in self.components.values():
            if component.process.poll() is not None:
                raise AssertionError(
                    f"{component.name} ended:\n{component.log.read_text(errors='replace')[-3000:]}"
                )
        try:
            health = self._api.get("/api/v2/monitor/health").json()
        except (httpx.HTTPError, ValueError):
            return False
        return all(
            health[part]["status"] == "healthy"
            for part in ("metadatabase", "scheduler", "triggerer", "dag_processor")
        )

    def stop(self) -> None:
        self._api.close()
        for component in reversed(self.components.values()):
            component.stop()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One call of REST v2."""
        answer = self._api.request(method, f"/api/v2{path}", json=body)
        assert answer.status_code < 300, f"{method} {path}: {answer.status_code} {answer.text[:1000]}"
        return answer.json() if answer.content else None

    def run(self, dag_id: str, **conf: Any) -> str:
        """Start a run (once the DAG is parsed) and return its run id."""

        self._unpause(dag_id)
        return str(
            self.call("POST", f"/dags/{dag_id}/dagRuns", {"logical_date": None, "conf": conf})["dag_run_id"]
        )

    def first_run(self, dag_id: str) -> str:
        """Unpause a DAG that has a schedule, and return the run id of what the scheduler then makes."""
        self._unpause(dag_id)

        def look() -> str | None:
            runs = self.call("GET", f"/dags/{dag_id}/dagRuns?order_by=run_after")["dag_runs"]
            return str(runs[0]["dag_run_id"]) if runs else None

        return eventually(look, f"{dag_id} has a run", 60)

    def _unpause(self, dag_id: str) -> None:
        def parsed() -> bool:
            return self._api.get(f"/api/v2/dags/{dag_id}").status_code == 200

        eventually(parsed, f"{dag_id} is parsed; import errors: {self.call('GET', '/importErrors')}", 90)
        self.call("PATCH", f"/dags/{dag_id}", {"is_paused": False})

    def task(self, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
        instance: dict[str, Any] = self.call(
            "GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}"
        )
        return instance

    def wait_task(
        self, dag_id: str, run_id: str, task_id: str, *states: str, seconds: float = 120
    ) -> dict[str, Any]:
        """The task instance once it is in one of ``states``."""

        def look() -> dict[str, Any] | None:
            instance = self.task(dag_id, run_id, task_id)
            if instance["state"] in FINAL and instance["state"] not in states:
                log = self.task_log(dag_id, run_id, task_id, instance["try_number"])
                raise AssertionError(
                    f"{dag_id}.{task_id} is {instance['state']}, not {states}; its log:\n{log[-6000:]}"
                )
            return instance if instance["state"] in states else None

        return eventually(look, f"{dag_id}.{task_id} in {states}", seconds)

    def wait_run(self, dag_id: str, run_id: str, seconds: float = 180) -> str:
        """The final state of a run."""

        def look() -> str | None:
            state: str = self.call("GET", f"/dags/{dag_id}/dagRuns/{run_id}")["state"]
            return state if state in ("success", "failed") else None

        return eventually(look, f"{dag_id} {run_id} ends", seconds)

    def set_state(self, dag_id: str, run_id: str, task_id: str, state: str) -> None:
        """Mark a task, as a person does in the UI."""
        self.call("PATCH", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}", {"new_state": state})

    def clear(self, dag_id: str, run_id: str, task_id: str) -> None:
        """Clear a task, as a person does in the UI."""
        body = {
            "dry_run": False,
            "dag_run_id": run_id,
            "task_ids": [task_id],
            "only_failed": False,
            "reset_dag_runs": True,
        }
        self.call("POST", f"/dags/{dag_id}/clearTaskInstances", body)

    def task_log(self, dag_id: str, run_id: str, task_id: str, try_number: int) -> str:
        """All that the log files of one try hold."""
        pattern = f"dag_id={dag_id}/run_id={run_id}/task_id={task_id}/attempt={try_number}.log*"
        return "\n".join(
            path.read_text(errors="replace") for path in sorted((self.home / "logs").glob(pattern))
        )


@contextlib.contextmanager
def airflow_stack(**given: Any) -> Iterator[AirflowStack]:
    """A started stack, ended at exit."""
    stack = AirflowStack(**given)
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()
