"""The decisions of a trigger, without a cluster and at the speed of thought."""

from __future__ import annotations

import datetime as dt

import pytest

from airflow_kftrain.jobs.identity import REPLICA_INDEX, REPLICA_TYPE, TIMES
from airflow_kftrain.jobs.limits import Limit, LimitSeconds
from airflow_kftrain.jobs.progress import Progress
from airflow_kftrain.triggers.conclusion import conclude
from airflow_kftrain.triggers.events import JobRef
from airflow_kftrain.triggers.follow import End, Look, Memory, advance

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
REF = JobRef("XGBoostJob", "default", "t", "u", "me")


def at(seconds):
    return START + dt.timedelta(seconds=seconds)


def stamp(seconds):
    return at(seconds).isoformat().replace("+00:00", "Z")


def pod(replica, phase="Running", *, started=0.0, uid=None, waiting=None):
    kind, index = replica.rsplit("-", 1)
    state = {"running": {"startedAt": stamp(started)}} if phase == "Running" else {"waiting": waiting or {}}
    return {
        "metadata": {
            "name": f"t-{replica}",
            "uid": uid or replica,
            "labels": {REPLICA_TYPE: kind, REPLICA_INDEX: index},
            "creationTimestamp": stamp(started),
        },
        "spec": {"nodeName": "n"},
        "status": {"phase": phase, "containerStatuses": [{"name": "xgboost", "state": state}]},
    }


GANG = [pod("master-0"), pod("worker-0")]


class Cluster:
    """A job that is looked at again and again; what a trigger writes is there at the next look."""

    def __init__(self, **limits):
        self.limits = LimitSeconds(**limits)
        self.memory = Memory()
        self.lines = []
        self.job = {
            "kind": "XGBoostJob",
            "metadata": {"name": "t", "uid": "u", "creationTimestamp": stamp(0), "annotations": {}},
            "spec": {
                "runPolicy": {"suspend": False},
                "xgbReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 1}},
            },
            "status": {},
        }

    def look(self, seconds, pods=(), events=()):
        step = advance(
            self.memory, Look(self.job, tuple(pods), tuple(events)), limits=self.limits, now=at(seconds)
        )
        self.memory = step.memory
        self.lines += step.lines
        if step.times is not None:
            self.job["metadata"]["annotations"][TIMES] = step.times.to_text()
        return step

    def suspend(self, seconds):
        self.job["spec"]["runPolicy"]["suspend"] = True
        self.job["status"] = {
            "startTime": stamp(0),
            "conditions": [{"type": "Suspended", "status": "True", "lastTransitionTime": stamp(seconds)}],
        }

    def resume(self, seconds):
        self.job["spec"]["runPolicy"]["suspend"] = False
        self.job["status"]["conditions"] = [
            {"type": "Suspended", "status": "False", "lastTransitionTime": stamp(seconds)}
        ]


def test_b13_a_job_that_runs_past_its_limit_is_ended():
    cluster = Cluster(run=60)
    cluster.look(0, GANG)
    assert cluster.look(59, GANG).end is None
    step = cluster.look(61, GANG)
    assert (step.end, step.breach.limit) == (End.BREACHED, Limit.RUN)


def test_b13_time_in_the_queue_is_no_run_time():
    cluster = Cluster(run=60)
    cluster.suspend(0)
    cluster.job["status"] = {}
    assert cluster.look(0).end is None
    cluster.job["status"] = {"conditions": []}
    cluster.resume(300)
    late = [pod("master-0", started=300), pod("worker-0", started=300)]
    cluster.look(300, late)
    assert cluster.look(350, late).end is None


def test_b13_suspended_time_is_no_run_time():
    cluster = Cluster(run=60)
    cluster.look(0, GANG)
    cluster.look(40, GANG)
    cluster.suspend(40)
    cluster.look(41)
    cluster.look(500)
    cluster.resume(540)
    again = [pod("master-0", started=540, uid="m2"), pod("worker-0", started=540, uid="w2")]
    cluster.look(540, again)
    assert cluster.look(550, again).end is None, "40 s and 10 s make 50 s"
    assert cluster.look(561, again).end is End.BREACHED, "40 s and 21 s make 61 s"


def test_b13_a_triggerer_that_comes_later_counts_from_the_same_moment():
    cluster = Cluster(run=60)
    cluster.look(10, [pod("master-0", started=5), pod("worker-0", started=10)])
    cluster.memory = Memory()
    replaced = [pod("master-0", started=5), pod("worker-0", started=50, uid="w2")]
    assert cluster.look(69, replaced).end is None
    assert cluster.look(71, replaced).end is End.BREACHED


