"""Faults of neighbouring products, through operator and trigger on the local API."""

from __future__ import annotations

import asyncio
import json
import re
import traceback

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

from airflow_kftrain.cluster.resources import PODS, XGBOOSTJOBS
from airflow_kftrain.cluster.watch import Listed, list_and_watch
from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs.identity import TI, token
from airflow_kftrain.jobs.tries import Phase, tries_from_json
from airflow_kftrain.operators.this_try import STORE_KEY, ThisTry
from airflow_kftrain.operators.training_job import TrainingJobFailed, TrainingJobOperator
from airflow_kftrain.operators.xgboost import XGBoostJobOperator
from airflow_kftrain.triggers.events import FinalEvent, JobRef
from tests.operators.airflow_side import TaskInstance, watching
from tests.support.faulty_proxy import dropped, lost_answer, status

pytestmark = pytest.mark.usefixtures("kubeconfig")

GANG = ("master-0", "worker-0", "worker-1")
JOBS = "/xgboostjobs$"


def operator(**arguments):
    return XGBoostJobOperator(task_id="train", image="acme/train:1", workers=2, **arguments)


async def start(task, **arguments):
    """Run a worker's part up to the deferral; the operator and the trigger that it leaves."""
    training = operator(**arguments)
    with pytest.raises(TaskDeferred) as deferred:
        await asyncio.to_thread(training.execute, task.context)
    return training, deferred.value.trigger


async def finish(training, task, event):
    """Run a worker's part after the event."""
    return await asyncio.to_thread(training.execute_complete, task.context, event.to_payload())


def phases(task):
    return [one.phase for one in tries_from_json(task.store[STORE_KEY])]


async def dies_after_the_post(task, monkeypatch, phase):
    """A try whose worker dies once its job is there and its record says ``phase``."""

    class Dies(BaseException):
        pass

    original = ThisTry.remember

    def remember(this_try, own):
        original(this_try, own)
        if own.phase is phase:
            raise Dies

    with monkeypatch.context() as patched:
        patched.setattr(ThisTry, "remember", remember)
        with pytest.raises(Dies):
            await asyncio.to_thread(operator().execute, task.context)


async def test_the_task_submits_waits_and_returns_the_outcome(player, task):
    training, trigger = await start(task)
    (job,) = await player.jobs()
    assert token(job) == task.id
    assert job["metadata"]["labels"]["kftrain/instance"] == "airflow"
    async with watching(job, task, **options_of(trigger)) as watch:
        pods = await player.gang(job, *GANG)
        player.writes(
            pods[0], b'KFTRAIN {"progressPercentage": 100, "metrics": {"auc": 0.9}, "model": "s3://m"}\n'
        )
        player.ends_log(pods[0])
        for pod in pods:
            await player.becomes(pod, "Succeeded")
        await player.says(job, "Succeeded=True")
        outcome = await finish(training, task, await watch.event())
    assert (outcome["state"], outcome["model"], outcome["metrics"]) == ("succeeded", "s3://m", {"auc": 0.9})
    assert await player.jobs() == []
    assert phases(task) == [Phase.WAITING]


async def test_the_waiting_form_ends_as_the_deferred_one_does(player, task):
    training = operator(deferrable=False, on_finish_action="keep")
    working = asyncio.create_task(asyncio.to_thread(training.execute, task.context))
    job = await _appears(player)
    pods = await player.gang(job, *GANG)
    await player.becomes(pods[1], "Failed", exit_code=3)
    await player.says(job, "Failed=True")
    with pytest.raises(TrainingJobFailed, match=r"worker-0.*exit code 3"):
        await asyncio.wait_for(working, 20)
    assert task.pushed["return_value"]["replicas"]["worker-0"]["exit_code"] == 3
    assert len(await player.jobs()) == 1


@pytest.mark.parametrize(
    ("action", "last"),
    [("delete", ["deleted (on_finish_action='delete')"]), ("keep", ["kept (on_finish_action='keep')"])],
)
async def test_the_log_says_what_became_of_the_job(player, task, monkeypatch, action, last):
    training, trigger = await start(task, on_finish_action=action)
    (job,) = await player.jobs()
    async with watching(job, task, **options_of(trigger)) as watch:
        for pod in await player.gang(job, *GANG):
            await player.becomes(pod, "Succeeded")
        await player.says(job, "Succeeded=True")
        event = await watch.event()
    said = []
    monkeypatch.setattr(training.log, "info", lambda text, *values: said.append(text % values))
    await finish(training, task, event)
    assert said == [f"{event.job} is {text}" for text in last]
    said.clear()
    if action == "delete":
        await finish(training, task, event)
        assert said == [], "nothing is done to a job that is gone, and nothing is said"


