"""What our controllers do otherwise on purpose."""

from __future__ import annotations

from tests.controlplane.conformance.compare import Known

KNOWN: tuple[Known, ...] = ()
