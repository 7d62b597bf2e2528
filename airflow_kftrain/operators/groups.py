"""Groups of operator arguments.

They are dicts with a typed constructor: Airflow renders Jinja, resolves XComArgs, maps and masks inside a dict, but not
inside any other object. What was not given is absent.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

Span = str | float | dt.timedelta
Env = Mapping[str, Any] | Sequence[Mapping[str, Any]]


class _Group(dict[str, Any]):
    """Holds what is not None."""

    def __init__(self, **given: Any) -> None:
        super().__init__({name: value for name, value in given.items() if value is not None})


class Limits(_Group):
    """How long a job may take; each is a span (``"6h"``, ``"1h30m"``, seconds, a timedelta), absent for no limit.

    :param queue: until it is admitted (cluster mode)
    :param start: from admission until the whole gang runs; ``[kftrain] start_limit`` (30 minutes) when absent,
        ``"none"`` for no limit
    :param run: from then on, without the time it is suspended
    :param after: from the job's success to the end of the replicas in ``wait_for``, which are not waited for any longer
        then; 10 minutes when absent, ``"none"`` for no limit
    """

    def __init__(
        self,
        *,
        queue: Span | None = None,
        start: Span | None = None,
        run: Span | None = None,
        after: Span | None = None,
    ) -> None:
        super().__init__(queue=queue, start=start, run=run, after=after)


class Place(_Group):
    """Where and how urgently a job is admitted (cluster mode).

    :param partition: the partition that admits it
    :param deadline: when it is to be done: a span from the run's start, or an instant
    :param priority: more important first
    :param preemptible: whether it may be suspended for more urgent work
    :param resumable: whether it goes on from a checkpoint after it was suspended
    :param expected_runtime: how long it is thought to run, where there is no history
    """

    def __init__(
        self,
        *,
        partition: str | None = None,
        deadline: Span | dt.datetime | None = None,
        priority: int | None = None,
        preemptible: bool | None = None,
        resumable: bool | None = None,
        expected_runtime: Span | None = None,
    ) -> None:
        super().__init__(
            partition=partition,
            deadline=deadline,
            priority=priority,
            preemptible=preemptible,
            resumable=resumable,
            expected_runtime=expected_runtime,
        )


class Replica(_Group):
    """What differs for one replica type; the operator's own arguments apply where a field is absent.

    :param replicas: how many
    :param image: container image
    :param command: entry point of the training container
    :param args: its arguments
    :param env: added to the operator's environment: names to values, or Kubernetes ``EnvVar`` objects
    :param gpus: per replica: a number of ``nvidia.com/gpu``, or resource names to numbers
    :param cpu: per replica, as a Kubernetes quantity
    :param memory: per replica, as a Kubernetes quantity
    :param restart_policy: ``Always``, ``OnFailure``, ``Never`` or ``ExitCode``
    :param template: a Kubernetes pod template, passed whole; the fields above fill in its training container
    """

    def __init__(
        self,
        *,
        replicas: int | str | None = None,
        image: str | None = None,
        command: Sequence[Any] | None = None,
        args: Sequence[Any] | None = None,
        env: Env | None = None,
        gpus: Any = None,
        cpu: Any = None,
        memory: Any = None,
        restart_policy: str | None = None,
        template: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            replicas=replicas,
            image=image,
            command=command,
            args=args,
            env=env,
            gpus=gpus,
            cpu=cpu,
            memory=memory,
            restart_policy=restart_policy,
            template=template,
        )