@pytest.mark.parametrize(
    ("arguments", "policy"),
    [
        ({}, "Running"),
        ({"run_policy": {"cleanPodPolicy": "All"}}, "All"),
        ({"on_finish_action": "keep"}, None),
    ],
    ids=["ended", "the job's own policy stays", "kept with its pods"],
)
async def test_b01_what_still_runs_of_a_failed_job_does_not_keep_its_gpus(player, task, arguments, policy):
    training, trigger = await start(task, **arguments)
    (job,) = await player.jobs()
    async with watching(job, task, **options_of(trigger)) as watch:
        pods = await player.gang(job, *GANG)
        await player.becomes(pods[1], "Failed", exit_code=3)
        await player.says(job, "Failed=True")
        event = await watch.event()
    with pytest.raises(TrainingJobFailed):
        await finish(training, task, event)
    (kept,) = await player.jobs()
    assert (kept["spec"].get("runPolicy") or {}).get("cleanPodPolicy") == policy


async def test_an_exit_code_may_skip_the_task(player, task):
    from airflow.sdk.exceptions import AirflowSkipException

    training, trigger = await start(task, skip_on_exit_code=[99])
    (job,) = await player.jobs()
    async with watching(job, task, **options_of(trigger)) as watch:
        pods = await player.gang(job, *GANG)
        await player.becomes(pods[1], "Failed", exit_code=99)
        await player.says(job, "Failed=True")
        event = await watch.event()
    with pytest.raises(AirflowSkipException, match="99"):
        await finish(training, task, event)


async def test_b06_long_and_odd_ids_give_valid_names_that_differ(player):
    long = "2024_Customer_Churn_" + "x" * 70
    tasks = [
        TaskInstance(dag_id=long + "A", task_id="train.model_V2", map_index=3),
        TaskInstance(dag_id=long + "B", task_id="train.model_V2", map_index=3),
        TaskInstance(dag_id="Prüfung", task_id="ü"),
        TaskInstance(dag_id="1_-_", task_id="_"),
    ]
    for task in tasks:
        await start(task)
    jobs = await player.jobs()
    names = {job["metadata"]["name"] for job in jobs}
    assert len(names) == len(tasks)
    for job in jobs:
        name = job["metadata"]["name"]
        assert re.fullmatch(r"[a-z][a-z0-9-]*[a-z0-9]", name)
        assert len(f"{name}-evaluator-99999") <= 63
        await player.gang(job, *GANG)  # the API takes pods of such names and labels


async def test_b06_a_given_name_is_checked_when_the_dag_is_parsed():
    manifest = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "XGBoostJob",
        "metadata": {"name": "My_Job"},
        "spec": {
            "xgbReplicaSpecs": {
                "Master": {"template": {"spec": {"containers": [{"name": "xgboost", "image": "i"}]}}}
            }
        },
    }
    with pytest.raises(InvalidInput, match=r"metadata\.name: 'My_Job'"):
        TrainingJobOperator(task_id="train", manifest=manifest)


async def test_b06_a_given_name_is_the_prefix_of_the_real_one(player, task):
    manifest = """
        apiVersion: kubeflow.org/v1
        kind: XGBoostJob
        metadata: {generateName: churn-}
        spec:
          runPolicy: {cleanPodPolicy: None}
          xgbReplicaSpecs:
            Master:
              template: {spec: {containers: [{name: xgboost, image: "acme/train:1", command: [python]}]}}
    """
    training = TrainingJobOperator(task_id="train", manifest=manifest)
    with pytest.raises(TaskDeferred):
        await asyncio.to_thread(training.execute, task.context)
    (job,) = await player.jobs()
    assert re.fullmatch(r"churn-[a-z0-9]+", job["metadata"]["name"])
    assert job["spec"]["runPolicy"]["cleanPodPolicy"] == "None"


