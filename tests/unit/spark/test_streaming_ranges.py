"""Ranges as text, and cutting a counted run of messages: every message is in exactly one range."""

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from hypothesis import given
from hypothesis import strategies as st

from amps.spark.streaming_ranges import MARKS_MAX, Cutter, LogRange


@pytest.mark.parametrize("text", ["[1|2|:3|4|]", "(1|2|:3|4|]", "(0:0|1|]", "(20260101T000000.5Z:1|2|]"])
def test_a_range_is_valid_in_a_subscription(text: str) -> None:
    """transaction_log.md §5.3."""
    assert str(LogRange.parse(text)) == text


@pytest.mark.parametrize("text", ["", "1|2|", "[1|2|:3|4|)", "[1|2|]", "(:1|2|]", "(1|2|:]", "x1|2|:3|4|]"])
def test_other_text_is_no_range(text: str) -> None:
    with pytest.raises(ValueError, match="is no range of a log"):
        LogRange.parse(text)


@given(count=st.integers(0, 3 * MARKS_MAX), parts_max=st.integers(1, 40))
def test_cuts_contain_each_message_once(count: int, parts_max: int) -> None:
    cutter = Cutter()
    for number in range(1, count + 1):
        cutter.add(f"7|{number}|")
    ranges = cutter.ranges(parts_max)
    assert cutter.count == count
    assert len(ranges) == min(count, parts_max)
    if not ranges:
        return
    ends = [int(found.end.split("|")[1]) for found in ranges]
    assert [(found.begin, found.inclusive) for found in ranges] == [
        ("7|1|", True),
        *((f"7|{end}|", False) for end in ends[:-1]),
    ]
    assert ends[-1] == count
    sizes = [end - before for before, end in zip([0, *ends], ends, strict=False)]
    assert min(sizes) > 0
    assert max(sizes) - min(sizes) <= 1 + 2 * (count // (MARKS_MAX // 2))


def test_the_memory_of_ranges_is_bounded() -> None:
    cutter = Cutter()
    for number in range(20 * MARKS_MAX):
        cutter.add(f"7|{number}|")
    assert len(cutter._marks) < MARKS_MAX
