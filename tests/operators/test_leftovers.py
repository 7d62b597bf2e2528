"""Replicas that still run when their job has succeeded: what is said about them, and how long they are waited for."""

from __future__ import annotations

import asyncio
import datetime as dt
import warnings

import pytest

from airflow_kftrain.cluster.resources import XGBOOSTJOBS
from airflow_kftrain.cluster.watch import Listed, list_and_watch
from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs.identity import REPLICA_INDEX, REPLICA_TYPE
from airflow_kftrain.jobs.limits import LimitSeconds
from airflow_kftrain.jobs.manifest import ManifestWarning
from airflow_kftrain.operators.groups import Limits
from airflow_kftrain.operators.pytorch import PyTorchJobOperator
from airflow_kftrain.operators.tensorflow import TFJobOperator
from airflow_kftrain.operators.xgboost import XGBoostJobOperator
from airflow_kftrain.triggers.follow import End, Look, Memory, advance
from tests.operators.airflow_side import watching

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def at(seconds):
    return START + dt.timedelta(seconds=seconds)


def evaluated(**arguments):
    return TFJobOperator(task_id="train", image="i", chief=1, workers=1, evaluator=1, **arguments)


def plan_of(operator):
    return operator._plan(operator._given())


def warned(make):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make()
    return [str(w.message) for w in caught if issubclass(w.category, ManifestWarning)]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"run_policy": {"cleanPodPolicy": "Running"}}, id="the controller kills it"),
        pytest.param({"run_policy": {"cleanPodPolicy": "All"}}, id="the controller deletes it"),
        pytest.param({}, id="the task deletes the job"),
        pytest.param(
            {"run_policy": {"cleanPodPolicy": "None"}, "on_finish_action": "delete"},
            id="delete, whatever comes",
        ),
        pytest.param(
            {"run_policy": {"cleanPodPolicy": "Running"}, "on_finish_action": "keep"},
            id="the controller kills it in a job that is kept",
        ),
    ],
)
def test_b05_an_evaluator_that_will_be_killed_is_one_warning_when_the_dag_is_parsed(arguments):
    [text] = warned(lambda: evaluated(**arguments))
    assert text.startswith("the Evaluator is killed in the middle of its work")


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"wait_for": "evaluator"}, id="it is waited for"),
        pytest.param({"wait_for": ["Evaluator-0"]}, id="it is waited for by its own name"),
        pytest.param({"wait_for": "all"}, id="all are waited for"),
        pytest.param({"on_finish_action": "keep"}, id="the job stays"),
    ],
)
def test_b05_an_evaluator_that_may_end_is_no_warning(arguments):
    assert warned(lambda: evaluated(**arguments)) == []


def test_b05_an_evaluator_is_warned_of_when_only_workers_are_waited_for():
    [text] = warned(lambda: evaluated(wait_for="worker"))
    assert "wait_for='evaluator'" in text


def test_replicas_that_are_waited_for_are_left_alone_by_their_controller():
    plan = plan_of(evaluated(wait_for="Evaluator"))
    assert plan.wait_for == ("evaluator",)
    assert plan.spec.run_policy.clean_pod_policy == "None"
    assert plan.limits.after == 600.0


@pytest.mark.parametrize(
    ("given", "seconds"), [("2m", 120.0), ("none", None), (30, 30.0)], ids=["a span", "no limit", "seconds"]
)
def test_the_wait_beyond_success_has_a_limit_of_its_own(given, seconds):
    assert plan_of(evaluated(wait_for="evaluator", limits=Limits(after=given))).limits.after == seconds


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        pytest.param({"wait_for": "ps"}, r"wait_for: 'ps'.*chief-0, worker-0, evaluator-0", id="nobody"),
        pytest.param({"wait_for": 3}, r"wait_for: 3 .*give 'all', a replica", id="no name"),
        pytest.param(
            {"wait_for": "evaluator", "run_policy": {"cleanPodPolicy": "All"}},
            r"spec.runPolicy.cleanPodPolicy: 'All'.*leave it out",
            id="one that its controller would kill",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::airflow_kftrain.jobs.manifest.ManifestWarning")
def test_what_cannot_be_waited_for_is_an_error_when_the_dag_is_parsed(arguments, error):
    with pytest.raises(InvalidInput, match=error):
        evaluated(**arguments)


class Gang:
    """A PyTorchJob of a Master and two Workers that has succeeded at second 100."""

    def __init__(self, *wait_for, **limits):
        self.wait_for, self.limits = wait_for, LimitSeconds(**limits)
        self.memory, self.lines = Memory(), []

    def look(self, seconds, **phases):
        job = {
            "kind": "PyTorchJob",
            "metadata": {"name": "t", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 2}}},
            "status": {
                "completionTime": "2026-01-01T00:01:40Z",
                "conditions": [{"type": "Succeeded", "status": "True"}],
            },
        }
        pods = tuple(self._pod(name.replace("_", "-"), phase) for name, phase in phases.items())
        step = advance(
            self.memory, Look(job, pods), limits=self.limits, wait_for=self.wait_for, now=at(seconds)
        )
        self.memory = step.memory
        self.lines += step.lines
        return step

    @staticmethod
    def _pod(replica, phase):
        replica_type, index = replica.rsplit("-", 1)
        return {
            "metadata": {
                "name": replica,
                "uid": replica,
                "labels": {REPLICA_TYPE: replica_type, REPLICA_INDEX: index},
            },
            "status": {"phase": phase},
        }