@pytest.mark.parametrize("state", ["failed", "success", "skipped", "up_for_retry", None])
async def test_b10_a_task_that_is_marked_or_cleared_while_deferred_deletes_its_job_once(
    player, requested, task, proxy, supervisor, state
):
    supervisor(task, state)
    async with watching(requested, task) as watch:
        await player.gang(requested, *GANG)
        await watch.said("gang is whole")
        watch.running.cancel()
        await watch.trigger.on_kill()
        await watch.trigger.on_kill()
    assert await player.jobs() == []
    assert len(proxy.seen("DELETE", "/xgboostjobs/")) == 1


async def test_b10_a_triggerer_that_only_lost_its_lease_deletes_nothing(player, requested, task, supervisor):
    supervisor(task, "deferred")
    async with watching(requested, task) as watch:
        await watch.trigger.on_kill()
    assert len(await player.jobs()) == 1


async def test_b10_a_late_kill_leaves_the_job_of_the_next_try_alone(player, task, supervisor):
    _, trigger = await start(task)
    (first,) = await player.jobs()
    second = task.next_try()
    supervisor(task, "running")
    async with watching(first, task, **options_of(trigger)) as watch:
        await start(second)
        await watch.trigger.on_kill()
    (left,) = await player.jobs()
    assert token(left) == second.id


async def test_b10_a_late_kill_leaves_a_job_that_another_try_has_taken_over(
    player, task, supervisor, monkeypatch
):
    await dies_after_the_post(task, monkeypatch, Phase.CREATED)
    (job,) = await player.jobs()
    second = task.next_try()
    await start(second)
    supervisor(task, "running")
    async with watching(job, task) as watch:
        await watch.trigger.on_kill()
    (left,) = await player.jobs()
    assert (left["metadata"]["uid"], token(left)) == (job["metadata"]["uid"], second.id)


async def test_b10_a_job_made_anew_by_hand_under_the_same_name_is_left_alone(
    player, requested, task, supervisor
):
    supervisor(task, "failed")
    name = requested["metadata"]["name"]
    async with watching(requested, task) as watch:
        await player.cluster.delete(XGBOOSTJOBS, name, "default")
        kept = {key: requested["metadata"][key] for key in ("name", "labels", "annotations")}
        await player.cluster.create(XGBOOSTJOBS, {**requested, "metadata": kept}, "default")
        await watch.trigger.on_kill()
    assert len(await player.jobs()) == 1


async def test_b10_a_kill_after_the_end_leaves_a_kept_job(player, requested, task, supervisor):
    await player.says(requested, "Succeeded=True")
    supervisor(task, "success")
    async with watching(requested, task) as watch:
        await watch.trigger.on_kill()
    assert len(await player.jobs()) == 1


async def test_b10_the_deletion_outlives_the_second_that_airflow_gives(player, requested, task, supervisor):
    release = asyncio.Event()
    supervisor(task, "failed", after=release)
    async with watching(requested, task) as watch:
        killing = asyncio.create_task(watch.trigger.on_kill())
        await asyncio.sleep(0)
        killing.cancel()
        await asyncio.gather(killing, return_exceptions=True)
        release.set()
        await watch.said("is deleted")
    assert await player.jobs() == []


async def test_b11_an_object_that_is_gone_when_the_task_resumes_changes_nothing(player, task):
    training, trigger = await start(task)
    (job,) = await player.jobs()
    async with watching(job, task, **options_of(trigger)) as watch:
        await player.gang(job, *GANG, phase="Succeeded")
        await player.says(job, "Succeeded=True")
        event = await watch.event()
    await player.cluster.delete(XGBOOSTJOBS, job["metadata"]["name"], "default")
    assert (await finish(training, task, event))["state"] == "succeeded"


async def test_b10_an_event_about_an_earlier_tries_job_does_not_end_the_new_try(player, task):
    """Seen on SQLite, which gives the id of a deleted trigger to the next one: an old event resumed the new try."""
    _, trigger = await start(task)
    second = task.next_try()
    resumed, own = await start(second)
    stray = FinalEvent(JobRef(**trigger.job), "gone", "the job was deleted by somebody else before it ended")
    with pytest.raises(TaskDeferred) as again:
        await finish(resumed, second, stray)
    assert again.value.trigger.job == own.job
    assert again.value.trigger.job != trigger.job
    assert [token(job) for job in await player.jobs()] == [second.id]


