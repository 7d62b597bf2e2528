"""The engine: what it charges, what changes cost, and that it refuses what cannot be."""

import pytest
from hypothesis import given, settings

from airflow_kftrain.simulate.baselines import Greedy, by_submission
from airflow_kftrain.simulate.engine import Decision, Preempt, Resize, Start, simulate
from airflow_kftrain.simulate.policies import BASELINES, policy
from airflow_kftrain.simulate.workload import Speed
from airflow_kftrain.simulate.world import FREE, Cluster, Costs, Nodes, SimulationError, pods_of
from tests.simulate.builders import job, workload, workloads

FIFO = "best-effort-fifo"


class Scripted:
    """Decides by a function of the world."""

    name = "scripted"
    debounce = 0.0

    def __init__(self, decide):
        self._decide = decide

    def submitted(self, world, job):
        pass

    def finished(self, world, job):
        pass

    def decide(self, world):
        return self._decide(world)


def ends(run):
    return [record.end for record in run.records]


def test_a_gang_starts_whole_when_there_is_room_and_its_end_makes_room():
    run = simulate(workload(job("a", 0, 100, 8), job("b", 10, 50, 8)), Cluster.count(8), policy(FIFO), FREE)
    assert ends(run) == [100, 150]
    assert run.records[1].waited == 90


def test_start_up_delays_the_end_and_termination_the_next_start():
    costs = Costs(startup=120, termination=30)
    run = simulate(workload(job("a", 0, 100, 8), job("b", 10, 50, 8)), Cluster.count(8), policy(FIFO), costs)
    assert ends(run) == [220, 220 + 30 + 120 + 50]


def preempt_at(instant, back):
    def decide(world):
        if world.now == instant and 0 in world.gangs:
            return Decision([Preempt(0)], wake=back)
        if world.now in (0, back):
            return Decision(
                [Start(number) for number in world.waiting], wake=instant if world.now == 0 else None
            )
        return Decision(
            wake=back if world.now >= instant and 0 not in world.gangs and world.now < back else None
        )

    return Scripted(decide)


@pytest.mark.parametrize(
    ("resumable", "every", "end", "lost"),
    [
        (True, 0.0, 200 + 300 + 60, 300 * 8),
        (True, 25.0, 200 + 300 + 75, 300 * 8 + 15 * 8),
        (False, 0.0, 200 + 300 + 100, 300 * 8 + 40 * 8),
    ],
    ids=[
        "with a checkpoint on SIGTERM nothing but the restart is lost",
        "with checkpoints each 25 s the work since the last one is lost",
        "a gang that cannot resume loses all its work",
    ],
)
def test_preemption_costs_a_restart_and_the_work_since_the_last_checkpoint(resumable, every, end, lost):
    costs = Costs(startup=0, termination=0, restart=300, checkpoint_every=every)
    one = workload(job("a", 0, 100, 8, resumable=resumable))
    run = simulate(one, Cluster.count(8), preempt_at(40, 200), costs)
    assert ends(run) == [end]
    assert run.records[0].lost == lost
    assert (run.records[0].preemptions, run.records[0].admissions, run.records[0].waited) == (1, 2, 160)


def test_a_failed_attempt_is_retried_at_its_old_rank_from_what_it_kept():
    failing = job("a", 0, 100, 8, fails=(60.0,), resumable=False)
    run = simulate(workload(failing), Cluster.count(8), policy(FIFO), Costs(0, 0, restart=300))
    assert ends(run) == [60 + 300 + 100]
    assert (run.records[0].failures, run.records[0].lost) == (1, 60 * 8 + 300 * 8)


def test_a_rescale_pauses_the_gang_and_changes_its_pace():
    elastic = job("a", 0, 100, 1, speed=Speed(((1, 1.0), (2, 2.0))))

    def decide(world):
        if world.now == 0:
            return Decision([Start(0)], wake=20)
        return Decision([Resize(0, 2)] if world.now == 20 else [])

    run = simulate(workload(elastic), Cluster.count(2), Scripted(decide), Costs(0, 0, rescale=60))
    assert ends(run) == [20 + 60 + 40]
    assert (run.records[0].rescales, run.records[0].lost) == (1, 60 * 2)
    assert run.spans == [(0, 0, 20, 1), (0, 20, 120, 2)]


