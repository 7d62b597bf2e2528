from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kftrain.jobs.tries import (
    Adopt,
    Create,
    Delete,
    Phase,
    Refuse,
    Try,
    decide,
    remember,
    still_ours,
    tries_from_json,
    tries_to_json,
)

OWN = Try("ti-3", "j3", Phase.SUBMITTING)


def job(name, token, condition=None, *, deleting=False, uid=None):
    metadata = {"name": name, "uid": uid or f"u-{name}", "resourceVersion": f"rv-{name}"}
    metadata["annotations"] = {} if token is None else {"kftrain/ti": token}
    metadata["labels"] = {"dag_id": "d", "task_id": "t", "kftrain/managed": "true"}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": condition, "status": "True"}] if condition else []
    return {"metadata": metadata, "status": {"conditions": conditions}}


def earlier(*phases, uid=True):
    return [
        Try(f"ti-{n}", f"j{n}", phase, f"u-j{n}" if uid else None) for n, phase in enumerate(phases, start=1)
    ]


def delete(name):
    return Delete(name, f"u-{name}", f"rv-{name}")


def adopt(name, *, rewrite=True):
    return Adopt(name, f"u-{name}", f"rv-{name}", rewrite)


NEW = Create("j3")
J1_FAILED, J2_RUNNING = job("j1", "ti-1", "Failed"), job("j2", "ti-2", "Running")


def test_b15_a_job_whose_worker_died_right_after_the_post_is_adopted():
    tries = [Try("ti-1", "j1", Phase.WAITING, "u-j1"), Try("ti-2", "j2", Phase.SUBMITTING)]
    assert decide(OWN, tries, [J1_FAILED, J2_RUNNING]) == [delete("j1"), adopt("j2")]
    assert decide(OWN, tries, [J1_FAILED, J2_RUNNING], keep_finished=True) == [adopt("j2")]


def test_b15_a_job_whose_task_was_cleared_is_deleted_and_made_anew():
    tries = earlier(Phase.WAITING, Phase.WAITING)
    assert decide(OWN, tries, [J1_FAILED, J2_RUNNING]) == [delete("j1"), delete("j2"), NEW]
    assert decide(OWN, tries, [J1_FAILED, J2_RUNNING], keep_finished=True) == [delete("j2"), NEW]


def test_b15_a_finished_job_alone_is_never_this_trys_result():
    for phase in Phase:
        assert decide(OWN, earlier(phase), [J1_FAILED]) == [delete("j1"), NEW]
        assert decide(OWN, earlier(phase), [J1_FAILED], keep_finished=True) == [NEW]
        assert decide(OWN, earlier(phase), [job("j1", "ti-1", "Succeeded")]) == [delete("j1"), NEW]


def test_b10_clearing_deletes_the_old_job_and_leaves_the_new_one():
    assert decide(OWN, earlier(Phase.WAITING, Phase.WAITING), [J2_RUNNING]) == [delete("j2"), NEW]
    after = [*earlier(Phase.WAITING, Phase.WAITING), OWN.created("u-j3")]
    assert decide(OWN, after, [job("j3", "ti-3", "Running")]) == [adopt("j3", rewrite=False)]


@pytest.mark.parametrize("condition", [None, "Running", "Succeeded", "Failed"])
def test_b18_already_exists_with_our_own_token_is_the_earlier_calls_success(condition):
    assert decide(OWN, [], [job("j3", "ti-3", condition)]) == [adopt("j3", rewrite=False)]


@pytest.mark.parametrize("token", ["ti-of-somebody", None])
def test_b18_a_strangers_job_of_our_name_is_refused_and_untouched(token):
    assert decide(OWN, [], [job("j3", token)]) == [Refuse("j3", "u-j3", token)]
    assert decide(OWN, earlier(Phase.WAITING), [J1_FAILED, job("j3", token)]) == [
        delete("j1"),
        Refuse("j3", "u-j3", token),
    ]


@pytest.mark.parametrize("token", ["ti-of-somebody", None])
def test_a_strangers_job_with_our_labels_is_no_business_of_ours(token):
    assert decide(OWN, earlier(Phase.CREATED), [job("other", token, "Running")]) == [NEW]


@pytest.mark.parametrize(
    ("phase", "adopted"),
    [(Phase.SUBMITTING, True), (Phase.CREATED, True), (Phase.WAITING, False), (Phase.KILLED, False)],
)
@pytest.mark.parametrize("known_uid", [True, False])
def test_only_a_try_that_died_before_it_could_defer_leaves_its_job(phase, adopted, known_uid):
    expected = [adopt("j1")] if adopted else [delete("j1"), NEW]
    assert decide(OWN, earlier(phase, uid=known_uid), [job("j1", "ti-1")]) == expected


def test_a_job_of_an_older_try_is_a_leftover_whatever_became_of_it():
    tries = earlier(Phase.CREATED, Phase.WAITING)
    assert decide(OWN, tries, [job("j1", "ti-1", "Running")]) == [delete("j1"), NEW]


def test_a_job_that_was_made_anew_under_the_same_name_is_not_the_one_remembered():
    assert decide(OWN, earlier(Phase.CREATED), [job("j1", "ti-1", uid="another")]) == [
        Delete("j1", "another", "rv-j1"),
        NEW,
    ]


def test_an_adoption_that_died_before_the_token_was_rewritten_can_be_repeated():
    tries = [*earlier(Phase.CREATED), Try("ti-2", "j1", Phase.CREATED, "u-j1")]
    assert decide(OWN, tries, [job("j1", "ti-1", "Running")]) == [adopt("j1")]


