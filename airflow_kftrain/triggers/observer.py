"""Follows one job from its request to its end; the same code waits in a trigger and in a worker."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from weakref import WeakKeyDictionary

from airflow_kftrain.clock import Clock, SystemClock
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.ownership import delete_owned, suspend_owned
from airflow_kftrain.cluster.resources import EVENTS, resource_of
from airflow_kftrain.cluster.shared import Following, SharedWatches
from airflow_kftrain.exceptions import ApiError, ApiUnreachable, Forbidden, Unauthorized
from airflow_kftrain.jobs.frameworks import framework
from airflow_kftrain.jobs.identity import PROGRESS, TIMES
from airflow_kftrain.jobs.limits import LimitSeconds
from airflow_kftrain.jobs.progress import Progress
from airflow_kftrain.jobs.status import JobStatus, State
from airflow_kftrain.triggers.conclusion import conclude
from airflow_kftrain.triggers.events import FinalEvent, JobRef
from airflow_kftrain.triggers.feeds import follow_job, follow_pods
from airflow_kftrain.triggers.follow import Look, Memory, Step, advance, gang_of, seen_spec
from airflow_kftrain.triggers.replica_logs import ReplicaLogs, Say
from airflow_kftrain.triggers.trouble import Trouble

DRAIN_SECONDS = 10.0
"""How long log streams may take to end after the job has ended."""

SETTLE_SECONDS = 2.0
"""How long pods may take to show an end that the job shows already."""

TROUBLED_PAUSE = 15.0
"""Longest pause while the cluster cannot be read, or has not been read yet."""

EXPLAINED_PODS = 4
"""Pods whose events are read to explain why a gang waits."""

CALLS_AT_ONCE = 16
"""Calls besides watches and logs that all observers of an event loop together make at a time."""

LONGEST_PAUSE = 120.0
SHORTEST_PAUSE = 0.05
PROGRESS_TOLD_EVERY = 10.0
NUDGE = "kftrain/nudged-at"

_AT_ONCE: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


@dataclass(frozen=True)
class Wishes:
    """How to wait.

    :param logs: replicas or replica types whose log lines are shown, or one of ``first``, ``all``, ``none``
    :param wait_for: replicas or replica types whose end is waited for after the job has succeeded, or ``all``
    :param keep: keep a job that breaks a limit, suspended, instead of deleting it
    :param progress_interval: least seconds between two updates of the ``kftrain/progress`` annotation
    """

    limits: LimitSeconds = field(default_factory=LimitSeconds)
    logs: tuple[str, ...] = ("first",)
    wait_for: tuple[str, ...] = ()
    keep: bool = False
    progress_interval: float = 30.0


class Observer:
    """Follows one job.

    :param connect: makes a client of the job's cluster
    :param identity: equal for observers that may share a watch: same API, same credentials
    :param say: writes one line into the task's log
    :param watches: the watches to share; those of the running event loop by default
    """

    def __init__(
        self,
        job: JobRef,
        wishes: Wishes,
        *,
        connect: Callable[[], Cluster],
        identity: str,
        say: Say,
        clock: Clock | None = None,
        watches: SharedWatches | None = None,
    ) -> None:
        self._ref = job
        self._wishes = wishes
        self._connect = connect
        self._identity = identity
        self._say = say
        self._clock = clock or SystemClock()
        self._watches = watches
        self._framework = framework(job.kind)
        self._resource = resource_of(self._framework)
        self._events: list[dict[str, Any]] = []
        self._written: dict[str, str] = {}
        self._unwritable = False
        self._trouble = Trouble(self._clock, say)
        self._reported = asyncio.Event()
        self._told = Progress()
        self._told_at = self._kept_at = float("-inf")

    async def run(self) -> FinalEvent:
        """Return when the job has ended, a limit has passed and the job was stopped, or the cluster refuses us."""
        watches = self._watches or SharedWatches.of_running_loop()
        ref, shared = self._ref, (watches, self._connect, self._identity)
        async with (
            follow_job(*shared, self._resource, ref.namespace, ref.name, ref.uid) as jobs,
            follow_pods(*shared, ref.namespace, ref.name, ref.uid) as pods,
            Wakeups(self._clock, jobs.changed, pods.changed, self._progress_came) as wakeups,
            contextlib.AsyncExitStack() as stack,
        ):
            memory = Memory()
            logs: ReplicaLogs | None = None
            while True:
                refusal = self._trouble.heed(jobs.trouble or pods.trouble)
                if refusal is not None:
                    return FinalEvent(ref, "unreadable", f"the cluster cannot be read: {refusal}")
                if not (jobs.known and pods.known):
                    await wakeups.pause(TROUBLED_PAUSE)
                    continue
                look = self._look(jobs, pods)
                if logs is None and look.job is not None:
                    logs = self._make_logs(pods.cluster, look.job)
                    stack.push_async_callback(logs.stop)
                step = advance(
                    memory,
                    look,
                    limits=self._wishes.limits,
                    wait_for=self._wishes.wait_for,
                    now=self._clock.now(),
                )
                memory = step.memory
                await self._act(jobs.cluster, step, look)
                if logs is not None and look.job is not None:
                    logs.keep_up(gang_of(look).replicas, pods.gone)
                    await self._pass_on(jobs.cluster, logs.progress)
                if step.end is not None:
                    return await self._end(jobs, pods, logs, step, wakeups)
                if not step.explain:
                    await wakeups.pause(self._pause(step, logs))

    def _look(self, jobs: Following, pods: Following) -> Look:
        return Look(
            jobs.objects.get(self._ref.uid),
            tuple(pods.objects.values()),
            tuple(self._events),
            tuple(pods.gone.values()),
        )

    def _make_logs(self, cluster: Cluster, job: Mapping[str, Any]) -> ReplicaLogs:
        return ReplicaLogs(
            cluster,
            self._ref.namespace,
            self._framework.container,
            first=seen_spec(job).first,
            shown=self._wishes.logs,
            say=self._say,
            on_progress=self._reported.set,
            clock=self._clock,
        )

    async def _act(self, cluster: Cluster, step: Step, look: Look) -> None:
        for line in step.lines:
            self._say(line)
        if step.times is not None:
            await self._annotate(cluster, TIMES, step.times.to_text())
        if step.nudge:
            self._say("No pods yet: the job is touched once, in case its operator has looked away")
            await self._annotate(cluster, NUDGE, self._clock.now().isoformat())
        if step.explain:
            await self._read_events(cluster, look)

    async def _end(
        self, jobs: Following, pods: Following, logs: ReplicaLogs | None, step: Step, wakeups: Wakeups
    ) -> FinalEvent:
        """Collect what is worth knowing, stop a job that broke a limit, and put it all into the event."""
        if step.breach is None:
            await self._let_settle(jobs, pods, logs, wakeups)
        look = self._last_look(jobs, pods)
        if look.job is not None and JobStatus.from_object(look.job).state is not State.SUCCEEDED:
            await self._read_events(jobs.cluster, look)
            look = self._last_look(jobs, pods)
        progress = Progress()
        if logs is not None:
            progress = logs.progress
            await self._pass_on(jobs.cluster, progress, last=True)
            await logs.tell_ends(gang_of(look).failed if look.job is not None else ())
        event = conclude(self._ref, step, look, progress=progress, now=self._clock.now())
        if step.breach is not None:
            await self._stop(jobs.cluster, event.message)
        else:
            self._say(
                f"{self._ref} has {'succeeded' if event.end == 'succeeded' else f'failed: {event.message}'}"
            )
        return event

    async def _let_settle(
        self, jobs: Following, pods: Following, logs: ReplicaLogs | None, wakeups: Wakeups
    ) -> None:
        """Wait a little for what comes by other ways than the job's own state: its pods' ends, and their last lines."""
        until = self._clock.monotonic() + SETTLE_SECONDS
        while (left := until - self._clock.monotonic()) > 0:
            look = self._last_look(jobs, pods)
            if look.job is None or any(replica.final for replica in gang_of(look).replicas):
                break
            await wakeups.pause(left)
        if logs is not None:
            if (job := self._last_look(jobs, pods).job) is not None:
                logs.keep_up(gang_of(Look(job, tuple(pods.objects.values()))).replicas, pods.gone)
            await logs.drain(DRAIN_SECONDS)

    def _last_look(self, jobs: Following, pods: Following) -> Look:
        """All that is known, of pods and a job that are no more as well."""
        job = jobs.objects.get(self._ref.uid) or jobs.gone.get(self._ref.uid)
        return Look(job, (*pods.gone.values(), *pods.objects.values()), tuple(self._events))

    async def _stop(self, cluster: Cluster, why: str) -> None:
        """End a job that broke a limit; the task does it again if this fails."""
        act, verb = (suspend_owned, "suspended") if self._wishes.keep else (delete_owned, "deleted")
        ref = self._ref
        self._say(f"{ref} is {verb}: {why}")
        try:
            await act(
                cluster,
                self._resource,
                ref.name,
                ref.namespace,
                uid=ref.uid,
                owner=ref.owner,
                clock=self._clock,
            )
        except (ApiError, ApiUnreachable) as error:
            self._say(f"It could not be {verb} now: {error}")

    async def _annotate(self, cluster: Cluster, name: str, value: str) -> None:
        """Write an annotation, unless it was written last; a refusal is told once and does no harm."""
        if self._unwritable or self._written.get(name) == value:
            return
        patch = {"metadata": {"uid": self._ref.uid, "annotations": {name: value}}}
        try:
            async with _few_at_once():
                await cluster.patch(self._resource, self._ref.name, patch, self._ref.namespace)
        except (Forbidden, Unauthorized) as error:
            self._unwritable = True
            self._say(
                f"Annotations of the job cannot be written, so limits count anew in another triggerer: {error}"
            )
        except (ApiError, ApiUnreachable):
            pass  # the job has changed or gone, or the API is away: the next look writes it again
        else:
            self._written[name] = value

    async def _read_events(self, cluster: Cluster, look: Look) -> None:
        """Read warnings about the job, and about those of its pods that are not up."""
        waiting = [replica.uid for replica in gang_of(look).replicas if replica.uid and not replica.up]
        found: list[dict[str, Any]] = []
        for uid in (self._ref.uid, *waiting[:EXPLAINED_PODS]):
            try:
                async with _few_at_once():
                    listed = await cluster.list(
                        EVENTS, self._ref.namespace, field_selector=f"involvedObject.uid={uid}"
                    )
            except (ApiError, ApiUnreachable):
                continue  # events explain; without them the pods' own status must do
            found += listed.items
        if found:
            self._events = sorted(
                found, key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or "")
            )

    async def _pass_on(self, cluster: Cluster, progress: Progress, *, last: bool = False) -> None:
        """Tell and write what the code reported, each at its bounded rate, and the last in any case."""
        now = self._clock.monotonic()
        if progress != self._told and (last or now - self._told_at >= PROGRESS_TOLD_EVERY):
            self._told, self._told_at = progress, now
            self._say(f"Progress: {progress}")
        text = json.dumps(progress.to_json())
        due = last or now - self._kept_at >= self._wishes.progress_interval
        if due and progress != Progress() and self._written.get(PROGRESS) != text:
            self._kept_at = now
            await self._annotate(cluster, PROGRESS, text)

    def _pause(self, step: Step, logs: ReplicaLogs | None) -> float:
        """Seconds until something is due though nothing changed; most waiting tasks have nothing but a limit."""
        due = [LONGEST_PAUSE if step.look_again is None else step.look_again]
        if self._trouble.present:
            due.append(TROUBLED_PAUSE)
        if logs is not None and logs.progress != Progress():
            now = self._clock.monotonic()
            if logs.progress != self._told:
                due.append(self._told_at + PROGRESS_TOLD_EVERY - now)
            if self._written.get(PROGRESS) != json.dumps(logs.progress.to_json()) and not self._unwritable:
                due.append(self._kept_at + self._wishes.progress_interval - now)
        return min(LONGEST_PAUSE, max(min(due), SHORTEST_PAUSE))

    async def _progress_came(self) -> None:
        await self._reported.wait()
        self._reported.clear()


def _few_at_once() -> asyncio.Semaphore:
    """Lets a bounded number of observers of the running event loop call the API at a time.

    Jobs that were submitted together have the same things due at the same moments.
    """
    return _AT_ONCE.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(CALLS_AT_ONCE))


class Wakeups:
    """Pauses that end early when one of several things happens."""

    def __init__(self, clock: Clock, *happenings: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._clock = clock
        self._happenings = happenings
        self._waiting: dict[int, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._waiting.values():
            task.cancel()
        await asyncio.gather(*self._waiting.values(), return_exceptions=True)

    async def pause(self, seconds: float) -> None:
        """Return after ``seconds``, or when something happened since the last pause."""
        for number, happening in enumerate(self._happenings):
            if number not in self._waiting:
                self._waiting[number] = asyncio.create_task(happening())
        sleep = asyncio.create_task(self._clock.sleep(seconds))
        try:
            await asyncio.wait({sleep, *self._waiting.values()}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
        for number in [n for n, task in self._waiting.items() if task.done()]:
            self._waiting.pop(number).result()