WRONG = {
    "a start without room": (lambda w: [Start(0), Start(1)], "does not fit"),
    "a start of a gang that runs": (lambda w: [Start(0), Start(0)], "does not wait"),
    "a placement of the wrong size": (lambda w: [Start(0, 8, "default", ((0, 4),))], "cannot be placed"),
    "a node charged twice": (lambda w: [Start(0, 8, "default", ((0, 9),))], "cannot be placed"),
}


@pytest.mark.parametrize(("acts", "text"), WRONG.values(), ids=WRONG)
def test_an_impossible_decision_is_the_policys_fault_and_ends_the_run(acts, text):
    two = workload(job("a", 0, 10, 8), job("b", 0, 10, 8))
    with pytest.raises(SimulationError, match=text):
        simulate(two, Cluster.count(8), Scripted(lambda w: Decision(acts(w))), FREE)


def test_a_policy_that_never_starts_anything_is_found_out():
    with pytest.raises(SimulationError, match="leaves 1 jobs waiting for ever"):
        simulate(workload(job("a", 0, 10, 1)), Cluster.count(8), Scripted(lambda w: Decision()), FREE)


def test_a_gang_wider_than_the_cluster_is_refused_before_the_run():
    with pytest.raises(SimulationError, match="never fits"):
        simulate(workload(job("a", 0, 10, 9)), Cluster.count(8), policy(FIFO), FREE)


def test_all_events_of_an_instant_make_one_decision():
    run = simulate(workload(*(job(f"{n}", 5, 10, 1) for n in range(8))), Cluster.count(8), policy(FIFO), FREE)
    assert run.decisions == 2  # their submission, and their end


def test_a_gang_takes_whole_nodes_and_small_ones_the_fullest():
    nodes = Nodes(Cluster.of_nodes(24))
    nodes.take(((1, 3),))
    assert nodes.place(2) == ((1, 2),)
    assert nodes.place(16) == ((0, 8), (2, 8))
    assert nodes.place(24) is None
    assert [pods_of(g, 8) for g in (1, 8, 12, 16, 40)] == [(1, 1), (1, 8), (2, 6), (2, 8), (5, 8)]


@settings(max_examples=40, deadline=None)
@given(workloads(largest=16))
def test_no_policy_ever_holds_more_than_there_is_and_each_gang_runs_its_time(drawn):
    for cluster in (Cluster.count(16), Cluster.of_nodes(16)):
        for name in BASELINES:
            costs = Costs(startup=20, termination=10, restart=50)
            run = simulate(drawn, cluster, policy(name), costs, checked=True)
            assert all(0 <= sample.used <= 16 for sample in run.samples)
            _check_spans(run, costs)


def _check_spans(run, costs):
    """Rebuild use from the spans of the gangs, and their time of work."""
    moments = sorted({t for _, begin, end, _ in run.spans for t in (begin, end)})
    for moment in moments:
        assert sum(gpus for _, begin, end, gpus in run.spans if begin <= moment < end) <= 16
    for number, (spec, record) in enumerate(zip(run.workload.jobs, run.records, strict=True)):
        held = sum(end - begin for job_, begin, end, _ in run.spans if job_ == number)
        pauses = costs.startup + costs.restart * (record.admissions - 1)
        assert record.end is not None
        assert held >= spec.duration - 1e-6
        if not record.preemptions and not record.failures:
            assert held == pytest.approx(spec.duration + pauses)
        assert record.end - spec.submit >= held - 1e-6


@settings(max_examples=15, deadline=None)
@given(workloads())
def test_the_same_workload_gives_the_same_run(drawn):
    for name in BASELINES:
        first, second = (simulate(drawn, Cluster.of_nodes(16), policy(name)) for _ in range(2))
        assert first.records == second.records
        assert first.samples == second.samples


def test_first_come_first_served_keeps_equal_submissions_in_order():
    same = workload(*(job(f"{n}", 0, 10, 8) for n in range(4)))
    run = simulate(same, Cluster.count(8), Greedy("fifo", by_submission), FREE)
    assert ends(run) == [10, 20, 30, 40]
