"""From a container's spec to argv, environment and working directory."""

from __future__ import annotations

import base64
import itertools
import sys
from functools import partial
from pathlib import Path

import pytest

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.local.kubelet.environment import Sources, expand, references, resolve_environment
from airflow_kftrain.local.kubelet.images import Image, Images
from airflow_kftrain.local.kubelet.names import Endpoint, Names
from airflow_kftrain.local.kubelet.plan import Launch, Sandbox, Surroundings, plan_launch
from airflow_kftrain.local.kubelet.ports import PortTable
from airflow_kftrain.local.kubelet.refusal import ContainerRefused, MountFailed
from airflow_kftrain.local.kubelet.rewrite import Rewriter
from airflow_kftrain.local.kubelet.volumes import Mounts, container_mounts, prepare_volumes
from tests.support.pods import container, pod

LABELS = {"training.kubeflow.org/job-name": "x"}
SOURCES = Sources(
    {"cm": {"data": {"a": "1", "b": "2"}}},
    {"s": {"data": {"key": base64.b64encode(b"hidden").decode()}}},
)


def launch(
    *,
    image: Image | None = None,
    mounts: Mounts | None = None,
    gpus: tuple[int, ...] = (),
    root: Path,
    **fields,
) -> Launch:
    """The launch of a worker of job x; port 9999 of its master is 20000, its own 20001."""
    ports = itertools.count(20000)
    table = PortTable(lambda: next(ports), lambda port: None, lambda port: True)
    table.host_port(Endpoint("default", "x-master-0", 9999), "uid")
    own = {9999: table.own(Endpoint("default", "x-worker-0", 9999), "uid")}
    main = container(**fields)
    worker = pod("x-worker-0", labels=LABELS, containers=[main])
    rewriter = Rewriter(Names.known("default", [worker], []), partial(table.host_port, user="uid"), own)
    around = Surroundings("cluster", Sandbox(root, root / "tmp"), SOURCES, rewriter, gpus)
    return plan_launch(worker, main, image or Image(), mounts or Mounts(), around)


MASTER = [{"name": "MASTER_ADDR", "value": "x-master-0"}, {"name": "MASTER_PORT", "value": "9999"}]


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        pytest.param("$(MASTER_PORT)", "20000", id="a port alone is the master's, not the worker's own"),
        pytest.param("$(MASTER_ADDR)", "127.0.0.1", id="a name alone"),
        pytest.param("tcp://$(MASTER_ADDR):$(MASTER_PORT)", "tcp://127.0.0.1:20000", id="both"),
        pytest.param(
            "--master=$(MASTER_ADDR):9999", "--master=127.0.0.1:20000", id="a name and a literal port"
        ),
        pytest.param("$(UNKNOWN)", "$(UNKNOWN)", id="an unknown variable is kept"),
        pytest.param("$$(MASTER_PORT)", "$(MASTER_PORT)", id="an escaped one too"),
    ],
)
def test_variables_in_arguments_give_rewritten_addresses(tmp_path: Path, argument: str, expected: str):
    made = launch(command=["train", argument], env=MASTER, root=tmp_path)
    assert made.argv == ["train", expected]


def test_variables_made_of_others_are_rewritten_as_those_are(tmp_path: Path):
    env = [
        *MASTER,
        {"name": "PORT_AGAIN", "value": "$(MASTER_PORT)"},
        {"name": "URL", "value": "$(MASTER_ADDR):9999"},
    ]
    made = launch(env=env, root=tmp_path)
    assert (made.env["PORT_AGAIN"], made.env["URL"]) == ("20000", "127.0.0.1:20000")


def test_the_image_gives_interpreter_directory_and_variables_under_the_pods_own(tmp_path: Path):
    image = Image("*", "/opt/venv/bin/python", str(tmp_path), {"A": "image", "B": "image"})
    made = launch(
        command=["python3", "t.py"], env=[{"name": "A", "value": "pod"}], image=image, root=tmp_path
    )
    assert made.argv == ["/opt/venv/bin/python", "t.py"]
    assert (made.env["A"], made.env["B"]) == ("pod", "image")
    assert made.env["PATH"].startswith("/opt/venv/bin:")
    assert made.cwd == str(tmp_path)


