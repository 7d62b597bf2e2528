from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kftrain.jobs.causes import Cause
from airflow_kftrain.jobs.gang import Gang, distinct_events, observed_state
from airflow_kftrain.jobs.manifest import from_manifest
from airflow_kftrain.jobs.status import JobStatus, State
from tests.support.jobs import manifest

SPEC = from_manifest(manifest("PyTorchJob", name="t", replicas={"Worker": 2}))
XGB = from_manifest(manifest("XGBoostJob", name="t", replicas={"Master": 1, "Worker": 2}))


def container(name="pytorch", *, state=None, **fields):
    return {"name": name, "image": "registry.x/y:z", "restartCount": 0, "state": state or {}, **fields}


RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def ended(code, reason="Error", **more):
    return {"terminated": {"exitCode": code, "reason": reason, **more}}


def waits(reason, message=""):
    return {"waiting": {"reason": reason, "message": message}}


def pod(
    name="worker-0",
    phase="Running",
    containers=None,
    *,
    node="n1",
    made="2026-01-01T00:00:00Z",
    uid=None,
    **more,
):
    replica_type, _, index = name.rpartition("-")
    metadata = {
        "name": f"t-{name}",
        "uid": uid or f"uid-{name}",
        "creationTimestamp": made,
        "labels": {
            "training.kubeflow.org/replica-type": replica_type,
            "training.kubeflow.org/replica-index": index,
        },
        **more.pop("metadata", {}),
    }
    if containers is None:
        states = {"Running": RUNNING, "Succeeded": ended(0, "Completed"), "Failed": ended(1)}
        containers = [container(state=states.get(phase, {}))]
    status = {"phase": phase, "containerStatuses": containers, **more}
    return {"metadata": metadata, "spec": {"nodeName": node} if node else {}, "status": status}


def pending(**more):
    return pod(phase="Pending", **more)


def gang(*pods, spec=SPEC, events=()):
    return Gang.from_pods(spec, pods, events)


def only_wait(*pods, **more):
    (replica,) = gang(*pods, pod("worker-1"), **more).waiting
    return replica.waiting.cause, str(replica)


def unscheduled(reason="Unschedulable", message="0/8 nodes are available: 8 Insufficient nvidia.com/gpu."):
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return pod(phase="Pending", node=None, containers=[], conditions=[condition])


def test_b03_pending_pods_are_no_progress_whatever_the_status_lacks():
    waiting = gang(pod("worker-0", "Pending", node=None), pod("worker-1", "Pending", node=None))
    assert (waiting.ready, waiting.total, waiting.whole) == (0, 2, False)
    assert observed_state(JobStatus.from_object({"status": {}}), waiting) is State.SUBMITTED


def test_b14_no_pods_at_all_means_not_yet():
    empty = gang()
    assert (empty.ready, empty.total) == (0, 2)
    assert empty.explain() == ("0/2 replicas are up; worker-0, worker-1: its pod has not been made")
    assert {replica.waiting.cause for replica in empty.waiting} == {Cause.NO_POD}


def test_b14_the_count_follows_a_replaced_pod():
    first = [pod("worker-0")]
    all_three = [pod("master-0"), pod("worker-0"), pod("worker-1")]
    for one in all_three:
        one["status"]["containerStatuses"][0]["name"] = "xgboost"
    replaced = [*all_three[:2], pod("worker-1", "Pending", uid="new")]
    assert [gang(*pods, spec=XGB).ready for pods in (first, all_three, replaced, all_three)] == [1, 3, 2, 3]


