"""Where this controller differs from training-operator v1.8.1 on purpose: manifest, field, reason.

The tests ask :func:`expected` what to compare with; an entry that no longer differs fails them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Difference:
    """One field of one recording that is to come out otherwise.

    :param ours: what is to come out
    """

    manifest: str
    field: str
    ours: Any
    reason: str


_REBORN = (
    "the training operator deletes the gang of a job past its backoff limit, then, on a cached status that does not "
    "know of the failure yet, makes all of it anew and leaves it running; a failed job holds no nodes here"
)

RECORDED = (
    Difference("xgb-exitcode-backoff-0", "pods_left", {}, _REBORN),
    Difference("xgb-exitcode-backoff-0", "services_left", [], _REBORN),
)


@dataclass(frozen=True)
class Behaviour:
    """A difference that shows in time rather than in a recorded field.

    :param test: the test that shows ours
    """

    field: str
    test: str
    reason: str


BEHAVIOURS = (
    Behaviour(
        "activeDeadlineSeconds",
        "test_a_deadline_fires_by_itself",
        "fires by itself, at startTime + activeDeadlineSeconds; the training operator notices with the next change",
    ),
    Behaviour(
        "backoffLimit with ExitCode",
        "test_b07_replaced_pods_count_against_the_backoff_limit",
        "pods made anew count, across restarts of the controller (annotation kftrain/replaced-pods); "
        "the training operator counts restarts of containers in live pods only",
    ),
    Behaviour(
        "suspend: false",
        "test_b25_a_job_resumes_when_no_pod_of_its_last_admission_exists",
        "waits until no pod of the last admission exists; the training operator takes the exit 0 of an old master for "
        "the job's success",
    ),
    Behaviour(
        "pods deleted by others",
        "test_b25_a_pod_that_ends_well_because_it_was_deleted_is_no_success",
        "an exit 0 after a pod's deletion was asked for is no success: the training operator ends a PyTorchJob whose "
        "master is drained from its node",
    ),
    Behaviour(
        "OnFailure of an XGBoostJob",
        "test_a_pod_that_its_node_shut_down_is_made_anew_under_on_failure",
        "a pod that was evicted or lost is made anew, as those of the other kinds are; the training operator deletes "
        "it and fails the job",
    ),
    Behaviour(
        "replicas: 0",
        "test_zero_workers_are_a_gang_of_one",
        "none is made; the training operator makes one, deletes it and counts that as a failure",
    ),
    Behaviour(
        "replicas lowered",
        "test_b26_shrinking_an_elastic_job_neither_ends_it_nor_storms",
        "pods beyond the wanted number are deleted and count for nothing; the training operator takes their exit 0 for "
        "success, and makes the places between anew as long as they terminate",
    ),
    Behaviour(
        "ttlSecondsAfterFinished",
        "test_a_finished_job_expires_although_it_is_suspended",
        "a finished job that is then suspended, or failed without completionTime, expires too",
    ),
    Behaviour(
        "orphans",
        "test_orphans_of_the_jobs_labels_are_adopted",
        "pods and services with the job's labels and no controller are adopted, own ones of other labels released; "
        "the training operator passes over both",
    ),
    Behaviour(
        "invalid spec",
        "test_an_invalid_job_fails_with_every_fault_named",
        "where no webhook refuses it, the job fails with reason FailedValidation and an event",
    ),
    Behaviour(
        "elasticPolicy.metrics",
        "test_an_elastic_job_with_metrics_is_told_that_no_autoscaler_is_made",
        "no HorizontalPodAutoscaler is made, and a warning event says so",
    ),
    Behaviour(
        "repeated events",
        "test_repeated_events_are_one_event_written_rarely",
        "an event is written anew once a minute at most, so that those which explain are never crowded out",
    ),
)


def expected(name: str, field: str, recorded: Any) -> Any:
    """What is to come out for a field of a recording.

    :raises AssertionError: an entry of the list does not differ (any more)
    """
    for difference in RECORDED:
        if (difference.manifest, difference.field) == (name, field):
            assert difference.ours != recorded, f"{difference} differs no more: take it off the list"
            return difference.ours
    return recorded
