"""Whole DAG runs by ``dag.test()``, with Airflow's own database, on a local cluster whose pods are processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_kftrain.testing import local_cluster

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

pytestmark = [pytest.mark.slow, pytest.mark.e2e]


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """Environment of Airflow processes that reach a fresh local cluster and a fresh database."""
    home = tmp_path_factory.mktemp("airflow")
    with local_cluster(nodes=2, gpus=2) as running:
        env = {
            **os.environ,
            **running.environment(),
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(HERE / "dags"),
            "PYTHONPATH": str(ROOT),
            "NO_COLOR": "1",
        }
        _run(env, "-m", "airflow", "db", "migrate")
        yield env, running


def _run(env, *arguments, check=True):
    done = subprocess.run(
        [sys.executable, *arguments],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        check=False,
    )
    assert not check or done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done


def _dag(env, dag_id):
    done = _run(env, "-m", "tests.operators.dag_run", dag_id)
    return json.loads(done.stdout.strip().splitlines()[-1]), done.stdout + done.stderr


def test_a_dag_trains_sweeps_and_hands_results_on(stage):
    env, _ = stage
    end, log = _dag(env, "trains")
    assert end["state"] == "success", log[-4000:]
    assert end["values"]["best[-1]"] == 0.2
    assert end["values"]["one[-1]"]["metrics"] == {"rate": 0.5}
    assert "[master-0] rank 0 rate 0.5 rows 42" in log
    assert "[worker-1] rank 2 rate 0.2" in log
    assert log.count("has succeeded") == 3


def test_a_dag_whose_worker_fails_says_who_and_why_and_keeps_the_job(stage):
    env, running = stage
    end, log = _dag(env, "fails")
    assert end["tasks"]["train[-1]"] == "failed"
    outcome = end["values"]["train[-1]"]
    assert outcome["replicas"]["worker-1"]["exit_code"] == 3
    assert "[worker-1] about to fail" in log
    left = _run(env, "-c", LIST, str(running.kubeconfig)).stdout.split()
    assert left == [outcome["job"]["name"]]


def test_the_janitor_finds_a_job_whose_task_is_over_and_one_of_an_earlier_try(stage):
    env, running = stage
    _dag(env, "fails")
    _run(env, "-c", LEAK, str(running.kubeconfig))
    done = _run(env, "-m", "airflow", "kftrain", "janitor", "--once", "--grace", "0")
    assert "delete XGBoostJob default/leaked: fails.train" in done.stdout
    assert "keep XGBoostJob default/unknown" in done.stdout
    assert "leaked" not in _run(env, "-c", LIST, str(running.kubeconfig)).stdout


def test_airflow_shows_the_provider(stage):
    env, _ = stage
    shown = {
        command: _run(env, "-m", "airflow", "providers", command, "-o", "plain").stdout
        for command in ("hooks", "links", "triggers", "configs")
    }
    assert "airflow_kftrain.hooks.training_job.TrainingJobHook" in shown["hooks"]
    assert "airflow_kftrain.links.JobLink" in shown["links"]
    assert "airflow_kftrain.triggers.training_job" in shown["triggers"]
    assert "start_limit" in shown["configs"]
    full = _run(env, "-m", "airflow", "providers", "get", "airflow-kftrain", "--full", "-o", "json").stdout
    assert "airflow_kftrain.operators.xgboost" in full
    assert "get_kftrain_cli_commands" in full


LIST = """
import asyncio, sys
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.resources import XGBOOSTJOBS
async def main():
    async with Cluster.from_kubeconfig(sys.argv[1]) as cluster:
        for job in (await cluster.list(XGBOOSTJOBS, "default")).items:
            print(job["metadata"]["name"])
asyncio.run(main())
"""

LEAK = """
import asyncio, copy, sys, uuid
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.resources import XGBOOSTJOBS
async def main():
    async with Cluster.from_kubeconfig(sys.argv[1]) as cluster:
        kept = (await cluster.list(XGBOOSTJOBS, "default")).items[-1]
        for name, owner in (("leaked", None), ("unknown", str(uuid.uuid4()))):
            job = copy.deepcopy(kept)
            labels, notes = kept["metadata"]["labels"], dict(kept["metadata"]["annotations"])
            notes["kftrain/ti"] = owner or notes["kftrain/ti"]
            job["metadata"] = {"name": name, "namespace": "default", "labels": labels, "annotations": notes}
            job["spec"]["runPolicy"] = {"suspend": True}
            job.pop("status", None)
            await cluster.create(XGBOOSTJOBS, job)
asyncio.run(main())
"""
