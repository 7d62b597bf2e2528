"""Interpreters of the frameworks that do not live in the project's own environment."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.requires import unavailable

SYSTEM = "/usr/bin/python3"
TENSORFLOW = Path("~/.cache/airflow-kftrain/tensorflow/bin/python").expanduser()


def find_torch() -> str | None:
    """``$KFTRAIN_TORCH_PYTHON``, else the system's Python where it has PyTorch (Debian's ``python3-torch``)."""
    return _find("torch", "KFTRAIN_TORCH_PYTHON", (SYSTEM,))


def find_tensorflow() -> str | None:
    """``$KFTRAIN_TENSORFLOW_PYTHON``, else the system's Python where it has TensorFlow, else ``make frameworks``'."""
    return _find("tensorflow", "KFTRAIN_TENSORFLOW_PYTHON", (SYSTEM, str(TENSORFLOW)))


def require_torch() -> str:
    """An interpreter with PyTorch; without one the present test is skipped (in CI: fails)."""
    return find_torch() or _lacking("PyTorch", "install Debian's python3-torch or set KFTRAIN_TORCH_PYTHON")


def require_tensorflow() -> str:
    """An interpreter with TensorFlow; without one the present test is skipped (in CI: fails)."""
    return find_tensorflow() or _lacking(
        "TensorFlow", "run 'make frameworks' or set KFTRAIN_TENSORFLOW_PYTHON"
    )


def images() -> str:
    """The local cluster's table of images for the interpreters that are there."""
    found = {"kftrain/pytorch:*": find_torch(), "kftrain/tensorflow:*": find_tensorflow()}
    return "".join(
        f'[[image]]\npattern = "{pattern}"\npython = "{python}"\n'
        for pattern, python in found.items()
        if python
    )


@functools.cache
def _find(module: str, variable: str, candidates: Sequence[str]) -> str | None:
    given = os.environ.get(variable)
    tried = (given,) if given else candidates
    found = next((python for python in tried if _has(python, module)), None)
    if given and found is None:
        raise LookupError(f"{variable} is {given}, which has no module {module}: set it right, or not at all")
    return found


def _has(python: str, module: str) -> bool:
    """Whether the module is there; it is not imported, which takes seconds."""
    code = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
    try:
        return subprocess.run([python, "-I", "-c", code], check=False, timeout=60).returncode == 0
    except OSError:
        return False


def _lacking(what: str, remedy: str) -> str:
    unavailable(f"no interpreter with {what}: {remedy}")
    raise AssertionError("unreachable")
