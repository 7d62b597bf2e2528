"""How long a new gang will run, learnt from runs that have finished, and only from these.

The median of the last runs of the narrowest level that has any: key and size, key, share and size, size, all; below
them a prior. A median is drawn towards that of all runs as far as levels of its kind have not kept what they promised.
Recent runs count, similar ones more than many. Quantiles spread around the median as that level's own
runs do; a factor per level and quantile is tracked online (adaptive conformal inference: it moves up by a step when a
run was longer, down when it was not, in the proportion that holds the coverage), so that nine of ten runs end by the
p90 also where the runs drift. A user's own expected run time is weighed against history by the inverse square of the
errors that both have shown for that key.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.scheduling.model import Estimate

QUANTILES = (0.1, 0.5, 0.8, 0.9)
# Log-spread of a level that has seen too little: within a factor of 3 in 80 % of runs, as public traces show.
_UNSEEN = (-1.1, 0.0, 0.7, 1.1)
_ENOUGH = 8  # runs from which their own quantiles mean something
_STEP = 0.05  # of the conformal tracker, in log units: a factor of 1.05 for each surprise
_FAR = 3.0  # logarithms beyond a factor of 20 count as that: one run in a thousand must not decide
_FLOOR = 0.05  # smallest error a source is credited with: nobody is trusted without limit


@dataclass(frozen=True)
class Finished:
    """One run that has ended by itself.

    :param key: what recurs (DAG and task by default); empty when unknown
    :param gpus: size of the gang
    :param seconds: of running, suspended time excluded
    :param share: DAG, team or namespace
    :param expected: what the user had expected, if anything
    """

    key: str
    gpus: int
    seconds: float
    share: str = ""
    expected: float | None = None


@dataclass
class _Worth:
    """How much of a level's distance from the median of all runs shows in its next run: a slope between 0 and 1.

    Decayed sums; it begins with full belief and as much weight as twenty runs that are a factor of two away.
    """

    both: float = 10.0
    own: float = 10.0

    def add(self, said: float, was: float) -> None:
        """A level said ``said`` (log over the median of all runs), the run was ``was``."""
        self.both = 0.998 * self.both + said * max(-_FAR, min(_FAR, was))
        self.own = 0.998 * self.own + said * said

    @property
    def slope(self) -> float:
        return min(1.0, max(0.0, self.both / self.own))


@dataclass
class _Level:
    """Runs of one key of the hierarchy: logarithms of seconds, newest last."""

    logs: deque[float]
    errors: deque[float] = field(default_factory=lambda: deque(maxlen=20))
    user: deque[float] = field(default_factory=lambda: deque(maxlen=20))
    _kept: tuple[float, ...] | None = None

    def add(self, log: float) -> None:
        self.logs.append(log)
        self._kept = None

    def quantiles(self) -> tuple[float, ...]:
        """Of the logarithms, at :data:`QUANTILES`."""
        if self._kept is None:
            ordered = sorted(self.logs)
            self._kept = tuple(_quantile(ordered, q) for q in QUANTILES)
        return self._kept


class History:
    """Predicts run times from the runs it was told of.

    :param narrow: runs that a level with a key looks back on
    :param broad: runs that a level without one looks back on
    :param prior: seconds assumed before anything has finished
    """

    def __init__(self, *, narrow: int = 10, broad: int = 200, prior: float = 3600.0) -> None:
        self._narrow, self._broad, self._prior = narrow, broad, prior
        self._levels: dict[tuple[object, ...], _Level] = {}
        self._shift: dict[int, list[float]] = {}
        self._recent: deque[float] = deque(maxlen=1000)
        self._worth: dict[int, _Worth] = {}

    def learn(self, run: Finished) -> None:
        """Take in a run that has finished.

        :raises InvalidInput: it has no length
        """
        if not run.seconds > 0 or math.isinf(run.seconds):
            raise InvalidInput("run.seconds", run.seconds, "a finished run has a positive length")
        log = math.log(run.seconds)
        guess = self.estimate(run.key, run.gpus, share=run.share, expected=run.expected)
        self._recent.append(min(_FAR, abs(log - math.log(guess.p50))))
        self._recalibrate(run, log, guess)
        self._weigh(run, log)
        for depth, name in enumerate(_names(run.key, run.gpus, run.share)):
            if name is None:
                continue
            level = self._levels.get(name)
            if level is None:
                kept = self._narrow if depth < 2 and run.key else self._broad
                level = self._levels[name] = _Level(deque(maxlen=kept))
            if level.logs:
                level.errors.append(abs(log - level.quantiles()[1]))
            if run.expected:
                level.user.append(log - math.log(run.expected))
            level.add(log)

    def estimate(self, key: str, gpus: int, *, share: str = "", expected: float | None = None) -> Estimate:
        """The run time of a gang at its requested size.

        :param key: what recurs; empty when unknown
        :param expected: the user's own expectation, seconds
        """
        depth, name, level = self._narrowest(key, gpus, share)
        middle, runs = math.log(self._prior), 0
        spread: tuple[float, ...] = _UNSEEN
        if level is not None:
            logs = level.quantiles()
            middle, runs = self._drawn_in(depth, logs[1]), len(level.logs)
            if runs >= _ENOUGH:
                spread = tuple(log - logs[1] for log in logs)
        source = f"history of {name[0]}" if level else "prior"
        if expected:
            middle, source = self._weighed(middle, level, expected, name)
        shift = self._shift.get(depth, [0.0] * len(QUANTILES))
        at = [math.exp(middle + s + moved) for s, moved in zip(spread, shift, strict=True)]
        at[1] = math.exp(middle)
        p10, p50 = min(at[0], at[1]), at[1]
        p80 = max(at[2], p50)
        return Estimate(p10, p50, p80, max(at[3], p80), runs, source)

    @property
    def error(self) -> float | None:
        """Mean abs(log(real / predicted)) of the last runs, each 3 at most; None before any.

        A mean: a sweep of equal runs makes the median nothing while the runs beside it are off by a factor of ten.
        """
        return fmean(self._recent) if self._recent else None

    def _narrowest(self, key: str, gpus: int, share: str) -> tuple[int, tuple[object, ...], _Level | None]:
        names = _names(key, gpus, share)
        for depth, name in enumerate(names):
            level = self._levels.get(name) if name is not None else None
            if name is not None and level is not None and level.logs:
                return depth, name, level
        return len(names), ("nothing",), None

    def _weighed(
        self, middle: float, level: _Level | None, expected: float, name: tuple[object, ...]
    ) -> tuple[float, str]:
        """History's and the user's (by their usual factor corrected) log median, by inverse squared error."""
        if level is None:
            return math.log(expected), "user"
        bias = median(level.user) if level.user else 0.0
        said = math.log(expected) + bias
        user_error = median(abs(u - bias) for u in level.user) if len(level.user) > 1 else 1.0
        own_error = median(level.errors) if level.errors else 1.0
        mine, theirs = (1 / max(error, _FLOOR) ** 2 for error in (own_error, user_error))
        mixed = (mine * middle + theirs * said) / (mine + theirs)
        return mixed, f"history of {name[0]} and user" if mine >= theirs else f"user and history of {name[0]}"

    def _drawn_in(self, depth: int, log: float) -> float:
        """A level's median, drawn towards that of all runs as far as levels of its kind have proved worth little."""
        of_all = self._levels.get(("all",))
        if of_all is None or depth not in self._worth:
            return log
        middle = of_all.quantiles()[1]
        return middle + self._worth[depth].slope * (log - middle)

    def _weigh(self, run: Finished, log: float) -> None:
        depth, _, level = self._narrowest(run.key, run.gpus, run.share)
        of_all = self._levels.get(("all",))
        if level is not None and of_all is not None and level is not of_all:
            middle = of_all.quantiles()[1]
            self._worth.setdefault(depth, _Worth()).add(level.quantiles()[1] - middle, log - middle)

    def _recalibrate(self, run: Finished, log: float, guess: Estimate) -> None:
        depth, _, _ = self._narrowest(run.key, run.gpus, run.share)
        shift = self._shift.setdefault(depth, [0.0] * len(QUANTILES))
        said = (guess.p10, guess.p50, guess.p80, guess.p90)
        for i, quantile in enumerate(QUANTILES):
            longer = log > math.log(said[i])
            shift[i] += _STEP * (quantile if longer else quantile - 1.0)


def _names(key: str, gpus: int, share: str) -> list[tuple[object, ...] | None]:
    """The levels of the hierarchy, narrowest first; None for one that a run without key or share does not have."""
    return [
        (key, gpus) if key else None,
        (key,) if key else None,
        ("share", share, gpus) if share else None,
        ("size", gpus),
        ("all",),
    ]


def _quantile(ordered: Sequence[float], q: float) -> float:
    """Linear interpolation between order statistics, as numpy's default."""
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])
