"""The provider in a whole Airflow, with real gangs: nothing is lost, leaked or doubled.

Every replica writes down that it ran (``witness.py``); what they wrote is compared with Airflow's task instances and
with the objects of the cluster.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_kftrain.testing import RunningCluster, local_cluster
from tests.e2e.postgres import postgres
from tests.e2e.stack import AirflowStack, airflow_stack, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("airflow")]

REPOSITORY = Path(__file__).parents[2]
GANG = 3
SUBMITTED = re.compile(r"XGBoostJob \S+/(\S+) is submitted")


@dataclass
class World:
    """Airflow, the cluster, and what the replicas wrote."""

    airflow: AirflowStack
    cluster: RunningCluster
    witness: Path

    def records(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """What the replicas of one run's jobs wrote, in order of time."""
        jobs = set(self.jobs_seen(dag_id, run_id))
        lines = [
            json.loads(line)
            for file in self.witness.glob("*.jsonl")
            for line in file.read_text().splitlines()
        ]
        return sorted((line for line in lines if line["job"] in jobs), key=lambda line: line["at"])

    def jobs_seen(self, dag_id: str, run_id: str) -> list[str]:
        """Names of all jobs that this run's tasks made, gone ones included, from the task logs."""
        names: set[str] = set()
        for path in (self.airflow.home / "logs" / f"dag_id={dag_id}" / f"run_id={run_id}").rglob("*.log*"):
            names.update(SUBMITTED.findall(path.read_text(errors="replace")))
        return sorted(names)

    def jobs(self) -> dict[str, dict[str, Any]]:
        """The jobs in the cluster, by name."""
        from kubernetes import client, config

        api = client.CustomObjectsApi(config.new_client_from_config(str(self.cluster.kubeconfig)))
        items = api.list_namespaced_custom_object("kubeflow.org", "v1", "default", "xgboostjobs")["items"]
        return {item["metadata"]["name"]: item for item in items}


@contextlib.contextmanager
def world_on(database: str, root: Path, mutant: str | None = None) -> Iterator[World]:
    """A whole Airflow beside a local cluster, both in ``root``."""
    witness, home = root / "witness", root / "airflow"
    witness.mkdir()
    home.mkdir()
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(local_cluster(nodes=2, gpus=4, home=root / "cluster"))
        postgresql = database == "postgresql"
        url = stack.enter_context(postgres()) if postgresql else f"sqlite:///{home}/airflow.db"
        airflow = stack.enter_context(
            airflow_stack(
                home=home,
                dags=_dags(home),
                database_url=url,
                environment=_environment(cluster, witness, home, mutant),
                triggerers=2 if postgresql else 1,
            )
        )
        yield World(airflow, cluster, witness)


