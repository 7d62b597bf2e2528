from __future__ import annotations

import os
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs import identity
from airflow_kftrain.jobs.frameworks import FRAMEWORKS
from airflow_kftrain.jobs.identity import TaskKey, job_name, labels, safe_label_value, selector

DNS_1035 = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")

ids = st.text(min_size=1, max_size=250)
keys = st.builds(
    TaskKey,
    dag_id=ids,
    task_id=ids,
    run_id=ids,
    try_number=st.integers(0, 999),
    map_index=st.none() | st.integers(-1, 1000),
    instance=ids,
)
prefixes = st.from_regex(r"[a-z]([-a-z0-9]{0,36}[a-z0-9])?", fullmatch=True)


def key(dag_id="churn", task_id="train", **other) -> TaskKey:
    return TaskKey(
        dag_id, task_id, other.pop("run_id", "manual__2026-01-01"), other.pop("try_number", 1), **other
    )


def names_that_follow(job: str) -> list[str]:
    return [
        f"{job}-{replica_type.lower()}-{identity.LARGEST_INDEX}"
        for framework in FRAMEWORKS.values()
        for replica_type in framework.replica_types
    ]


@given(keys, st.none() | prefixes)
def test_b06_every_name_and_label_is_valid(task, prefix):
    name = job_name(task, prefix=prefix)
    for derived in [name, *names_that_follow(name)]:
        assert DNS_1035.fullmatch(derived), derived
        assert len(derived) <= 63
    for label, value in labels(task, partition=task.dag_id).items():
        assert LABEL_VALUE.fullmatch(value), (label, value)


def test_b06_long_digit_first_underscore_names_stay_apart():
    long = "2024_Customer_Churn_" + "x" * 70
    other = long[:61] + "y" + long[62:]
    first = job_name(key(long, "train.model_V2", map_index=3))
    second = job_name(key(other, "train.model_V2", map_index=3))
    assert first != second
    assert first.startswith("j2024-customer-churn")
    for name in (first, second):
        assert len(f"{name}-evaluator-11") <= 63
        assert DNS_1035.fullmatch(f"{name}-worker-11")
    assert labels(key(long))["dag_id"] != labels(key(other))["dag_id"]


@pytest.mark.parametrize("dag_id", ["Prüfung", "训练", "Ωmega", "___", "-.-", "9"])
def test_b06_ids_in_any_script_give_valid_names_and_labels(dag_id):
    task = key(dag_id, dag_id)
    assert DNS_1035.fullmatch(job_name(task))
    assert LABEL_VALUE.fullmatch(labels(task)["dag_id"])
    assert labels(task)["dag_id"]


def test_an_accent_is_dropped_and_the_word_stays_readable():
    assert job_name(key("Prüfung", "Lernen")).startswith("prufung-lernen-")


@pytest.mark.parametrize(
    "change",
    [
        {"dag_id": "other"},
        {"task_id": "other"},
        {"run_id": "other"},
        {"try_number": 2},
        {"map_index": 0},
        {"instance": "other"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_name_depends_on_each_part_of_the_key(change):
    assert job_name(key()) == job_name(key())
    assert job_name(key(**change)) != job_name(key())


def test_parts_cannot_be_shifted_between_the_ids():
    assert job_name(key("a-b", "c"), prefix="p") != job_name(key("a", "b-c"), prefix="p")


def test_minus_one_and_no_map_index_mean_the_same():
    assert job_name(key(map_index=-1)) == job_name(key())
    assert "map_index" not in labels(key(map_index=-1))
    assert labels(key(map_index=0))["map_index"] == "0"


def test_a_given_name_is_the_prefix():
    assert re.fullmatch(r"churn-v2-[a-z2-7]{8}", job_name(key(), prefix="churn-v2"))
    assert job_name(key(), prefix="churn-") == job_name(key(), prefix="churn")


@pytest.mark.parametrize(
    ("prefix", "remedy"),
    [
        ("Churn", "lower-case"),
        ("2churn", "start with a letter"),
        ("churn_v2", "lower-case"),
        ("", "start with a letter"),
        ("c" * 39, "at most 38"),
        ("c" * 300, "at most 63"),
    ],
)
def test_b06_a_given_name_that_cannot_be_a_prefix_is_refused(prefix, remedy):
    with pytest.raises(InvalidInput, match=remedy) as caught:
        job_name(key(), prefix=prefix)
    assert caught.value.field == "metadata.name"
    assert caught.value.value == prefix


def test_the_longest_prefix_is_taken():
    assert len(job_name(key(), prefix="c" * 38)) == identity.LONGEST_JOB_NAME == 47


near_labels = st.text(alphabet=string.ascii_letters + string.digits + "_-. +:é試\n", max_size=90)


@pytest.fixture(scope="module")
def providers_label_value(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        if "AIRFLOW_HOME" not in os.environ:
            patch.setenv("AIRFLOW_HOME", str(tmp_path_factory.mktemp("airflow")))
        from airflow.providers.cncf.kubernetes.pod_generator import make_safe_label_value
    return make_safe_label_value


@given(text=near_labels | st.text(max_size=90))
def test_label_values_are_those_of_the_cncf_provider(providers_label_value, text):
    theirs = providers_label_value(text)
    # Where nothing is left of the text the provider's value begins with a hyphen, which the API server refuses.
    assert safe_label_value(text) == (theirs[1:] if theirs.startswith("-") else theirs)


def test_the_instance_label_and_the_partition_are_there_when_asked_for():
    found = labels(key(instance="team-b"), partition="a100")
    assert found["kftrain/managed"] == "true"
    assert found["kftrain/instance"] == "team-b"
    assert found["kftrain/partition"] == "a100"
    assert "kftrain/partition" not in labels(key())


def test_selectors_name_one_try_or_all_and_never_another_map_index():
    assert selector(key(map_index=3)) == (
        "dag_id=churn,kftrain/instance=airflow,kftrain/managed=true,map_index=3,"
        "run_id=manual__2026-01-01,task_id=train,try_number=1"
    )
    assert selector(key(), any_try=True).endswith("task_id=train,!map_index")


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        ({"metadata": {"annotations": {"kftrain/ti": "u-1"}}}, "u-1"),
        ({"metadata": {"annotations": {"kftrain/ti": ""}}}, None),
        ({"metadata": {"annotations": None}}, None),
        ({"metadata": {"labels": {"kftrain/ti": "u-1"}}}, None),
        ({}, None),
    ],
)
def test_the_token_is_the_annotation_alone(obj, expected):
    assert identity.token(obj) == expected
