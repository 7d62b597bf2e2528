"""The elastic example on the real API, with the default scheduler: in gang mode the operator cannot grow a job."""

from __future__ import annotations

from tests.controlplane.conftest import PLAIN_NAMESPACES
from tests.examples.test_elastic import test_training_goes_on_when_a_worker_is_added_and_one_is_killed

NAMESPACE = PLAIN_NAMESPACES[0]

__all__ = ["test_training_goes_on_when_a_worker_is_added_and_one_is_killed"]
