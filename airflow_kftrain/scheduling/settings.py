"""The planner's parameters, each with the reason for its default; the units are in the names or the text."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from airflow_kftrain.exceptions import InvalidInput

HOUR = 3600.0


class Preemption(enum.Enum):
    """For whose sake a preemptible gang may be suspended."""

    NEVER = "never"
    DEADLINE = "deadline"
    SERVICE = "service"


@dataclass(frozen=True)
class PlannerSettings:
    """How a plan is made.

    :param ageing: exponent by which waiting lowers the ordering key: service / (1 + wait / expected) ** ageing. At 0.1
        a gang that has waited a hundred times its run time counts as 1.6 times shorter: enough to order equals by
        age, too little to turn the order towards first come, first served, which costs averages.
    :param guard: a gang that has waited so long goes first (s). Four days: longer than any wait at normal load.
    :param guard_share: part of a partition's GPUs that gangs beyond the guard may take by it; the rest of them keeps
        its place in the plain order. Half: a backlog of days must not turn the whole partition to first come, first
        served.
    :param trust_limit: mean abs(log(real / predicted)) from which no room is held for the first blocked gang, unless
        it has waited beyond the guard or has a priority or a deadline. 0.5 is a factor of 1.65.
    :param share_weight: exponent of a share key's use over its entitlement in the ordering key.
    :param depth: how many queued gangs of a partition one plan tries to start; the rest is explained as such.
    :param slack_scale: a gang with a deadline counts a factor e longer for each such span (s) of slack it has left, as
        the apparent-tardiness-cost rule has it: it can afford to wait for shorter work.
    :param slack_most: spans of slack beyond which more makes no difference; a gang without a deadline counts so, too.
    :param late_floor: smallest chance to be in time that is counted: late work is 1 / late_floor times longer.
    :param look_ahead: how long before its latest start a gang with a deadline counts as urgent when predictions are
        exact (s).
    :param error_limit: mean abs(log(real / predicted)) from which looking ahead does not pay: look-ahead shrinks
        linearly to nothing there. 0.2 is a factor of 1.22; with twice that, holding loses against plain order.
    :param ladder: how long before its latest start a gang that is not going to be in time gets help (s): a few plans
        and one termination.
    :param reservations: plan reservations for urgent gangs per partition, beside the one for the first blocked.
    :param idle_cap: the largest part of a partition's GPUs that urgent reservations may hold idle.
    :param hopeless_runs: finished runs that a prediction must rest on before "cannot be met" is believed.
    :param preemption: for whose sake preemptible gangs are suspended.
    :param worth_starting: a resumable gang that a window will stop is started if it gets so many seconds until then.
    :param protected: a gang is not preempted within so many seconds of running.
    :param preempt_gain: a gang is preempted only for one whose predicted service is so many times smaller.
    :param preemptions_most: a gang that was preempted so often is left alone from then on.
    :param loan_longest: the longest predicted (or hard, with ``recallable_only``) run of a borrowed start (s).
    :param rescale_every: seconds between elastic rounds, and between two resizes of one gang.
    :param rescale_gain: smallest relative gain in remaining time that is worth a resize.
    """

    ageing: float = 0.1
    guard: float = 96 * HOUR
    guard_share: float = 0.5
    trust_limit: float = 0.5
    share_weight: float = 0.5
    depth: int = 20_000
    slack_scale: float = HOUR
    slack_most: float = 3.0
    late_floor: float = 0.05
    look_ahead: float = 2 * HOUR
    error_limit: float = 0.2
    ladder: float = 300.0
    reservations: int = 2
    idle_cap: float = 0.05
    hopeless_runs: int = 5
    preemption: Preemption = Preemption.DEADLINE
    worth_starting: float = HOUR
    protected: float = 900.0
    preempt_gain: float = 2.0
    preemptions_most: int = 20
    loan_longest: float = 12 * HOUR
    rescale_every: float = 300.0
    rescale_gain: float = 0.05

    def __post_init__(self) -> None:
        for name in (
            "ageing",
            "guard",
            "guard_share",
            "trust_limit",
            "share_weight",
            "look_ahead",
            "error_limit",
            "protected",
            "rescale_every",
        ):
            if getattr(self, name) < 0:
                raise InvalidInput(f"planner.{name}", getattr(self, name), "give zero or more")
        if self.depth < 1:
            raise InvalidInput("planner.depth", self.depth, "a plan looks at one gang at least")
        if not 0 <= self.idle_cap <= 1:
            raise InvalidInput("planner.idle_cap", self.idle_cap, "give a part between 0 and 1")
