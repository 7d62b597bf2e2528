"""What the daemon inherits: enough to run, nothing secret that its pods' processes could read from it."""

from __future__ import annotations

import os
from collections.abc import Mapping

_KEPT = frozenset(
    {"HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "PYTHONPATH", "TMPDIR", "TZ", "USER"}
    | {"PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV"}
    # Some processors need these for OpenBLAS to be right; training processes inherit nothing else of them.
    | {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"}
)


def daemon_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of ``environment`` (this process's own when absent) that the daemon gets."""
    given = os.environ if environment is None else environment
    return {name: value for name, value in given.items() if name in _KEPT}
