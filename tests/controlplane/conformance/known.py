"""What differs from the training operator on purpose, and where that does now this, now that."""

from __future__ import annotations

from tests.controlplane.conformance.compare import Known

PAST_BACKOFF_LIMIT = "|".join(
    (
        "no-restart-allowed",
        "restarts-in-place-to-the-limit",
        "pt-master-unset",
        "pt-master-onfailure",
        "tf-master-unset",
        "tf-master-always",
        "tf-dynamic-always",
        "tf-all-always",
    )
)
"""Jobs that fail because their containers were restarted too often."""

CONTROLLERS: tuple[Known, ...] = (
    Known(
        "invalid-*",
        "*",
        "where no webhook refuses a job, our controllers fail it at once, with every reason as condition and event",
    ),
    Known(
        "deadline-passes", "*", "a deadline passes by itself; the operator looks only when something changes"
    ),
    Known(
        "no-workers",
        "*",
        "zero workers are none; the operator makes one, and counts its deletion as a failure",
    ),
    Known(
        "restarts-anew-to-the-limit",
        "*",
        "pods made anew count against backoffLimit; the operator counts restarts within a pod alone, without end",
    ),
    Known(
        "worker-lost",
        "*",
        "under OnFailure a lost worker of an XGBoostJob is made anew, as those of the other kinds are; "
        "the operator fails the job",
    ),
    Known(
        "*-exitcode",
        "conditions/*",
        "the operator loses Restarting when its status write meets a conflict",
        race=True,
    ),
    Known(
        PAST_BACKOFF_LIMIT,
        "steps/*/pods/*|steps/*/services/*|events/*",
        "past backoffLimit the operator may make all anew, on a cached status",
        race=True,
    ),
)
"""Our controllers, wherever they run, against the operator."""

LOCAL: tuple[Known, ...] = (
    *CONTROLLERS,
    Known(
        "restarts-in-place-to-the-limit",
        "events/Warning CrashLoopBackOff",
        "the local kubelet waits before a further restart, as a real one does and kwok does not",
        race=True,
    ),
    Known(
        "host-network",
        "*/hostPort",
        "the local API server does not fill in hostPort, which means nothing to processes that share one network",
    ),
    Known(
        "*", "events/Warning Error", "the processes of a pod's containers end one after the other", race=True
    ),
    Known(
        "*",
        "events/Normal ExitedWithCode",
        "the local kubelet restarts a container at once: nobody may have seen that it had ended",
        race=True,
    ),
)
"""Our controllers on the local cluster, against the operator on the real API."""
