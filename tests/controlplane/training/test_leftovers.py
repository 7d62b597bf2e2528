"""B01 and B05 with real processes below the real operator, whose clean-up they are about."""

from __future__ import annotations

from tests.examples.test_leftovers import (
    kube,
    test_b01_the_task_follows_the_master_and_workers_left_alone_are_charged_until_they_end,
    test_b01_workers_still_at_work_go_with_the_job_by_default,
    test_b01_workers_that_are_waited_for_hold_their_gpus_until_they_end,
    test_b05_an_evaluator_that_does_not_end_is_given_up_and_the_success_stays_one,
    test_b05_an_evaluator_that_is_waited_for_brings_its_metric,
)

__all__ = [
    "kube",
    "test_b01_the_task_follows_the_master_and_workers_left_alone_are_charged_until_they_end",
    "test_b01_workers_still_at_work_go_with_the_job_by_default",
    "test_b01_workers_that_are_waited_for_hold_their_gpus_until_they_end",
    "test_b05_an_evaluator_that_does_not_end_is_given_up_and_the_success_stays_one",
    "test_b05_an_evaluator_that_is_waited_for_brings_its_metric",
]
