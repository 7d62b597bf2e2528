"""``airflow kftrain janitor``: delete what no trigger deleted."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_kftrain.exceptions import KFTrainError

if TYPE_CHECKING:
    from airflow_kftrain.admission.janitor import Janitor, Verdict

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def janitor(
    ctx: typer.Context,
    conn_id: Annotated[str, typer.Option(help="Airflow connection of the cluster.")] = "kubernetes_default",
    kubeconfig: Annotated[str | None, typer.Option(help="A kubeconfig, instead of a connection.")] = None,
    namespace: Annotated[list[str] | None, typer.Option(help="Only this namespace; may be repeated.")] = None,
    instance: Annotated[
        str | None, typer.Option(help="Whose jobs to look after; [kftrain] instance when absent.")
    ] = None,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds a task instance must be over before its job is deleted.")
    ] = 60.0,
    every: Annotated[float, typer.Option(min=1, help="Seconds between two sweeps.")] = 60.0,
    once: Annotated[bool, typer.Option("--once", help="Sweep once, and end.")] = False,
) -> None:
    """Delete unfinished jobs of this Airflow whose task instance is over or has a newer try."""
    if not (ctx.find_root().obj or {}).get("airflow"):
        raise KFTrainError("the janitor asks Airflow's database: run it as `airflow kftrain janitor`")
    asyncio.run(_run(conn_id, kubeconfig, namespace, instance, grace, every, once=once))


async def _run(
    conn_id: str,
    kubeconfig: str | None,
    namespaces: list[str] | None,
    instance: str | None,
    grace: float,
    every: float,
    *,
    once: bool,
) -> None:
    from airflow_kftrain.admission.janitor import Janitor
    from airflow_kftrain.bridge.task_states import AirflowTaskStates
    from airflow_kftrain.cluster.client import Cluster
    from airflow_kftrain.hooks.training_job import TrainingJobHook
    from airflow_kftrain.settings import read_settings

    cluster = Cluster.from_kubeconfig(kubeconfig) if kubeconfig else TrainingJobHook(conn_id).open()
    async with cluster:
        keeper = Janitor(
            cluster,
            AirflowTaskStates(),
            instance=instance or read_settings().instance,
            told=instance is not None,
            namespaces=namespaces,
            grace=grace,
        )
        if once:
            _tell(await keeper.sweep(), everything=True)
        else:
            await _keep_sweeping(keeper, every)


async def _keep_sweeping(keeper: Janitor, every: float) -> None:
    """Sweep until SIGTERM or SIGINT; a sweep that fails for a passing reason is told, and the next one tries again."""
    from airflow_kftrain.exceptions import ApiError, ApiUnreachable

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    while not stop.is_set():
        try:
            _tell(await keeper.sweep(), everything=False)
        except (ApiError, ApiUnreachable) as error:
            typer.echo(f"this sweep failed: {error}", err=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), every)


def _tell(verdicts: list[Verdict], *, everything: bool) -> None:
    for verdict in verdicts:
        if everything or verdict.act == "delete":
            typer.echo(str(verdict))
    deleted = sum(verdict.act == "delete" for verdict in verdicts)
    if everything:
        typer.echo(f"{deleted} of {len(verdicts)} jobs deleted")
