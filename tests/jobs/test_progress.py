from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kftrain.jobs.progress import LONGEST_REPORT, MOST_METRICS, Progress, read_report

KNOWN = Progress(10.0, 60.0, {"loss": 0.5}, "/m", "/c")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)
fields = st.sampled_from(
    ["progressPercentage", "estimatedRemainingSeconds", "metrics", "model", "checkpoint", "else"]
)


def test_the_last_of_each_is_what_counts():
    known = Progress.from_lines(
        [
            'KFTRAIN {"progressPercentage": 10, "metrics": {"loss": 0.5, "epoch": 1}}',
            "epoch 1 done",
            'KFTRAIN {"progressPercentage": 20, "estimatedRemainingSeconds": 5, "metrics": {"loss": 0.25}}',
            'KFTRAIN {"model": "/models/a"}',
            'KFTRAIN {"model": "/models/b", "checkpoint": "/c/7", "metrics": {"auc": 0.9}}',
        ]
    )
    assert known == Progress(20.0, 5.0, {"epoch": 1, "loss": 0.25, "auc": 0.9}, "/models/b", "/c/7")
    assert str(known) == "20 %, 5 s left, epoch 1, loss 0.25, auc 0.9"


@pytest.mark.parametrize(
    "line",
    [
        "KFTRAIN",
        "KFTRAIN ",
        "KFTRAIN {",
        'KFTRAIN {"progressPercentage": 50',
        "KFTRAIN [1, 2]",
        "KFTRAIN null",
        "KFTRAIN 50",
        'kftrain {"progressPercentage": 50}',
        'KFTRAIN{"progressPercentage": 50}',
        'say KFTRAIN {"progressPercentage": 50}',
        "KFTRAIN " + "[" * 15_000,
        "KFTRAIN " + "1" * 5_000,
        'KFTRAIN {"progressPercentage": 50, "x": "' + "x" * 20_000 + '"}',
        "",
    ],
    ids=lambda line: line[:30],
)
def test_a_line_that_is_no_report_changes_nothing(line):
    assert KNOWN.after(line) is KNOWN


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ({"progressPercentage": "42.5"}, Progress(42.5, 60.0, {"loss": 0.5}, "/m", "/c")),
        ({"progressPercentage": 250}, Progress(100.0, 60.0, {"loss": 0.5}, "/m", "/c")),
        ({"progressPercentage": -1, "estimatedRemainingSeconds": 3}, Progress(10.0, 3.0, {"loss": 0.5}, "/m", "/c")),
        ({"progressPercentage": True, "model": "/n"}, Progress(10.0, 60.0, {"loss": 0.5}, "/n", "/c")),
        ({"progressPercentage": float("nan"), "checkpoint": "/d"}, Progress(10.0, 60.0, {"loss": 0.5}, "/m", "/d")),
        ({"metrics": {"loss": float("nan")}}, Progress(10.0, 60.0, {"loss": "NaN"}, "/m", "/c")),
        ({"metrics": [{"name": "auc", "value": "0.9"}, "odd"]},
         Progress(10.0, 60.0, {"loss": 0.5, "auc": "0.9"}, "/m", "/c")),
        ({"metrics": {"a": [1], "b": None, "c": True}}, Progress(10.0, 60.0, {"loss": 0.5, "c": True}, "/m", "/c")),
        ({"model": {"uri": "s3://m", "hash": "ab"}},
         Progress(10.0, 60.0, {"loss": 0.5}, {"uri": "s3://m", "hash": "ab"}, "/c")),
        ({"model": "", "checkpoint": 7}, KNOWN),
        ({"model": {"x": "y" * 2000}}, KNOWN),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_left_out_and_the_rest_counts(report, expected):
    assert KNOWN.after(f"  KFTRAIN {json.dumps(report)}  ") == expected


def test_a_number_beyond_json_stands_as_text():
    assert Progress().after('KFTRAIN {"metrics": {"loss": 1e999}}').metrics == {"loss": "1e999"}


def test_text_that_a_database_refuses_is_cleaned():
    known = Progress().after('KFTRAIN {"model": "/m\\u0000\\ud800", "metrics": {"\\u0000": "\\udfff"}}')
    assert (known.model, known.metrics) == ("/m\ufffd?", {"\ufffd": "?"})


@given(
    st.lists(
        st.dictionaries(fields, json_values, max_size=4).map(lambda r: f"KFTRAIN {json.dumps(r)}") | st.text()
    )
)
def test_no_report_raises_and_what_is_known_is_plain_json(lines):
    known = Progress.from_lines(lines)
    text = json.dumps(known.to_json(), allow_nan=False)
    assert Progress.from_json(json.loads(text)) == known
    assert "\\u0000" not in text


def test_what_is_known_is_bounded():
    known = Progress()
    for n in range(3 * MOST_METRICS):
        known = known.after("KFTRAIN " + json.dumps({"metrics": {f"m{n}": "x" * 5000}, "model": "y" * 5000}))
    assert list(known.metrics) == [f"m{n}" for n in range(2 * MOST_METRICS, 3 * MOST_METRICS)]
    assert len(json.dumps(known.to_json())) < (MOST_METRICS + 2) * 1100


@pytest.mark.parametrize(
    "line",
    ["the word KFTRAIN", 'KFTRAIN {"broken', "KFTRAIN 3", "KFTRAIN {" + " " * LONGEST_REPORT + "}"],
    ids=["another line", "broken JSON", "no mapping", "too long"],
)
def test_a_line_that_cannot_be_read_as_a_report_is_mere_output(line):
    assert read_report(line) is None
    assert read_report('  KFTRAIN {"model": "m"}\n') == {"model": "m"}
