"""What an operator accepts, refuses while the DAG is parsed, and leaves to the run."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import pytest
from airflow.sdk import DAG, task

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.operators.groups import Limits, Place, Replica
from airflow_kftrain.operators.pytorch import PyTorchJobOperator
from airflow_kftrain.operators.tensorflow import TFJobOperator
from airflow_kftrain.operators.training_job import TrainingJobOperator
from airflow_kftrain.operators.xgboost import XGBoostJobOperator

MANIFEST = """
apiVersion: kubeflow.org/v1
kind: XGBoostJob
spec:
  xgbReplicaSpecs:
    Master:
      template: {spec: {containers: [{name: xgboost, image: "acme/train:1"}]}}
"""


def spec_of(operator):
    """The spec that the operator would submit, from arguments that need no rendering."""
    return operator._plan(operator._given()).spec


def container(operator, replica_type):
    return spec_of(operator).replicas[replica_type].template["spec"]["containers"][0]


WRONG = {
    "no workers": ({"image": "i", "workers": 0}, "workers: 0", "1 or more"),
    "no image": ({}, "image: None", "name the container image"),
    "a command in one piece": ({"image": "i", "command": "python t.py"}, "command:", "list of words"),
    "half a GPU": ({"image": "i", "gpus": "0.5"}, "gpus: '0.5'", "whole number"),
    "a quantity with a space": ({"image": "i", "memory": "1 Gi"}, "memory: '1 Gi'", "1Gi"),
    "a replica type of another kind": (
        {"image": "i", "replicas": {"PS": Replica()}},
        "replicas: 'PS'",
        "Master, Worker",
    ),
    "an unknown field of a replica": (
        {"image": "i", "replicas": {"Worker": {"gpu": 1}}},
        "replicas.Worker.gpu",
        "gpus",
    ),
    "an unknown field of the run policy": (
        {"image": "i", "run_policy": {"cleanPodPolic": "All"}},
        "spec.runPolicy.cleanPodPolic",
        "cleanPodPolicy",
    ),
    "a manifest and an image": ({"image": "i", "manifest": MANIFEST}, "image: 'i'", "manifest"),
    "a manifest of another kind": (
        {
            "manifest": MANIFEST.replace("XGBoostJob", "PyTorchJob")
            .replace("xgbReplica", "pytorchReplica")
            .replace("name: xgboost", "name: pytorch")
        },
        "kind: 'PyTorchJob'",
        "XGBoostJob",
    ),
    "a manifest with an unknown field": (
        {"manifest": MANIFEST + "  replicas: 2\n"},
        "spec.replicas",
        "belongs at spec.xgbReplicaSpecs.Worker.replicas",
    ),
    "a manifest that is no YAML": ({"manifest": "a: [\n"}, "manifest:", "YAML"),
    "a manifest file that is not there": (
        {"manifest": "/nowhere/job.yaml"},
        "manifest: '/nowhere/job.yaml'",
        "no such file",
    ),
    "a place without cluster mode": (
        {"image": "i", "place": Place(partition="a100")},
        "place:",
        "mode='cluster'",
    ),
    "a queue limit without cluster mode": (
        {"image": "i", "limits": Limits(queue="6h")},
        "limits.queue: '6h'",
        "cluster",
    ),
    "a mode that does not exist": ({"image": "i", "mode": "fast"}, "mode: 'fast'", "single-job"),
    "cluster mode": ({"image": "i", "mode": "cluster"}, "mode: 'cluster'", "does not exist in this version"),
    "a limit that is no span": ({"image": "i", "limits": {"run": "soon"}}, "limits.run: 'soon'", "1h30m"),
    "a limit that does not exist": (
        {"image": "i", "limits": {"stop": 1}},
        "limits.stop: 1",
        "queue, start, run, after",
    ),
    "logs of nobody": ({"image": "i", "logs": "worker-7"}, "logs: 'worker-7'", "master-0, worker-0"),
    "an action that does not exist": (
        {"image": "i", "on_finish_action": "drop"},
        "on_finish_action: 'drop'",
        "keep",
    ),
    "an exit code that cannot be": (
        {"image": "i", "skip_on_exit_code": 300},
        "skip_on_exit_code: 300",
        "255",
    ),
    "a namespace that cannot be": ({"image": "i", "namespace": "A b"}, "namespace: 'A b'", "lower-case"),
    "an environment that is no mapping": ({"image": "i", "env": "A=1"}, "env: 'A=1'", "mapping"),
    "a value that JSON cannot hold": ({"image": "i", "env": {"A": object()}}, "env.A", "JSON"),
}


@pytest.mark.parametrize(("arguments", "field", "remedy"), WRONG.values(), ids=WRONG)
def test_a_wrong_argument_is_one_error_when_the_dag_is_parsed(arguments, field, remedy):
    with pytest.raises(InvalidInput) as raised:
        XGBoostJobOperator(task_id="train", **arguments)
    assert str(raised.value).startswith(field)
    assert remedy in str(raised.value)


MALFORMED = {
    "replicas that are a list": ({"replicas": [Replica()]}, "replicas: [{}]"),
    "a replica that is nothing": ({"replicas": {"Worker": None}}, "replicas.Worker: None"),
    "a replica type twice": ({"replicas": {"Worker": {}, "worker": {}}}, "replicas: 'worker'"),
    "a template that is a list": (
        {"replicas": {"Worker": {"template": [1]}}},
        "replicas.Worker.template: [1]",
    ),
    "containers that are words": (
        {"replicas": {"Worker": {"template": {"spec": {"containers": ["a"]}}}}},
        "replicas.Worker.template.spec.containers: ['a']",
    ),
    "a variable of a template without a name": (
        {
            "env": {"A": 1},
            "replicas": {
                "Worker": {
                    "template": {"spec": {"containers": [{"name": "xgboost", "env": [{"value": "1"}]}]}}
                }
            },
        },
        "replicas.Worker.template.spec.containers[0].env[0]: {'value': '1'}",
    ),
    "resources of a template that are a word": (
        {
            "cpu": 1,
            "replicas": {
                "Worker": {"template": {"spec": {"containers": [{"name": "xgboost", "resources": "x"}]}}}
            },
        },
        "replicas.Worker.template.spec.containers[0].resources: 'x'",
    ),
    "a place that is a word": ({"place": "a100"}, "place: 'a100'"),
    "a namespace that is a number": ({"namespace": 3}, "namespace: 3"),
    "a word of a command that is nothing": ({"command": ["train", None]}, "command[1]: None"),
    "an argument that is a mapping": ({"args": [{"lr": 1}]}, "args[0]: {'lr': 1}"),
    "a variable without a name": ({"env": {"": 1}}, "env: ''"),
    "a variable whose name holds a sign": ({"env": [{"name": "A=", "value": "1"}]}, "env[0]: 'A='"),
    "a variable without a value": ({"env": {"A": None}}, "env.A: None"),
    "an image of two words": ({"image": "acme/train :1"}, "image: 'acme/train :1'"),
    "a device that no resource can be called": ({"gpus": {"a gpu": 1}}, "gpus: 'a gpu'"),
    "a job that nobody starts": ({"run_policy": {"suspend": True}}, "spec.runPolicy.suspend: True"),
}


@pytest.mark.parametrize(("arguments", "start"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_argument_is_one_error_too(arguments, start):
    with pytest.raises(InvalidInput) as raised:
        XGBoostJobOperator(task_id="train", **{"image": "i", **arguments})
    assert str(raised.value).startswith(f"{start} cannot be used: ")


def test_a_manifest_file_that_is_no_text_is_one_error(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(
        InvalidInput, match=r"manifest: '.*job\.yaml' cannot be used: the file cannot be read"
    ):
        TrainingJobOperator(task_id="train", manifest=path)


@pytest.mark.parametrize("manifest", ["train.yml.j2", Path("manifests")], ids=["another ending", "a folder"])
def test_a_path_that_is_no_manifest_file_is_told_what_a_manifest_is(manifest):
    with pytest.raises(InvalidInput, match=r"give a mapping, YAML text, or the path of a \.yaml"):
        TrainingJobOperator(task_id="train", manifest=manifest)


def test_a_value_of_an_environment_in_kubernetes_form_becomes_text_as_in_a_mapping():
    operator = XGBoostJobOperator(task_id="train", image="i", env=[{"name": "A", "value": 1}])
    assert container(operator, "Master")["env"] == [{"name": "A", "value": "1"}]


SIZES = {
    "elastic bounds around workers": (
        PyTorchJobOperator,
        {"workers": "{{ n }}", "elastic": {"minReplicas": 2, "maxReplicas": 4}},
    ),
    "an elastic bound": (PyTorchJobOperator, {"workers": 3, "elastic": {"minReplicas": "{{ n }}", "maxReplicas": 4}}),
    "the smallest gang": (
        XGBoostJobOperator,
        {"workers": "{{ n }}", "run_policy": {"schedulingPolicy": {"minAvailable": 4}}},
    ),
    "logs of a replica": (XGBoostJobOperator, {"workers": "{{ n }}", "logs": "worker-2"}),
    "replicas of one type": (XGBoostJobOperator, {"replicas": {"Worker": {"replicas": "{{ n }}"}}, "logs": "worker-2"}),
    "an Evaluator": (TFJobOperator, {"workers": 3, "evaluator": "{{ n // 3 }}", "wait_for": "evaluator"}),
    "a list of logs": (XGBoostJobOperator, {"workers": 3, "logs": ["worker-{{ n - 1 }}"]}),
    "a boolean": (TFJobOperator, {"workers": 3, "dynamic_workers": "{{ n == 3 }}"}),
}  # fmt: skip


@pytest.mark.parametrize(("operator", "arguments"), SIZES.values(), ids=SIZES)
def test_a_size_that_comes_later_is_checked_later(operator, arguments):
    made = operator(task_id="train", image="i", **arguments)
    made.render_template_fields({"n": 3})
    assert spec_of(made).counts["Worker"] == 3


def test_a_size_that_is_wrong_is_found_when_the_task_runs():
    made = XGBoostJobOperator(task_id="train", image="i", workers="{{ n }}", logs="worker-2")
    made.render_template_fields({"n": 2})
    with pytest.raises(InvalidInput, match="logs: 'worker-2'"):
        spec_of(made)


def test_a_list_may_hold_what_comes_later():
    with DAG("d", schedule=None):

        @task
        def prepare():
            return {"name": "A", "value": "1"}

        made = prepare()
        XGBoostJobOperator(
            task_id="train",
            image="i",
            env=[made, {"name": "B", "value": "{{ ds }}"}],
            replicas={"Worker": Replica(template={"spec": {"containers": [made]}})},
        )


def test_the_general_operator_needs_a_manifest():
    with pytest.raises(InvalidInput, match=r"manifest: None .*XGBoostJobOperator"):
        TrainingJobOperator(task_id="train")


@pytest.mark.parametrize(
    ("operator", "arguments", "counts"),
    [
        (XGBoostJobOperator, {"workers": 2}, {"Master": 1, "Worker": 2}),
        (XGBoostJobOperator, {}, {"Master": 1, "Worker": 1}),
        (PyTorchJobOperator, {"workers": 4}, {"Master": 1, "Worker": 4}),
        (PyTorchJobOperator, {"workers": 3, "elastic": {"minReplicas": 2, "maxReplicas": 4}}, {"Worker": 3}),
        (TFJobOperator, {"workers": 3}, {"Worker": 3}),
        (
            TFJobOperator,
            {"workers": 3, "chief": 1, "ps": "2", "evaluator": 1},
            {"Chief": 1, "Worker": 3, "PS": 2, "Evaluator": 1},
        ),
    ],
    ids=[
        "xgboost",
        "xgboost by default",
        "pytorch",
        "elastic pytorch",
        "tensorflow",
        "tensorflow with all roles",
    ],
)
def test_workers_counts_workers_and_each_kind_adds_its_own(operator, arguments, counts):
    assert spec_of(operator(task_id="train", image="i", **arguments)).counts == counts


def test_a_replica_type_differs_where_it_says_so():
    operator = XGBoostJobOperator(
        task_id="train",
        image="acme/train:1",
        command=["python", "train.py"],
        env={"A": 1, "B": True},
        gpus=2,
        workers=2,
        replicas={
            "worker": Replica(
                env={"B": "own"},
                gpus={"amd.com/gpu": 1},
                restart_policy="ExitCode",
                template={
                    "metadata": {"annotations": {"sidecar.istio.io/inject": "false"}},
                    "spec": {
                        "nodeSelector": {"zone": "a"},
                        "containers": [{"name": "logger", "image": "l"}, {"name": "xgboost", "tty": True}],
                    },
                },
            )
        },
    )
    master, worker = container(operator, "Master"), spec_of(operator).replicas["Worker"]
    trains = worker.template["spec"]["containers"][1]
    assert master["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "true"}]
    assert trains["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "own"}]
    assert (trains["tty"], trains["image"], trains["command"]) == (
        True,
        "acme/train:1",
        ["python", "train.py"],
    )
    assert trains["resources"]["limits"] == {"amd.com/gpu": "1"}
    assert master["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert worker.restart_policy == "ExitCode"
    assert worker.template["spec"]["nodeSelector"] == {"zone": "a"}


def test_models_of_the_kubernetes_client_are_taken():
    from kubernetes.client import V1Container, V1EnvVar, V1PodSpec, V1PodTemplateSpec

    template = V1PodTemplateSpec(
        spec=V1PodSpec(service_account_name="s", containers=[V1Container(name="xgboost", image="j")])
    )
    operator = XGBoostJobOperator(
        task_id="train",
        image="i",
        env=[V1EnvVar(name="A", value="1")],
        replicas={"Master": Replica(template=template)},
    )
    assert spec_of(operator).replicas["Master"].template["spec"]["serviceAccountName"] == "s"
    assert container(operator, "Worker")["env"] == [{"name": "A", "value": "1"}]


def test_what_is_rendered_later_is_no_error_and_keeps_its_upstream():
    with DAG("d", schedule=None):

        @task
        def prepare():
            return 1

        rows = prepare()
        operator = XGBoostJobOperator(
            task_id="train",
            image="acme/train:{{ var.value.tag }}",
            command=["python", "train.py", "--rows", rows],
            env={"ROWS": rows, "DAY": "{{ ds }}"},
            workers="{{ params.workers }}",
            gpus="{{ params.gpus }}",
            cpu="{{ params.cpu }}",
            limits=Limits(run="{{ params.run }}"),
            run_policy={"backoffLimit": "{{ params.n }}"},
            replicas={
                "Worker": Replica(
                    replicas="{{ params.workers }}", restart_policy="{{ params.p }}", env={"X": rows}
                )
            },
        )
    assert operator.upstream_task_ids == {"prepare"}


def test_an_argument_that_is_known_is_checked_beside_one_that_is_not():
    with pytest.raises(InvalidInput, match="gpus: 'many'"):
        XGBoostJobOperator(task_id="train", image="{{ ds }}", gpus="many")


def test_a_template_is_rendered_inside_every_group():
    operator = XGBoostJobOperator(
        task_id="train",
        image="i",
        workers="{{ n }}",
        limits=Limits(run="{{ n }}h", start=dt.timedelta(minutes=5)),
        env={"N": "{{ n }}"},
        replicas={"Worker": Replica(template={"metadata": {"labels": {"n": "{{ n }}"}}})},
    )
    operator.render_template_fields({"n": "3"})
    plan = operator._plan(operator._given())
    assert (plan.spec.counts["Worker"], plan.limits.run, plan.limits.start) == (3, 3 * 3600, 300)
    assert plan.spec.replicas["Worker"].template["metadata"]["labels"] == {"n": "3"}
    assert container(operator, "Master")["env"] == [{"name": "N", "value": "3"}]


def test_an_argument_that_ends_like_a_file_is_no_template_file():
    operator = XGBoostJobOperator(task_id="train", image="i", args=["--config", "config.yaml"])
    operator.render_template_fields({})
    assert container(operator, "Master")["args"] == ["--config", "config.yaml"]


def test_a_manifest_may_be_a_file_beside_the_dag(tmp_path):
    (tmp_path / "job.yaml").write_text(MANIFEST.replace("acme/train:1", "acme/train:{{ tag }}"))
    with DAG("d", schedule=None) as dag:
        dag.fileloc = str(tmp_path / "dag.py")
        operator = TrainingJobOperator(task_id="train", manifest="job.yaml")
    spec = operator._rendered_plan({"tag": "7"}).spec
    assert spec.replicas["Master"].template["spec"]["containers"][0]["image"] == "acme/train:7"


def test_a_manifest_file_is_checked_when_the_dag_is_parsed(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(MANIFEST + "  nothing: 1\n")
    with pytest.raises(InvalidInput, match=r"spec\.nothing"):
        TrainingJobOperator(task_id="train", manifest=Path(path))


def test_numbers_of_a_manifest_may_be_templates():
    manifest = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "XGBoostJob",
        "spec": {
            "runPolicy": {"ttlSecondsAfterFinished": "{{ ttl }}"},
            "xgbReplicaSpecs": {
                "Master": {"template": {"spec": {"containers": [{"name": "xgboost", "image": "i"}]}}},
                "Worker": {
                    "replicas": "{{ n }}",
                    "template": {"spec": {"containers": [{"name": "xgboost", "image": "i"}]}},
                },
            },
        },
    }
    operator = TrainingJobOperator(task_id="train", manifest=manifest)
    operator.render_template_fields({"n": 3, "ttl": 60})
    spec = spec_of(operator)
    assert (spec.counts["Worker"], spec.run_policy.ttl_seconds_after_finished) == (3, 60)


def test_the_start_limit_has_a_default_and_can_be_taken_off():
    assert XGBoostJobOperator(task_id="a", image="i")._plan({"image": "i"}).limits.start == 1800
    assert (
        XGBoostJobOperator(task_id="a", image="i")
        ._plan({"image": "i", "limits": {"start": "none"}})
        .limits.start
        is None
    )


def test_own_parameters_hide_none_of_airflows():
    import inspect

    from airflow.sdk import BaseOperator

    theirs = set(inspect.signature(BaseOperator.__init__).parameters) - {"self", "kwargs"}
    for operator in (TrainingJobOperator, XGBoostJobOperator, PyTorchJobOperator, TFJobOperator):
        ours = set(inspect.signature(operator.__init__).parameters) - {"self", "kwargs"}
        assert not ours & theirs


def test_every_template_field_is_an_argument():
    for operator in (XGBoostJobOperator, PyTorchJobOperator, TFJobOperator):
        made = operator(task_id="train", image="i")
        assert all(hasattr(made, name) for name in operator.template_fields)
        assert all(re.fullmatch("[a-z_]+", name) for name in operator.template_fields)


def test_a_dag_with_every_group_can_be_serialised():
    from airflow.serialization.serialized_objects import DagSerialization

    with DAG("d", schedule=None, start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC)) as dag:
        XGBoostJobOperator(
            task_id="one",
            image="i",
            limits=Limits(run=dt.timedelta(hours=1)),
            replicas={"Worker": Replica(template={"metadata": {}}, gpus=1)},
        )
        PyTorchJobOperator.partial(task_id="sweep", image="i", limits=Limits(start="1h")).expand(
            env=[{"LR": "0.1"}, {"LR": "0.2"}]
        )
    data = DagSerialization.to_dict(dag)
    DagSerialization.validate_schema(data)
    again = DagSerialization.from_dict(data)
    assert set(again.task_ids) == {"one", "sweep"}
