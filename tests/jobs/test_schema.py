from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings

from airflow_kftrain.jobs.fields import shapes
from airflow_kftrain.jobs.frameworks import FRAMEWORKS, PYTORCH, TENSORFLOW, XGBOOST
from airflow_kftrain.jobs.frameworks.pytorch import ElasticPolicy, RendezvousSetting
from airflow_kftrain.jobs.manifest import to_manifest
from airflow_kftrain.jobs.schema import custom_resource_definition, job_schema, status_schema
from airflow_kftrain.jobs.spec import ReplicaSpec, RunPolicy, SchedulingPolicy
from tests.support.jobs import job_specs, manifest

DATA = Path(__file__).parent / "data"
CRDS = json.loads((DATA / "training-operator-1.8.1-crds.json").read_text())["kinds"]
MODELS = json.loads((DATA / "kubeflow-training-1.9.4-fields.json").read_text())["models"]


def comparable(schema):
    """A schema without what the specs say otherwise on purpose."""
    if isinstance(schema, list):
        return [comparable(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    left_out = {
        "pattern",  # quantities: checked by the parser
        "x-kubernetes-validations",  # immutability of the queue
        "x-kubernetes-preserve-unknown-fields",  # pod templates and metrics pass whole
        "managedBy",  # v1.9
    }
    return {name: comparable(entry) for name, entry in schema.items() if name not in left_out}


@pytest.mark.parametrize("kind", FRAMEWORKS.values(), ids=lambda kind: kind.kind)
def test_schemas_are_those_of_the_training_operators_crds(kind):
    theirs = CRDS[kind.kind]
    ours = custom_resource_definition(kind)["spec"]
    assert (ours["group"], ours["scope"], ours["names"]) == (
        theirs["group"],
        theirs["scope"],
        theirs["names"],
    )
    (version,) = ours["versions"]
    their_version = theirs["version"]
    assert comparable(version.pop("schema")) == comparable(their_version["schema"])
    assert version == {name: entry for name, entry in their_version.items() if name != "schema"}


@pytest.mark.parametrize(
    ("record", "model"),
    [
        (ElasticPolicy, "KubeflowOrgV1ElasticPolicy"),
        (RendezvousSetting, "KubeflowOrgV1RDZVConf"),
        (ReplicaSpec, "KubeflowOrgV1ReplicaSpec"),
        (RunPolicy, "KubeflowOrgV1RunPolicy"),
        (SchedulingPolicy, "KubeflowOrgV1SchedulingPolicy"),
    ],
)
def test_records_have_the_fields_and_types_of_the_kubeflow_models(record, model):
    assert {n: s.schema()["type"] for n, s in shapes(record).items()} == {
        n: json_type(kind) for n, kind in MODELS[model].items()
    }


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        (TENSORFLOW, "KubeflowOrgV1TFJobSpec"),
        (PYTORCH, "KubeflowOrgV1PyTorchJobSpec"),
        (XGBOOST, "KubeflowOrgV1XGBoostJobSpec"),
    ],
    ids=["TFJob", "PyTorchJob", "XGBoostJob"],
)
def test_specs_have_the_fields_of_the_kubeflow_models(kind, model):
    properties = job_schema(kind)["properties"]["spec"]["properties"]
    assert {n: s["type"] for n, s in properties.items()} == {
        n: json_type(t) for n, t in MODELS[model].items()
    }


def test_the_status_has_the_fields_of_the_kubeflow_model():
    status = status_schema()["properties"]
    assert set(status) == set(MODELS["KubeflowOrgV1JobStatus"])
    assert set(status["conditions"]["items"]["properties"]) == set(MODELS["KubeflowOrgV1JobCondition"])


def json_type(kind: str) -> str:
    plain = {"int": "integer", "str": "string", "bool": "boolean"}
    return plain.get(kind, "array" if kind.startswith("list") else "object")


@settings(suppress_health_check=list(HealthCheck), max_examples=30, deadline=None)
@given(job_specs())
def test_every_valid_job_passes_its_schema(spec):
    jsonschema.Draft7Validator(job_schema(spec.framework)).validate(to_manifest(spec))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"runPolicy": {"suspend": "yes"}}, "'yes' is not of type 'boolean'"),
        ({"runPolicy": {"backoffLimit": "3"}}, "'3' is not of type 'integer'"),
        ({"nprocPerNode": 2}, "2 is not of type 'string'"),
        ({"elasticPolicy": {"rdzvConf": {}}}, "is not of type 'array'"),
    ],
)
def test_a_wrong_type_does_not(spec, message):
    errors = list(jsonschema.Draft7Validator(job_schema(PYTORCH)).iter_errors(manifest("PyTorchJob", **spec)))
    assert [message in error.message for error in errors] == [True]


def test_a_schema_of_pod_templates_can_be_put_in():
    schema = job_schema(XGBOOST, pod_template={"type": "object", "properties": {}})
    replicas = schema["properties"]["spec"]["properties"]["xgbReplicaSpecs"]
    assert replicas["additionalProperties"]["properties"]["template"] == {"type": "object", "properties": {}}
    again = job_schema(XGBOOST)["properties"]["spec"]["properties"]["xgbReplicaSpecs"]
    assert "properties" not in again["additionalProperties"]["properties"]["template"]
