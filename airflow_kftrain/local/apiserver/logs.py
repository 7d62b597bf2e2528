"""The ``log`` subresource: which container, which of its starts, and in what form."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from airflow_kftrain.local.apiserver.errors import bad_request
from airflow_kftrain.local.apiserver.reads import flag, number
from airflow_kftrain.local.apiserver.store import Json
from airflow_kftrain.local.kubelet.logs import LogOptions

_GROUPS = ("initContainers", "containers")
_STATUSES = ("initContainerStatuses", "containerStatuses")


class LogSource(Protocol):
    """Where containers' logs are: the kubelet's :class:`~airflow_kftrain.local.kubelet.logs.LogBook`."""

    def starts(self, pod_uid: str, container: str) -> list[int]:
        """The starts of a container whose logs are there, oldest first."""

    def read(self, pod_uid: str, container: str, start: int, options: LogOptions) -> AsyncIterator[bytes]:
        """One start's log in chunks; with ``follow``, until that start has ended."""


async def _nothing() -> AsyncIterator[bytes]:
    yield b""


def pod_log(
    source: LogSource | None, pod: Json, query: Mapping[str, str], now: dt.datetime
) -> AsyncIterator[bytes]:
    """The log that ``query`` asks for: ``container``, ``previous``, and the form of it.

    A pod that no node has taken yet has an empty log, as on a real cluster.

    :raises StatusError: 400, which container is not clear, it has not started, or a value means nothing
    """
    container = _container(pod, query.get("container", ""))
    options = _options(query, now)
    if not pod["spec"].get("nodeName"):
        return _nothing()
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    starts = source.starts(uid, container) if source is not None else []
    if flag(query, "previous"):
        if len(starts) < 2:
            raise bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
        return _read(source, uid, container, starts[-2], options)
    if not starts:
        reason = _waiting(pod, container)
        raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: {reason}')
    return _read(source, uid, container, starts[-1], options)


def _read(
    source: LogSource | None, uid: str, container: str, start: int, options: LogOptions
) -> AsyncIterator[bytes]:
    assert source is not None
    return source.read(uid, container, start, options)


def _container(pod: Json, asked: str) -> str:
    spec, name = pod["spec"], pod["metadata"]["name"]
    names = [c["name"] for group in _GROUPS for c in spec.get(group) or ()]
    if asked:
        if asked not in names:
            raise bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    annotated = (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
    if annotated in names:
        return str(annotated)
    main = [c["name"] for c in spec["containers"]]
    if len(main) > 1:
        listed, inits = " ".join(main), [c["name"] for c in spec.get("initContainers") or ()]
        text = f"a container name must be specified for pod {name}, choose one of: [{listed}]"
        raise bad_request(text + (f" or one of the init containers: [{' '.join(inits)}]" if inits else ""))
    return str(main[0])


def _options(query: Mapping[str, str], now: dt.datetime) -> LogOptions:
    return LogOptions(
        follow=flag(query, "follow"),
        tail_lines=number(query, "tailLines") if query.get("tailLines") else None,
        since=_since(query, now),
        timestamps=flag(query, "timestamps"),
        limit_bytes=number(query, "limitBytes") if query.get("limitBytes") else None,
    )


def _since(query: Mapping[str, str], now: dt.datetime) -> dt.datetime | None:
    seconds, instant = query.get("sinceSeconds"), query.get("sinceTime")
    if seconds and instant:
        raise bad_request("at most one of `sinceTime` or `sinceSeconds` may be specified")
    if seconds:
        if number(query, "sinceSeconds") == 0:
            raise bad_request("sinceSeconds: must be greater than 0")
        return now - dt.timedelta(seconds=number(query, "sinceSeconds"))
    if not instant:
        return None
    try:
        return dt.datetime.fromisoformat(instant)
    except ValueError:
        raise bad_request(f"sinceTime: {instant!r} is not a time in RFC 3339 form") from None


def _waiting(pod: Json, container: str) -> str:
    for group in _STATUSES:
        for status in pod.get("status", {}).get(group) or ():
            if status.get("name") == container:
                return str(status.get("state", {}).get("waiting", {}).get("reason", "ContainerCreating"))
    return "ContainerCreating"


__all__ = ["LogOptions", "LogSource", "pod_log"]
