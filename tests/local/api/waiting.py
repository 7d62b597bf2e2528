"""Waiting for what another part brings about, on any API server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

SECONDS = 20.0


def eventually(holds: Callable[[], bool], seconds: float = SECONDS) -> bool:
    """Whether ``holds`` becomes true within ``seconds``; asks again with a growing pause."""
    end, pause = time.monotonic() + seconds, 0.005
    while not holds():
        if time.monotonic() > end:
            return False
        threading.Event().wait(pause)
        pause = min(pause * 1.5, 0.5)
    return True
