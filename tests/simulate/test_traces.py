import gzip

import pytest

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.simulate.traces import read_throughputs, read_trace, sample, samples

HEAD = "job_id,submit_s,duration_s,gpus,group,deadline_s,model,batch_size\n"
GOOD = "a,0,600,8,team,900,bert,64\n"


def write(tmp_path, text, name="trace.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_every_sample_that_comes_with_the_package_can_be_read():
    assert samples() == ["itp-day", "philly-half-day"]
    for name in samples():
        jobs = sample(name).jobs
        assert len(jobs) > 500
        assert [job.submit for job in jobs] == sorted(job.submit for job in jobs)


def test_a_row_becomes_a_job(tmp_path):
    (job,) = read_trace(write(tmp_path, HEAD + GOOD)).jobs
    assert (job.id, job.submit, job.duration, job.gpus, job.group) == ("a", 0, 600, 8, "team")
    assert job.deadline == 900
    assert job.speed is None


def test_an_empty_cell_is_unknown(tmp_path):
    (job,) = read_trace(write(tmp_path, HEAD + "a,0,600,8,,,,\n")).jobs
    assert (job.group, job.deadline) == ("", None)


def test_a_compressed_file_reads_like_a_plain_one(tmp_path):
    plain = write(tmp_path, HEAD + GOOD)
    packed = tmp_path / "trace.csv.gz"
    with gzip.open(packed, "wt") as file:
        file.write(plain.read_text())
    assert read_trace(packed) == read_trace(plain)


def test_rows_come_in_order_of_submission(tmp_path):
    trace = read_trace(write(tmp_path, "job_id,submit_s,duration_s,gpus\nb,10,1,1\na,5,1,1\n"))
    assert [job.id for job in trace.jobs] == ["a", "b"]


BAD = {
    "a duration that is no number": ("a,0,soon,8,,,,\n", "trace.csv:3 duration_s", "soon"),
    "a duration of nothing": ("a,0,0,8,,,,\n", "trace.csv:3 duration_s", "0"),
    "a negative submission": ("a,-1,10,8,,,,\n", "trace.csv:3 submit_s", "-1"),
    "a time that is not finite": ("a,inf,10,8,,,,\n", "trace.csv:3 submit_s", "inf"),
    "half a GPU": ("a,0,10,0.5,,,,\n", "trace.csv:3 gpus", "0.5"),
    "no GPU": ("a,0,10,0,,,,\n", "trace.csv:3 gpus", "0"),
    "an empty cell where a number is needed": ("a,0,,8,,,,\n", "trace.csv:3 duration_s", ""),
    "no id": (",0,10,8,,,,\n", "trace.csv:3 job_id", ""),
    "an id that was there before": ("x,0,10,8,,,,\n", "trace.csv job_id", "x"),
    "a deadline that is no time": ("a,0,10,8,,late,,\n", "trace.csv:3 deadline_s", "late"),
    "more cells than columns": ("a,0,10,8,,,,,,7\n", "trace.csv:3", ["", "7"]),
    "too few cells": ("a,0\n", "trace.csv:3 duration_s", ""),
}


@pytest.mark.parametrize(("row", "field", "value"), BAD.values(), ids=BAD)
def test_a_bad_row_gets_one_error_that_names_line_column_and_value(tmp_path, row, field, value):
    with pytest.raises(InvalidInput) as error:
        read_trace(write(tmp_path, HEAD + "x,0,10,8,,,,\n" + row))
    assert error.value.field == field
    assert error.value.value == value


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("job_id,submit_s,gpus\na,0,1\n", "lacks the column duration_s"),
        (HEAD, "has no jobs"),
        ("", "lacks the column job_id"),
    ],
    ids=["a missing column", "a file without jobs", "an empty file"],
)
def test_a_bad_file_gets_one_error(tmp_path, text, part):
    with pytest.raises(InvalidInput, match=part):
        read_trace(write(tmp_path, text))


def test_a_file_that_is_not_there_and_one_that_is_no_text_get_one_error(tmp_path):
    with pytest.raises(InvalidInput, match="no such file"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "bytes.csv.gz").write_bytes(b"\x00\xff\xfe")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_trace(tmp_path / "bytes.csv.gz")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00job")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_trace(tmp_path / "bytes.csv")


def test_an_unknown_sample_names_those_there_are():
    with pytest.raises(InvalidInput, match="itp-day, philly-half-day"):
        sample("nothing")


def test_a_model_with_measured_speeds_makes_a_job_elastic(tmp_path):
    rates = "model,batch_size,gpus,iterations_per_s\nbert,64,8,4\nbert,64,1,1\n"
    speeds = read_throughputs(write(tmp_path, rates, "speeds.csv"))
    (job,) = read_trace(write(tmp_path, HEAD + GOOD), throughputs=speeds).jobs
    assert job.speed is not None
    assert job.speed.sizes == (1, 8)
    assert job.rate(1) == 0.25
    with pytest.raises(InvalidInput, match="no such model"):
        read_trace(write(tmp_path, HEAD + "a,0,1,1,,,gpt,1\n"), throughputs=speeds)