def test_an_adopted_job_is_told_by_its_new_token():
    tries = [*earlier(Phase.CREATED), Try("ti-2", "j1", Phase.WAITING, "u-j1")]
    assert decide(OWN, tries, [job("j1", "ti-2", "Running")]) == [delete("j1"), NEW]


def test_a_job_on_its_way_out_is_neither_adopted_nor_deleted_again():
    assert decide(OWN, earlier(Phase.CREATED), [job("j1", "ti-1", deleting=True)]) == [NEW]
    assert decide(OWN, [], [job("j3", "ti-3", deleting=True)]) == [NEW]


def test_our_own_job_comes_before_one_to_inherit():
    jobs = [job("j1", "ti-1", "Running"), job("j3", "ti-3", "Running")]
    assert decide(OWN, earlier(Phase.CREATED), jobs) == [delete("j1"), adopt("j3", rewrite=False)]


def test_of_several_jobs_with_our_token_the_one_we_remember_stays():
    jobs = [job("j1", "ti-3"), job("j3", "ti-3"), job("j2", "ti-3")]
    assert decide(OWN, [], jobs) == [delete("j1"), delete("j2"), adopt("j3", rewrite=False)]
    assert decide(OWN.created("u-j2"), [], jobs) == [delete("j3"), delete("j1"), adopt("j2", rewrite=False)]


def test_without_memory_nothing_is_touched():
    assert decide(OWN, [], [J1_FAILED, J2_RUNNING]) == [NEW]


def has_finished(made):
    return any(condition["type"] in ("Succeeded", "Failed") for condition in made["status"]["conditions"])


def owners(jobs):
    return [made["metadata"]["annotations"].get("kftrain/ti") for made in jobs]


def names_of(jobs, token):
    return {
        made["metadata"]["name"] for made, owner in zip(jobs, owners(jobs), strict=True) if owner == token
    }


worlds = st.lists(
    st.builds(
        job,
        st.sampled_from(["j1", "j2", "j3", "x"]),
        st.sampled_from(["ti-1", "ti-2", "ti-3", "alien", None]),
        st.sampled_from([None, "Running", "Succeeded", "Failed"]),
        deleting=st.booleans(),
    ),
    max_size=5,
    unique_by=lambda made: made["metadata"]["name"],
)


@given(worlds, st.lists(st.sampled_from(Phase), max_size=2), st.booleans())
def test_b15_whatever_is_there_one_job_at_most_is_ours_and_no_strangers_is_touched(jobs, phases, keep):
    actions = decide(OWN, earlier(*phases), jobs, keep_finished=keep)
    by_name = {made["metadata"]["name"]: made for made in jobs}
    known = {f"ti-{n}" for n in range(1, len(phases) + 1)} | {"ti-3"}
    *deletes, last = actions
    assert all(isinstance(action, Delete) for action in deletes)
    assert isinstance(last, Adopt | Create | Refuse)
    touched = [action for action in actions if isinstance(action, Delete | Adopt)]
    assert len({action.name for action in touched}) == len(touched)
    for action in touched:
        found = by_name[action.name]["metadata"]
        assert found["annotations"].get("kftrain/ti") in known
        assert "deletionTimestamp" not in found
    if isinstance(last, Adopt) and last.rewrite:
        assert not has_finished(by_name[last.name])
    left = set(by_name) - {action.name for action in actions}
    ours_left = {
        name
        for name in left
        if by_name[name]["metadata"]["annotations"].get("kftrain/ti") in known
        and "deletionTimestamp" not in by_name[name]["metadata"]
    }
    finished = {n for n in ours_left if has_finished(by_name[n])}
    assert ours_left == (finished if keep else set())


@given(
    worlds.filter(lambda jobs: owners(jobs).count("ti-3") < 2), st.lists(st.sampled_from(Phase), max_size=2)
)
def test_the_decision_does_not_depend_on_the_order_of_the_jobs(jobs, phases):
    decisions = {
        (frozenset(actions[:-1]), actions[-1])
        for order in itertools.permutations(jobs)
        for actions in [decide(OWN, earlier(*phases), list(order))]
    }
    assert len(decisions) == 1


def test_after_a_conflict_only_the_same_object_with_one_of_our_tokens_is_ours():
    found = job("j1", "ti-1")
    assert still_ours(found, "u-j1", ["ti-1", "ti-3"])
    assert not still_ours(found, "u-j1", ["ti-3"])
    assert not still_ours(found, "another", ["ti-1"])
    assert not still_ours(job("j1", None), "u-j1", ["ti-1"])


def test_memory_survives_the_store_keeps_one_entry_a_try_and_is_bounded():
    memory = []
    for n in range(60):
        memory = remember(memory, Try(f"ti-{n}", f"j{n}", Phase.SUBMITTING))
        memory = remember(memory, memory[-1].created(f"u{n}"))
        memory = remember(memory, memory[-1].now(Phase.WAITING))
    assert memory[-1] == Try("ti-59", "j59", Phase.WAITING, "u59")
    assert len(memory) == 50
    assert tries_from_json(json.loads(json.dumps(tries_to_json(memory)))) == memory


@pytest.mark.parametrize(
    "value", [None, "odd", {}, ["odd", None, {}, {"token": "t", "name": "n", "phase": "else"}]]
)
def test_what_another_version_stored_is_left_out(value):
    assert tries_from_json(value) == []
