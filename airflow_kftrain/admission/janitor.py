"""Finds what no trigger deleted: unfinished jobs of this Airflow whose task instance is over or has a newer try.

A finished job is never touched: whether it is kept was decided when its task ended, and it holds no node.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from airflow_kftrain.admission.ports import TaskStates, TaskTry
from airflow_kftrain.clock import Clock, SystemClock
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.ownership import delete_owned
from airflow_kftrain.cluster.resources import Resource, resource_of
from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs.frameworks import FRAMEWORKS
from airflow_kftrain.jobs.identity import INSTANCE, MANAGED, token
from airflow_kftrain.jobs.status import JobStatus

DEFAULT_INSTANCE = "airflow"
GRACE = 60.0
"""Seconds a task instance must be over before its job is deleted: its trigger and its next try come first."""

Act = Literal["delete", "keep"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to happen to one job, and why."""

    act: Act
    reason: str
    resource: Resource
    namespace: str
    name: str
    uid: str
    token: str | None

    def __str__(self) -> str:
        return f"{self.act} {self.resource.kind} {self.namespace}/{self.name}: {self.reason}"


def judge(
    resource: Resource,
    job: Mapping[str, Any],
    tries: Mapping[str, TaskTry],
    *,
    now: dt.datetime,
    grace: float = GRACE,
) -> Verdict:
    """Whether ``job``, one of this instance's, is to be deleted.

    :param tries: what Airflow knows, by ownership token
    :param grace: seconds since the end of the try before anything is done
    """
    metadata = job["metadata"]
    owner = token(job)
    act, reason = _judge(job, owner, tries.get(owner) if owner else None, now, grace)
    return Verdict(act, reason, resource, metadata["namespace"], metadata["name"], metadata["uid"], owner)


def _judge(
    job: Mapping[str, Any], owner: str | None, known: TaskTry | None, now: dt.datetime, grace: float
) -> tuple[Act, str]:
    if JobStatus.from_object(job).state.final:
        return "keep", "it is finished"
    if owner is None:
        return "keep", "it has no ownership token"
    if known is None:
        return "keep", f"Airflow does not know its task instance {owner}: delete it by hand if nobody owns it"
    if not (known.over or known.replaced):
        return "keep", f"{known.label} is {known.state or 'not started'}"
    if known.ended_at is not None and (now - known.ended_at).total_seconds() < grace:
        return "keep", f"{known.label} ended less than {grace:g} s ago"
    cause = "has a newer try" if known.replaced else f"is {known.state}"
    return "delete", f"{known.label} {cause}"


def check_instance(instance: str, *, told: bool, seen: Iterable[str], local: bool) -> None:
    """Refuse to act under a name that may be another Airflow's.

    :param instance: the name of this Airflow
    :param told: whether the caller gave the name, rather than the configuration
    :param seen: instances of the managed jobs on the cluster
    :param local: whether it is the local cluster
    :raises InvalidInput: the name must be given: others use the cluster, or the default name is used on a shared one
    """
    if told:
        return
    others = sorted(set(seen) - {instance})
    if others:
        raise InvalidInput(
            "instance",
            instance,
            f"the cluster also has jobs of {', '.join(others)}; give --instance NAME to say whose jobs to look after",
        )
    if instance == DEFAULT_INSTANCE and not local:
        raise InvalidInput(
            "instance",
            instance,
            "this is the default name, which another Airflow on this cluster may have as well; set [kftrain] instance, "
            "or give --instance NAME",
        )


class Janitor:
    """Looks after the jobs of one instance on one cluster.

    :param states: what Airflow knows; asked in a thread
    :param namespaces: where to look; ``None``: everywhere
    :param told: whether the caller gave ``instance`` itself (see :func:`check_instance`)
    """

    def __init__(
        self,
        cluster: Cluster,
        states: TaskStates,
        *,
        instance: str,
        told: bool = False,
        namespaces: Sequence[str] | None = None,
        clock: Clock | None = None,
        grace: float = GRACE,
    ) -> None:
        self._cluster = cluster
        self._states = states
        self._instance = instance
        self._told = told
        self._namespaces: Sequence[str | None] = list(namespaces) if namespaces else [None]
        self._clock = clock or SystemClock()
        self._grace = grace

    async def sweep(self) -> list[Verdict]:
        """Judge every job once and delete those to be deleted; the verdicts, deletions first.

        :raises InvalidInput: the instance must be named (see :func:`check_instance`)
        """
        found = [
            (resource, job)
            for resource in map(resource_of, FRAMEWORKS.values())
            for job in await self._jobs(resource)
        ]
        check_instance(
            self._instance,
            told=self._told,
            seen=[_instance_of(job) for _, job in found],
            local=await is_local(self._cluster),
        )
        mine = [(resource, job) for resource, job in found if _instance_of(job) == self._instance]
        tokens = {owner for _, job in mine if (owner := token(job))}
        tries = await asyncio.to_thread(self._states.tries, tokens)
        now = self._clock.now()
        verdicts = [judge(resource, job, tries, now=now, grace=self._grace) for resource, job in mine]
        for verdict in verdicts:
            if verdict.act == "delete":
                await delete_owned(
                    self._cluster,
                    verdict.resource,
                    verdict.name,
                    verdict.namespace,
                    uid=verdict.uid,
                    owner=verdict.token,
                )
        return sorted(verdicts, key=lambda v: (v.act != "delete", v.namespace, v.name))

    async def _jobs(self, resource: Resource) -> list[dict[str, Any]]:
        selector = f"{MANAGED}=true"
        lists = [
            await self._cluster.list(resource, namespace, label_selector=selector)
            for namespace in self._namespaces
        ]
        return [job for found in lists for job in found.items]


async def is_local(cluster: Cluster) -> bool:
    """Whether the API is this package's own local cluster."""
    version = await cluster.raw("GET", "/version")
    return "kftrain" in str(version.get("gitVersion", ""))


def _instance_of(job: Mapping[str, Any]) -> str:
    return str((job["metadata"].get("labels") or {}).get(INSTANCE, ""))
