"""Whether processes are gone."""

from __future__ import annotations

import psutil


def has_ended(pid: int, *, timeout: float = 10.0) -> bool:
    """Whether the process ends within ``timeout`` seconds; one that only waits for its parent to look has ended."""
    try:
        process = psutil.Process(pid)
        while timeout > 0 and process.status() != psutil.STATUS_ZOMBIE:
            _, alive = psutil.wait_procs([process], timeout=0.1)
            if not alive:
                return True
            timeout -= 0.1
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
