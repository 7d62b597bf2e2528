"""What training code tells the operator: lines on stdout that begin with ``KFTRAIN``."""

from __future__ import annotations

import json
from typing import Any


def report(**facts: Any) -> None:
    """Print one such line.

    Any of ``progressPercentage``, ``estimatedRemainingSeconds``, ``metrics`` (a mapping), ``model`` and ``checkpoint``
    (where they are). They are read from the gang's first replica; the last of each is the task's result.
    """
    print("KFTRAIN " + json.dumps(facts), flush=True)