@pytest.mark.parametrize(
    ("endpoint", "settings", "expected"),
    [
        pytest.param("x-worker-0:9999", "", "is_host=1", id="it is the host"),
        pytest.param("x-master-0:9999", "", "is_host=0", id="another pod is"),
        pytest.param("x-master-0:9999", "timeout=5", "timeout=5,is_host=0", id="beside other settings"),
        pytest.param("x-master-0:9999", "is_host=1", "is_host=1", id="the pod says so itself"),
        pytest.param("etcd.example.com:2379", "", "", id="a host of the world"),
    ],
)
def test_torchrun_is_told_which_pod_hosts_the_rendezvous(tmp_path: Path, endpoint, settings, expected):
    env = [{"name": "PET_RDZV_ENDPOINT", "value": endpoint}, {"name": "PET_RDZV_CONF", "value": settings}]
    assert launch(env=env, root=tmp_path).env["PET_RDZV_CONF"] == expected


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        pytest.param("python", "/v/python", id="python"),
        pytest.param("python3.11", "/v/python", id="a version"),
        pytest.param("/usr/local/nowhere/python3", "/v/python", id="a path of the image's"),
        pytest.param(sys.executable, sys.executable, id="a path of this machine"),
        pytest.param("torchrun", "torchrun", id="another program"),
        pytest.param("pythonic", "pythonic", id="a name that only begins so"),
    ],
)
def test_which_programs_are_the_interpreter(program: str, expected: str):
    assert Image(python="/v/python").argv([program, "x"]) == [expected, "x"]


@pytest.mark.parametrize(
    ("resources", "threads"),
    [
        ({}, "1"),
        ({"limits": {"cpu": "4"}}, "4"),
        ({"requests": {"cpu": "1500m"}}, "2"),
        ({"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}, "3"),
    ],
)
def test_threads_follow_the_cpu_limit(tmp_path: Path, resources: dict, threads: str):
    assert launch(resources=resources, root=tmp_path).env["OMP_NUM_THREADS"] == threads


def test_the_pods_own_setting_of_threads_wins_but_not_over_the_markers(tmp_path: Path):
    env = [{"name": "OMP_NUM_THREADS", "value": "7"}, {"name": "KFTRAIN_LOCAL_CLUSTER", "value": "none"}]
    made = launch(env=env, root=tmp_path)
    assert (made.env["OMP_NUM_THREADS"], made.env["KFTRAIN_LOCAL_CLUSTER"]) == ("7", "cluster")


def test_gpus_are_seen_only_by_who_asked(tmp_path: Path):
    asking = launch(resources={"limits": {"nvidia.com/gpu": "2"}}, gpus=(4, 5), root=tmp_path)
    assert asking.env["CUDA_VISIBLE_DEVICES"] == "4,5"
    assert launch(root=tmp_path).env["CUDA_VISIBLE_DEVICES"] == ""


def test_mount_paths_are_replaced_in_all_that_a_process_sees(tmp_path: Path):
    mounts = Mounts({"/data": str(tmp_path), "/data/in": "/elsewhere"})
    env = [{"name": "PATHS", "value": "/data/x:/data/in/y:/database:/x/data"}]
    made = launch(command=["cat", "--f=/data/in"], env=env, mounts=mounts, workingDir="/data", root=tmp_path)
    assert made.env["PATHS"] == f"{tmp_path}/x:/elsewhere/y:/database:/x/data"
    assert made.argv == ["cat", "--f=/elsewhere"]
    assert made.cwd == str(tmp_path)


@pytest.mark.parametrize(
    ("fields", "reason", "text"),
    [
        pytest.param(
            {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "z"}}}]},
            "CreateContainerConfigError",
            'couldn\'t find key z in configmap "cm"',
            id="a key that is not there",
        ),
        pytest.param(
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "no", "key": "z"}}}]},
            "CreateContainerConfigError",
            'secret "no" not found',
            id="a secret that is not there",
        ),
        pytest.param(
            {"envFrom": [{"configMapRef": {"name": "no"}}]},
            "CreateContainerConfigError",
            'configmap "no" not found',
            id="envFrom of a missing map",
        ),
        pytest.param(
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.magic"}}}]},
            "CreateContainerConfigError",
            "'spec.magic'",
            id="an unknown field",
        ),
        pytest.param(
            {"workingDir": "/no/such"}, "CreateContainerError", "'/no/such'", id="no such directory"
        ),
    ],
)
def test_what_cannot_be_met_is_refused_by_name(tmp_path: Path, fields: dict, reason: str, text: str):
    with pytest.raises(ContainerRefused) as caught:
        launch(root=tmp_path, **fields)
    assert caught.value.reason == reason
    assert text in caught.value.message


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "default"),
        ("metadata.labels['a']", "1"),
        ("metadata.annotations['none']", ""),
        ("metadata.labels", 'a="1"\nb="x\\"y"'),
        ("spec.nodeName", "n"),
        ("status.podIP", "127.0.0.1"),
    ],
)
def test_fields_of_the_downward_api(path: str, value: str):
    asking = container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": path}}}])
    found = pod("p", node="n", labels={"a": "1", "b": 'x"y'}, containers=[asking])
    environment = resolve_environment(found, asking, Sources(), "127.0.0.1")
    assert environment.values == {"A": value}
    assert environment.identities == {"A"}


