"""Label selectors, without a server."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kftrain.local.apiserver.errors import StatusError
from airflow_kftrain.local.apiserver.selectors import label_selector

Json = dict[str, Any]


keys = st.sampled_from(["a", "b", "example.com/c"])
texts = st.sampled_from(["", "1", "2", "x.y-z"])
terms = st.one_of(
    st.tuples(keys, st.sampled_from(["=", "==", "!="]), texts),
    st.tuples(keys, st.sampled_from(["in", "notin"]), st.lists(texts, min_size=1, max_size=3)),
    st.tuples(keys, st.sampled_from(["exists", "absent"]), st.none()),
)


def written(term: tuple[str, str, Any]) -> str:
    key, operator, value = term
    match operator:
        case "in" | "notin":
            return f"{key} {operator} ({', '.join(value)})"
        case "exists":
            return key
        case "absent":
            return f"!{key}"
    return f"{key}{operator}{value}"


def meant(term: tuple[str, str, Any], labels: dict[str, str]) -> bool:
    key, operator, value = term
    return {
        "=": lambda: labels.get(key) == value,
        "==": lambda: labels.get(key) == value,
        "!=": lambda: labels.get(key) != value,
        "in": lambda: labels.get(key) in value,
        "notin": lambda: labels.get(key) not in value,
        "exists": lambda: key in labels,
        "absent": lambda: key not in labels,
    }[operator]()


@given(st.lists(terms, min_size=1, max_size=4), st.dictionaries(keys, texts))
def test_a_selector_means_all_its_terms(listed: list[Any], labels: dict[str, str]):
    assert label_selector(",".join(map(written, listed)))(labels) is all(
        meant(term, labels) for term in listed
    )


@pytest.mark.parametrize(
    "text", ["a=b=c", "a in b", "=1", "a,,b", "a=1,", "a in (b", "a~b", "UPPER.case/x/y=1", "!"]
)
def test_what_is_no_selector_is_refused(text: str):
    with pytest.raises(StatusError) as refused:
        label_selector(text)
    assert refused.value.code == 400
