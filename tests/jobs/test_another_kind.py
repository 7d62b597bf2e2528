"""A further kind is one value and one registry line: everything else follows from it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs import frameworks
from airflow_kftrain.jobs.fields import Integer, declared
from airflow_kftrain.jobs.frameworks import Framework
from airflow_kftrain.jobs.gang import Gang
from airflow_kftrain.jobs.identity import LONGEST_JOB_NAME
from airflow_kftrain.jobs.manifest import from_manifest, to_manifest
from airflow_kftrain.jobs.schema import custom_resource_definition


@dataclass(frozen=True, slots=True)
class MPIOptions:
    slots_per_worker: int | None = declared("slotsPerWorker", Integer(minimum=1))


MPI = Framework(
    name="mpi",
    kind="MPIJob",
    plural="mpijobs",
    replica_specs_field="mpiReplicaSpecs",
    replica_types=("Launcher", "Worker"),
    leaders=("Launcher",),
    singletons=("Launcher",),
    required=("Launcher",),
    container="mpi",
    port_name="mpijob-port",
    port=9999,
    restart_policy="Never",
    options=MPIOptions,
)


@pytest.fixture
def job(monkeypatch):
    monkeypatch.setitem(frameworks.FRAMEWORKS, MPI.kind, MPI)
    template = {"spec": {"containers": [{"name": "mpi", "image": "x"}]}}
    replicas = {
        "Launcher": {"replicas": 1, "template": template},
        "Worker": {"replicas": 2, "template": template},
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MPIJob",
        "metadata": {"name": "m" * LONGEST_JOB_NAME},
        "spec": {"slotsPerWorker": 2, "mpiReplicaSpecs": replicas},
    }


def test_it_is_read_checked_and_written(job):
    spec = from_manifest(job)
    assert to_manifest(spec) == job
    assert spec.options == MPIOptions(2)
    assert spec.replica_names == ["launcher-0", "worker-0", "worker-1"]
    assert Gang.from_pods(spec, []).total == 3
    del job["spec"]["mpiReplicaSpecs"]["Launcher"]
    with pytest.raises(InvalidInput, match="MPIJob needs a Launcher"):
        from_manifest(job)


def test_its_schema_follows(job):
    schema = custom_resource_definition(MPI)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert set(schema["properties"]["spec"]["properties"]) == {
        "runPolicy",
        "slotsPerWorker",
        "mpiReplicaSpecs",
    }


def test_its_fields_are_no_field_of_another_kind(job):
    job |= {"kind": "XGBoostJob"}
    job["spec"]["xgbReplicaSpecs"] = {
        "Master": {"template": {"spec": {"containers": [{"name": "xgboost", "image": "x"}]}}}
    }
    del job["spec"]["mpiReplicaSpecs"]
    with pytest.raises(InvalidInput, match=r"spec\.slotsPerWorker: 2 cannot be used: only MPIJob has it"):
        from_manifest(job)
