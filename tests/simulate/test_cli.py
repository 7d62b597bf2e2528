import pytest
from rich.cells import cell_len

from airflow_kftrain.cli.app import main


def call(capsys, monkeypatch, *arguments, columns=160):
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *arguments])
    said = capsys.readouterr()
    return ended.value.code, said.out, said.err


def test_what_if_we_had_8_gpus_more(capsys, monkeypatch, tmp_path):
    trace = tmp_path / "mine.csv"
    rows = "".join(f"j{n},{60 * n},3600,{(1, 8)[n % 2]}\n" for n in range(40))
    trace.write_text("job_id,submit_s,duration_s,gpus\n" + rows)
    code, out, _ = call(capsys, monkeypatch, str(trace), "--capacity", "8", "--more", "8")
    assert code == 0
    for part in ("planner @ 8", "planner @ 16", "EASY @ 16", "Wait by gang size", "GPUs waited for", "·"):
        assert part in out


def test_a_sample_that_comes_with_the_package(capsys, monkeypatch):
    code, out, _ = call(capsys, monkeypatch, "philly-half-day", "--policy", "easy", "--capacity", "64")
    assert code == 0
    assert "philly-half-day: 1227 jobs" in out


def test_a_narrow_terminal_cuts_no_number_off(capsys, monkeypatch):
    options = ("--policy", "best-effort-fifo", "--capacity", "64", "--more", "64", "--gangs", "0")
    _, wide, _ = call(capsys, monkeypatch, "philly-half-day", *options, columns=300)
    _, narrow, _ = call(capsys, monkeypatch, "philly-half-day", *options, columns=80)
    assert max(map(cell_len, narrow.splitlines())) <= 80
    assert "…" not in narrow

    def numbers(text):
        tables = text.partition("\n\n")[0]
        return sorted(
            cell.strip() for cell in tables.replace("\n", "│").split("│") if cell.strip()[:1].isdigit()
        )

    assert numbers(narrow) == numbers(wide)


def test_a_file_and_one_policy(capsys, monkeypatch, tmp_path):
    trace = tmp_path / "mine.csv"
    trace.write_text("job_id,submit_s,duration_s,gpus\na,0,3600,4\nb,60,3600,4\n")
    code, out, _ = call(capsys, monkeypatch, str(trace), "--policy", "strict-fifo", "--capacity", "8")
    assert code == 0
    assert "mine: 2 jobs" in out
    assert "StrictFIFO @ 8" in out


def test_generated_dags(capsys, monkeypatch):
    code, out, _ = call(capsys, monkeypatch, "recurring:3", "--days", "1", "--policy", "easy", "--gangs", "0")
    assert code == 0
    assert "recurring-3" in out


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("none.csv",), "no such file"),
        (("itp_day",), "one of itp-day, philly-half-day"),
        (("itp-day", "--policy", "magic"), "best-effort-fifo"),
        (("itp-day", "--capacity", "8"), "widest gang has 64"),
        (("itp-day", "--capacity", "100"), "capacity: 100 cannot be used: give a positive multiple of 8"),
        (("recurring:x",), "whole number"),
    ],
    ids=[
        "no file",
        "a misspelt sample",
        "unknown policy",
        "capacity below the widest gang",
        "half a node",
        "a seed that is none",
    ],
)
def test_bad_input_is_one_line_that_says_what_to_do(capsys, monkeypatch, arguments, part):
    code, _, err = call(capsys, monkeypatch, *arguments)
    assert code == 1
    assert part in err
    assert len(err.strip().splitlines()) == 1