@pytest.mark.parametrize("phase", [Phase.SUBMITTING, Phase.CREATED], ids=["at the POST", "after it"])
async def test_b15_a_job_whose_worker_died_before_it_could_defer_is_taken_over(
    player, task, monkeypatch, phase
):
    await player.says(await _leftover(player, task), "Failed=True")
    second = task.next_try()
    await dies_after_the_post(second, monkeypatch, phase)
    if phase is Phase.SUBMITTING:
        await _post_by(player, second)
    jobs = {token(job): job for job in await player.jobs()}
    third = second.next_try()
    await start(third)
    left = {token(job): job for job in await player.jobs()}
    assert left[third.id]["metadata"]["uid"] == jobs[second.id]["metadata"]["uid"]
    assert set(left) == {task.id, third.id}, "the failed job of the first try is kept, and there is no third"


async def test_b15_a_job_whose_task_was_cleared_is_deleted_and_made_anew(player, task):
    await start(task)
    (first,) = await player.jobs()
    second = task.next_try()
    await start(second)
    (job,) = await player.jobs()
    assert token(job) == second.id
    assert job["metadata"]["uid"] != first["metadata"]["uid"], "the training is a new one"


async def test_b15_a_finished_job_is_never_the_result_of_a_later_try(player, task, monkeypatch):
    await dies_after_the_post(task, monkeypatch, Phase.CREATED)
    await player.says((await player.jobs())[0], "Succeeded=True")
    second = task.next_try()
    await start(second, on_finish_action="delete")
    (job,) = await player.jobs()
    assert token(job) == second.id


async def test_b15_a_strangers_job_of_our_name_is_left_alone(player, task):
    await start(task)
    (job,) = await player.jobs()
    name = job["metadata"]["name"]
    await player.cluster.patch(XGBOOSTJOBS, name, {"metadata": {"annotations": {TI: "somebody"}}}, "default")
    task.store.clear()
    with pytest.raises(AirflowFailException, match="somebody"):
        await asyncio.to_thread(operator().execute, task.context)
    assert len(await player.jobs()) == 1


async def test_b18_passing_refusals_of_the_post_are_tried_again(player, task, proxy):
    proxy.fail(
        "POST",
        JOBS,
        status(429, "TooManyRequests", retry_after=2),
        status(409, "Conflict", "the quota object was modified"),
        status(500, "InternalError"),
    )
    began = asyncio.get_running_loop().time()
    await start(task)
    assert len(await player.jobs()) == 1
    assert len(proxy.seen("POST", JOBS)) == 4
    assert asyncio.get_running_loop().time() - began >= 2, "Retry-After is honoured"


@pytest.mark.parametrize("fault", [lost_answer(), dropped()], ids=["stored, answer lost", "never arrived"])
async def test_b18_an_answer_that_is_lost_gives_one_job(player, task, proxy, fault):
    proxy.fail("POST", JOBS, fault)
    await start(task)
    (job,) = await player.jobs()
    assert token(job) == task.id


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [(403, "Forbidden", AirflowException), (422, "Invalid", AirflowFailException)],
)
async def test_b18_a_refusal_for_good_is_one_clear_error_at_once(player, task, proxy, code, reason, error):
    proxy.fail("POST", JOBS, status(code, reason, "no such luck"), times=9)
    with pytest.raises(error, match=rf"POST .*xgboostjobs: {code} {reason}: no such luck"):
        await asyncio.to_thread(operator().execute, task.context)
    assert len(proxy.seen("POST", JOBS)) == 1


async def test_b18_a_server_that_is_not_there_is_one_error_without_a_tail(task, monkeypatch):
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    extra = {"kube_config": kubeconfig}
    monkeypatch.setenv("AIRFLOW_CONN_GONE", json.dumps({"conn_type": "kubernetes", "extra": extra}))
    with pytest.raises(AirflowException) as raised:
        await asyncio.to_thread(operator(kubernetes_conn_id="gone").execute, task.context)
    assert "127.0.0.1:1" in str(raised.value)
    assert "is the connection 'gone' right, and does the cluster run?" in str(raised.value)
    assert "".join(traceback.format_exception(raised.value)).count("Traceback") == 1


