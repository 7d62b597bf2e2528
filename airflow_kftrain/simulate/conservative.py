"""Conservative backfilling: every waiting gang has a reservation, and none may be delayed by a later one."""

from __future__ import annotations

import math

import numpy as np

from airflow_kftrain.scheduling.calendar import Profile
from airflow_kftrain.simulate.baselines import Ranked, by_submission, try_start
from airflow_kftrain.simulate.engine import Decision, Start
from airflow_kftrain.simulate.estimates import Estimates
from airflow_kftrain.simulate.world import World


class Conservative(Ranked):
    """Places the queue anew at each event, in order of submission, at the earliest hole.

    :param depth: how many gangs get a reservation; later ones start only where they delay none of these
    """

    def __init__(self, estimates: Estimates | None = None, *, depth: int = 100) -> None:
        super().__init__("conservative", by_submission, estimates)
        self._depth = depth

    def decide(self, world: World) -> Decision:
        starts: list[Start] = []
        free = world.nodes.copy()
        profiles = {name: self._profile(world, name) for name in world.nodes.partitions}
        for place, job in enumerate(self.ranked(world).tolist()):
            home, width = world.home(job), world.jobs[job].gpus
            if place >= self._depth and (not free.total or width > free.total):
                continue
            profile, amount = profiles[home], np.array([float(width)])
            estimate = float(self._estimate[job])
            if place >= self._depth and not profile.fits(amount, world.now, world.now + estimate):
                continue
            at = profile.earliest(amount, estimate)
            start = try_start(free, job, width, home) if at <= world.now else None
            if start is not None:
                starts.append(start)
            elif place >= self._depth:
                continue
            if math.isfinite(at):
                profile.take(amount, at, at + estimate)
        return Decision(starts)

    def _profile(self, world: World, partition: str) -> Profile:
        gangs = [gang for gang in world.gangs.values() if gang.partition == partition]
        leaving = [gang for gang in world.ending.values() if gang.partition == partition]
        ends = [self.expected_end(world, gang.job) for gang in gangs]
        ends += [max(gang.freed_at, world.now + 1.0) for gang in leaving]
        sizes = [float(gang.gpus) for gang in (*gangs, *leaving)]
        free = float(sum(world.nodes.free[node] for node in world.nodes.range_of(partition)))
        return Profile.of_releases(
            world.now, np.array([free]), np.array(ends), np.array(sizes).reshape(len(sizes), 1)
        )
