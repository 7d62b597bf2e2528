"""How a pod's containers end with a wanted exit code: played by kwok, or processes of the local kubelet."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from airflow_kftrain.cluster.client import Cluster, Object
from airflow_kftrain.cluster.resources import PODS
from tests.controlplane.conformance.cases import ENDS

READER_SECONDS = 20.0
"""How long a container's process may take until it waits for its exit code."""


class PodEnder(Protocol):
    """How pods end where the cases are played."""

    async def end(self, pod: Object, code: int) -> None:
        """Let the containers of a running pod end with ``code``."""

    def adapt(self, manifest: Object) -> Object:
        """The manifest as it has to be for that."""

    @property
    def names(self) -> dict[str, str]:
        """Texts in objects that are of this way alone, with what stands for them."""


@dataclass(frozen=True)
class PlayedPods:
    """Pods of the rig: kwok reads from their annotations how they end."""

    cluster: Cluster

    async def end(self, pod: Object, code: int) -> None:
        """Add ``code`` to the list of exit codes."""
        metadata = pod["metadata"]
        key = "kftrain.test/exit-codes"
        codes = [*filter(None, (metadata.get("annotations") or {}).get(key, "").split(",")), str(code)]
        patch = {"metadata": {"uid": metadata["uid"], "annotations": {key: ",".join(codes)}}}
        await self.cluster.patch(PODS, metadata["name"], patch, metadata["namespace"])

    def adapt(self, manifest: Object) -> Object:
        """As it is."""
        return manifest

    @property
    def names(self) -> dict[str, str]:
        """None."""
        return {}


@dataclass(frozen=True)
class Processes:
    """Pods that are processes: each container reads its exit code from a named pipe in ``folder``."""

    folder: Path

    async def end(self, pod: Object, code: int) -> None:
        """Write ``code`` to all containers of the pod."""
        name = pod["metadata"]["name"]
        for container in pod["spec"]["containers"]:
            await self._write(self.folder / f"{name}.{container['name']}", f"{code}\n")

    def adapt(self, manifest: Object) -> Object:
        """With the folder's real name."""
        return dict(json.loads(json.dumps(manifest).replace(f'"{ENDS}"', f'"{self.folder}"')))

    @property
    def names(self) -> dict[str, str]:
        """The folder."""
        return {str(self.folder): ENDS}

    async def _write(self, pipe: Path, text: str) -> None:
        async with asyncio.timeout(READER_SECONDS):
            while True:
                try:
                    descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
                except OSError as error:
                    # Not there, or nobody reads yet: a pipe tells no one when its reader comes.
                    if error.errno not in (errno.ENOENT, errno.ENXIO):
                        raise
                    await asyncio.sleep(0.05)
                else:
                    break
        with os.fdopen(descriptor, "w") as stream:
            stream.write(text)