@pytest.fixture(scope="module", params=["postgresql", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_on(request.param, tmp_path_factory.mktemp(request.param)) as running:
        yield running


def _dags(home: Path) -> Path:
    folder = home / "dags"
    folder.mkdir()
    shutil.copy(REPOSITORY / "tests/e2e/dags/witnessed.py", folder)
    (folder / "example_dags").symlink_to(REPOSITORY / "example_dags", target_is_directory=True)
    return folder


def _environment(cluster: RunningCluster, witness: Path, home: Path, mutant: str | None) -> dict[str, str]:
    connection = {
        "conn_type": "kubernetes",
        "extra": {"kube_config_path": str(cluster.kubeconfig), "namespace": "default"},
    }
    return {
        "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps(connection),
        "KFTRAIN_EXAMPLE_DATA": str(home / "data"),
        "PYTHONPATH": os.pathsep.join(
            [*([str(REPOSITORY / "tests/e2e/mutants")] if mutant else []), str(REPOSITORY)]
        ),
        "KFTRAIN_MUTANT": mutant or "",
        "WITNESS": str(witness),
        "WITNESS_SCRIPT": str(REPOSITORY / "tests/e2e/witness.py"),
    }


def starts(records: list[dict[str, Any]], try_number: int | None = None) -> list[dict[str, Any]]:
    chosen = [record for record in records if record["what"] == "start"]
    return [record for record in chosen if try_number is None or record["try"] == str(try_number)]


def ends(records: list[dict[str, Any]], try_number: int | None = None) -> list[dict[str, Any]]:
    chosen = [record for record in records if record["what"] == "end"]
    return [record for record in chosen if try_number is None or record["try"] == str(try_number)]


def ended(records: list[dict[str, Any]]) -> bool:
    """Whether no process of these records runs any more."""
    return not any(_runs(record) for record in starts(records))


def _runs(record: dict[str, Any]) -> bool:
    try:
        return "witness.py" in " ".join(psutil.Process(record["pid"]).cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


def gang_runs(world: World, dag_id: str, run_id: str, try_number: int) -> list[dict[str, Any]]:
    """The start records of a whole gang, once it runs."""

    def look() -> list[dict[str, Any]] | None:
        found = starts(world.records(dag_id, run_id), try_number)
        return found if len(found) == GANG else None

    return eventually(look, f"the gang of {dag_id}, try {try_number}, runs", 90)


def followed(world: World, dag_id: str, run_id: str, task_id: str = "train", try_number: int = 1) -> None:
    """Return once a triggerer runs the task's trigger: it then has a log of its own."""
    logs = world.airflow.home / f"logs/dag_id={dag_id}/run_id={run_id}/task_id={task_id}"
    eventually(
        lambda: any(logs.glob(f"attempt={try_number}.log.trigger.*")), f"{dag_id}.{task_id} is followed", 60
    )


@contextlib.contextmanager
def no_triggerer(world: World) -> Iterator[None]:
    """All triggerers stand still."""
    triggerers = [c for name, c in world.airflow.components.items() if name.startswith("triggerer")]
    for triggerer in triggerers:
        triggerer.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for triggerer in triggerers:
            triggerer.signal(signal.SIGCONT)


def test_the_retraining_pipeline_trains_evaluates_and_promotes(world: World) -> None:
    run_id = world.airflow.first_run("kftrain_retraining")
    assert world.airflow.wait_run("kftrain_retraining", run_id, 240) == "success"
    outcome = world.airflow.call(
        "GET", f"/dags/kftrain_retraining/dagRuns/{run_id}/taskInstances/train/xcomEntries/return_value"
    )
    value = outcome["value"]
    value = json.loads(value) if isinstance(value, str) else value
    assert value["state"] == "succeeded"
    assert Path(value["model"]).exists()
    assert value["metrics"]["auc"] > 0.97


def test_b10_a_task_marked_failed_while_deferred_takes_its_job_along_once(world: World) -> None:
    run_id = world.airflow.run("witness_long")
    world.airflow.wait_task("witness_long", run_id, "train", "deferred")
    gang_runs(world, "witness_long", run_id, 1)
    followed(world, "witness_long", run_id)
    (job,) = world.jobs_seen("witness_long", run_id)
    world.airflow.set_state("witness_long", run_id, "train", "failed")
    eventually(lambda: job not in world.jobs(), "the job of the failed task is deleted", 60)
    eventually(lambda: ended(world.records("witness_long", run_id)), "its processes end", 60)
    records = world.records("witness_long", run_id)
    assert len(starts(records)) == GANG
    assert not ends(records)


def test_b10_what_no_trigger_could_see_the_janitor_removes(world: World) -> None:
    """The task is marked before any triggerer follows its job: nobody is there to be told."""
    with no_triggerer(world):
        run_id = world.airflow.run("witness_long")
        world.airflow.wait_task("witness_long", run_id, "train", "deferred")
        gang_runs(world, "witness_long", run_id, 1)
        (job,) = world.jobs_seen("witness_long", run_id)
        world.airflow.set_state("witness_long", run_id, "train", "failed")
    assert job in world.jobs()
    printed = world.airflow.airflow("kftrain", "janitor", "--once", "--grace", "0")
    assert job in printed
    eventually(lambda: job not in world.jobs(), "the job is deleted", 30)
    eventually(lambda: ended(world.records("witness_long", run_id)), "its processes end", 60)
    assert (
        world.airflow.airflow("kftrain", "janitor", "--once", "--grace", "0")
        .strip()
        .endswith("0 of 0 jobs deleted")
    )


def test_b10_a_task_cleared_while_deferred_trains_once_more_and_only_the_old_job_goes(world: World) -> None:
    run_id = world.airflow.run("witness_clear")
    world.airflow.wait_task("witness_clear", run_id, "train", "deferred")
    gang_runs(world, "witness_clear", run_id, 1)
    world.airflow.clear("witness_clear", run_id, "train")
    gang_runs(world, "witness_clear", run_id, 2)
    assert world.airflow.wait_run("witness_clear", run_id) == "success"
    records = world.records("witness_clear", run_id)
    assert len(starts(records, 1)) == len(starts(records, 2)) == GANG
    assert len(ends(records, 2)) == GANG
    assert not ends(records, 1)
    assert len({record["job"] for record in records}) == 2
    eventually(lambda: ended(world.records("witness_clear", run_id)), "all processes end", 60)
    assert not {record["job"] for record in records} & set(world.jobs())


@pytest.mark.parametrize("world", ["postgresql"], indirect=True)
def test_a_triggerer_that_stops_for_forty_seconds_costs_no_job(world: World) -> None:
    run_id = world.airflow.run("witness_many")
    tasks = [f"train_{number}" for number in range(3)]
    for task_id in tasks:
        world.airflow.wait_task("witness_many", run_id, task_id, "deferred")
    eventually(lambda: len(starts(world.records("witness_many", run_id))) == 3 * GANG, "three gangs run", 90)
    followers = [
        eventually(
            lambda task_id=task_id: world.airflow.triggerer_of(
                world.airflow.task("witness_many", run_id, task_id)
            ),  # type: ignore[misc]
            f"{task_id} is followed",
            60,
        )
        for task_id in tasks
    ]
    stopped = max(followers, key=followers.count)
    stopped.signal(signal.SIGSTOP)
    # The stall itself is what is tested: longer than the 30 s after which another triggerer may take over.
    time.sleep(40)
    stopped.signal(signal.SIGCONT)
    assert world.airflow.wait_run("witness_many", run_id, 240) == "success"
    records = world.records("witness_many", run_id)
    assert len(starts(records)) == len(ends(records)) == 3 * GANG
    assert len({record["uid"] for record in records}) == 3 * GANG
    assert len({record["job"] for record in records}) == 3
    assert {record["try"] for record in records} == {"1"}
    moved = followers.index(stopped)
    logs = world.airflow.home / f"logs/dag_id=witness_many/run_id={run_id}/task_id=train_{moved}"
    assert len(list(logs.glob("attempt=1.log.trigger.*"))) == 2, "another triggerer took over meanwhile"


def test_b15_a_new_try_that_is_faster_than_on_kill_removes_the_old_job_itself(world: World) -> None:
    """A task is cleared while no triggerer can act: its new try finds the job of the first one running."""
    run_id = world.airflow.run("witness_clear")
    world.airflow.wait_task("witness_clear", run_id, "train", "deferred")
    gang_runs(world, "witness_clear", run_id, 1)
    followed(world, "witness_clear", run_id)
    with no_triggerer(world):
        world.airflow.clear("witness_clear", run_id, "train")
        eventually(
            lambda: (
                world.airflow.task("witness_clear", run_id, "train")["try_number"] == 2
                and world.airflow.task("witness_clear", run_id, "train")["state"] == "deferred"
            ),
            "the second try is deferred",
            90,
        )
    assert len(world.jobs_seen("witness_clear", run_id)) == 2, "the second try has a job of its own"
    assert world.airflow.wait_run("witness_clear", run_id) == "success"
    records = world.records("witness_clear", run_id)
    assert len(starts(records, 1)) == len(starts(records, 2)) == len(ends(records, 2)) == GANG
    assert not ends(records, 1)
    eventually(lambda: ended(world.records("witness_clear", run_id)), "all processes end", 60)


def test_nothing_is_left_behind(world: World) -> None:
    """Runs last: neither jobs (successes are deleted by default) nor processes remain."""
    assert world.jobs() == {}
    assert [process.pid for process in psutil.process_iter() if _is_of(process, world)] == []


def _is_of(process: psutil.Process, world: World) -> bool:
    """Whether a process is a replica of this world's jobs."""
    try:
        return process.environ().get("WITNESS") == str(world.witness) and "witness.py" in " ".join(
            process.cmdline()
        )
    except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
        return False


@pytest.mark.parametrize(
    ("mutant", "scenario"),
    [
        ("state-check", test_a_triggerer_that_stops_for_forty_seconds_costs_no_job),
        (
            "ownership-token",
            test_b15_a_new_try_that_is_faster_than_on_kill_removes_the_old_job_itself,
        ),
    ],
    ids=["state check in on_kill", "ownership token"],
)
def test_taking_out_a_guard_is_seen(mutant: str, scenario: Callable[[World], None], tmp_path: Path) -> None:
    """A copy of Airflow in which one guard is missing fails the scenario that the guard is for."""
    with world_on("postgresql", tmp_path, mutant) as running:
        with pytest.raises(AssertionError):
            scenario(running)
        assert list(running.witness.iterdir()), "nothing ran at all"
