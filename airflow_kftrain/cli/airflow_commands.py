"""``airflow kftrain …``, which forwards to the ``kftrain`` app; every ``airflow`` call imports this: keep it light."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.cli.cli_config import CLICommand


def get_kftrain_cli_commands() -> list[CLICommand]:
    """The one command, for the ``cli`` key of the provider's metadata."""
    from airflow.cli.cli_config import ActionCommand, Arg, lazy_load_command

    rest = Arg(  # type: ignore[no-untyped-call]
        ("arguments",),
        nargs=argparse.REMAINDER,
        help="A command of kftrain and its arguments; `airflow kftrain -- --help` lists them",
    )
    return [
        ActionCommand(
            name="kftrain",
            help="Distributed training on Kubernetes (the kftrain command, with Airflow's database)",
            func=lazy_load_command(f"{__name__}.forward"),
            args=(rest,),
        )
    ]


def forward(args: argparse.Namespace) -> None:
    """Run ``kftrain`` with what came after ``airflow kftrain``."""
    from airflow_kftrain.cli.app import main

    arguments = args.arguments[1:] if args.arguments[:1] == ["--"] else args.arguments
    main(arguments, program="airflow kftrain", airflow=True)
