"""The conformance table covers what it claims, and the comparison finds what differs."""

from __future__ import annotations

import itertools
from collections import Counter

from tests.controlplane.conformance.compare import Known, compare
from tests.controlplane.conformance.pairs import DIMENSIONS, PAIR_CASES
from tests.controlplane.conformance.record import SPENT, Record
from tests.controlplane.conformance.table import CASES


def test_the_table_has_at_least_sixty_jobs_of_three_kinds_each_with_a_name_of_its_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 60
    assert set(Counter(case.manifest["kind"] for case in CASES)) == {"XGBoostJob", "PyTorchJob", "TFJob"}


def test_each_pair_of_values_of_two_dimensions_is_in_some_job() -> None:
    rows = [case.features for case in PAIR_CASES]
    for one, other in itertools.combinations(DIMENSIONS, 2):
        wanted = set(itertools.product(DIMENSIONS[one], DIMENSIONS[other]))
        assert wanted - {(row[one], row[other]) for row in rows} == set(), (one, other)


def test_every_replica_type_restart_policy_and_clean_pod_policy_is_there() -> None:
    types, restarts, cleans = set(), set(), set()
    for case in CASES:
        spec = case.manifest["spec"]
        replicas = spec[case.kind.replica_specs]
        types |= set(replicas)
        restarts |= {replica.get("restartPolicy") for replica in replicas.values()}
        cleans.add(spec.get("runPolicy", {}).get("cleanPodPolicy"))
    assert types >= {"Master", "Worker", "Chief", "PS", "Evaluator"}
    assert restarts >= {None, "Never", "OnFailure", "Always", "ExitCode"}
    assert cleans == {None, "None", "Running", "All"}


def records(**values: object) -> dict[str, Record]:
    return {name: Record({"pods": value}) for name, value in values.items()}


def test_equal_records_do_not_differ() -> None:
    same = records(a={"x": 1, "y": [1, 2]})
    assert compare("l", "r", same, records(a={"x": 1, "y": [1, 2]}), ()).unknown == ()


def test_a_field_that_differs_is_named_with_its_job_and_both_values() -> None:
    found = compare("l", "r", records(a={"x": {"y": 1}}), records(a={"x": {"y": 2}, "z": 3}), ())
    assert [str(one) for one in found.unknown] == ["a: pods/x/y: 1 | 2", "a: pods/z: '(absent)' | 3"]


def test_a_missing_job_differs_in_its_parts_as_wholes() -> None:
    found = compare("l", "r", records(a={"x": 1}, b={"x": 1, "y": 2}), records(a={"x": 1}), ())
    assert [str(one) for one in found.unknown] == ["b: pods: '(present)' | '(absent)'"]


def test_one_entry_may_speak_of_several_jobs_and_fields() -> None:
    entry = Known("a|b*", "pods/x|pods/y", "on purpose")
    found = compare(
        "l", "r", records(a={"x": 1}, bb={"y": 1}, c={"x": 1}), records(a={}, bb={}, c={}), (entry,)
    )
    assert found.known[entry] == 2
    assert [one.case for one in found.unknown] == ["c"]


def test_what_a_spent_event_budget_left_unsaid_does_not_differ() -> None:
    spent = {"a": Record({"events": {"Normal SuccessfulCreatePod": 2, SPENT: True}})}
    all_said = {"a": Record({"events": {"Normal SuccessfulCreatePod": 2, "Normal JobTerminated": 1}})}
    assert compare("l", "r", spent, all_said, ()).unknown == ()
    other = {"a": Record({"events": {"Normal SuccessfulCreatePod": 3, "Normal JobTerminated": 1}})}
    assert len(compare("l", "r", spent, other, ()).unknown) == 1


def test_a_listed_difference_is_counted_and_one_that_is_gone_is_stale() -> None:
    listed = Known("a*", "pods/x", "on purpose")
    gone = Known("b", "*", "was on purpose")
    found = compare("l", "r", records(a={"x": 1}), records(a={"x": 2}), (listed, gone))
    assert found.unknown == ()
    assert found.known[listed] == 1
    assert found.stale == (gone,)
    assert "on purpose" in found.table()
