"""Sixty jobs that cover each pair of values of eight dimensions; :data:`PAIR_CASES` are the cases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_kftrain.cluster.client import Object
from tests.controlplane.conformance.cases import (
    KINDS,
    Case,
    Change,
    Create,
    End,
    Step,
    container,
    job,
    replica,
)

DIMENSIONS: Mapping[str, tuple[str, ...]] = {
    # The kind and which replica types it has.
    "shape": (
        "xgb-gang", "xgb-master", "pt-gang", "pt-master", "pt-workers", "pt-elastic",
        "tf-workers", "tf-chief", "tf-master", "tf-ps", "tf-dynamic", "tf-all",
    ),
    "restart": ("unset", "Never", "OnFailure", "Always", "ExitCode"),
    "clean": ("unset", "None", "Running", "All"),
    # Never; submitted suspended; suspended and resumed while it runs; resumed with other replicas and placement.
    "suspend": ("no", "first", "later", "resized"),
    # Gang mode; gang mode with minAvailable 1; without gang mode.
    "gang": ("gang", "fewest", "plain"),
    "pod": ("plain", "sidecar", "port", "init"),
    "limits": ("none", "backoff", "ttl", "deadline"),
    # The first replica ends well; all do; the last one ends with 1; the last one is killed (137).
    "ending": ("first-ok", "all-ok", "last-fails", "last-killed"),
}  # fmt: skip

_ROWS = """
xgb-gang    unset      All      resized  plain   sidecar  none      all-ok
xgb-gang    Never      None     first    gang    port     backoff   last-killed
xgb-gang    OnFailure  All      no       fewest  sidecar  none      all-ok
xgb-gang    Always     unset    resized  plain   plain    ttl       first-ok
xgb-gang    ExitCode   Running  later    fewest  init     deadline  last-fails
xgb-master  unset      All      no       gang    port     deadline  all-ok
xgb-master  Never      unset    later    plain   plain    none      last-fails
xgb-master  OnFailure  Running  resized  fewest  init     ttl       last-killed
xgb-master  Always     All      resized  plain   sidecar  deadline  first-ok
xgb-master  ExitCode   None     first    plain   sidecar  backoff   first-ok
pt-gang     unset      unset    later    gang    sidecar  deadline  all-ok
pt-gang     Never      None     resized  fewest  plain    deadline  first-ok
pt-gang     OnFailure  All      first    plain   init     backoff   first-ok
pt-gang     Always     Running  no       fewest  port     ttl       last-fails
pt-gang     ExitCode   None     resized  plain   plain    none      last-killed
pt-master   unset      None     resized  fewest  sidecar  backoff   last-fails
pt-master   Never      Running  later    fewest  init     deadline  first-ok
pt-master   OnFailure  All      no       fewest  sidecar  backoff   last-fails
pt-master   Always     unset    first    plain   plain    none      all-ok
pt-master   ExitCode   All      no       gang    port     ttl       last-killed
pt-workers  unset      Running  no       gang    plain    ttl       last-killed
pt-workers  Never      All      no       fewest  sidecar  backoff   last-killed
pt-workers  OnFailure  unset    later    fewest  sidecar  none      last-fails
pt-workers  Always     None     resized  fewest  port     deadline  all-ok
pt-workers  ExitCode   All      first    plain   init     backoff   first-ok
pt-elastic  unset      All      no       plain   init     none      last-fails
pt-elastic  Never      Running  resized  fewest  plain    deadline  all-ok
pt-elastic  OnFailure  None     first    gang    sidecar  ttl       first-ok
pt-elastic  Always     Running  no       plain   port     none      last-killed
pt-elastic  ExitCode   unset    later    fewest  port     backoff   last-killed
tf-workers  unset      Running  first    plain   port     none      first-ok
tf-workers  Never      None     later    fewest  sidecar  backoff   last-fails
tf-workers  OnFailure  unset    resized  plain   plain    deadline  last-killed
tf-workers  Always     unset    later    gang    init     deadline  first-ok
tf-workers  ExitCode   All      no       gang    init     ttl       all-ok
tf-chief    unset      All      first    plain   init     backoff   first-ok
tf-chief    Never      Running  resized  plain   sidecar  deadline  last-killed
tf-chief    OnFailure  unset    no       plain   port     backoff   first-ok
tf-chief    Always     None     later    gang    init     none      last-fails
tf-chief    ExitCode   All      first    fewest  plain    ttl       all-ok
tf-master   unset      unset    first    fewest  plain    backoff   last-killed
tf-master   Never      All      resized  gang    port     ttl       all-ok
tf-master   OnFailure  None     later    plain   init     none      first-ok
tf-master   Always     None     later    plain   sidecar  backoff   last-fails
tf-master   ExitCode   Running  no       fewest  sidecar  deadline  last-fails
tf-ps       unset      None     first    plain   sidecar  none      all-ok
tf-ps       Never      unset    resized  fewest  init     ttl       first-ok
tf-ps       OnFailure  None     later    fewest  port     none      last-fails
tf-ps       Always     All      first    plain   sidecar  deadline  last-killed
tf-ps       ExitCode   Running  no       gang    plain    backoff   all-ok
tf-dynamic  unset      None     no       fewest  port     none      last-killed
tf-dynamic  Never      Running  later    gang    sidecar  ttl       first-ok
tf-dynamic  OnFailure  All      first    fewest  plain    deadline  last-fails
tf-dynamic  Always     unset    first    plain   init     backoff   all-ok
tf-dynamic  ExitCode   unset    resized  gang    plain    backoff   last-killed
tf-all      unset      All      later    gang    plain    ttl       last-killed
tf-all      Never      None     no       plain   sidecar  deadline  last-killed
tf-all      OnFailure  Running  later    fewest  init     none      first-ok
tf-all      Always     Running  first    fewest  port     backoff   all-ok
tf-all      ExitCode   unset    resized  fewest  init     none      last-fails
"""

# Kind, replicas by type in the order in which "first" and "last" are meant, and what the job's spec adds.
_SHAPES: Mapping[str, tuple[str, Mapping[str, int], Mapping[str, Any]]] = {
    "xgb-gang": ("XGBoostJob", {"Master": 1, "Worker": 2}, {}),
    "xgb-master": ("XGBoostJob", {"Master": 1}, {}),
    "pt-gang": ("PyTorchJob", {"Master": 1, "Worker": 2}, {}),
    "pt-master": ("PyTorchJob", {"Master": 1}, {"nprocPerNode": "4"}),
    "pt-workers": ("PyTorchJob", {"Worker": 3}, {"nprocPerNode": "gpu"}),
    "pt-elastic": (
        "PyTorchJob",
        {"Worker": 2},
        {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 4, "maxRestarts": 3, "rdzvBackend": "c10d"}},
    ),
    "tf-workers": ("TFJob", {"Worker": 2}, {}),
    "tf-chief": ("TFJob", {"Chief": 1, "Worker": 2}, {}),
    "tf-master": ("TFJob", {"Master": 1, "Worker": 1}, {}),
    "tf-ps": ("TFJob", {"Chief": 1, "PS": 2, "Worker": 1, "Evaluator": 1}, {}),
    "tf-dynamic": ("TFJob", {"Worker": 2, "PS": 1}, {"enableDynamicWorker": True}),
    "tf-all": ("TFJob", {"Worker": 2}, {"successPolicy": "AllWorkers"}),
}

_LIMITS: Mapping[str, Mapping[str, int]] = {
    "none": {},
    "backoff": {"backoffLimit": 1},
    "ttl": {"ttlSecondsAfterFinished": 3600},
    "deadline": {"activeDeadlineSeconds": 3600},
}

_TERM = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}
_ANY_NODE = {
    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]}}
}
_SUSPEND = {"spec": {"runPolicy": {"suspend": True}}}
_RESUME = {"spec": {"runPolicy": {"suspend": False}}}


def _replica(kind: str, count: int, features: Mapping[str, str]) -> Object:
    restart = None if features["restart"] == "unset" else features["restart"]
    made = replica(kind, count, restart)
    pod = made["template"]["spec"]
    if features["pod"] == "sidecar":
        # Before the training container: which of them is the training's must be told by its name.
        pod["containers"].insert(0, container("sidecar"))
    elif features["pod"] == "port":
        pod["containers"][0]["ports"] = [
            {"name": KINDS[kind].port_name, "containerPort": 7777},
            {"name": "metrics", "containerPort": 9090},
        ]
    elif features["pod"] == "init":
        limits = {"cpu": "1", "memory": "64Mi"}
        pod["initContainers"] = [
            {"name": "prepare", "image": "prepare:1", "command": ["true"], "resources": {"limits": limits}}
        ]
    return made


def _manifest(name: str, features: Mapping[str, str]) -> Object:
    kind, replicas, spec = _SHAPES[features["shape"]]
    policy: Object = dict(_LIMITS[features["limits"]])
    if features["clean"] != "unset":
        policy["cleanPodPolicy"] = features["clean"]
    if features["suspend"] in ("first", "resized"):
        policy["suspend"] = True
    if features["gang"] == "fewest":
        policy["schedulingPolicy"] = {"minAvailable": 1}
    specs = {replica_type: _replica(kind, count, features) for replica_type, count in replicas.items()}
    return job(kind, name, specs, **spec, **({"runPolicy": policy} if policy else {}))


def _resume_resized(features: Mapping[str, str]) -> Object:
    """Resume with one worker more and all replicas on chosen nodes."""
    kind, replicas, _ = _SHAPES[features["shape"]]
    specs: Object = {}
    for replica_type, count in replicas.items():
        specs[replica_type] = {"template": {"spec": {"affinity": _ANY_NODE}}}
        if replica_type == "Worker":
            specs[replica_type]["replicas"] = count + 1
    return {"spec": {KINDS[kind].replica_specs: specs, **_RESUME["spec"]}}


def _names(features: Mapping[str, str]) -> list[str]:
    """The replicas that exist when the job ends, in order."""
    _, replicas, _ = _SHAPES[features["shape"]]
    more = features["suspend"] == "resized"
    return [
        f"{replica_type.lower()}-{index}"
        for replica_type, count in replicas.items()
        for index in range(count + (more and replica_type == "Worker"))
    ]


def _steps(features: Mapping[str, str]) -> tuple[Step, ...]:
    suspend, ending, names = features["suspend"], features["ending"], _names(features)
    steps = [Step("created", Create(), "suspended" if suspend in ("first", "resized") else "running")]
    if suspend == "later":
        steps.append(Step("suspended", Change(_SUSPEND), "suspended"))
    if suspend == "resized":
        steps.append(Step("resumed", Change(_resume_resized(features)), "running"))
    elif suspend != "no":
        steps.append(Step("resumed", Change(_RESUME), "running"))
    if ending == "all-ok":
        # One after the other, the deciding one last: what else still runs at the job's end must not be a race.
        return (*steps, *(Step(f"{name} ends", End({name: 0})) for name in reversed(names)))
    codes = {"first-ok": {names[0]: 0}, "last-fails": {names[-1]: 1}, "last-killed": {names[-1]: 137}}
    return (*steps, Step(ending, End(codes[ending])))


def _case(row: str) -> Case:
    features = dict(zip(DIMENSIONS, row.split(), strict=True))
    name = f"{features['shape']}-{features['restart']}".lower()
    return Case(name, _manifest(name, features), _steps(features), features["gang"] != "plain", features)


PAIR_CASES: tuple[Case, ...] = tuple(_case(row) for row in _ROWS.strip().splitlines())
