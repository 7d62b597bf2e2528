"""What the janitor deletes, keeps and refuses."""

from __future__ import annotations

import datetime as dt

import pytest

from airflow_kftrain.admission.janitor import Janitor, check_instance, judge
from airflow_kftrain.admission.ports import TaskTry
from airflow_kftrain.cluster.resources import XGBOOSTJOBS
from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs.identity import INSTANCE, token
from tests.operators.airflow_side import TaskInstance, request

NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def ended(seconds_ago, *, over=True, replaced=False, state="failed"):
    return TaskTry("d.t of r", state, over, replaced, NOW - dt.timedelta(seconds=seconds_ago))


RUNNING = TaskTry("d.t of r", "deferred", over=False, replaced=False)
CASES = {
    "its task waits": ({}, RUNNING, "keep", "deferred"),
    "its task is over": ({}, ended(600), "delete", "is failed"),
    "its task has a newer try": ({}, ended(600, over=False, replaced=True), "delete", "newer try"),
    "its task is over since a moment": ({}, ended(5), "keep", "ended less than"),
    "its task is over, nobody knows since when": (
        {},
        TaskTry("x", "removed", True, False),
        "delete",
        "removed",
    ),
    "Airflow does not know its task": ({}, None, "keep", "does not know"),
    "it succeeded": ({"Succeeded": "True"}, ended(600), "keep", "finished"),
    "it failed": ({"Failed": "True"}, ended(600, replaced=True), "keep", "finished"),
    "it says Failed=False": ({"Failed": "False", "Running": "True"}, ended(600), "delete", "is failed"),
}


@pytest.mark.parametrize(("conditions", "known", "act", "reason"), CASES.values(), ids=CASES)
def test_a_job_is_judged_by_what_became_of_its_task(conditions, known, act, reason):
    job = {
        "metadata": {"namespace": "n", "name": "j", "uid": "u", "annotations": {"kftrain/ti": "me"}},
        "status": {"conditions": [{"type": t, "status": s} for t, s in conditions.items()]},
    }
    verdict = judge(XGBOOSTJOBS, job, {"me": known} if known else {}, now=NOW)
    assert verdict.act == act
    assert reason in verdict.reason


def test_a_job_without_a_token_is_nobodys_to_delete():
    job = {"metadata": {"namespace": "n", "name": "j", "uid": "u"}}
    assert judge(XGBOOSTJOBS, job, {}, now=NOW).act == "keep"


@pytest.mark.parametrize(
    ("told", "seen", "local", "refused"),
    [
        (False, ["airflow"], True, None),
        (False, ["airflow"], False, "default name"),
        (False, ["airflow", "team-b"], True, "team-b"),
        (True, ["airflow", "team-b"], False, None),
    ],
    ids=["alone on the local cluster", "default name elsewhere", "another Airflow", "told the name"],
)
def test_the_janitor_acts_under_a_name_that_is_surely_its_own(told, seen, local, refused):
    if refused is None:
        check_instance("airflow", told=told, seen=seen, local=local)
    else:
        with pytest.raises(InvalidInput, match=refused):
            check_instance("airflow", told=told, seen=seen, local=local)


class Known(dict):
    """Task states as Airflow would tell them."""

    def tries(self, tokens):
        return {token: self[token] for token in tokens if token in self}


async def test_a_sweep_deletes_what_leaked_and_nothing_else(player):
    tasks = [TaskInstance(task_id=name) for name in ("leaked", "waits", "unknown", "finished")]
    jobs = [await request(player.cluster, task) for task in tasks]
    await player.says(jobs[3], "Succeeded=True")
    long_ago = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    over = TaskTry("x", "failed", over=True, replaced=False, ended_at=long_ago)
    known = Known({tasks[0].id: over, tasks[1].id: RUNNING, tasks[3].id: over})
    verdicts = await Janitor(player.cluster, known, instance="airflow", told=True).sweep()
    assert [v.act for v in verdicts] == ["delete", "keep", "keep", "keep"]
    assert {token(job) for job in await player.jobs()} == {task.id for task in tasks[1:]}
    assert [v.act for v in await Janitor(player.cluster, known, instance="airflow", told=True).sweep()] == [
        "keep"
    ] * 3


async def test_a_sweep_touches_no_job_of_another_airflow(player, task):
    job = await request(player.cluster, task)
    labels = {"metadata": {"labels": {INSTANCE: "team-b"}}}
    await player.cluster.patch(XGBOOSTJOBS, job["metadata"]["name"], labels, "default")
    known = Known({task.id: ended(600)})
    assert await Janitor(player.cluster, known, instance="airflow", told=True).sweep() == []
    with pytest.raises(InvalidInput, match=r"team-b|default name"):
        await Janitor(player.cluster, known, instance="airflow").sweep()
    assert len(await player.jobs()) == 1
