"""``kftrain``: one typer app, whose commands are imported when they are called.

``airflow kftrain …`` is the same app, started with Airflow's database at hand (see :mod:`.airflow_commands`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from airflow_kftrain import __version__
from airflow_kftrain.exceptions import KFTrainError

COMMANDS = {
    "local": "A Kubernetes API, controllers and nodes on this machine, without containers.",
    "controllers": "Controllers for TFJob, PyTorchJob and XGBoostJob, for clusters without a training operator.",
    "simulate": "Replay a workload against the planner, in virtual time.",
    "janitor": "Delete jobs whose task instance is over or has a newer try.",
}
"""Command, and module of :mod:`airflow_kftrain.cli` that has it as ``app``: what it does."""


class _LazyGroup(TyperGroup):
    """A group that imports a command's module only when the command is called.

    Typer brings click, under its own name in its newer versions: hence no types of click's here.
    """

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return [name for name in COMMANDS if find_spec(f"{__package__}.{name}")]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.list_commands(ctx):
            return None
        command = typer.main.get_command(import_module(f"{__package__}.{cmd_name}").app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        if rows := [(name, COMMANDS[name]) for name in self.list_commands(ctx)]:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


app = typer.Typer(
    name="kftrain",
    cls=_LazyGroup,
    help="Gang-scheduled distributed training on Kubernetes.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kftrain {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Gang-scheduled distributed training on Kubernetes."""


def main(arguments: Sequence[str] | None = None, *, program: str = "kftrain", airflow: bool = False) -> Any:
    """Run the app and leave the process with its exit code; an error of ours is one line on stderr.

    :param arguments: ``sys.argv[1:]`` when absent
    :param airflow: whether Airflow's database is at hand
    """
    try:
        app(args=arguments, prog_name=program, obj={"airflow": airflow})
    except KFTrainError as error:
        typer.echo(f"{program}: {error}", err=True)
        sys.exit(1)