def test_b13_a_triggerer_that_missed_a_resumption_does_not_count_the_time_before():
    cluster = Cluster(run=60)
    cluster.look(0, GANG)
    cluster.suspend(10)
    cluster.resume(1000)
    cluster.memory = Memory()
    again = [pod("master-0", started=1001, uid="m2"), pod("worker-0", started=1001, uid="w2")]
    assert cluster.look(1002, again).end is None


def test_b13_limits_hold_where_annotations_cannot_be_written():
    cluster = Cluster(run=60)
    cluster.look(0, GANG)
    cluster.job["metadata"]["annotations"] = {}
    replaced = [GANG[0], pod("worker-0", started=50, uid="w2")]
    assert cluster.look(61, replaced).end is End.BREACHED


def test_the_queue_limit_counts_until_admission():
    cluster = Cluster(queue=100)
    cluster.suspend(0)
    cluster.job["status"] = {}
    assert cluster.look(99).end is None
    step = cluster.look(101)
    assert step.breach.limit is Limit.QUEUE


def test_the_start_limit_counts_anew_from_a_resumption():
    cluster = Cluster(start=30)
    cluster.look(0, GANG)
    cluster.suspend(10)
    cluster.look(11)
    cluster.resume(1000)
    assert cluster.look(1029, GANG[:1]).end is None
    assert cluster.look(1031, GANG[:1]).breach.limit is Limit.START


def test_the_start_limit_ends_with_the_first_whole_gang():
    cluster = Cluster(start=30)
    cluster.look(5, GANG)
    assert cluster.look(3600, GANG[:1]).end is None, "a lost member is no late start"


@pytest.mark.parametrize("status", [{}, None], ids=["empty", "null"])
def test_b03_a_job_without_a_status_waits_and_its_limit_runs(status):
    cluster = Cluster(start=30)
    cluster.job["status"] = status
    pending = [pod("master-0", "Pending"), pod("worker-0", "Pending")]
    step = cluster.look(1, pending)
    assert step.end is None
    assert "0/2" in cluster.lines[-1]
    assert cluster.look(31, pending).end is End.BREACHED


def test_what_was_said_is_not_said_again():
    cluster = Cluster()
    for second in range(5):
        cluster.look(second, GANG[:1])
    assert len(cluster.lines) == 1


def test_b09_a_warning_that_repeats_is_told_once():
    cluster = Cluster()
    for count in range(1, 41):
        warning = {
            "type": "Warning",
            "reason": "FailedCreatePod",
            "message": "exceeded quota",
            "count": count,
        }
        cluster.look(count, [], [warning])
    assert sum("Warning of the cluster" in line for line in cluster.lines) == 1


def test_a_gang_without_room_is_told_once_whoever_repeats_it():
    full = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    pods = [pod("master-0", "Pending"), pod("worker-0", "Pending")]
    for one in pods:
        one["spec"].clear()
        one["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": full}]
    warnings = [
        {"type": "Warning", "reason": "FailedScheduling", "message": full},
        {"type": "Warning", "reason": "Unschedulable", "message": f"Error pod t-worker-0: {full}"},
        {"type": "Warning", "reason": "FailedMount", "message": "no volume"},
    ]
    cluster = Cluster()
    cluster.look(1, pods, warnings)
    assert cluster.lines == [
        f"0/2 replicas are up; master-0, worker-0: it has no node: {full}",
        "Warning of the cluster: FailedMount: no volume",
    ]


def test_a_job_without_pods_is_touched_once_after_a_while():
    cluster = Cluster()
    nudges = [second for second in range(60) if cluster.look(second).nudge]
    assert nudges == [10]


def test_a_job_whose_gang_was_whole_is_not_touched():
    cluster = Cluster()
    cluster.look(0, GANG)
    assert not any(cluster.look(second).nudge for second in range(1, 60))


def test_events_are_asked_for_less_and_less():
    cluster = Cluster()
    asked = [second for second in range(4000) if cluster.look(second, GANG[:1]).explain]
    assert asked == [5, 65, 185, 425, 905, 1865, 2825, 3785]


@pytest.mark.parametrize("seconds", [0, 4, 7, 20, 59])
def test_the_next_look_is_never_later_than_what_is_due(seconds):
    cluster = Cluster(start=60)
    step = cluster.look(seconds, GANG[:1])
    assert 0 < step.look_again <= 60 - seconds


