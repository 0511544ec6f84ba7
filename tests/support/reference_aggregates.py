"""The results of aggregates, computed in the simplest way: over a list of all values, with fractions.

A value is None, bool, int, float or bytes, with the text that it has as a string (expressions.md §10.12).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from tests.support.reference_values import number_from_text

Result = None | bool | int | float | bytes
Key = tuple[int, Fraction | float | bytes]


@dataclass(frozen=True)
class Sample:
    value: Result
    text: bytes

    @property
    def is_nan(self) -> bool:
        return isinstance(self.value, float) and math.isnan(self.value)

    @property
    def number(self) -> int | float | None:
        """The number; None if it is text that is no number."""
        return number_from_text(self.value) if isinstance(self.value, bytes) else self.value

    @property
    def key(self) -> Key:
        """The key by which values are equal, in the order of MIN and MAX."""
        number = self.number
        if number is None:
            assert isinstance(self.value, bytes)
            return 1, self.value
        return 0, Fraction(number) if math.isfinite(number) else number

    @property
    def spelling(self) -> tuple[int, bytes]:
        """The order of values with equal keys: integers, doubles, booleans, strings."""
        kinds = (int, float, bool, bytes)
        return kinds.index(type(self.value)), self.text  # type: ignore[arg-type]


def aggregate(function: str, samples: Sequence[Sample], delimiter: bytes = b",") -> Result:
    """The value of an aggregate; the samples are those of all messages of the group."""
    there = [sample for sample in samples if sample.value is not None]
    ordered = sorted((s for s in there if not s.is_nan), key=lambda sample: (sample.key, sample.spelling))
    chosen: list[Sample] = []
    for sample in ordered:
        if not chosen or chosen[-1].key != sample.key:
            chosen.append(sample)
    chosen += [sample for sample in there if sample.is_nan][:1]
    if function == "COUNT":
        return len(there)
    if function == "COUNT_DISTINCT":
        return len(chosen)
    if not there:
        return None
    if function == "GROUP_CONCAT":
        return delimiter.join(sample.text for sample in chosen)
    if function in ("MIN", "ANY"):
        return chosen[0].value
    if function == "MAX":
        return ([sample for sample in chosen if not sample.is_nan] or chosen)[-1].value
    if function == "UNIQUE":
        return chosen[0].value if len(chosen) == 1 else None
    if function == "STDDEV_SAMP" and len(there) == 1:
        return None
    return _of_numbers(function, there)


def _of_numbers(function: str, there: Sequence[Sample]) -> Result:
    numbers = [sample.number for sample in there]
    terms = [Fraction(number) for number in numbers if number is not None and math.isfinite(number)]
    if len(terms) < len(there):
        return math.nan
    total = sum(terms, Fraction(0))
    if function == "SUM":
        whole = all(isinstance(sample.value, int) for sample in there)
        return int(total) if whole and -(2**63) <= total < 2**64 else _double(total)
    if function == "AVG":
        return _double(total / len(terms))
    mean = total / len(terms)
    fewer = 1 if function == "STDDEV_SAMP" else 0
    return _root(sum(((term - mean) ** 2 for term in terms), Fraction(0)) / (len(terms) - fewer))


def _double(number: Fraction) -> float:
    try:
        return number.numerator / number.denominator
    except OverflowError:
        return math.nan


def _root(square: Fraction) -> float:
    """The double nearest to a root. Of two neighbours it is the one on whose side of their middle the root lies."""
    if square == 0:
        return 0.0
    scale = 4**1200  # more digits than the smallest double has
    below = Fraction(math.isqrt(square.numerator * scale // square.denominator), 2**1200)
    guess = _double(below)
    if math.isnan(guess):
        return guess
    best = guess
    for neighbour in (math.nextafter(guess, 0), math.nextafter(guess, math.inf)):
        if math.isfinite(neighbour):
            middle = (Fraction(neighbour) + Fraction(guess)) / 2
            if square != middle**2 and (neighbour > guess) == (square > middle**2):
                best = neighbour
    return best