WAITS = {
    "no node yet": (pod(phase="Pending", node=None), Cause.UNSCHEDULABLE, "it has no node yet"),
    "no node fits": (unscheduled(), Cause.UNSCHEDULABLE, "it has no node: 0/8 nodes are available"),
    "a gate": (unscheduled("SchedulingGated", "blocked by kueue"), Cause.GATED, "blocked by kueue"),
    "b08: an image that cannot be pulled": (
        pending(containers=[container(state=waits("ImagePullBackOff", 'Back-off pulling "registry.x/y:z"'))]),
        Cause.IMAGE_PULL, "worker-0: image registry.x/y:z cannot be pulled (ImagePullBackOff): Back-off",
    ),
    "b08: its first failure": (
        pending(containers=[container(state=waits("ErrImagePull"))]), Cause.IMAGE_PULL, "(ErrImagePull)",
    ),
    "an image name that is none": (
        pending(containers=[container(state=waits("InvalidImageName"))]), Cause.IMAGE_PULL, "InvalidImageName",
    ),
    "a sidecar's image": (
        pending(
            containers=[container(state=waits("ContainerCreating")), container("side", state=waits("ErrImagePull"))]
        ),
        Cause.IMAGE_PULL, "ErrImagePull",
    ),
    "an init container that runs": (
        pending(containers=[container(state=waits("PodInitializing"))],
            initContainerStatuses=[container("done", state=ended(0)), container("fetch", state=RUNNING)]),
        Cause.INIT_CONTAINER, "init container fetch runs",
    ),
    "an init container that fails": (
        pending(containers=[], initContainerStatuses=[container("fetch", state=ended(3))]),
        Cause.INIT_CONTAINER, "init container fetch ended with 3",
    ),
    "an init container that waits": (
        pending(containers=[], initContainerStatuses=[container("fetch", state=waits("CrashLoopBackOff"))]),
        Cause.INIT_CONTAINER, "init container fetch waits (CrashLoopBackOff)",
    ),
    "an init container's image": (
        pending(containers=[], initContainerStatuses=[container("fetch", state=waits("ErrImagePull"))]),
        Cause.IMAGE_PULL, "init container fetch: image registry.x/y:z",
    ),
    "a sidecar that has started is not waited for": (
        pending(containers=[container(state=waits("PodInitializing"))],
            initContainerStatuses=[container("proxy", state=RUNNING, started=True)]),
        Cause.CREATING, "its container is being made",
    ),
    "a missing secret": (
        pending(containers=[container(state=waits("CreateContainerConfigError", 'secret "s" not found'))]),
        Cause.CONTAINER_CONFIG, 'CreateContainerConfigError: secret "s" not found',
    ),
    "a container that is being made": (
        pending(containers=[container(state=waits("ContainerCreating"))]), Cause.CREATING, "being made",
    ),
    "a container that ends again and again": (
        pod(containers=[container(state=waits("CrashLoopBackOff"), lastState=ended(137, "OOMKilled"), restartCount=4)]),
        Cause.CRASH_LOOP, "ends again and again, last with exit code 137, after 4 restarts",
    ),
    "a container between two runs": (pod(containers=[container(state=ended(1))]), Cause.CRASH_LOOP, "starts again"),
    "a pod on its way out": (
        pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), Cause.TERMINATING, "on its way out",
    ),
    "a node that does not answer": (pod(phase="Unknown"), Cause.NODE_LOST, "does not answer"),
    "a pod without status": ({**pod(), "status": None}, Cause.CREATING, "being made"),
}  # fmt: skip


@pytest.mark.parametrize(("waiting", "cause", "text"), WAITS.values(), ids=WAITS)
def test_each_wait_has_its_cause_and_names_the_replica(waiting, cause, text):
    found, sentence = only_wait(waiting)
    assert found is cause
    assert sentence.startswith("worker-0: ")
    assert text in sentence


def event(reason, message, type_="Warning", **more):
    return {"type": type_, "reason": reason, "message": message, **more}


QUOTA = 'pods "t-worker-0" is forbidden: exceeded quota: gpu, requested: requests.nvidia.com/gpu=4, used: 6, limited: 8'


def test_b09_a_refused_pod_waits_for_quota_and_is_said_once():
    events = [event("FailedCreatePod", QUOTA, count=n) for n in range(40)]
    assert only_wait(events=events)[0] is Cause.QUOTA
    assert "exceeded quota: gpu" in only_wait(events=events)[1]
    assert distinct_events([*events, event("SuccessfulCreatePod", "x", "Normal")]) == [
        ("FailedCreatePod", QUOTA)
    ]


def test_a_refusal_for_another_reason_is_no_quota():
    cause, text = only_wait(
        events=[event("FailedCreatePod", 'pods "t-worker-0" is forbidden: no such priority class')]
    )
    assert cause is Cause.POD_REFUSED
    assert "no such priority class" in text


