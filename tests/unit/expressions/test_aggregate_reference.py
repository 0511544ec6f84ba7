"""Aggregates against the plain reference (expressions.md §10.12).

Messages of every type are added and removed. The result is always that of the remaining values.
"""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amps._core.values.fields import FieldSet, FieldValues
from amps.expressions import compile_expression
from tests.support.aggregates import AGGREGATES, TYPES, Grouped
from tests.support.reference_aggregates import Result, Sample, aggregate

PATHS = {"fix": "/1", "xml": "/r/v"}
NAMES = ("json", "fix", "nvfix", "xml", "msgpack", "bson", "bflat")

SPELLINGS = ("1", "1.0", "01", "+1", "1e0", "1.50", "1.5", "2", "9", "10", "-0", "-0.0", "0.0", "1e400")
LARGE = ("9223372036854775808", "18446744073709551615", "18446744073709551616")
TEXTS = st.sampled_from(("", "a", "b", "B", "a,b", "ä", "nan", *SPELLINGS, *LARGE)).map(str.encode)
INTEGERS = st.integers(-(2**63), 2**64 - 1) | st.integers(-3, 3)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [0.0, -0.0, 0.1, 0.5, 1.0, 5e-324, 1e308]
)
VALUES = st.none() | st.booleans() | INTEGERS | DOUBLES | TEXTS
NUMBERS = INTEGERS | DOUBLES
# A value to add, and the number of a value to remove then.
STEPS = st.tuples(VALUES, st.none() | st.integers(0, 50))
NUMBER_STEPS = st.tuples(NUMBERS, st.none() | st.integers(0, 50))


def is_same(left: Result, right: Result) -> bool:
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return type(left) is type(right) and repr(left) == repr(right)


class Compared:
    """A group, and the samples of the messages in it."""

    def __init__(self, name: str) -> None:
        path = PATHS.get(name, "/v")
        self.argument = f"IF({path} = 'nan', NAN_VALUE(), {path})"
        self.type = TYPES[name]
        self.builder = self.type.builder([tuple(step.encode() for step in path[1:].split("/"))])
        self.extractor = self.type.extractor()
        self.grouped = Grouped(
            *(
                f"{function}({self.argument}) AS {self.destination(name, at)}"
                for at, function in enumerate(AGGREGATES)
            ),
            message_type=name,
        )
        self.there: list[tuple[bytes, Sample]] = []

    @staticmethod
    def destination(name: str, at: int) -> str:
        return f"/{at + 1}" if name == "fix" else f"/r/f{at}"

    def sample(self, message: bytes) -> Sample:
        fields = FieldSet()
        programs = []
        for text in (self.argument, f"CONCAT({self.argument})"):
            expression = compile_expression(text)
            assert expression.program is not None
            programs.append(expression.program.bind(fields))
        values = FieldValues()
        assert self.extractor.read(message, fields, values)
        value, text = (program.evaluate(values) for program in programs)
        assert text is None or isinstance(text, bytes)
        return Sample(value, text or b"")

    def add(self, value: Result) -> None:
        message = self.builder.build([value])
        self.grouped.add(message)
        self.there.append((message, self.sample(message)))

    def remove(self, at: int) -> None:
        message, _ = self.there.pop(at % len(self.there))
        self.grouped.remove(message)

    def check(self) -> None:
        samples = [sample for _, sample in self.there]
        expected = [aggregate(function, samples) for function in AGGREGATES]
        for function, found, wanted in zip(AGGREGATES, self.grouped.values(), expected, strict=True):
            assert is_same(found, wanted), (function, samples)


def follow(name: str, steps: list[tuple[Result, int | None]]) -> None:
    compared = Compared(name)
    for value, gone in steps:
        compared.add(value)
        if gone is not None:
            compared.remove(gone)
        compared.check()
    while compared.there:
        compared.remove(len(steps))
        compared.check()
    assert compared.grouped.group.records == 0


@pytest.mark.parametrize("name", NAMES)
@given(steps=st.lists(STEPS, max_size=12))
@settings(max_examples=30, deadline=None)
def test_values_of_all_kinds(name: str, steps: list[tuple[Result, int | None]]) -> None:
    if name in ("bson", "bflat"):  # these types have no integers above the largest signed one
        steps = [
            (value / 2 if isinstance(value, int) and value >= 2**63 else value, gone) for value, gone in steps
        ]
    follow(name, steps)


@given(steps=st.lists(NUMBER_STEPS, max_size=25))
@settings(max_examples=60, deadline=None)
def test_numbers(steps: list[tuple[Result, int | None]]) -> None:
    follow("json", steps)
    follow("msgpack", steps)


@given(integers=st.lists(INTEGERS, min_size=1, max_size=8), doubles=st.lists(DOUBLES, max_size=8))
@settings(max_examples=60, deadline=None)
def test_removed_values_leave_no_trace(integers: list[int], doubles: list[float]) -> None:
    """Doubles that are added and removed leave integers exact, and so do all other values."""
    compared = Compared("msgpack")
    for integer in integers:
        compared.add(integer)
    before = compared.grouped.values()
    for double in doubles:
        compared.add(double)
    compared.check()
    for _ in doubles:
        compared.remove(len(integers))
    assert all(map(is_same, compared.grouped.values(), before))


@given(values=st.lists(VALUES, max_size=8), order=st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_order_of_messages_makes_no_difference(values: list[Result], order: object) -> None:
    forwards, shuffled = Compared("json"), Compared("json")
    for value in values:
        forwards.add(value)
    order.shuffle(values)  # type: ignore[attr-defined]
    for value in values:
        shuffled.add(value)
    assert all(map(is_same, forwards.grouped.values(), shuffled.grouped.values()))
