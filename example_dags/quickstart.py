"""``make quickstart``: bring up the local cluster, run the retraining pipeline on it, say what came out.

Needs nothing but this Python environment: Airflow keeps its files in ``$AIRFLOW_HOME`` (``.kftrain/airflow`` under
``make``), the cluster its own in ``$KFTRAIN_HOME`` (``~/.kftrain/default``).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from airflow_kftrain.local.cluster import LocalCluster

console = Console()
NODES, GPUS = 2, 4


def main() -> int:
    """Run the main job once. :return: the process's exit code"""
    os.environ.setdefault("AIRFLOW_HOME", str(Path.cwd() / ".kftrain" / "airflow"))
    os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
    os.environ.setdefault("AIRFLOW__CORE__DAGS_FOLDER", str(Path(__file__).parent))
    # dag.test() runs scheduler, triggerer and tasks in this process: show what the tasks say, not how they are run.
    os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("AIRFLOW__LOGGING__NAMESPACE_LEVELS", "airflow_kftrain=INFO py.warnings=ERROR")
    spent: dict[str, float] = {}
    began = time.monotonic()

    cluster = _up()
    spent["local cluster up"] = time.monotonic() - began
    _step(spent, "Airflow's database", _migrate)
    run = _run_pipeline()
    _step(spent, "janitor", _janitor)
    spent |= {f"task {task_id}": seconds for task_id, seconds in run["seconds"].items()}
    _report(run, spent, time.monotonic() - began, cluster)
    return 0 if run["state"] == "success" else 1


def _step(spent: dict[str, float], name: str, work: Any) -> None:
    start = time.monotonic()
    work()
    spent[name] = time.monotonic() - start


def _up() -> LocalCluster:
    from airflow_kftrain.local.cluster import LocalCluster
    from airflow_kftrain.testing import RunningCluster

    cluster = LocalCluster()
    if not cluster.running:
        cluster.up(NODES, GPUS)
    console.print(f"[bold]local cluster[/] up in {cluster.home}")
    os.environ.update(RunningCluster(cluster).environment())
    return cluster


def _migrate() -> None:
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=True, capture_output=True)


def _janitor() -> None:
    """What every host of the planner runs from time to time: nothing is to be found after a run that went well."""
    subprocess.run([sys.executable, "-m", "airflow", "kftrain", "janitor", "--once"], check=True)


def _run_pipeline() -> dict[str, Any]:
    """Run the DAG with ``dag.test()``. :return: its state, the tasks' seconds and results"""
    from example_dags.retraining import dag

    console.print("[bold]retraining pipeline[/]: prepare → train (a gang of three) → evaluate → promote")
    run = dag.test()
    instances = {instance.task_id: instance for instance in run.get_task_instances()}
    return {
        "state": str(run.state),
        "tasks": {task_id: str(instance.state) for task_id, instance in instances.items()},
        "seconds": {task_id: instances[task_id].duration or 0.0 for task_id in dag.task_dict},
        "outcome": _result(instances["train"]),
        "scores": _result(instances["evaluate"]),
    }


def _result(instance: Any) -> dict[str, Any]:
    from airflow.models.xcom import XComModel

    query = XComModel.get_many(
        run_id=instance.run_id, key="return_value", task_ids=instance.task_id, dag_ids=instance.dag_id
    )
    from airflow.utils.session import create_session

    with create_session() as session:
        row: Any = session.scalars(query).first()
        value = row.value if row is not None else None
    value = json.loads(value) if isinstance(value, str) else value
    return value if isinstance(value, dict) else {}


def _report(run: dict[str, Any], spent: dict[str, float], total: float, cluster: LocalCluster) -> None:
    table = Table(title="where the time went")
    table.add_column("step")
    table.add_column("seconds", justify="right")
    for name, seconds in spent.items():
        table.add_row(name, f"{seconds:.1f}")
    table.add_row("in all", f"{total:.1f}", style="bold")
    console.print(table)
    if run["state"] != "success":
        console.print(f"[red]the run is {run['state']}[/]: {run['tasks']}")
        return
    console.print(f"model   {run['scores']['model']}", soft_wrap=True)
    console.print(f"metric  AUC {run['scores']['auc']} on rows that no replica trained on", soft_wrap=True)
    kftrain = os.path.relpath(Path(sys.executable).with_name("kftrain"))
    console.print(
        f"try     {kftrain} local status · kubectl --kubeconfig {cluster.kubeconfig} get nodes,events",
        soft_wrap=True,
    )
    console.print(f"stop    {kftrain} local down", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
