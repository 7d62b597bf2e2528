"""From a container's spec to the process that stands for it: one pure step."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs.resources import parse_quantity
from airflow_kftrain.local.kubelet.environment import (
    Environment,
    Object,
    Sources,
    command_line,
    expand,
    resolve_environment,
)
from airflow_kftrain.local.kubelet.images import Image
from airflow_kftrain.local.kubelet.names import host_name
from airflow_kftrain.local.kubelet.refusal import ContainerRefused
from airflow_kftrain.local.kubelet.rewrite import LOOPBACK, Rewriter
from airflow_kftrain.local.kubelet.volumes import Mounts, as_strings

CLUSTER_MARKER = "KFTRAIN_LOCAL_CLUSTER"
POD_MARKER = "KFTRAIN_LOCAL_POD"
"""Variables by which a process, and whatever it starts, is known to belong to a cluster and a pod."""

_INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
# Whoever changes these changes what ends with the cluster: a pod's own values are not taken.
_RESERVED = frozenset({CLUSTER_MARKER, POD_MARKER})


@dataclass(frozen=True)
class Sandbox:
    """The directories of one pod.

    :param root: holds home, working directory and volumes
    :param tmp: for temporary files; a short path, since programs put sockets there, whose paths are limited to about
        100 bytes
    """

    root: Path
    tmp: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def volumes(self) -> Path:
        return self.root / "volumes"

    def make(self) -> None:
        """Make what is missing, for this user alone."""
        for path in (self.home, self.tmp, self.work, self.volumes):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)

    def remove(self) -> None:
        """Remove all of it."""
        for path in (self.root, self.tmp):
            shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True)
class Launch:
    """A process to be started."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str


@dataclass(frozen=True)
class Surroundings:
    """What a container's process depends on beyond its own spec."""

    cluster_id: str
    sandbox: Sandbox
    sources: Sources
    rewriter: Rewriter
    gpus: Sequence[int] = ()


def plan_launch(pod: Object, container: Object, image: Image, mounts: Mounts, around: Surroundings) -> Launch:
    """The process of a container.

    Its environment holds PATH, HOME, LANG, HOSTNAME, TMPDIR, the thread, GPU and network settings that follow from the
    pod, the image's, and the container's own; nothing of ours or Airflow's.

    :raises ContainerRefused: the container's spec cannot be met
    """
    environment = resolve_environment(pod, container, around.sources, LOOPBACK)
    base = _base(pod, container, image, around)
    rewritten = _rewritten(environment, around.rewriter)
    env = base | dict(image.env) | as_strings(rewritten, mounts)
    env |= _rendezvous_host(pod, environment, around.rewriter) | {name: base[name] for name in _RESERVED}
    arguments = _arguments(container, environment, rewritten, around.rewriter)
    argv = image.argv([mounts.text(part) for part in arguments])
    return Launch(argv, env, _working_directory(container, image, mounts, around.sandbox))


def _rendezvous_host(pod: Object, environment: Environment, rewriter: Rewriter) -> dict[str, str]:
    """Tells torchrun whether this pod is its rendezvous' host.

    It would find out by comparing addresses; on loopback every agent takes itself for the host, the first to come is
    it, and when that one ends first the others lose their store.
    """
    values = environment.values
    host = rewriter.names.find(values.get("PET_RDZV_ENDPOINT", "").rpartition(":")[0])
    settings = values.get("PET_RDZV_CONF", "")
    if host is None or values.get("PET_RDZV_BACKEND", "c10d") != "c10d" or "is_host" in settings:
        return {}
    is_host = (host.namespace, host.name) == (pod["metadata"]["namespace"], host_name(pod))
    return {"PET_RDZV_CONF": ",".join(filter(None, [settings, f"is_host={int(is_host)}"]))}


def _rewritten(environment: Environment, rewriter: Rewriter) -> dict[str, str]:
    rewritten = rewriter.environment(environment.values, keep=environment.identities)
    for name, template in environment.templates.items():
        # "$(MASTER_PORT)" alone must give the rewritten port; "$(MASTER_ADDR):8000" needs the name to find it.
        if not rewriter.mentions(environment.values[name]):
            rewritten[name] = expand(template, rewritten)
    return rewritten


def _arguments(
    container: Object, environment: Environment, rewritten: Mapping[str, str], rewriter: Rewriter
) -> list[str]:
    written = command_line(container)
    expanded = [expand(part, environment.values) for part in written]
    result = rewriter.arguments(expanded)
    for position, template in enumerate(written):
        if "$(" in template and not rewriter.mentions(expanded[position]):
            result[position] = expand(template, rewritten)
    return result


def _base(pod: Object, container: Object, image: Image, around: Surroundings) -> dict[str, str]:
    interpreter = str(Path(image.python).parent)
    interface = "lo0" if sys.platform == "darwin" else "lo"
    gpus = ",".join(str(index) for index in around.gpus) if _wants_gpus(container) else ""
    return {
        "PATH": f"{interpreter}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "HOME": str(around.sandbox.home),
        "LANG": "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8",
        "HOSTNAME": host_name(pod),
        "TMPDIR": str(around.sandbox.tmp),
        "OMP_NUM_THREADS": str(_threads(container)),
        "CUDA_VISIBLE_DEVICES": gpus,
        "NVIDIA_VISIBLE_DEVICES": gpus or "void",
        **dict.fromkeys(_INTERFACE_VARIABLES, interface),
        CLUSTER_MARKER: around.cluster_id,
        POD_MARKER: pod["metadata"]["uid"],
    }


def _amounts(container: Object) -> dict[str, Any]:
    resources = container.get("resources") or {}
    return {**(resources.get("requests") or {}), **(resources.get("limits") or {})}


def _wants_gpus(container: Object) -> bool:
    return any("/gpu" in name or "/mig-" in name for name, amount in _amounts(container).items() if amount)


def _threads(container: Object) -> int:
    """One thread per CPU of the limit (or request), rounded up; one where none is given, as torchrun has it."""
    try:
        cpus = parse_quantity(_amounts(container).get("cpu", 1))
    except InvalidInput:
        cpus = Fraction(1)
    return max(1, int(-(-cpus // 1)))


def _working_directory(container: Object, image: Image, mounts: Mounts, sandbox: Sandbox) -> str:
    asked = container.get("workingDir")
    if not asked:
        return image.workdir or str(sandbox.work)
    path = Path(mounts.text(asked))
    if not path.is_dir():
        raise ContainerRefused(
            "CreateContainerError",
            f"workingDir {asked!r} is not a directory on this machine; mount a volume there, or map the image to a "
            "workdir in images.toml",
        )
    return str(path)
