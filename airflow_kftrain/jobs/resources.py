"""Kubernetes quantities and vectors of them, exact.

The grammar is that of ``k8s.io/apimachinery/pkg/api/resource``: a signed decimal number and a suffix, which is
binary (``Ki`` … ``Ei``), decimal (``n u m`` none ``k M G T P E``) or a decimal exponent (``e3``, ``E-2``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from airflow_kftrain.exceptions import InvalidInput

_BINARY = {f"{prefix}i": Fraction(1024) ** power for power, prefix in enumerate("KMGTPE", start=1)}
_DECIMAL = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{prefix: Fraction(1000) ** power for power, prefix in enumerate("kMGTPE", start=1)},
}
_UNITS = {**_BINARY, **_DECIMAL}
_GRAMMAR = re.compile(
    r"(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+))"
    r"(?:(?P<unit>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?\d{1,3}))?",
    re.ASCII,
)
# Far more than any quantity has; it bounds the work that a text from outside can cause.
_LONGEST = 100
# The API server rounds up to nano and caps at 2^63-1 of the unit it keeps.
_LARGEST = Fraction(2**63 - 1)
_NANO = 10**9

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "habana.ai/gaudi")


def parse_quantity(value: str | int | float | Fraction, *, field: str = "quantity") -> Fraction:
    """The exact value of a Kubernetes quantity, not negative.

    :param value: ``"500m"``, ``"1.5Gi"``, ``"1e3"``, ``2`` …; a float counts as its shortest decimal form
    :param field: what an error names
    :raises InvalidInput: the value is not in the grammar, negative, or beyond 2^63-1
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float | Fraction):
        raise InvalidInput(field, value, "give a Kubernetes quantity such as 2, '500m' or '1.5Gi'")
    if isinstance(value, int | Fraction):
        return _checked(Fraction(value), value, field)
    number = _parse(str(value))
    if number is None:
        raise InvalidInput(field, value, _remedy(str(value)))
    return _checked(number, value, field)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Fraction | None:
    match = _GRAMMAR.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        return None
    number = Fraction(match["number"])
    if match["exponent"] is not None:
        return number * Fraction(10) ** int(match["exponent"])
    return number * _UNITS[match["unit"] or ""]


def _remedy(text: str) -> str:
    if not text.strip():
        return "it is empty; give a Kubernetes quantity such as 2, '500m' or '1.5Gi'"
    if re.search(r"\s", text):
        return "a quantity has no white space; write '1Gi', not '1 Gi'"
    if re.search(r"\d(K|KB|kB)$", text):
        return "the suffix for a thousand is 'k', for 1024 it is 'Ki'"
    if re.search(r"[KMGTPE]i?B$", text):
        return "the suffix has no 'B'; write 'Gi' or 'G'"
    return "give a number with a suffix (n u m k M G T P E Ki Mi Gi Ti Pi Ei) or an exponent such as 1e3"