def test_a_refusal_goes_to_the_replica_it_names():
    events = [event("FailedCreatePod", f'pods "t-worker-{n}" is forbidden: {n}') for n in (0, 1)]
    assert [str(r).rpartition(" ")[2] for r in gang(events=events).waiting] == ["0", "1"]


def test_a_refusal_of_worker_10_is_none_of_worker_1():
    spec = from_manifest(manifest("PyTorchJob", name="t", replicas={"Worker": 11}))
    events = [event("FailedCreatePod", f'pods "t-worker-{n}" is forbidden: {n}') for n in (1, 10)]
    told = {
        replica.name: str(replica).rpartition(" ")[2] for replica in gang(spec=spec, events=events).waiting
    }
    assert (told["worker-1"], told["worker-10"]) == ("1", "10")


def test_a_volume_that_cannot_be_mounted_is_told_from_the_pods_own_events():
    creating = pending(containers=[container(state=waits("ContainerCreating"))])
    events = [
        event("FailedMount", 'configmap "c" not found', involvedObject={"uid": "uid-worker-0"}),
        event("FailedMount", "of another pod", involvedObject={"uid": "uid-worker-1"}),
    ]
    assert only_wait(creating, events=events) == (
        Cause.VOLUME,
        'worker-0: a volume cannot be mounted: configmap "c" not found',
    )


def one(*pods, spec=SPEC):
    return gang(*pods, spec=spec).replica("worker-0")


def test_airflow39693_a_replica_has_ended_though_its_sidecar_runs_on():
    done = one(
        pod(containers=[container("istio-proxy", state=RUNNING), container(state=ended(0, "Completed"))])
    )
    assert (done.phase, done.exit_code, done.waiting, done.up) == ("Succeeded", 0, None, True)


@pytest.mark.parametrize(
    ("policy", "code", "phase"),
    [
        ("Never", 1, "Failed"),
        ("ExitCode", 1, "Failed"),
        ("OnFailure", 1, "Running"),
        ("OnFailure", 0, "Succeeded"),
        ("Always", 0, "Running"),
        ("Never", 0, "Succeeded"),
    ],
)
def test_airflow39693_what_an_end_beside_a_sidecar_means_depends_on_the_restart_policy(policy, code, phase):
    job = manifest("PyTorchJob", name="t", replicas={"Worker": 2})
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = policy
    found = one(
        pod(containers=[container(state=ended(code)), container("side", state=RUNNING)]),
        spec=from_manifest(job),
    )
    assert found.phase == phase


def test_a_sidecar_that_fails_does_not_make_the_replica_wait():
    assert one(
        pod(containers=[container(state=RUNNING), container("side", state=waits("CrashLoopBackOff"))])
    ).up


ENDS = {
    "an exit code": (pod(phase="Failed", containers=[container(state=ended(3))]), Cause.EXIT_CODE, 3, "Error"),
    "memory": (
        pod(phase="Failed", containers=[container(state=ended(137, "OOMKilled"))]), Cause.OOM_KILLED, 137, "OOMKilled",
    ),
    "eviction": (pod(phase="Failed", containers=[], reason="Evicted"), Cause.EVICTED, None, "Evicted"),
    "eviction after its container was killed": (
        pod(phase="Failed", containers=[container(state=ended(137))], reason="Evicted"), Cause.EVICTED, 137, "Evicted",
    ),
    "preemption": (pod(phase="Failed", containers=[], reason="Preempting"), Cause.PREEMPTED, None, "Preempting"),
    "a lost node": (pod(phase="Failed", containers=[], reason="NodeLost"), Cause.NODE_LOST, None, "NodeLost"),
    "trainer1570: a node that shut down": (
        pod(phase="Failed", containers=[], reason="Terminated"), Cause.NODE_LOST, None, "Terminated",
    ),
    "nothing known": (pod(phase="Failed", containers=[]), Cause.UNKNOWN, None, None),
}  # fmt: skip


@pytest.mark.parametrize(("failed", "cause", "code", "reason"), ENDS.values(), ids=ENDS)
def test_each_end_has_its_cause(failed, cause, code, reason):
    found = one(failed)
    assert (found.cause, found.exit_code, found.reason) == (cause, code, reason)
    assert found.final
    assert found.waiting is None
    assert gang(failed).failed == (found,)


