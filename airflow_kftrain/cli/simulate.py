"""``kftrain simulate``: replay a workload under one or more policies, and with more or fewer GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_kftrain.exceptions import InvalidInput

if TYPE_CHECKING:
    from airflow_kftrain.simulate.workload import Workload

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_DEFAULT_POLICIES = ["planner", "best-effort-fifo", "easy"]
_POLICY_HELP = (
    "planner, strict-fifo, best-effort-fifo, easy, conservative, smallest, sjf, edf, 2d-las or oracle; "
    "again for more."
)


@app.command()
def simulate(
    trace: Annotated[
        str,
        typer.Argument(
            help="A CSV file (.csv, .csv.gz), a sample (itp-day, philly-half-day), or recurring[:SEED] for "
            "generated DAGs."
        ),
    ],
    policy: Annotated[list[str] | None, typer.Option(help=_POLICY_HELP)] = None,
    capacity: Annotated[
        list[int] | None,
        typer.Option(help="GPUs; again for more. Without it: enough to be 80 % busy to the end."),
    ] = None,
    more: Annotated[int, typer.Option(help="Also with so many GPUs more than the first capacity.")] = 0,
    per_node: Annotated[
        int, typer.Option(help="GPUs of a node; 0 counts GPUs only, without packing.", min=0)
    ] = 8,
    costs: Annotated[
        bool, typer.Option(help="Count start-up, termination, restart and rescale times.")
    ] = True,
    noise: Annotated[
        float, typer.Option(help="Log-normal error of the durations that baselines are told.", min=0)
    ] = 0.0,
    days: Annotated[float, typer.Option(help="Days to generate, for recurring.")] = 7.0,
    seed: Annotated[int, typer.Option(help="Of all that is random.")] = 1,
    gangs: Annotated[int, typer.Option(help="Gangs to draw in text, of the first policy.", min=0)] = 8,
    plot: Annotated[Path | None, typer.Option(help="Also write a picture to this file.")] = None,
) -> None:
    """Print what each policy makes of a workload, and draw use, queue and gangs over time."""
    from rich.console import Console

    from airflow_kftrain.simulate import bounds, draw, engine, metrics, policies, report, world
    from airflow_kftrain.simulate.estimates import Noisy

    workload = _workload(trace, seed, days)
    console = Console()
    rows, runs, least = {}, {}, {}
    for gpus in _capacities(capacity, more, workload.capacity_to_try(), per_node):
        bound = bounds.jct_bounds(workload, gpus).best
        cluster = world.Cluster.of_nodes(gpus, per_node) if per_node else world.Cluster.count(gpus)
        _check_widest(max(job.gpus for job in workload.jobs), gpus)
        for name in policy or _DEFAULT_POLICIES:
            known = Noisy(noise, seed) if noise else None
            run = engine.simulate(
                workload, cluster, policies.policy(name, known), world.Costs() if costs else world.FREE
            )
            label = f"{run.policy} @ {gpus}"
            rows[label], runs[name, label], least[label] = metrics.measure(run), run, bound
    title = f"{workload.name}: {len(workload.jobs)} jobs over {workload.span / 86400:.1f} days"
    console.print(*report.summary_tables(rows, least, title, console.width), sep="\n")
    console.print(*report.class_tables(rows, console.width), sep="\n")
    first = policy[0] if policy else _DEFAULT_POLICIES[0]
    for (name, _), run in runs.items():
        console.print()
        drawn = draw.text(run, width=max(20, console.width - 42), gangs=gangs if name == first else 0)
        console.print(drawn, highlight=False)
    if plot is not None:
        draw.picture({label: run for (_, label), run in runs.items()}, plot)
        console.print(f"picture: {plot}")


def _workload(trace: str, seed: int, days: float) -> Workload:
    from airflow_kftrain.simulate import generator, traces

    kind, _, given = trace.partition(":")
    if kind == "recurring":
        if given and not given.isdecimal():
            raise InvalidInput("trace", trace, "the seed after recurring: is a whole number")
        return generator.recurring(int(given or seed), generator.Recurring(days=days))
    if trace in traces.samples():
        return traces.sample(trace)
    if not Path(trace).exists():
        others = ", ".join(traces.samples())
        raise InvalidInput(
            "trace", trace, f"there is no such file; give a CSV file, recurring, or one of {others}"
        )
    return traces.read_trace(trace)


def _capacities(given: list[int] | None, more: int, usual: int, per_node: int) -> list[int]:
    unit = per_node or 1
    first = given or [-(-usual // unit) * unit]
    return [*first, first[0] + more] if more else first


def _check_widest(widest: int, capacity: int) -> None:
    if widest > capacity:
        raise InvalidInput("capacity", capacity, f"the widest gang has {widest} GPUs; give at least as many")
