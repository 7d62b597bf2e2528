"""``kftrain local``: a Kubernetes API with nodes and GPUs on this machine, for trying and for tests."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_kftrain.exceptions import InvalidInput

if TYPE_CHECKING:
    from airflow_kftrain.local.cluster import LocalCluster
    from airflow_kftrain.local.overview import Overview

app = typer.Typer(
    help="A Kubernetes API, controllers and nodes on this machine, without containers.",
    no_args_is_help=True,
    add_completion=False,
)

_HOME_HELP = "Directory of the cluster; $KFTRAIN_HOME or ~/.kftrain/NAME when absent."
Home = Annotated[Path | None, typer.Option("--home", help=_HOME_HELP, file_okay=False)]
Name = Annotated[str, typer.Option("--name", help="Name of the cluster under ~/.kftrain.")]
Nodes = Annotated[int | None, typer.Option("--nodes", help="Nodes to make up; as the last time, at first 1.")]
Gpus = Annotated[int | None, typer.Option("--gpus", help="GPUs of each node; as the last time, at first 0.")]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds that the start may take.", min=1)]


@app.command()
def up(
    nodes: Nodes = None, gpus: Gpus = None, home: Home = None, name: Name = "default", timeout: Timeout = 60.0
) -> None:
    """Bring the cluster up; nothing happens when it is."""
    cluster = _cluster(home, name)
    began = time.monotonic()
    started = cluster.up(nodes, gpus, timeout=timeout)
    took = f"up after {time.monotonic() - began:.1f} s" if started else "up already"
    typer.echo(f"local cluster in {cluster.home}: {took}")
    typer.echo(f"export KUBECONFIG={cluster.kubeconfig}")


@app.command()
def down(home: Home = None, name: Name = "default") -> None:
    """End the cluster and all its processes; its objects are kept for the next start."""
    cluster = _cluster(home, name)
    ended = cluster.down()
    typer.echo(f"local cluster in {cluster.home}: {'ended' if ended else 'was not up'}")


@app.command()
def reset(home: Home = None, name: Name = "default") -> None:
    """End the cluster and delete its objects, logs and volumes; images.toml is kept."""
    cluster = _cluster(home, name)
    cluster.reset()
    typer.echo(f"local cluster in {cluster.home}: reset")


@app.command()
def status(home: Home = None, name: Name = "default") -> None:
    """Show nodes, GPUs, pods and jobs. Exit code 3 when the cluster is down."""
    cluster = _cluster(home, name)
    found = cluster.status()
    if found is None:
        typer.echo(f"local cluster in {cluster.home}: down (kftrain local up brings it up)")
        raise typer.Exit(3)
    _show(cluster, found)


@app.command()
def join(
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Which cluster; $KUBECONFIG or ~/.kube/config by default.")
    ] = None,
    nodes: Annotated[int, typer.Option(help="Nodes to add.", min=1)] = 1,
    gpus: Annotated[int, typer.Option(help="GPUs of each node, made up.", min=0)] = 0,
    prefix: Annotated[str, typer.Option(help="What the nodes' names begin with.")] = "kftrain",
    home: Home = None,
    name: Name = "joined",
) -> None:
    """Add nodes of this machine to another cluster, until SIGTERM; the pods bound to them run as your processes.

    Whoever may create pods in that cluster can run commands as you: join only one that is yours.
    """
    if kubeconfig is not None and not kubeconfig.is_file():
        raise InvalidInput("--kubeconfig", str(kubeconfig), "there is no such file; give a kubeconfig")
    from airflow_kftrain.local.home import Home as Directory
    from airflow_kftrain.local.home import default_home
    from airflow_kftrain.local.join import run

    run(
        Directory((home or default_home(name)).expanduser().absolute()),
        kubeconfig,
        nodes=nodes,
        gpus=gpus,
        prefix=prefix,
        announce=lambda: typer.echo(f"{nodes} nodes are ready; Ctrl-C takes them away"),
    )


def _cluster(home: Path | None, name: str) -> LocalCluster:
    from airflow_kftrain.local.cluster import LocalCluster
    from airflow_kftrain.local.home import default_home

    return LocalCluster(home or default_home(name))


def _show(cluster: LocalCluster, found: Overview) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(f"local cluster in {cluster.home}: up, process {cluster.pid}", highlight=False)
    console.print(f"API {found.url}", highlight=False)
    console.print(f"export KUBECONFIG={cluster.kubeconfig}", highlight=False, soft_wrap=True)
    nodes = Table("node", "ready", "GPUs in use", "pods", box=box.SIMPLE)
    for node in found.nodes:
        used = f"{node.gpus_used} of {node.gpus}"
        nodes.add_row(node.name, "yes" if node.ready else "no", used, str(node.pods))
    console.print(nodes)
    phases = ", ".join(f"{count} {phase}" for phase, count in sorted(found.pods.items()))
    console.print(f"pods: {phases or 'none'}", highlight=False)
    if not found.jobs:
        console.print("jobs: none", highlight=False)
        return
    jobs = Table("job", "kind", "state", "pods running", box=box.SIMPLE)
    for job in found.jobs:
        jobs.add_row(f"{job.namespace}/{job.name}", job.kind, job.state, f"{job.running} of {job.pods}")
    console.print(jobs)