def test_a_running_replica_that_was_restarted_shows_its_last_end():
    found = one(pod(containers=[container(state=RUNNING, lastState=ended(137, "OOMKilled"), restartCount=2)]))
    assert (found.phase, found.restarts, found.exit_code, found.cause) == ("Running", 2, 137, None)


def test_b25_a_replica_that_ended_well_on_its_way_out_is_not_up():
    leaving = pod(phase="Succeeded", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert gang(leaving, pod("worker-1")).ready == 1


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_of_several_pods_of_a_replica_the_newest_that_stays_counts(order):
    pods = [
        pod(made="2026-01-01T00:00:01Z", phase="Failed", uid="old"),
        pod(made="2026-01-01T00:00:02Z", uid="new"),
        pod(
            made="2026-01-01T00:00:03Z", uid="leaving", metadata={"deletionTimestamp": "2026-01-01T00:00:04Z"}
        ),
    ]
    found = gang(*(pods[n] for n in order), pod("worker-1"))
    assert found.replica("worker-0").uid == "new"
    assert found.whole
    assert not found.idle
    assert len(found.extra) == 2


def test_pods_out_of_range_are_extra_and_not_counted():
    found = gang(pod("worker-0"), pod("worker-1"), pod("worker-7"), pod("master-0"), pod("worker-x"))
    assert (found.ready, found.total, found.extra) == (2, 2, ("t-master-0", "t-worker-7", "t-worker-x"))


def test_b25_a_gang_is_idle_when_nothing_of_it_is_left_to_run():
    assert gang().idle
    assert gang(pod(phase="Succeeded"), pod("worker-1", "Failed")).idle
    assert not gang(pod(phase="Pending")).idle
    assert not gang(pod("worker-9")).idle
    leaving = pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert not gang(leaving).idle


def status(**job):
    return JobStatus.from_object({"status": {"conditions": job.pop("conditions", [])}, "spec": job})


RUNS = status(conditions=[{"type": "Running", "status": "True"}])
UP, PART, NONE = gang(pod(), pod("worker-1")), gang(pod()), gang()


@pytest.mark.parametrize(
    ("said", "seen", "was_whole", "expected"),
    [
        (status(), UP, False, State.RUNNING),
        (status(), PART, False, State.STARTING),
        (status(), NONE, False, State.SUBMITTED),
        (RUNS, PART, False, State.STARTING),
        (RUNS, NONE, False, State.STARTING),
        (RUNS, PART, True, State.RUNNING),
        (status(runPolicy={"suspend": True}), UP, False, State.QUEUED),
        (status(conditions=[{"type": "Succeeded", "status": "True"}]), NONE, False, State.SUCCEEDED),
        (status(conditions=[{"type": "Restarting", "status": "True"}]), PART, True, State.RESTARTING),
    ],
)
def test_status_and_pods_together_tell_starting_from_running(said, seen, was_whole, expected):
    assert observed_state(said, seen, was_whole=was_whole) is expected


def test_an_explanation_names_the_failed_first_and_is_bounded():
    spec = from_manifest(manifest("PyTorchJob", name="t", replicas={"Worker": 8}))
    found = gang(pod("worker-5", "Failed"), pod("worker-7"), spec=spec).explain(most=2)
    assert found == (
        "1/8 replicas are up; worker-5: Failed, exit code 1 (Error); "
        "worker-0, worker-1 and 4 more: its pod has not been made"
    )


def test_an_explanation_says_once_what_many_wait_for():
    spec = from_manifest(manifest("PyTorchJob", name="t", replicas={"Worker": 9}))
    pods = [pod(f"worker-{n}", "Pending", node=None) for n in range(9)]
    for n, one in enumerate(pods):
        full = {"type": "PodScheduled", "status": "False", "message": f"node {n % 3} is full"}
        one["status"]["conditions"] = [full]
    assert gang(*pods, spec=spec).explain(most=2) == (
        "0/9 replicas are up; worker-0, worker-3 and 1 more: it has no node: node 0 is full; "
        "worker-1, worker-4 and 1 more: it has no node: node 1 is full; 3 more wait"
    )


@given(
    st.dictionaries(
        st.sampled_from(["phase", "conditions", "reason", "containerStatuses"]), st.none(), max_size=4
    )
)
def test_a_status_of_nulls_raises_nothing(nulls):
    assert gang({**pod(), "status": nulls}).ready == 0
