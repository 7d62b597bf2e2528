from __future__ import annotations

import pytest

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs.frameworks import FRAMEWORKS, PYTORCH, TENSORFLOW, XGBOOST, LiveResize, framework
from airflow_kftrain.jobs.frameworks.base import RESTART_POLICIES
from airflow_kftrain.jobs.frameworks.pytorch import ElasticPolicy, PyTorchOptions
from airflow_kftrain.jobs.frameworks.tensorflow import TensorFlowOptions


@pytest.mark.parametrize("kind", FRAMEWORKS.values(), ids=lambda kind: kind.kind)
def test_a_kind_agrees_with_itself(kind):
    types = set(kind.replica_types)
    assert framework(kind.kind) is kind
    assert kind.plural == f"{kind.singular}s"
    assert {*kind.leaders, *kind.singletons, *kind.required, "Worker"} <= types
    assert kind.restart_policy in RESTART_POLICIES
    assert kind.options() == kind.options()
    assert kind.scale_type in {None, *types}


def test_an_unknown_kind_names_the_nearest():
    with pytest.raises(InvalidInput, match=r"kind: 'XGBJob' .* did you mean XGBoostJob\?"):
        framework("XGBJob")


@pytest.mark.parametrize(
    ("kind", "types", "first"),
    [
        (XGBOOST, ["Worker", "Master"], "Master"),
        (PYTORCH, ["Master"], "Master"),
        (PYTORCH, ["Worker"], "Worker"),
        (TENSORFLOW, ["Worker", "PS", "Chief"], "Chief"),
        (TENSORFLOW, ["Worker", "Master"], "Master"),
        (TENSORFLOW, ["PS", "Worker", "Evaluator"], "Worker"),
    ],
)
def test_the_first_replica_leads_the_gang(kind, types, first):
    assert kind.first(types) == first


@pytest.mark.parametrize(
    ("given", "expected"), [("ps", "PS"), ("WORKER", "Worker"), ("Chief", "Chief"), ("boss", None)]
)
def test_replica_types_are_known_in_any_case(given, expected):
    assert TENSORFLOW.replica_type(given) == expected


@pytest.mark.parametrize(
    ("policy", "workers", "expected"),
    [
        (None, 2, None),
        (ElasticPolicy(min_replicas=1, max_replicas=4), 2, LiveResize("Worker", 1, 4)),
        (ElasticPolicy(max_replicas=4), 4, LiveResize("Worker", 4, 4)),
        (ElasticPolicy(min_replicas=3), 3, LiveResize("Worker", 3, 3)),
        (ElasticPolicy(), 5, LiveResize("Worker", 5, 5)),
    ],
    ids=["no policy", "both bounds", "only a maximum", "only a minimum", "no bounds: the workers themselves"],
)
def test_an_elastic_job_may_be_resized_live_within_its_bounds(policy, workers, expected):
    assert PYTORCH.live_resize(PyTorchOptions(policy), {"Worker": workers}) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (TensorFlowOptions(), None),
        (TensorFlowOptions(enable_dynamic_worker=False), None),
        (TensorFlowOptions(enable_dynamic_worker=True), LiveResize("Worker", 1, None)),
    ],
)
def test_only_dynamic_workers_of_a_tfjob_may_be_resized_live(options, expected):
    assert TENSORFLOW.live_resize(options, {"Worker": 2, "PS": 1}) == expected


def test_xgboost_is_never_resized_live():
    assert XGBOOST.live_resize(XGBOOST.options(), {"Master": 1, "Worker": 2}) is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (PyTorchOptions(), None),
        (PyTorchOptions(nproc_per_node="auto"), None),
        (PyTorchOptions(nproc_per_node="gpu"), None),
        (PyTorchOptions(nproc_per_node="4"), 4),
        (PyTorchOptions(ElasticPolicy(n_proc_per_node=2)), 2),
    ],
)
def test_nproc_per_node_is_a_number_only_where_one_is_stated(options, expected):
    assert options.processes_per_replica == expected


@pytest.mark.parametrize(
    ("options", "nproc"),
    [
        (PyTorchOptions(), "auto"),
        (PyTorchOptions(nproc_per_node="2"), "2"),
        (PyTorchOptions(ElasticPolicy(n_proc_per_node=2)), None),
    ],
)
def test_nproc_per_node_defaults_to_auto_unless_the_older_field_says_it(options, nproc):
    assert PYTORCH.default_options(options, {"Worker": 1}).nproc_per_node == nproc


def test_tensorflow_options_have_the_operators_defaults():
    assert TENSORFLOW.default_options(TensorFlowOptions(), {}) == TensorFlowOptions("", False)
