"""Why a container cannot be made, in a kubelet's words."""

from __future__ import annotations

from airflow_kftrain.exceptions import KFTrainError


class ContainerRefused(KFTrainError):
    """The container waits, with this reason, until what is missing is there.

    :param reason: the waiting reason, for instance ``CreateContainerConfigError``
    :param message: what is wrong and with which value
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        self.message = message
        super().__init__(f"{reason}: {message}")


class MountFailed(KFTrainError):
    """A volume cannot be set up (yet); the pod waits in ``ContainerCreating`` and an event says why."""