BUSY = {"master_0": "Succeeded", "worker_0": "Running", "worker_1": "Running"}


def test_b01_leftovers_are_not_waited_for_unless_asked():
    assert Gang().look(101, **BUSY).end is End.FINISHED


def test_b01_leftovers_are_waited_for_until_the_last_has_ended():
    gang = Gang("worker", after=600)
    first = gang.look(101, **BUSY)
    assert (first.end, first.look_again) == (None, 599)
    assert gang.look(150, **{**BUSY, "worker_0": "Failed"}).end is None
    assert gang.look(160, **{**BUSY, "worker_0": "Failed", "worker_1": "Succeeded"}).end is End.FINISHED
    assert gang.lines == [
        "The job has succeeded; waiting for the end of worker-0, worker-1",
        "The job has succeeded; waiting for the end of worker-1",
    ]


@pytest.mark.parametrize(
    ("wait_for", "end"),
    [("worker-0", End.FINISHED), ("worker-1", None), ("all", None), ("master", End.FINISHED)],
    ids=["one that has ended", "one that runs", "all", "a type that has ended"],
)
def test_only_those_named_are_waited_for(wait_for, end):
    assert Gang(wait_for).look(101, **{**BUSY, "worker_0": "Succeeded"}).end is end


def test_a_replica_whose_pod_is_gone_is_not_waited_for():
    assert Gang("all").look(101, master_0="Succeeded").end is End.FINISHED


def test_the_limit_counts_from_the_success_whoever_looks_and_the_success_stays_one():
    late = Gang("worker", after=600)
    step = late.look(701, **BUSY)
    assert (step.end, step.breach) == (End.FINISHED, None)
    assert late.lines == ["worker-0, worker-1 did not end within 10m after the job's success"]


def test_without_a_limit_the_wait_goes_on():
    step = Gang("worker").look(1_000_000, **BUSY)
    assert (step.end, step.look_again) == (None, None)


@pytest.mark.parametrize(
    ("wait_for", "left"), [(["worker"], 0), ([], 1)], ids=["waited for", "over for the task"]
)
async def test_a_kill_after_the_success_ends_leftovers_that_were_waited_for(
    player, requested, task, supervisor, wait_for, left
):
    supervisor(task, "failed")
    await player.gang(requested, "master-0", "worker-0", "worker-1")
    async with watching(requested, task, wait_for=wait_for) as watch:
        await watch.said("gang is whole")
        await player.says(requested, "Succeeded=True")
        await watch.said("waiting for the end of worker-0" if wait_for else "has succeeded")
        watch.running.cancel()
        await watch.trigger.on_kill()
    assert len(await player.jobs()) == left


async def test_a_kill_on_the_worker_ends_leftovers_that_were_waited_for(player, task):
    training = XGBoostJobOperator(task_id="train", image="i", workers=2, wait_for="worker", deferrable=False)
    working = asyncio.create_task(asyncio.to_thread(training.execute, task.context))
    async for event in list_and_watch(player.cluster, XGBOOSTJOBS, "default"):
        jobs = event.items if isinstance(event, Listed) else [event.object]
        if jobs:
            break
    job = jobs[0]
    await player.gang(job, "master-0", "worker-0", "worker-1")
    await player.says(job, "Succeeded=True")
    await asyncio.to_thread(training.on_kill)
    assert await player.jobs() == []
    # How the killed call ends is nobody's concern any more.
    await asyncio.gather(asyncio.wait_for(working, 30), return_exceptions=True)


def test_the_wait_is_for_any_kind():
    assert plan_of(PyTorchJobOperator(task_id="t", image="i", wait_for="worker")).wait_for == ("worker",)
