"""Plays controller, scheduler and kubelet of a job on any API: makes its pods and says what becomes of them."""

from __future__ import annotations

import datetime as dt
from typing import Any

from airflow_kftrain.cluster.client import Cluster, Object
from airflow_kftrain.cluster.resources import EVENTS, PODS, XGBOOSTJOBS
from airflow_kftrain.exceptions import NotFound
from airflow_kftrain.jobs.identity import JOB_NAME, REPLICA_INDEX, REPLICA_TYPE
from airflow_kftrain.local.kubelet.logs import ContainerLog, LogBook

NODE = "node-0"
"""Where its pods are."""


def now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class Player:
    """Moves the jobs of one namespace on.

    :param logs: the API's log book, for pods whose logs are read
    """

    def __init__(self, cluster: Cluster, logs: LogBook | None = None, namespace: str = "default") -> None:
        self.cluster = cluster
        self.namespace = namespace
        self._logs = logs
        self._open: dict[str, ContainerLog] = {}
        self._pods: dict[tuple[str, str], Object] = {}

    def known(self, namespace: str, name: str) -> Object | None:
        """The pod of that name that was made last."""
        return self._pods.get((namespace, name))

    async def job(self, name: str) -> Object:
        return await self.cluster.get(XGBOOSTJOBS, name, self.namespace)

    async def jobs(self) -> list[Object]:
        return (await self.cluster.list(XGBOOSTJOBS, self.namespace)).items

    async def pod(self, job: Object, replica: str, **status: Any) -> Object:
        """Make a pod for ``worker-0``, and say its status (see :meth:`becomes`)."""
        kind, index = replica.rsplit("-", 1)
        labels = {JOB_NAME: job["metadata"]["name"], REPLICA_TYPE: kind, REPLICA_INDEX: index}
        spec = next(
            spec for name, spec in job["spec"]["xgbReplicaSpecs"].items() if name.lower() == kind.lower()
        )
        template = spec["template"]
        owner = {
            "apiVersion": job["apiVersion"],
            "kind": job["kind"],
            "name": job["metadata"]["name"],
            "uid": job["metadata"]["uid"],
            "controller": True,
        }
        made = await self.cluster.create(
            PODS,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{job['metadata']['name']}-{replica}",
                    "labels": {**(template.get("metadata", {}).get("labels") or {}), **labels},
                    "ownerReferences": [owner],
                },
                "spec": {**template["spec"], "restartPolicy": "Never", "nodeName": NODE},
            },
            self.namespace,
        )
        self._pods[self.namespace, made["metadata"]["name"]] = made
        return await self.becomes(made, **status) if status else made

    async def becomes(
        self,
        pod: Object,
        phase: str,
        *,
        waiting: dict[str, str] | None = None,
        exit_code: int | None = None,
        reason: str | None = None,
    ) -> Object:
        """Say a pod's phase; its one container waits, runs or has ended accordingly."""
        container = pod["spec"]["containers"][0]
        moment = now()
        if phase in ("Succeeded", "Failed"):
            code = exit_code if exit_code is not None else int(phase == "Failed")
            ended = {"exitCode": code, "reason": reason or ("Error" if code else "Completed")}
            state: dict[str, Any] = {"terminated": {**ended, "startedAt": moment, "finishedAt": moment}}
        elif phase == "Running":
            state = {"running": {"startedAt": moment}}
        else:
            state = {"waiting": waiting or {"reason": "ContainerCreating"}}
        status = {
            "phase": phase,
            "startTime": moment,
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "restartCount": 0,
                    "ready": phase == "Running",
                    "state": state,
                }
            ],
        }
        return await self.cluster.patch(
            PODS, pod["metadata"]["name"], {"status": status}, self.namespace, subresource="status"
        )

    def writes(self, pod: Object, data: bytes) -> None:
        """A pod's container writes ``data``."""
        self._log(pod).write(data)

    def ends_log(self, pod: Object) -> None:
        """A pod's container has ended; its log is complete."""
        self._log(pod).close()

    def _log(self, pod: Object) -> ContainerLog:
        assert self._logs is not None
        uid = pod["metadata"]["uid"]
        if uid not in self._open:
            self._open[uid] = self._logs.begin(uid, pod["spec"]["containers"][0]["name"], 0)
        return self._open[uid]

    async def gang(self, job: Object, *replicas: str, phase: str = "Running") -> list[Object]:
        return [await self.pod(job, replica, phase=phase) for replica in replicas]

    async def says(self, job: Object, *conditions: str, **status: Any) -> Object | None:
        """Write the job's conditions, for instance ``"Running=True"``; None when the job is gone."""
        entries = []
        for condition in conditions:
            kind, value = condition.split("=")
            entries.append(
                {
                    "type": kind,
                    "status": value,
                    "reason": f"XGBoostJob{kind}",
                    "message": f"said {condition}",
                    "lastTransitionTime": now(),
                    "lastUpdateTime": now(),
                }
            )
        patch = {"status": {"conditions": entries, **status}}
        try:
            return await self.cluster.patch(
                XGBOOSTJOBS, job["metadata"]["name"], patch, self.namespace, subresource="status"
            )
        except NotFound:
            return None

    async def warns(self, about: Object, reason: str, message: str, *, count: int = 1) -> None:
        """Record a Warning event."""
        meta = about["metadata"]
        await self.cluster.create(
            EVENTS,
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"generateName": f"{meta['name']}.", "namespace": self.namespace},
                "involvedObject": {
                    "kind": about["kind"],
                    "name": meta["name"],
                    "namespace": self.namespace,
                    "uid": meta["uid"],
                },
                "type": "Warning",
                "reason": reason,
                "message": message,
                "count": count,
                "firstTimestamp": now()[:19] + "Z",
                "lastTimestamp": now()[:19] + "Z",
            },
            self.namespace,
        )
