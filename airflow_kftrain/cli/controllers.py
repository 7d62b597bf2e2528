"""``kftrain controllers``: run the controllers of training jobs against any Kubernetes API."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import uuid
from pathlib import Path
from typing import Annotated

import typer

from airflow_kftrain.exceptions import InvalidInput

app = typer.Typer(
    help="Controllers for TFJob, PyTorchJob and XGBoostJob, for clusters without a training operator.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def _controllers() -> None:
    """Controllers for TFJob, PyTorchJob and XGBoostJob, for clusters without a training operator."""


@app.command()
def run(
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Which cluster; $KUBECONFIG or ~/.kube/config by default.")
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    namespace: Annotated[
        list[str] | None, typer.Option(help="Namespace to work in; may be repeated; all by default.")
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option(help="Kind to work on; may be repeated; all by default.")
    ] = None,
    gang_scheduling: Annotated[
        bool, typer.Option(help="Make a PodGroup per job, for a gang scheduler.")
    ] = True,
    gang_scheduler: Annotated[str, typer.Option(help="Name of the gang scheduler.")] = "gang-scheduler",
    workers: Annotated[int, typer.Option(min=1, help="Jobs of one kind worked on at the same time.")] = 4,
    leader_election: Annotated[
        bool, typer.Option(help="Let one of several replicas work, by a Lease.")
    ] = True,
    lease_namespace: Annotated[
        str | None, typer.Option(help="Namespace of the Lease; the first --namespace, else default.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log every turn.")] = False,
) -> None:
    """Run until SIGTERM or SIGINT. Do not run beside a training operator that looks at the same jobs."""
    if kubeconfig is not None and not kubeconfig.is_file():
        raise InvalidInput("--kubeconfig", str(kubeconfig), "there is no such file; give a kubeconfig")
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    from airflow_kftrain.clock import system_clock
    from airflow_kftrain.cluster.client import Cluster
    from airflow_kftrain.controllers import ControllerManager, LeaseSettings

    where = lease_namespace or (namespace[0] if namespace else "default")
    lease = LeaseSettings(_identity(), namespace=where) if leader_election else None

    async def work() -> None:
        path = None if kubeconfig is None else str(kubeconfig)
        async with Cluster.from_kubeconfig(path, context) as cluster:
            manager = ControllerManager(
                cluster,
                clock=system_clock(),
                gang_scheduling=gang_scheduling,
                namespaces=namespace,
                kinds=kind,
                gang_scheduler=gang_scheduler,
                workers=workers,
                lease=lease,
            )
            await manager.run(_stop_on_signals())

    asyncio.run(work())


def _identity() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # only where the platform has no signal handlers
            loop.add_signal_handler(number, stop.set)
    return stop
