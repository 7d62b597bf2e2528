"""Skips for what a user's machine may lack; in CI (``KFTRAIN_CI=1``) the same lack is a failure."""

from __future__ import annotations

import os
import shutil

import pytest


def in_ci() -> bool:
    """Whether nothing may be skipped."""
    return os.environ.get("KFTRAIN_CI") == "1"


def unavailable(reason: str) -> None:
    """Skip the present test with ``reason``, or fail it in CI."""
    if in_ci():
        pytest.fail(f"in CI nothing may be skipped: {reason}", pytrace=False)
    pytest.skip(reason)


def require_program(name: str, why: str) -> str:
    """The path of a program; without it the present test is skipped (in CI: fails)."""
    path = shutil.which(name)
    if path is None:
        unavailable(f"{name} is not on PATH: {why}")
    assert path is not None
    return path