def test_b25_success_after_a_resumption_with_pending_workers_is_hollow():
    cluster = Cluster()
    cluster.suspend(5)
    cluster.resume(6)
    cluster.job["status"]["conditions"].append({"type": "Succeeded", "status": "True"})
    step = cluster.look(7, [pod("master-0", "Succeeded"), pod("worker-0", "Pending")])
    assert step.end is End.HOLLOW


def test_b25_success_of_a_whole_gang_after_a_resumption_is_one():
    cluster = Cluster()
    cluster.suspend(5)
    cluster.resume(6)
    late = [pod("master-0", started=7), pod("worker-0", started=7)]
    cluster.look(7, late)
    cluster.job["status"]["conditions"].append({"type": "Succeeded", "status": "True"})
    assert cluster.look(9, [late[0]]).end is End.FINISHED


def test_a_limit_names_itself_the_replica_and_the_cause():
    cluster = Cluster(start=30)
    pull = {"reason": "ImagePullBackOff", "message": "Back-off"}
    pods = [GANG[0], pod("worker-0", "Pending", waiting=pull)]
    step = cluster.look(31, pods)
    event = conclude(REF, step, Look(cluster.job, tuple(pods)), progress=Progress(), now=at(31))
    for part in ("start limit of 30s", "worker-0", "ImagePullBackOff"):
        assert part in event.message
    assert event.outcome["cause"] == "StartLimit"


class Storming(Cluster):
    """A job whose Worker is made anew, by ``ExitCode``, whenever it fails."""

    def __init__(self, *, limit=3, policy="ExitCode"):
        super().__init__()
        self.job["spec"]["runPolicy"]["backoffLimit"] = limit
        self.job["spec"]["xgbReplicaSpecs"]["Worker"]["restartPolicy"] = policy
        self.gone = []

    def fails(self, seconds, uid, *, code=137, **status):
        failed = pod("worker-0", "Failed", started=seconds, uid=uid)
        ended = {"terminated": {"exitCode": code, "startedAt": stamp(seconds), "finishedAt": stamp(seconds)}}
        failed["status"] |= {"containerStatuses": [{"name": "xgboost", "state": ended}], **status}
        self.gone.append(failed)
        return self.look(seconds, [GANG[0]])

    def look(self, seconds, pods=(), events=()):
        step = advance(
            self.memory,
            Look(self.job, tuple(pods), tuple(events), tuple(self.gone)),
            limits=self.limits,
            now=at(seconds),
        )
        self.memory = step.memory
        return step


def test_b07_a_replica_that_fails_more_often_than_its_limit_ends_the_job():
    cluster = Storming()
    ends = [cluster.fails(second, f"w{second}").end for second in range(1, 5)]
    assert ends == [None, None, None, End.BREACHED]
    step = cluster.look(5)
    event = conclude(REF, step, Look(cluster.job, (GANG[0], *cluster.gone)), progress=Progress(), now=at(5))
    for part in ("worker-0", "137", "4 starts", "backoff limit of 3"):
        assert part in event.message
    assert (event.end, event.outcome["cause"]) == ("limit", "BackoffLimit")
    assert event.outcome["replicas"]["worker-0"]["starts"] == 4


@pytest.mark.parametrize(
    "given",
    [{"limit": None}, {"policy": "Never"}, {"policy": "OnFailure"}],
    ids=["no limit", "Never", "counted by the operator"],
)
def test_b07_a_job_that_is_not_in_a_storm_goes_on(given):
    cluster = Storming(**given)
    assert [cluster.fails(second, f"w{second}").end for second in range(1, 9)] == [None] * 8


DISRUPTED = {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}


@pytest.mark.parametrize(
    "status",
    [{"reason": "Evicted"}, {"reason": "NodeLost"}, DISRUPTED],
    ids=["evicted", "node lost", "drained"],
)
def test_prefect118_pods_that_the_cluster_ended_are_no_failures(status):
    cluster = Storming()
    assert [cluster.fails(second, f"w{second}", **status).end for second in range(1, 9)] == [None] * 8


def test_b07_failures_of_an_earlier_admission_count_for_nothing():
    cluster = Storming()
    for second in range(1, 4):
        cluster.fails(second, f"w{second}")
    cluster.suspend(10)
    cluster.look(11)
    cluster.resume(20)
    assert [cluster.fails(second, f"w{second}").end for second in (21, 22, 23)] == [None] * 3
    assert cluster.fails(24, "w24").end is End.BREACHED
