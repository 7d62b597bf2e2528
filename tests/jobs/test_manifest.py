from __future__ import annotations

import copy
import json
import warnings

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs.manifest import ManifestWarning, from_manifest, to_manifest
from airflow_kftrain.jobs.spec import ReplicaSpec, RunPolicy, TrainingJobSpec
from airflow_kftrain.jobs.validation import concerns
from tests.jobs import pod_fields_table
from tests.support.jobs import job_specs, manifest, pod_template

XGB = "spec.xgbReplicaSpecs"
PT = "spec.pytorchReplicaSpecs"


@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much], max_examples=60, deadline=None
)
@given(job_specs())
def test_a_spec_survives_the_way_through_its_manifest(spec):
    written = to_manifest(spec)
    assert from_manifest(written, warn=False) == spec
    assert from_manifest(json.dumps(written), warn=False) == spec
    assert to_manifest(from_manifest(written, warn=False)) == written


def test_a_manifest_shares_nothing_with_what_it_was_made_from():
    given_ = manifest()
    spec = from_manifest(given_)
    before = copy.deepcopy(to_manifest(spec))
    given_["spec"]["xgbReplicaSpecs"]["Worker"]["template"]["spec"]["containers"].clear()
    to_manifest(spec)["spec"]["xgbReplicaSpecs"]["Worker"]["template"]["spec"]["containers"].clear()
    assert to_manifest(spec) == before


def test_absent_fields_stay_absent_so_that_the_clusters_defaults_apply():
    written = to_manifest(TrainingJobSpec("XGBoostJob", {"Master": ReplicaSpec(pod_template())}))
    assert written["spec"] == {"xgbReplicaSpecs": {"Master": {"replicas": 1, "template": pod_template()}}}
    assert written["metadata"] == {}


def test_a_live_object_is_read_without_what_the_server_added():
    live = manifest(
        metadata={
            "uid": "u",
            "resourceVersion": "7",
            "creationTimestamp": "t",
            "generation": 1,
            "managedFields": [],
        }
    )
    live["status"] = {"conditions": []}
    assert to_manifest(from_manifest(live)) == manifest()


@pytest.mark.parametrize("spelling", ["worker", "WORKER", "Worker"])
def test_replica_types_are_taken_in_any_case_as_the_training_operator_does(spelling):
    spec = from_manifest(manifest("PyTorchJob", replicas={spelling: 2}))
    assert spec.counts == {"Worker": 2}


@pytest.mark.parametrize(
    ("metadata", "name"),
    [
        ({"generateName": "train-"}, "train"),
        ({"generateName": "train"}, "train"),
        ({"generateName": "other-", "name": "mine"}, "mine"),
        ({}, None),
    ],
)
def test_generate_name_alone_gives_the_prefix(metadata, name):
    given_ = {**manifest(), "metadata": metadata}
    assert from_manifest(given_).name == name


def _put(path, value):
    def change(job):
        *steps, last = path
        at = job
        for step in steps:
            at = at[step]
        at[last] = value

    return change