def _checked(number: Fraction, value: object, field: str) -> Fraction:
    if number < 0:
        raise InvalidInput(field, value, "a quantity cannot be negative here")
    if number > _LARGEST:
        raise InvalidInput(field, value, "it is larger than 2^63-1, the largest that Kubernetes keeps")
    return Fraction(-(-number * _NANO // 1), _NANO)


def format_quantity(value: Fraction | int, *, binary: bool = False) -> str:
    """The shortest canonical text of ``value``; :func:`parse_quantity` gives the value back.

    :param binary: prefer ``Ki`` … ``Ei`` (for memory) where the value is a whole number of them
    """
    value = Fraction(value)
    units = [*(_BINARY.items() if binary else ()), *((u, s) for u, s in _DECIMAL.items() if s >= 1)]
    if value.denominator == 1:
        whole = [(size, unit) for unit, size in units if value and (value / size).denominator == 1]
        size, unit = max(whole, default=(Fraction(1), ""))
        return f"{value / size}{unit}"
    for unit in ("m", "u", "n"):
        scaled = value / _DECIMAL[unit]
        if scaled.denominator == 1:
            return f"{scaled}{unit}"
    return f"{-(-value * _NANO // 1)}n"


def is_whole_unit(name: str) -> bool:
    """Whether only whole units can be had: extended resources (``nvidia.com/gpu``), hugepages, pods."""
    return (
        ("/" in name and not name.startswith("kubernetes.io/"))
        or name.startswith("hugepages-")
        or name == "pods"
    )


class Resources(Mapping[str, Fraction]):
    """An immutable vector of resource amounts by name; a missing name is zero.

    Arithmetic is exact. Zero entries are dropped, so vectors that mean the same are equal and hash alike.
    """

    __slots__ = ("_amounts", "_hash")

    def __init__(
        self, amounts: Mapping[str, str | int | float | Fraction] | None = None, *, field: str = "resources"
    ) -> None:
        parsed = {name: self._amount(name, value, field) for name, value in (amounts or {}).items()}
        self._amounts: dict[str, Fraction] = {name: parsed[name] for name in sorted(parsed) if parsed[name]}
        self._hash: int | None = None

    @staticmethod
    def _amount(name: str, value: str | int | float | Fraction, field: str) -> Fraction:
        where = f"{field}.{name}"
        amount = parse_quantity(value, field=where)
        if is_whole_unit(name) and amount.denominator != 1:
            raise InvalidInput(where, value, f"{name} can only be had in whole units; give an integer")
        return amount

    @classmethod
    def _of(cls, amounts: Mapping[str, Fraction]) -> Resources:
        made = cls.__new__(cls)
        made._amounts = {name: amounts[name] for name in sorted(amounts) if amounts[name]}
        made._hash = None
        return made

    def __getitem__(self, name: str) -> Fraction:
        return self._amounts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    def amount(self, name: str) -> Fraction:
        """The amount of ``name``, zero when it is not there."""
        return self._amounts.get(name, Fraction(0))

    def __add__(self, other: Resources) -> Resources:
        return Resources._of({n: self.amount(n) + other.amount(n) for n in {*self, *other}})

    def __sub__(self, other: Resources) -> Resources:
        """The difference; entries may be negative (what is over-used)."""
        return Resources._of({n: self.amount(n) - other.amount(n) for n in {*self, *other}})

    def __mul__(self, factor: int | Fraction) -> Resources:
        return Resources._of({n: v * factor for n, v in self._amounts.items()})

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        return self._amounts == other._amounts if isinstance(other, Resources) else NotImplemented

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple(self._amounts.items()))
        return self._hash

    def fits(self, capacity: Resources) -> bool:
        """Whether every amount is at most that of ``capacity``."""
        return all(value <= capacity.amount(name) for name, value in self._amounts.items())

    def lacking(self, capacity: Resources) -> Resources:
        """What ``capacity`` is short of, per name; empty when this fits."""
        return Resources._of(
            {n: v - capacity.amount(n) for n, v in self._amounts.items() if v > capacity.amount(n)}
        )

    def largest(self, other: Resources) -> Resources:
        """The larger amount of both, per name."""
        return Resources._of({n: max(self.amount(n), other.amount(n)) for n in {*self, *other}})

    @property
    def gpus(self) -> int:
        """Whole GPUs of any vendor, MIG slices (``nvidia.com/mig-…``) counted one each."""
        return int(
            sum(v for n, v in self._amounts.items() if n in GPU_RESOURCES or n.startswith("nvidia.com/mig-"))
        )

    def to_dict(self) -> dict[str, str]:
        """As Kubernetes writes it: name to quantity text."""
        return {
            n: format_quantity(v, binary=n in ("memory", "ephemeral-storage"))
            for n, v in self._amounts.items()
        }

    def __repr__(self) -> str:
        if all(value >= 0 for value in self.values()):
            return f"Resources({self.to_dict()!r})"
        return f"Resources<{', '.join(f'{name}={value}' for name, value in self.items())}>"

    @staticmethod
    def total(vectors: Iterable[Resources]) -> Resources:
        """The sum of any number of vectors; empty for none."""
        amounts: dict[str, Any] = {}
        for vector in vectors:
            for name, value in vector._amounts.items():
                amounts[name] = amounts.get(name, Fraction(0)) + value
        return Resources._of(amounts)
