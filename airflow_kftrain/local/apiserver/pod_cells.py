"""The row of a pod: its status in one word, as ``pkg/printers/internalversion`` derives it."""

from __future__ import annotations

import datetime as dt
from typing import Any

from airflow_kftrain.local.apiserver.cells import age
from airflow_kftrain.local.apiserver.store import Json


def pod_cells(pod: Json, now: dt.datetime) -> list[Any]:
    """Name, Ready, Status, Restarts, Age, IP, Node, Nominated Node, Readiness Gates."""
    spec, status = pod["spec"], pod.get("status", {})
    states = status.get("containerStatuses") or []
    ready = sum(bool(state.get("ready")) for state in states)
    return [
        pod["metadata"]["name"],
        f"{ready}/{len(spec['containers'])}",
        pod_state(pod),
        _restarts(states, now),
        age(pod["metadata"].get("creationTimestamp"), now),
        status.get("podIP") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        "<none>",
    ]


def pod_state(pod: Json) -> str:
    """The Status column: the phase, or what a container waits for or ended with."""
    status = pod.get("status", {})
    reason = status.get("reason") or status.get("phase", "")
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    starting = _init_state(pod)
    reason = starting or _container_state(status, reason)
    if "deletionTimestamp" in pod["metadata"] and status.get("phase") not in ("Succeeded", "Failed"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return str(reason)


def _init_state(pod: Json) -> str:
    """``Init:…`` while an init container has not succeeded; else empty."""
    states = pod.get("status", {}).get("initContainerStatuses") or ()
    total = len(pod["spec"].get("initContainers") or ())
    for index, container in enumerate(states):
        state = container.get("state", {})
        ended = state.get("terminated")
        if ended and ended.get("exitCode") == 0:
            continue
        if ended:
            return f"Init:{ended.get('reason') or _exit(ended)}"
        waiting = state.get("waiting", {}).get("reason")
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}"
        return f"Init:{index}/{total}"
    return ""


def _container_state(status: Json, reason: str) -> str:
    running = False
    for container in reversed(status.get("containerStatuses") or []):
        state = container.get("state", {})
        if state.get("waiting", {}).get("reason"):
            reason = state["waiting"]["reason"]
        elif "terminated" in state:
            reason = state["terminated"].get("reason") or _exit(state["terminated"])
        elif container.get("ready") and "running" in state:
            running = True
    return "Running" if reason == "Completed" and running else reason


def _exit(ended: Json) -> str:
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode')}"


def _restarts(states: list[Json], now: dt.datetime) -> str:
    count = sum(state.get("restartCount", 0) for state in states)
    ends = [state.get("lastState", {}).get("terminated", {}).get("finishedAt") for state in states]
    last = max((end for end in ends if end), default=None)
    return f"{count} ({age(last, now)} ago)" if count and last else str(count)