MASTER = ("spec", "xgbReplicaSpecs", "Master")
WORKER = ("spec", "xgbReplicaSpecs", "Worker")
CONTAINER = (*WORKER, "template", "spec", "containers", 0)
FIRST = f"{XGB}.Worker.template.spec.containers[0]"
FAULTS = {
    "zero workers": (_put((*WORKER, "replicas"), 0), f"{XGB}.Worker.replicas", 0, "1 or more"),
    "a negative number of workers": (
        _put((*WORKER, "replicas"), -1), f"{XGB}.Worker.replicas", -1, "1 or more",
    ),
    "a number in quotes": (
        _put((*WORKER, "replicas"), "2"), f"{XGB}.Worker.replicas", "2", "without quotes",
    ),
    "a truth value as number": (
        _put((*WORKER, "replicas"), True), f"{XGB}.Worker.replicas", True, "whole number",
    ),
    "two masters": (_put((*MASTER, "replicas"), 2), f"{XGB}.Master.replicas", 2, "one Master"),
    "a replica type the kind does not have": (
        _put(("spec", "xgbReplicaSpecs", "PS"), {}), f"{XGB}.PS", {}, "it has Master, Worker",
    ),
    "a misspelt replica type": (
        _put(("spec", "xgbReplicaSpecs", "Wroker"), {}), f"{XGB}.Wroker", {}, "did you mean Worker",
    ),
    "one replica type in two spellings": (
        _put(("spec", "xgbReplicaSpecs", "worker"), {}), f"{XGB}.worker", {}, "give it once",
    ),
    "no master": (
        _put(("spec", "xgbReplicaSpecs"), {"Worker": {"template": pod_template()}}), XGB, ["Worker"], "add one",
    ),
    "no replicas": (_put(("spec", "xgbReplicaSpecs"), {}), XGB, {}, "at least one"),
    "another kind's replicas": (
        lambda job: job.update(spec={"tfReplicaSpecs": {}}), "spec.tfReplicaSpecs", {}, "only TFJob has it",
    ),
    "no container of the required name": (
        _put((*CONTAINER, "name"), "main"), f"{XGB}.Worker.template.spec.containers", ["main"], "named 'xgboost'",
    ),
    "no container at all": (
        _put(CONTAINER[:-1], []), f"{XGB}.Worker.template.spec.containers", [], "named 'xgboost'",
    ),
    "no image": (_put((*CONTAINER, "image"), ""), f"{FIRST}.image", "", "name the image"),
    "no template": (
        _put(("spec", "xgbReplicaSpecs", "Worker"), {}), f"{XGB}.Worker.template.spec", None, "mapping",
    ),
    "an illegal quantity": (
        _put((*CONTAINER, "resources"), {"requests": {"memory": "1 Gi"}}),
        f"{FIRST}.resources.requests.memory", "1 Gi", "no white space",
    ),
    "half a GPU": (
        _put((*CONTAINER, "resources"), {"limits": {"nvidia.com/gpu": "500m"}}),
        f"{FIRST}.resources.limits.nvidia.com/gpu", "500m", "whole units",
    ),
    "a request above its limit": (
        _put((*CONTAINER, "resources"), {"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}),
        f"{FIRST}.resources.requests.cpu", "2", "above its limit (1500m)",
    ),
    "a GPU that is requested and not limited": (
        _put((*CONTAINER, "resources"), {"requests": {"nvidia.com/gpu": 1}}),
        f"{FIRST}.resources.requests.nvidia.com/gpu", "1", "under limits",
    ),
    "an illegal quantity in minResources": (
        _put(("spec", "runPolicy"), {"schedulingPolicy": {"minResources": {"cpu": "x"}}}),
        "spec.runPolicy.schedulingPolicy.minResources.cpu", "x", "give a number",
    ),
    "a date in the template": (
        _put((*CONTAINER, "env"), [{"name": "DAY", "value": {1, 2}}]),
        f"{FIRST}.env[0].value", {1, 2}, "what JSON can hold",
    ),
    "trainer774: cleanPodPolicy beside runPolicy": (
        _put(("spec", "cleanPodPolicy"), "None"), "spec.cleanPodPolicy", "None",
        "belongs at spec.runPolicy.cleanPodPolicy",
    ),
    "trainer1241: cleanPodPolicy in a replica": (
        _put((*WORKER, "cleanPodPolicy"), "All"),
        f"{XGB}.Worker.cleanPodPolicy", "All", "belongs at spec.runPolicy.cleanPodPolicy",
    ),
    "cleanPodPolicy at the top": (
        _put(("cleanPodPolicy",), "All"), "cleanPodPolicy", "All", "belongs at spec.runPolicy.cleanPodPolicy",
    ),
    "suspend beside runPolicy": (_put(("spec", "suspend"), True), "spec.suspend", True, "spec.runPolicy.suspend"),
    "minAvailable in the run policy": (
        _put(("spec", "runPolicy"), {"minAvailable": 1}),
        "spec.runPolicy.minAvailable", 1, "belongs at spec.runPolicy.schedulingPolicy.minAvailable",
    ),
    "a field of another kind": (
        _put(("spec", "elasticPolicy"), {}), "spec.elasticPolicy", {}, "only PyTorchJob has it",
    ),
    "a misspelt field": (_put(("spec", "runPolcy"), {}), "spec.runPolcy", {}, "did you mean runPolicy"),
    "no replicas at all": (lambda job: job.update(spec={}), XGB, None, "at least one"),
    "a misspelt name of the replica specs": (
        lambda job: job.update(spec={"xgbReplicaSpec": {}}),
        "spec.xgbReplicaSpec", {}, "did you mean xgbReplicaSpecs",
    ),
    "a misspelt field of the run policy": (
        _put(("spec", "runPolicy"), {"backofLimit": 3}), "spec.runPolicy.backofLimit", 3,
        "did you mean backoffLimit",
    ),
    "an unknown value": (
        _put(("spec", "runPolicy"), {"cleanPodPolicy": "running"}),
        "spec.runPolicy.cleanPodPolicy", "running", "did you mean Running",
    ),
    "YAML's none for None": (
        _put(("spec", "runPolicy"), {"cleanPodPolicy": "none"}), "spec.runPolicy.cleanPodPolicy", "none",
        "did you mean None",
    ),
    "a restart policy that is none": (
        _put((*WORKER, "restartPolicy"), "OnError"),
        f"{XGB}.Worker.restartPolicy", "OnError", "one of Always, ExitCode, Never, OnFailure",
    ),
    "a gang larger than the job": (
        _put(("spec", "runPolicy"), {"schedulingPolicy": {"minAvailable": 4}}),
        "spec.runPolicy.schedulingPolicy.minAvailable", 4, "has 3 replicas",
    ),
    "a deadline of nothing": (
        _put(("spec", "runPolicy"), {"activeDeadlineSeconds": 0}), "spec.runPolicy.activeDeadlineSeconds", 0,
        "1 or more",
    ),
    "a number beyond its bits": (
        _put(("spec", "runPolicy"), {"backoffLimit": 2**31}), "spec.runPolicy.backoffLimit", 2**31, "32 bits",
    ),
    "b06: a name too long for its pods": (
        _put(("metadata", "name"), "n" * 60), "metadata.name", "n" * 60, "give at most 54",
    ),
    "b06: a name that starts with a digit": (
        _put(("metadata", "name"), "2024-churn"), "metadata.name", "2024-churn", "start with a letter",
    ),
    "b06: a name with an underscore": (
        _put(("metadata", "name"), "churn_v2"), "metadata.name", "churn_v2", "lower-case letters",
    ),
    "b06: a generateName too long": (
        _put(("metadata",), {"generateName": "n" * 40 + "-"}), "metadata.generateName", "n" * 40 + "-",
        "give at most 38",
    ),
    "a namespace that is none": (_put(("metadata", "namespace"), "A"), "metadata.namespace", "A", "lower-case"),
    "a label that is a number": (_put(("metadata", "labels"), {"v": 1}), "metadata.labels.v", 1, "quotes"),
    "a label value with a space": (
        _put(("metadata", "labels"), {"team": "a b"}), "metadata.labels.team", "a b", "letters, digits",
    ),
    "a label name with a space": (
        _put(("metadata", "labels"), {"a b": "x"}), "metadata.labels.a b", "a b", "word",
    ),
    "an unknown field of the metadata": (
        _put(("metadata", "label"), {}), "metadata.label", {}, "did you mean labels",
    ),
    "no kind": (_put(("kind",), None), "kind", None, "must say it"),
    "an unknown kind": (_put(("kind",), "XGBoost"), "kind", "XGBoost", "did you mean XGBoostJob"),
    "another version": (
        _put(("apiVersion",), "kubeflow.org/v2"), "apiVersion", "kubeflow.org/v2", "kubeflow.org/v1",
    ),
    "no spec": (_put(("spec",), None), "spec", None, "mapping"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "field", "value", "remedy"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_one_error_that_names_field_value_and_remedy(change, field, value, remedy):
    job = manifest()
    change(job)
    with pytest.raises(InvalidInput) as caught:
        from_manifest(job)
    assert caught.value.field == field
    assert caught.value.value == value
    assert remedy in str(caught.value)


PYTORCH_FAULTS = {
    "elastic bounds the wrong way round": (
        {"elasticPolicy": {"minReplicas": 3, "maxReplicas": 2}}, "spec.elasticPolicy.minReplicas", 3,
        "above maxReplicas (2)",
    ),
    "more workers than the elastic maximum": (
        {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 1}}, f"{PT}.Worker.replicas", 2,
        "outside elasticPolicy's 1 to 1",
    ),
    "fewer workers than the elastic minimum": (
        {"elasticPolicy": {"minReplicas": 3}}, f"{PT}.Worker.replicas", 2, "outside elasticPolicy's 3 to 3",
    ),
    "an elastic minimum of nothing": (
        {"elasticPolicy": {"minReplicas": 0}}, "spec.elasticPolicy.minReplicas", 0, "1 or more",
    ),
    "an unknown rendezvous": (
        {"elasticPolicy": {"rdzvBackend": "c10"}}, "spec.elasticPolicy.rdzvBackend", "c10", "did you mean c10d",
    ),
    "nprocPerNode in both places": (
        {"nprocPerNode": "2", "elasticPolicy": {"nProcPerNode": 2}}, "spec.elasticPolicy.nProcPerNode", 2,
        "newer place",
    ),
    "nprocPerNode of nothing": ({"nprocPerNode": "0"}, "spec.nprocPerNode", "0", "'auto', 'cpu', 'gpu'"),
    "nprocPerNode that is no word it knows": (
        {"nprocPerNode": "tpu"}, "spec.nprocPerNode", "tpu", "'auto', 'cpu', 'gpu'",
    ),
    "a setting of the rendezvous that is no pair": (
        {"elasticPolicy": {"rdzvConf": [{"k": "v"}]}}, "spec.elasticPolicy.rdzvConf[0].k", "v", "key",
    ),
    "a list that is none": (
        {"elasticPolicy": {"rdzvConf": "a=b"}}, "spec.elasticPolicy.rdzvConf", "a=b", "give a list",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "field", "value", "remedy"), PYTORCH_FAULTS.values(), ids=PYTORCH_FAULTS)
def test_a_fault_of_a_pytorchjob_is_one_error(spec, field, value, remedy):
    with pytest.raises(InvalidInput) as caught:
        from_manifest(manifest("PyTorchJob", **spec))
    assert (caught.value.field, caught.value.value) == (field, value)
    assert remedy in str(caught.value)


def test_an_elastic_job_without_workers_is_refused():
    with pytest.raises(InvalidInput, match="an elastic job needs Workers"):
        from_manifest(manifest("PyTorchJob", replicas={"Master": 1}, elasticPolicy={}))


@pytest.mark.parametrize("given_", ["auto", "cpu", "gpu", "4", 4])
def test_trainer1992_nproc_per_node_takes_words_and_numbers(given_):
    assert from_manifest(manifest("PyTorchJob", nprocPerNode=given_)).options.nproc_per_node == str(given_)


@pytest.mark.parametrize(
    ("replicas", "remedy"),
    [
        ({"Chief": 1, "Master": 1}, "Master is an old name of Chief"),
        ({"Chief": 2}, "has one Chief"),
        ({"PS": 1, "Evaluator": 1}, "add a Chief or Workers"),
    ],
)
def test_a_tfjob_that_cannot_end_is_refused(replicas, remedy):
    with pytest.raises(InvalidInput, match=remedy):
        from_manifest(manifest("TFJob", replicas=replicas))


def test_a_spec_made_in_python_is_checked_when_it_is_written():
    spec = TrainingJobSpec(
        "XGBoostJob",
        {"Master": ReplicaSpec(pod_template())},
        run_policy=RunPolicy(clean_pod_policy="Sometimes"),
    )
    with pytest.raises(InvalidInput, match=r"spec\.runPolicy\.cleanPodPolicy: 'Sometimes'"):
        to_manifest(spec)


def test_unknown_fields_below_a_template_pass_with_one_warning():
    job = manifest(template=pod_template(comand=["x"], volumeMounts=[{"name": "d", "montPath": "/d"}]))
    job["spec"]["xgbReplicaSpecs"]["Worker"]["template"]["cleanPodPolicy"] = "None"
    with pytest.warns(ManifestWarning) as caught:
        spec = from_manifest(job)
    assert len(caught) == 1
    text = str(caught[0].message)
    assert f"{FIRST}.comand (did you mean command?)" in text
    assert (
        f"{XGB}.Master.template.spec.containers[0].volumeMounts[0].montPath (did you mean mountPath?)" in text
    )
    assert f"{XGB}.Worker.template.cleanPodPolicy (it belongs at spec.runPolicy.cleanPodPolicy)" in text
    assert to_manifest(spec) == job


def test_a_template_full_of_known_fields_passes_in_silence():
    template = {
        "metadata": {"labels": {"team": "a"}, "annotations": {"any/thing": "x"}},
        "spec": {
            "nodeSelector": {"any.label/at-all": "x"},
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
            },
            "volumes": [{"name": "d", "emptyDir": {}}, {"name": "c", "configMap": {"name": "c"}}],
            "containers": pod_template(
                env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                resources={"limits": {"cpu": 1, "nvidia.com/gpu": 1}},
                livenessProbe={"httpGet": {"port": "http", "path": "/"}},
            )["spec"]["containers"],
        },
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_manifest(manifest(template=template))


@pytest.mark.parametrize("policy", ["Running", "All"])
def test_b05_an_evaluator_that_would_be_killed_is_one_warning_that_names_it(policy):
    job = manifest(
        "TFJob", replicas={"Chief": 1, "Worker": 1, "Evaluator": 1}, runPolicy={"cleanPodPolicy": policy}
    )
    with pytest.warns(ManifestWarning, match="the Evaluator is killed") as caught:
        from_manifest(job)
    assert len(caught) == 1


def test_b05_an_evaluator_that_may_end_is_none():
    assert concerns(from_manifest(manifest("TFJob", replicas={"Worker": 1, "Evaluator": 1}))) == []


def test_yaml_text_is_read_as_kubernetes_means_it():
    job = manifest(metadata={"annotations": {"day": "2026-01-02"}})
    text = yaml.safe_dump(job).replace("'2026-01-02'", "2026-01-02")
    assert "day: 2026-01-02\n" in text
    assert from_manifest(text) == from_manifest(job)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("a: [1", "no valid YAML"),
        ("a: 1\n---\nb: 2", "2 YAML documents"),
        ("", "0 YAML documents"),
        ("a: " + "9" * 5000, "no valid YAML"),
        ('{"a": ' + "9" * 5000 + "}", "cannot be read"),
        ("[" * 20_000, "no valid YAML"),
        ('{"a":' * 100_000, "cannot be read"),
        ("spec: {Master: 1, Master: 2}", "'Master' stands here twice"),
        ('{"a": {"b": 1, "b": 2}}', "stands twice"),
        ("{a: 1, a: 2}", "'a' stands here twice"),
        ("? [a]\n: b", "no valid YAML"),
        ("- a", "mapping of names to values"),
        ("1: 2", "names must be text"),
    ],
    ids=lambda text: text[:20],
)
def test_text_that_is_no_manifest_is_one_error(text, remedy):
    with pytest.raises(InvalidInput, match=remedy):
        from_manifest(text)


def test_replicas_and_first_replica_are_named():
    spec = from_manifest(manifest("TFJob", replicas={"Worker": 2, "PS": 1, "Chief": 1}))
    assert spec.replica_names == ["chief-0", "worker-0", "worker-1", "ps-0"]
    assert (spec.first, spec.total, spec.min_available) == ("chief-0", 4, 4)
    assert spec.restart_policy("Worker") == "Never"


def test_the_pod_fields_are_those_of_the_kubernetes_client():
    import kubernetes

    table = json.loads(pod_fields_table.TABLE.read_text())
    installed = pod_fields_table.pod_fields()
    if f"kubernetes {kubernetes.__version__.split('.')[0]}." in table["source"]:
        assert table["models"] == installed
    else:
        assert {n: sorted(f) for n, f in table["models"].items() if n not in installed} == {}
