"""What all pods of this machine share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from airflow_kftrain.clock import Clock
from airflow_kftrain.cluster.client import Cluster
from airflow_kftrain.local.events import EventRecorder
from airflow_kftrain.local.kubelet.environment import Object
from airflow_kftrain.local.kubelet.images import Images
from airflow_kftrain.local.kubelet.logs import LogBook
from airflow_kftrain.local.kubelet.plan import Sandbox
from airflow_kftrain.local.kubelet.rewrite import Rewriter
from airflow_kftrain.local.kubelet.sweep import Sweeper


@dataclass(frozen=True)
class BackOff:
    """Pauses before a container is started again: none the first time, then growing (the kubelet's numbers).

    :param first: seconds before the second restart
    :param longest: the most it grows to
    :param forgiven: a container that ran so long starts over with no pause
    """

    first: float = 10.0
    longest: float = 300.0
    forgiven: float = 600.0

    def pause(self, failures: int) -> float:
        """Seconds after the container ended ``failures`` times in a row."""
        return 0.0 if failures <= 1 else min(self.longest, self.first * 2.0 ** min(failures - 2, 20))


@dataclass
class Machine:
    """The parts of the kubelet that a pod's life needs.

    :param root: holds ``pods/<uid>``, ``logs/<uid>``, ``volumes/<namespace>/<claim>``
    :param tmp: holds pods' directories for temporary files, under short names
    :param rewriter: the address rewriter for a pod, by what is known of names and ports at that moment
    """

    cluster: Cluster
    cluster_id: str
    root: Path
    tmp: Path
    clock: Clock
    logs: LogBook
    events: EventRecorder
    images: Callable[[], Images]
    rewriter: Callable[[Object], Rewriter]
    back_off: BackOff = field(default_factory=BackOff)
    closing: bool = False

    def __post_init__(self) -> None:
        self.sweeper = Sweeper(self.cluster_id)

    def sandbox(self, pod_uid: str) -> Sandbox:
        """The directories of a pod."""
        return Sandbox(self.root / "pods" / pod_uid, self.tmp / pod_uid.replace("-", "")[:12])

    def claims(self, namespace: str) -> Path:
        """Where the PersistentVolumeClaims of a namespace keep their files."""
        return self.root / "volumes" / namespace
