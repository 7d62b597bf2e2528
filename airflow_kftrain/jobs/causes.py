"""Why a replica waits and why a job ended, as one set of codes that sentences, outcomes and tests share."""

from __future__ import annotations

from enum import StrEnum


class Cause(StrEnum):
    """A reason code; its text is stable and stands in outcomes."""

    # A replica waits:
    NO_POD = "NoPod"
    QUOTA = "QuotaExceeded"
    POD_REFUSED = "PodRefused"
    UNSCHEDULABLE = "Unschedulable"
    GATED = "SchedulingGated"
    IMAGE_PULL = "ImagePull"
    INIT_CONTAINER = "InitContainer"
    CONTAINER_CONFIG = "ContainerConfig"
    VOLUME = "Volume"
    CREATING = "ContainerCreating"
    CRASH_LOOP = "CrashLoop"
    TERMINATING = "Terminating"

    # A replica, and with it a job, ended:
    OOM_KILLED = "OOMKilled"
    EXIT_CODE = "ExitCode"
    EVICTED = "Evicted"
    PREEMPTED = "Preempted"
    NODE_LOST = "NodeLost"

    # A job ended:
    BACKOFF_LIMIT = "BackoffLimit"
    DEADLINE = "DeadlineExceeded"
    QUEUE_LIMIT = "QueueLimit"
    START_LIMIT = "StartLimit"
    RUN_LIMIT = "RunLimit"
    DELETED = "DeletedBySomebodyElse"
    NEVER_WHOLE = "GangNeverWhole"
    UNKNOWN = "Unknown"
