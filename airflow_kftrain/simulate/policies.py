"""Policies by name, for the command line and the benchmark."""

from __future__ import annotations

from collections.abc import Callable

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.simulate.baselines import (
    Backfill,
    Greedy,
    by_deadline,
    by_service,
    by_submission,
    by_width,
)
from airflow_kftrain.simulate.conservative import Conservative
from airflow_kftrain.simulate.engine import Policy
from airflow_kftrain.simulate.estimates import Estimates, Exact
from airflow_kftrain.simulate.planned import Planned, Settings
from airflow_kftrain.simulate.predicting import Predictor
from airflow_kftrain.simulate.preemptive import LeastAttained, ShortestRemaining

#: Makes a policy from what it may know of durations.
Maker = Callable[[Estimates], Policy]

BASELINES: dict[str, Maker] = {
    "strict-fifo": lambda _: Greedy("StrictFIFO", by_submission, blocking=True),
    "best-effort-fifo": lambda _: Greedy("BestEffortFIFO (Kueue)", by_submission),
    "easy": lambda known: Backfill("EASY", by_submission, known),
    "conservative": lambda known: Conservative(known),
    "smallest": lambda _: Greedy("smallest gang first", by_width),
    "sjf": lambda known: Backfill("shortest service + EASY", by_service, known),
    "edf": lambda known: Backfill("EDF, one reservation", by_deadline, known),
    "2d-las": lambda _: LeastAttained(),
    "oracle": lambda _: ShortestRemaining(),
}
NAMES = ("planner", *BASELINES)


def policy(
    name: str,
    known: Estimates | None = None,
    *,
    settings: Settings | None = None,
    predictor: Predictor | None = None,
) -> Policy:
    """The policy of that name.

    :param known: what a baseline knows of durations; exact by default
    :param settings: of the planner
    :param predictor: of the planner; history of the run by default
    :raises InvalidInput: there is none of that name
    """
    if name == "planner":
        return Planned(settings=settings, predictor=predictor)
    if name not in BASELINES:
        raise InvalidInput("policy", name, f"give one of {', '.join(NAMES)}")
    return BASELINES[name](known or Exact())