@pytest.mark.parametrize(
    "quantities",
    [
        {"cpu": "500m", "memory": "2Gi"},
        {"cpu": 1.5, "memory": "1.5Gi"},
        {"cpu": "2", "memory": "125e6"},
        {"cpu": "1e3", "memory": "128000000000m"},
        {"cpu": "0.1", "memory": "1E"},
        {"cpu": 2, "memory": "100k"},
    ],
    ids=str,
)
async def test_b21_every_legal_quantity_reaches_the_cluster(player, task, quantities):
    await start(task, gpus="2", **quantities)
    (job,) = await player.jobs()
    container = job["spec"]["xgbReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    assert container["resources"]["requests"]["cpu"] == str(quantities["cpu"])
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gpus", "0.5"),
        ("gpus", "500m"),
        ("gpus", -1),
        ("memory", "1 Gi"),
        ("memory", "10K"),
        ("cpu", "-1"),
        ("cpu", ""),
    ],
)
def test_b21_an_illegal_quantity_is_one_error_when_the_dag_is_parsed(field, value):
    with pytest.raises(InvalidInput, match=f"^{field}: {re.escape(repr(value))} cannot be used: ."):
        operator(**{field: value})


async def test_a_trigger_that_fails_does_not_leak_the_job(player, task):
    training, _ = await start(task)
    with pytest.raises(AirflowException, match="Trigger"):
        await asyncio.to_thread(
            training.resume_execution, "__fail__", {"error": "Trigger timeout"}, task.context
        )
    assert await player.jobs() == []


async def test_a_worker_that_is_killed_ends_its_job_and_remembers(player, task):
    training = operator(deferrable=False)
    working = asyncio.create_task(asyncio.to_thread(training.execute, task.context))
    await _appears(player)
    await _comes_true(lambda: Phase.CREATED in phases(task))
    await asyncio.to_thread(training.on_kill)
    with pytest.raises(TrainingJobFailed):
        await asyncio.wait_for(working, 20)
    assert await player.jobs() == []
    assert phases(task) == [Phase.KILLED]


async def test_a_connection_that_does_not_exist_is_named(task):
    with pytest.raises(
        AirflowFailException, match="kubernetes_conn_id: 'nowhere' cannot be used: there is no"
    ):
        await asyncio.to_thread(operator(kubernetes_conn_id="nowhere").execute, task.context)


async def test_a_namespace_that_does_not_exist_is_named(task):
    with pytest.raises(AirflowException, match=r"nowhere.*namespace there"):
        await asyncio.to_thread(operator(namespace="nowhere").execute, task.context)


async def test_an_api_that_does_not_know_the_kind_says_what_to_install(task, proxy):
    proxy.fail(
        "*", "/xgboostjobs", status(404, "NotFound", "the server could not find the resource"), times=9
    )
    with pytest.raises(AirflowException, match="training operator"):
        await asyncio.to_thread(operator().execute, task.context)


async def test_pods_carry_the_labels_of_their_task(player, requested, task):
    await player.gang(requested, *GANG)
    (pod, *_) = (await player.cluster.list(PODS, "default", label_selector="kftrain/managed=true")).items
    assert pod["metadata"]["labels"]["dag_id"] == task.dag_id
    assert "map_index" not in pod["metadata"]["labels"]


def options_of(trigger):
    _, kwargs = trigger.serialize()
    return {name: value for name, value in kwargs.items() if name != "job"}


async def _appears(player):
    watching_jobs = list_and_watch(player.cluster, XGBOOSTJOBS, "default")
    async with asyncio.timeout(20):
        async for event in watching_jobs:
            found = event.items if isinstance(event, Listed) else [event.object]
            if found:
                await watching_jobs.aclose()
                return found[0]
    raise AssertionError("a watch never ends")


async def _comes_true(fact):
    """For what a thread does in memory, where there is no event to wait for."""
    async with asyncio.timeout(20):
        while not fact():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def _leftover(player, task):
    """The job of a try that deferred."""
    await start(task)
    return next(job for job in await player.jobs() if token(job) == task.id)


async def _post_by(player, task):
    """The POST that the dead worker had under way."""
    from tests.operators.airflow_side import request

    await request(player.cluster, task)