@pytest.mark.parametrize(
    ("ref", "value"),
    [
        ({"resource": "limits.memory"}, "1073741824"),
        ({"resource": "limits.memory", "divisor": "1Mi"}, "1024"),
        ({"resource": "limits.cpu"}, "2"),
        ({"resource": "limits.cpu", "divisor": "1m"}, "1500"),
        ({"resource": "requests.cpu", "divisor": "1m"}, "1500"),
        ({"resource": "limits.cpu", "containerName": "other"}, "0"),
    ],
)
def test_resource_fields(ref: dict, value: str):
    env = [{"name": "A", "valueFrom": {"resourceFieldRef": ref}}]
    asking = container(env=env, resources={"limits": {"memory": "1Gi", "cpu": "1500m"}})
    found = pod("p", containers=[asking, container("other")])
    assert resolve_environment(found, asking, Sources(), "").values == {"A": value}


def test_all_that_a_pod_refers_to_is_found():
    spec = container(
        env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s1", "key": "k"}}}],
        envFrom=[{"configMapRef": {"name": "c1"}}],
    )
    volumes = [
        {"name": "v", "secret": {"secretName": "s2"}},
        {"name": "w", "projected": {"sources": [{"configMap": {"name": "c2"}}, {"secret": {"name": "s3"}}]}},
        {"name": "x", "emptyDir": {}},
    ]
    found = references(pod(containers=[spec], volumes=volumes))
    assert found == {
        ("secret", "s1"),
        ("configmap", "c1"),
        ("secret", "s2"),
        ("configmap", "c2"),
        ("secret", "s3"),
    }


def test_expansion_is_not_repeated():
    assert expand("$(A)", {"A": "$(B)", "B": "x"}) == "$(B)"


def prepared(tmp_path: Path, *volumes: dict) -> dict[str, Path]:
    return prepare_volumes(pod(volumes=list(volumes)), tmp_path / "v", tmp_path / "claims", SOURCES)


def test_volumes_of_files(tmp_path: Path):
    items = [{"key": "a", "path": "deep/one"}]
    made = prepared(
        tmp_path,
        {"name": "all", "configMap": {"name": "cm"}},
        {"name": "some", "configMap": {"name": "cm", "items": items}},
        {"name": "secret", "secret": {"secretName": "s", "defaultMode": 0o400}},
        {"name": "none", "configMap": {"name": "no", "optional": True}},
    )
    assert sorted(p.name for p in made["all"].iterdir()) == ["a", "b"]
    assert (made["some"] / "deep/one").read_text() == "1"
    assert (made["secret"] / "key").read_text() == "hidden"
    assert (made["secret"] / "key").stat().st_mode & 0o077 == 0
    assert list(made["none"].iterdir()) == []


@pytest.mark.parametrize(
    ("volume", "text"),
    [
        pytest.param({"configMap": {"name": "no"}}, 'configmap "no" not found', id="missing map"),
        pytest.param({"hostPath": {"path": "/no/such"}}, "/no/such", id="missing path"),
        pytest.param({"nfs": {"server": "x", "path": "/"}}, "nfs volumes cannot be had", id="a type we lack"),
        pytest.param(
            {"configMap": {"name": "cm", "items": [{"key": "a", "path": "../x"}]}},
            "leads out",
            id="leads out",
        ),
    ],
)
def test_volumes_that_cannot_be_had(tmp_path: Path, volume: dict, text: str):
    with pytest.raises(MountFailed, match=text):
        prepared(tmp_path, {"name": "v", **volume})


def test_a_sub_path_cannot_leave_its_volume(tmp_path: Path):
    mounting = container(volumeMounts=[{"name": "v", "mountPath": "/m", "subPath": "../../etc"}])
    with pytest.raises(ContainerRefused, match="leads out"):
        container_mounts(mounting, {"v": tmp_path / "v"})


TABLE = """
[[image]]
pattern = "acme/gone:*"
unpullable = true

[[image]]
pattern = "acme/*"
python = "{python}"
workdir = "{workdir}"
env = {{ A = "1" }}
"""


def test_the_first_pattern_that_matches_counts(tmp_path: Path):
    file = tmp_path / "images.toml"
    file.write_text(TABLE.format(python=sys.executable, workdir=tmp_path))
    images = Images.load(file)
    assert images.find("acme/gone:1").unpullable
    assert images.find("acme/train:1").workdir == str(tmp_path)
    assert images.find("other") == Image()
    assert Images.load(tmp_path / "none.toml").find("x").python == sys.executable


@pytest.mark.parametrize(
    ("text", "field"),
    [
        pytest.param("[[image]", "images", id="not TOML"),
        pytest.param("[[image]]\npattern = 'x'\nmagic = 1", r"image\[0\].magic", id="unknown field"),
        pytest.param("[[image]]\npattern = 'x'\npython = 3", r"image\[0\].python", id="wrong type"),
        pytest.param("[[image]]\npython = '/x'", r"image\[0\].pattern", id="no pattern"),
        pytest.param(
            "[[image]]\npattern = 'x'\npython = '/no/such'", r"image\[0\].python", id="no such program"
        ),
        pytest.param("[other]\n", "images", id="another table"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_by_field(tmp_path: Path, text: str, field: str):
    file = tmp_path / "images.toml"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=f"^{field}: "):
        Images.load(file)
