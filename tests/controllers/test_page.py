"""The page on the controllers says what they do, and asks for the rights that they use."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from airflow_kftrain.cluster.resources import PODS, SERVICES
from airflow_kftrain.controllers import LeaseSettings
from tests.controllers import differences
from tests.controllers.stage import NAMESPACE
from tests.controllers.test_manager import Audience, managed, named

PAGE = (Path(__file__).parents[2] / "docs" / "controllers.md").read_text()
VERBS = {
    "get": "get",
    "list": "list",
    "watch": "watch",
    "create": "create",
    "replace": "update",
    "patch": "patch",
    "delete": "delete",
}


def test_the_page_names_every_difference():
    rows = re.findall(r"^\| ([^|]+?) \| [^|]+ \| [^|]+ \|$", PAGE, flags=re.MULTILINE)
    named_there = set(rows) - {"what"}
    assert named_there == {b.field for b in differences.BEHAVIOURS} | {"past the backoff limit"}


class Witness:
    """Notes which verb of which resource is used."""

    def __init__(self, cluster):
        self._cluster = cluster
        self.used: set[tuple[str, str, str]] = set()

    def __getattr__(self, name):
        call = getattr(self._cluster, name)
        if name not in VERBS:
            return call

        def noted(resource, *args, **kwargs):
            plural = "/".join(filter(None, (resource.plural, kwargs.get("subresource"))))
            self.used.add((resource.group, plural, VERBS[name]))
            return call(resource, *args, **kwargs)

        return noted


def allowed():
    (text,) = re.findall(r"```yaml\n(.+?)```", PAGE, flags=re.DOTALL)
    return {
        (group, resource, verb)
        for rule in yaml.safe_load(text)["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


async def test_the_role_on_the_page_is_what_is_used_and_no_more(cluster):
    witness = Witness(cluster)
    lease = LeaseSettings("witness", namespace=NAMESPACE, retry=0.1)
    async with Audience(cluster).watching() as audience, managed(witness, lease=lease) as (manager, _):
        await manager.ready()
        await _whole_lives(cluster, audience)
    permitted = allowed()
    assert witness.used <= permitted
    # What only a conflict, a takeover or a name that is taken asks for.
    rare = {("", "services", "get"), ("", "pods", "get"), ("scheduling.x-k8s.io", "podgroups", "get")}
    rare |= {("", "events", "get"), ("", "events", "patch")}
    assert permitted - witness.used <= rare


async def _whole_lives(cluster, audience):
    """One job of each kind, through restarts, adoption, a change of size, clean-up and expiry."""
    for kind, recording in (("XGBoostJob", "xgb-1-2"), ("PyTorchJob", "pt-1-3"), ("TFJob", "tf-workers")):
        name = kind.lower()
        resource, job = named(recording, name)
        job["spec"]["runPolicy"] = {
            "backoffLimit": 3,
            "cleanPodPolicy": "All",
            "ttlSecondsAfterFinished": 0,
        }
        (field,) = [f for f in job["spec"] if f.endswith("ReplicaSpecs")]
        for replica in job["spec"][field].values():
            replica["restartPolicy"] = "ExitCode"
        await cluster.create(resource, job, NAMESPACE)
        pod, orphan = f"{name}-worker-0", f"{name}-worker-1"
        await audience.until(lambda pod=pod: _phase(audience, pod) == "Running", play=True)
        failed = {"phase": "Failed", "containerStatuses": []}
        await cluster.patch(PODS, pod, {"status": failed}, NAMESPACE, subresource="status")
        await audience.until(lambda pod=pod: audience.made.count(pod) == 2)
        for children in (PODS, SERVICES):
            free = {"metadata": {"ownerReferences": None}}
            await cluster.patch(children, orphan, free, NAMESPACE)
        await audience.until(lambda name=orphan: _owned(audience, name))
        await cluster.patch(resource, name, {"spec": {field: {"Worker": {"replicas": 1}}}}, NAMESPACE)
        await audience.until(lambda name=orphan: (NAMESPACE, name) not in audience.pods.store)
        first = pod if recording == "tf-workers" else f"{name}-master-0"
        ended = {"phase": "Succeeded", "containerStatuses": []}
        await cluster.patch(PODS, first, {"status": ended}, NAMESPACE, subresource="status")
        jobs = audience.jobs[kind]
        await audience.until(lambda jobs=jobs, name=name: (NAMESPACE, name) not in jobs.store)


def _phase(audience, name):
    pod = audience.pods.get(NAMESPACE, name)
    return pod and pod["status"].get("phase")


def _owned(audience, name):
    pod = audience.pods.get(NAMESPACE, name)
    return pod is not None and bool(pod["metadata"].get("ownerReferences"))
