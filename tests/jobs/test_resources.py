from __future__ import annotations

import pickle
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs.resources import Resources, format_quantity, parse_quantity

LEGAL = {
    "500m": Fraction(1, 2),
    "1.5": Fraction(3, 2),
    "2": Fraction(2),
    2: Fraction(2),
    0: Fraction(0),
    0.1: Fraction(1, 10),
    "1e3": Fraction(1000),
    "1E3": Fraction(1000),
    "1E": Fraction(10**18),
    "1E-2": Fraction(1, 100),
    "0.1": Fraction(1, 10),
    ".5": Fraction(1, 2),
    "5.": Fraction(5),
    "+1": Fraction(1),
    "2Gi": Fraction(2 * 1024**3),
    "1.5Gi": Fraction(3 * 512 * 1024**2),
    "1Ei": Fraction(1024**6),
    "125e6": Fraction(125_000_000),
    "128000000000m": Fraction(128_000_000),
    "100k": Fraction(100_000),
    "1u": Fraction(1, 10**6),
    "1n": Fraction(1, 10**9),
    "0.1n": Fraction(1, 10**9),
    "0Gi": Fraction(0),
}


@pytest.mark.parametrize(("text", "value"), LEGAL.items(), ids=map(str, LEGAL))
def test_b21_every_legal_quantity_is_exact(text, value):
    assert parse_quantity(text) == value


ILLEGAL = {
    "1 Gi": "no white space",
    " 1": "no white space",
    "1\n": "no white space",
    "10K": "'k'",
    "10KB": "'k'",
    "1GiB": "no 'B'",
    "1GB": "no 'B'",
    "-1": "negative",
    "-1m": "negative",
    "": "empty",
    "  ": "empty",
    "1e": "exponent",
    "1ee3": "exponent",
    "1e3Gi": "suffix",
    "0x10": "suffix",
    "1_000": "suffix",
    "1,5": "suffix",
    "१": "suffix",
    "NaN": "suffix",
    "inf": "suffix",
    "1e400": "2^63-1",
    "10E": "2^63-1",
    True: "Kubernetes quantity",
    None: "Kubernetes quantity",
}


@pytest.mark.parametrize(("value", "remedy"), ILLEGAL.items(), ids=map(repr, ILLEGAL))
def test_b21_every_illegal_quantity_is_one_clear_error(value, remedy):
    with pytest.raises(InvalidInput, match=r"^cpu: ") as caught:
        parse_quantity(value, field="cpu")
    assert remedy in caught.value.remedy
    assert caught.value.value is value or caught.value.value == value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300, 10**400, "9" * 5000, "1e300", 2**63])
def test_b21_numbers_beyond_all_bounds_are_the_same_error(value):
    with pytest.raises(InvalidInput) as caught:
        parse_quantity(value, field="memory")
    assert caught.value.field == "memory"


@pytest.mark.parametrize(
    "name", ["nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.5gb", "hugepages-2Mi", "pods"]
)
@pytest.mark.parametrize("amount", ["0.5", "500m", "1n"])
def test_b21_what_cannot_be_shared_is_had_in_whole_units(name, amount):
    with pytest.raises(InvalidInput, match="whole units"):
        Resources({name: amount})
    assert Resources({name: "1e0"}).amount(name) == 1


nonnegative = st.fractions(min_value=0, max_value=10**15, max_denominator=10**9).map(
    lambda value: Fraction(round(value * 10**9), 10**9)
)


@given(nonnegative, st.booleans())
def test_b21_a_written_quantity_is_read_back_exactly(value, binary):
    assert parse_quantity(format_quantity(value, binary=binary)) == value


@settings(deadline=None)  # the first example pays the import
@given(
    st.decimals(min_value=0, max_value=10**6, places=3, allow_nan=False),
    st.sampled_from(["", "m", "k", "Ki", "M", "Mi", "G", "Gi", "e3", "E-1"]),
)
def test_b21_our_reading_agrees_with_the_kubernetes_clients(number, suffix):
    from kubernetes.utils.quantity import parse_quantity as theirs

    text = f"{number:f}{suffix}"
    assert abs(parse_quantity(text) - Fraction(theirs(text))) < Fraction(1, 10**9)


@pytest.mark.parametrize(
    ("value", "binary", "text"),
    [
        (Fraction(1, 2), False, "500m"),
        (Fraction(3, 2), False, "1500m"),
        (1000, False, "1k"),
        (1024, True, "1Ki"),
        (1024, False, "1024"),
        (3 * 512 * 1024**2, True, "1536Mi"),
        (0, True, "0"),
        (Fraction(1, 10**9), False, "1n"),
    ],
)
def test_quantities_are_written_canonically(value, binary, text):
    assert format_quantity(value, binary=binary) == text


amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"]), st.integers(0, 100)
)
vectors = st.builds(Resources, amounts)


@given(vectors, vectors, vectors)
def test_vectors_add_up(a, b, c):
    assert (a + b) + c == a + (b + c) == Resources.total([c, b, a])
    assert a + b - b == a
    assert a * 3 == a + a + a == 3 * a
    assert hash(a + b) == hash(b + a)


@given(vectors, vectors)
def test_fitting_and_lacking_are_two_sides_of_one_thing(a, b):
    lacking = a.lacking(b)
    assert a.fits(b) == (not lacking)
    assert a.fits(b + lacking)
    assert a.fits(a.largest(b))
    assert a.largest(b) == b.largest(a)


def test_an_absent_amount_is_zero_and_zero_is_absent():
    assert Resources({"cpu": 0}) == Resources() == Resources({"cpu": "0m"})
    assert Resources().amount("cpu") == 0
    assert "cpu" not in Resources({"cpu": 0})
    assert not Resources()


def test_overuse_can_be_shown_though_it_is_no_quantity():
    over = Resources({"cpu": 1}) - Resources({"cpu": 3, "memory": "1Gi"})
    assert over.amount("cpu") == -2
    assert repr(over) == "Resources<cpu=-2, memory=-1073741824>"


def test_volcano2181_mig_slices_and_all_vendors_are_gpus():
    vector = Resources({"nvidia.com/gpu": 2, "nvidia.com/mig-1g.5gb": 3, "amd.com/gpu": 1, "cpu": 8})
    assert vector.gpus == 6
    assert Resources({"vendor.example/nic": 4}).gpus == 0


def test_a_vector_is_written_as_kubernetes_does():
    vector = Resources({"memory": "1.5Gi", "cpu": 1.5, "nvidia.com/gpu": 8})
    assert vector.to_dict() == {"cpu": "1500m", "memory": "1536Mi", "nvidia.com/gpu": "8"}
    assert Resources(vector.to_dict()) == vector
    assert repr(vector) == "Resources({'cpu': '1500m', 'memory': '1536Mi', 'nvidia.com/gpu': '8'})"


def test_a_vector_survives_copies_between_processes():
    vector = Resources({"cpu": "250m"})
    assert pickle.loads(pickle.dumps(vector)) == vector


def test_an_error_names_the_resource():
    with pytest.raises(InvalidInput, match=r"^limits\.memory: '1 Gi'"):
        Resources({"memory": "1 Gi"}, field="limits")
