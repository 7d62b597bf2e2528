"""Leader election, on a virtual clock and the local API."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from airflow_kftrain.clock import VirtualClock
from airflow_kftrain.cluster.resources import LEASES
from airflow_kftrain.controllers.lease import Lease, LeaseSettings
from airflow_kftrain.exceptions import ApiUnreachable
from tests.controllers.faulty import Client
from tests.controllers.stage import NAMESPACE


class Cut(Client):
    """A client whose network can be cut."""

    cut = False

    def __getattr__(self, name):
        call = super().__getattr__(name)

        async def perhaps(*args, **kwargs):
            if self.cut:
                raise ApiUnreachable("no route to host")
            return await call(*args, **kwargs)

        return perhaps


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def replica(cluster, clock):
    def made(identity, client=None):
        return Lease(client or cluster, clock, LeaseSettings(identity, namespace=NAMESPACE))

    return made


async def holder(cluster):
    lease = await cluster.get(LEASES, "airflow-kftrain-controllers", NAMESPACE)
    return lease["spec"]["holderIdentity"]


async def test_the_first_to_ask_leads_and_goes_on_to(replica, clock, cluster):
    a, b = replica("a"), replica("b")
    assert await a.try_hold()
    for _ in range(30):
        await clock.advance(2)
        assert await a.try_hold()
        assert not await b.try_hold()
    assert await holder(cluster) == "a"
    lease = await cluster.get(LEASES, "airflow-kftrain-controllers", NAMESPACE)
    assert lease["spec"]["leaseTransitions"] == 0
    assert lease["spec"]["renewTime"] > lease["spec"]["acquireTime"]


async def test_a_released_lease_is_free_at_once(replica, cluster):
    a, b = replica("a"), replica("b")
    assert await a.try_hold()
    await a.release()
    assert not a.held
    assert await b.try_hold()
    assert await holder(cluster) == "b"


async def test_a_dead_leaders_lease_runs_out(replica, clock, cluster):
    a, b = replica("a"), replica("b")
    assert await a.try_hold()
    assert not await b.try_hold()
    await clock.advance(14.9)
    assert not await b.try_hold()
    await clock.advance(0.1)
    assert await b.try_hold()
    assert await holder(cluster) == "b"


async def test_a_leader_that_cannot_renew_stops_before_another_starts(replica, clock, cluster):
    network = Cut(cluster)
    a, b = replica("a", network), replica("b")
    assert await a.try_hold()
    assert not await b.try_hold()
    network.cut = True
    together = []
    for _ in range(40):
        await clock.advance(0.5)
        await a.try_hold()
        await b.try_hold()
        together.append((a.held, b.held))
    assert (True, True) not in together
    assert together[-1] == (False, True)
    assert (False, False) in together
    network.cut = False
    assert not await a.try_hold()


async def test_of_two_that_ask_at_once_one_leads(replica, cluster):
    held = await asyncio.gather(*(replica(name).try_hold() for name in "abcdef"))
    assert sum(held) == 1


async def test_another_replicas_clock_does_not_matter(replica, clock, cluster):
    """A renewal time from a machine whose clock is an hour behind is no reason to take its lease."""

    class Behind(VirtualClock):
        def now(self):
            return clock.now() - dt.timedelta(hours=1)

        def monotonic(self):
            return clock.monotonic()

    behind = Lease(cluster, Behind(), LeaseSettings("a", namespace=NAMESPACE))
    b = replica("b")
    for _ in range(10):
        assert await behind.try_hold()
        await clock.advance(5)
        assert not await b.try_hold()
