"""A live cluster in tests: create things, and wait on the watch for what they become."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from airflow_kftrain.clock import SystemClock
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.cluster.resources import EVENTS, PODS, XGBOOSTJOBS, Resource
from airflow_kftrain.cluster.watch import Listed, list_and_watch

RING = str(Path(__file__).with_name("ring.py"))
Object = dict[str, Any]


class Live:
    """What tests do with a cluster, in one namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    async def until(
        self,
        resource: Resource,
        name: str,
        true: Callable[[Object | None], Any],
        *,
        timeout: float = 30.0,
    ) -> Object | None:
        """The object as soon as ``true(object)``; ``None`` stands for one that is gone."""
        last: Object | None = None
        watching = list_and_watch(
            self.cluster,
            resource,
            self.namespace if resource.namespaced else None,
            field_selector=f"metadata.name={name}",
            clock=SystemClock(),
        )
        try:
            async with asyncio.timeout(timeout):
                async for event in watching:
                    if isinstance(event, Listed):
                        last = event.items[0] if event.items else None
                    else:
                        last = None if event.type == "DELETED" else event.object
                    if true(last):
                        return last
        except TimeoutError:
            status = last and last.get("status")
            raise AssertionError(f"{resource.plural} {name} did not come so far: {status}") from None
        finally:
            await watching.aclose()
        raise AssertionError("a watch never ends")

    async def pod(self, name: str, command: list[str], *, restart: str = "Never", **fields: Any) -> Object:
        """Create a pod of one container; ``fields`` of the container, or of the pod with a ``pod_`` before."""
        of_pod = {key.removeprefix("pod_"): fields.pop(key) for key in list(fields) if key.startswith("pod_")}
        main = {"name": "main", "image": "acme/test:1", "command": command, **fields}
        spec = {"restartPolicy": restart, "containers": [main], **of_pod}
        meta = {"name": name, "namespace": self.namespace}
        return await self.cluster.create(
            PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        )

    async def ended(self, name: str, *, timeout: float = 30.0) -> Object:
        """The pod in its final phase."""
        done = await self.until(
            PODS, name, lambda p: p and p["status"].get("phase") in ("Succeeded", "Failed"), timeout=timeout
        )
        assert done is not None
        return done

    async def running(self, name: str) -> Object:
        found = await self.until(PODS, name, lambda p: p and p["status"].get("phase") == "Running")
        assert found is not None
        return found

    async def logs(self, name: str, **options: Any) -> str:
        chunks = [c async for c in self.cluster.logs(name, self.namespace, **options)]
        return b"".join(chunks).decode("utf-8", "replace")

    async def until_logged(self, name: str, text: str, *, timeout: float = 30.0) -> None:
        """Return once the pod's first container has started and written ``text``."""
        await self.until(PODS, name, lambda p: p and p["status"].get("phase") not in (None, "Pending"))
        seen = b""
        async with asyncio.timeout(timeout):
            async for chunk in self.cluster.logs(name, self.namespace, follow=True):
                seen += chunk
                if text.encode() in seen:
                    return
        raise AssertionError(f"{name} ended without writing {text!r}: {seen!r}")

    async def until_event(self, subject: str, reason: str, *, timeout: float = 15.0) -> Object:
        """The first event of ``reason`` about ``subject``."""
        watching = list_and_watch(
            self.cluster, EVENTS, self.namespace, field_selector=f"involvedObject.name={subject}"
        )
        try:
            async with asyncio.timeout(timeout):
                async for event in watching:
                    for item in event.items if isinstance(event, Listed) else [event.object]:
                        if item["reason"] == reason:
                            return item
        finally:
            await watching.aclose()
        raise AssertionError("a watch never ends")

    async def job(self, name: str, *arguments: str, restart: str = "Never", gpus: int = 0) -> Object:
        """Create an XGBoostJob of a master and two workers that train together."""
        return await self.cluster.create(
            XGBOOSTJOBS, xgboost_job(name, *arguments, namespace=self.namespace, restart=restart, gpus=gpus)
        )

    async def job_ended(self, name: str, *, timeout: float = 60.0) -> str:
        """``Succeeded`` or ``Failed``, once the job's condition says so."""
        job = await self.until(XGBOOSTJOBS, name, final_state, timeout=timeout)
        state = final_state(job)
        assert state is not None
        return state


def final_state(job: Object | None) -> str | None:
    conditions = (job or {}).get("status", {}).get("conditions") or ()
    true = {c["type"] for c in conditions if c["status"] == "True"}
    return "Failed" if "Failed" in true else "Succeeded" if "Succeeded" in true else None


def xgboost_job(
    name: str, *arguments: str, namespace: str = "default", restart: str = "Never", gpus: int = 0
) -> Object:
    """A gang of three that exchanges data, see :mod:`tests.support.ring`."""
    limits = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}} if gpus else {}
    main = {
        "name": "xgboost",
        "image": "acme/ring:1",
        "command": [sys.executable, RING, *arguments],
        **limits,
    }
    template = {"spec": {"containers": [main]}}
    replica = {"restartPolicy": restart, "template": template}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "XGBoostJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "runPolicy": {"cleanPodPolicy": "None"},
            "xgbReplicaSpecs": {"Master": {"replicas": 1, **replica}, "Worker": {"replicas": 2, **replica}},
        },
    }


@asynccontextmanager
async def live(kubeconfig: Path, namespace: str = "default") -> AsyncIterator[Live]:
    async with Cluster.from_kubeconfig(str(kubeconfig)) as cluster:
        yield Live(cluster, namespace)


def exit_code(pod: Object, container: int = 0) -> int:
    return pod["status"]["containerStatuses"][container]["state"]["terminated"]["exitCode"]
