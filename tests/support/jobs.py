"""Builders of training jobs, shared by the tests of all layers."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from airflow_kftrain.jobs.frameworks import FRAMEWORKS, framework
from airflow_kftrain.jobs.frameworks.base import RESTART_POLICIES
from airflow_kftrain.jobs.frameworks.pytorch import ElasticPolicy, PyTorchOptions, RendezvousSetting
from airflow_kftrain.jobs.frameworks.tensorflow import TensorFlowOptions
from airflow_kftrain.jobs.spec import (
    CLEAN_POD_POLICIES,
    ReplicaSpec,
    RunPolicy,
    SchedulingPolicy,
    TrainingJobSpec,
)


def pod_template(kind: str = "XGBoostJob", **container: Any) -> dict[str, Any]:
    """A pod template with the container that trains; keywords are its fields."""
    training = {"name": framework(kind).container, "image": "acme/train:1", "command": ["python", "train.py"]}
    return {"spec": {"containers": [{**training, **container}]}}


def manifest(
    kind: str = "XGBoostJob",
    name: str = "train",
    replicas: dict[str, int] | None = None,
    *,
    template: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A job object; keywords are further fields of its ``spec``. One master and two workers by default."""
    counts = replicas or ({"Worker": 2} if kind == "TFJob" else {"Master": 1, "Worker": 2})
    types = {t: {"replicas": n, "template": template or pod_template(kind)} for t, n in counts.items()}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": name, **(metadata or {})},
        "spec": {**spec, framework(kind).replica_specs_field: types},
    }


words = st.from_regex(r"[a-z]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
texts = st.dictionaries(words, words, max_size=2)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
small = st.integers(1, 1000)
scheduling_policies = st.builds(
    SchedulingPolicy,
    min_available=st.none() | st.just(1),
    queue=st.none() | words,
    min_resources=st.none()
    | st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["1", 2, "500m"])),
    priority_class=st.none() | words,
    schedule_timeout_seconds=st.none() | small,
)
run_policies = st.builds(
    RunPolicy,
    clean_pod_policy=st.none() | st.sampled_from(CLEAN_POD_POLICIES),
    ttl_seconds_after_finished=st.none() | st.integers(0, 2**31 - 1),
    active_deadline_seconds=st.none() | st.integers(1, 2**63 - 1),
    backoff_limit=st.none() | small,
    scheduling_policy=st.none() | scheduling_policies,
    suspend=st.none() | st.booleans(),
    managed_by=st.none() | words,
)


@st.composite
def elastic_options(draw: st.DrawFn, workers: int | None) -> PyTorchOptions:
    """Options of a PyTorchJob that has so many workers."""
    policy = st.builds(
        ElasticPolicy,
        min_replicas=st.none() | st.integers(1, workers or 1),
        max_replicas=st.none() | st.integers(workers or 1, 20),
        rdzv_backend=st.none() | st.sampled_from(["c10d", "etcd", "etcd-v2"]),
        rdzv_port=st.none() | small,
        rdzv_host=st.none() | words,
        rdzv_id=st.none() | words,
        rdzv_conf=st.none() | st.lists(st.builds(RendezvousSetting, words, words), max_size=2).map(tuple),
        standalone=st.none() | st.booleans(),
        max_restarts=st.none() | small,
        metrics=st.none() | st.tuples(st.dictionaries(words, json_values, max_size=2)),
    ).filter(lambda p: p.min_replicas in (None, workers) or p.max_replicas is not None)
    policy = policy.filter(lambda p: p.max_replicas in (None, workers) or p.min_replicas is not None)
    chosen = draw(policy) if workers and draw(st.booleans()) else None
    return PyTorchOptions(chosen, draw(st.none() | st.sampled_from(["auto", "gpu", "4"])))


@st.composite
def templates(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    """Pod templates with anything in them that JSON can hold."""
    template = pod_template(
        kind, env=draw(st.lists(st.dictionaries(words, json_values, max_size=2), max_size=2))
    )
    template["spec"].update(
        draw(st.dictionaries(st.sampled_from(["volumes", "x", "tolerations"]), json_values))
    )
    return template


@st.composite
def job_specs(draw: st.DrawFn) -> TrainingJobSpec:
    """Any valid job of any kind."""
    kind = draw(st.sampled_from(sorted(FRAMEWORKS)))
    made = framework(kind)
    types = {*made.required, *draw(st.sets(st.sampled_from(made.replica_types)))} - {"Master"} or {"Worker"}
    if kind == "XGBoostJob" or (kind == "PyTorchJob" and draw(st.booleans())):
        types.add("Master")
    if kind == "TFJob" and not types & {"Chief", "Worker"}:
        types.add("Worker")
    replicas = {
        t: ReplicaSpec(
            template=draw(templates(kind)),
            replicas=1 if t in made.singletons else draw(st.integers(1, 5)),
            restart_policy=draw(st.none() | st.sampled_from(RESTART_POLICIES)),
        )
        for t in draw(st.permutations(sorted(types)))
    }
    workers = replicas["Worker"].replicas if "Worker" in replicas else None
    options = {
        "XGBoostJob": st.just(made.options()),
        "PyTorchJob": elastic_options(workers),
        "TFJob": st.builds(
            TensorFlowOptions, st.sampled_from([None, "", "AllWorkers"]), st.sampled_from([None, True, False])
        ),
    }
    return TrainingJobSpec(
        kind=kind,
        replicas=replicas,
        name=draw(st.none() | words),
        namespace=draw(st.none() | words),
        labels=draw(texts),
        annotations=draw(st.dictionaries(words, st.text(), max_size=2)),
        run_policy=draw(run_policies),
        options=draw(options[kind]),
        finalizers=tuple(draw(st.lists(words, max_size=1))),
        owner_references=tuple(draw(st.lists(st.dictionaries(words, json_values, max_size=1), max_size=1))),
    )
