"""Workloads from CSV files: one job a row, times in seconds, an empty cell is unknown."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.simulate.workload import Job, Speed, Workload

REQUIRED = ("job_id", "submit_s", "duration_s", "gpus")
#: (model, batch size) to the speed of that training by GPUs.
Throughputs = Mapping[tuple[str, int], Speed]


def samples() -> list[str]:
    """Names of the small traces that come with the package."""
    found = resources.files(__package__).joinpath("data").iterdir()
    return sorted(entry.name.removesuffix(".csv") for entry in found if entry.name.endswith(".csv"))


def sample(name: str) -> Workload:
    """A trace that comes with the package.

    :raises InvalidInput: there is none of that name
    """
    if name not in samples():
        raise InvalidInput("trace", name, f"give a CSV file or one of the samples: {', '.join(samples())}")
    with resources.as_file(resources.files(__package__).joinpath("data", f"{name}.csv")) as path:
        return read_trace(path)


def read_trace(path: Path | str, *, throughputs: Throughputs | None = None) -> Workload:
    """Read a trace (``.csv`` or ``.csv.gz``).

    Columns: ``job_id submit_s duration_s gpus`` and, where known, ``group key deadline_s run_limit_s model
    batch_size iterations``.

    :param throughputs: speeds by model and batch size; a job whose model is among them is elastic
    :raises InvalidInput: the file or one of its rows cannot be used; the text names row and column
    """
    path = Path(path)
    jobs = tuple(_job(row, where, throughputs) for where, row in _rows(path, REQUIRED))
    if not jobs:
        raise InvalidInput("trace", str(path), "it has no jobs; give a file with at least one row")
    _check_unique(jobs, path)
    return Workload.of(path.name.removesuffix(".gz").removesuffix(".csv"), jobs)


def read_throughputs(path: Path | str) -> dict[tuple[str, int], Speed]:
    """Iterations a second by model and batch size, from ``model,batch_size,gpus,iterations_per_s``.

    :raises InvalidInput: the file or one of its rows cannot be used
    """
    rates: dict[tuple[str, int], dict[int, float]] = {}
    for where, row in _rows(Path(path), ("model", "batch_size", "gpus", "iterations_per_s")):
        key = row["model"], _whole(row, "batch_size", where)
        rates.setdefault(key, {})[_whole(row, "gpus", where)] = _positive(row, "iterations_per_s", where)
    return {key: Speed(tuple(sorted(sizes.items()))) for key, sizes in rates.items()}


def _rows(path: Path, needed: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(newline="") as text:
            reader = csv.DictReader(text, restkey="", restval="")
            missing = [name for name in needed if name not in (reader.fieldnames or ())]
            if missing:
                raise InvalidInput("trace", str(path), f"its first line lacks the column {missing[0]}")
            for row in reader:
                if "" in row:
                    raise InvalidInput(
                        f"{path.name}:{reader.line_num}", row[""], "it has more cells than columns"
                    )
                yield f"{path.name}:{reader.line_num}", row
    except FileNotFoundError:
        raise InvalidInput("trace", str(path), "there is no such file") from None
    except (OSError, UnicodeDecodeError, csv.Error, EOFError) as error:
        raise InvalidInput("trace", str(path), f"it cannot be read ({error}); give a CSV file") from error


def _job(row: dict[str, str], where: str, throughputs: Throughputs | None) -> Job:
    if not row["job_id"]:
        raise InvalidInput(f"{where} job_id", "", "give each job an id")
    submit = _number(row, "submit_s", where)
    if submit < 0:
        raise InvalidInput(f"{where} submit_s", row["submit_s"], "times count from the first submission")
    deadline = _number(row, "deadline_s", where) if row.get("deadline_s") else None
    limit = _positive(row, "run_limit_s", where) if row.get("run_limit_s") else None
    return Job(
        id=row["job_id"],
        submit=submit,
        duration=_positive(row, "duration_s", where),
        gpus=_whole(row, "gpus", where),
        group=row.get("group", ""),
        key=row.get("key", ""),
        deadline=deadline,
        run_limit=limit,
        speed=_speed(row, where, throughputs),
    )


def _speed(row: dict[str, str], where: str, throughputs: Throughputs | None) -> Speed | None:
    if throughputs is None or not row.get("model"):
        return None
    key = row["model"], _whole(row, "batch_size", where)
    if key not in throughputs:
        raise InvalidInput(f"{where} model", key, "the throughputs have no such model and batch size")
    return throughputs[key]


def _number(row: dict[str, str], column: str, where: str) -> float:
    try:
        number = float(row[column])
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InvalidInput(f"{where} {column}", row[column], "give a number of seconds")
    return number


def _positive(row: dict[str, str], column: str, where: str) -> float:
    number = _number(row, column, where)
    if number <= 0:
        raise InvalidInput(f"{where} {column}", row[column], "give a number above zero")
    return number


def _whole(row: dict[str, str], column: str, where: str) -> int:
    number = _positive(row, column, where)
    if number != int(number):
        raise InvalidInput(f"{where} {column}", row[column], "give a whole number")
    return int(number)


def _check_unique(jobs: tuple[Job, ...], path: Path) -> None:
    seen: set[str] = set()
    for job in jobs:
        if job.id in seen:
            raise InvalidInput(f"{path.name} job_id", job.id, "two rows have this id; give each job its own")
        seen.add(job.id)
