"""Handles cut out of runs are the same as those that the pattern alone finds."""

import re

from hypothesis import given
from hypothesis import strategies as st

from perf.scanning import SHORT_RUNS, MessageScanner

END = b"\x01!"
PATTERN = re.compile(rb"id=([^;]+);.{6}", re.DOTALL)


class CountingPattern:
    """A pattern that counts its searches."""

    def __init__(self) -> None:
        self.searches = 0

    def search(self, data: memoryview, at: int) -> re.Match[bytes] | None:
        self.searches += 1
        return PATTERN.search(data, at)

    def findall(self, data: memoryview, at: int) -> list[bytes]:
        self.searches += 1
        return PATTERN.findall(data, at)


def message(handle: bytes, before: bytes = b"<", payload: bytes = b"1234") -> bytes:
    return before + b"id=" + handle + b";" + payload + END


def scanned(data: bytes) -> tuple[list[bytes], bytes]:
    """The handles, and the rest of the data."""
    handles, end = MessageScanner(PATTERN, END).scan(memoryview(data))
    return handles, data[end:]


def test_a_run_is_cut_without_searching_for_each_handle() -> None:
    counting = CountingPattern()
    data = b"".join(message(b"%03d" % number) for number in range(100))
    handles, end = MessageScanner(counting, END).scan(memoryview(data + message(b"100")[:-1]))  # type: ignore[arg-type]
    assert handles == [b"%03d" % number for number in range(100)]
    assert end == len(data)
    assert counting.searches == 2


def test_longer_handles_start_another_run() -> None:
    numbers = [b"%d" % number for number in range(1, 1200)]
    assert scanned(b"".join(map(message, numbers))) == (numbers, b"")


def test_text_between_messages_is_skipped() -> None:
    data = message(b"1") + b"answer;" + message(b"2") + message(b"3") + b"answer" + message(b"4")
    assert scanned(data) == ([b"1", b"2", b"3", b"4"], b"")


def test_a_payload_that_looks_like_a_handle_is_not_taken() -> None:
    data = message(b"1", payload=b"id=7") + message(b"2", payload=b"id=8")
    assert scanned(data) == ([b"1", b"2"], b"")


def test_messages_of_equal_length_with_another_layout_start_another_run() -> None:
    """The longer handle is balanced by a shorter text before it."""
    data = message(b"11", b"<<") + message(b"222", b"<") + message(b"33", b"<<")
    assert scanned(data) == ([b"11", b"222", b"33"], b"")


def test_where_runs_are_short_the_pattern_finds_everything_at_once() -> None:
    counting = CountingPattern()
    handles = [b"1" * (1 + number % 2) for number in range(100)]
    data = b"".join(map(message, handles))
    assert MessageScanner(counting, END).scan(memoryview(data + b"<id=")) == (handles, len(data))  # type: ignore[arg-type]
    assert counting.searches == SHORT_RUNS + 1


def test_without_a_message_nothing_is_found() -> None:
    assert scanned(b"") == ([], b"")
    assert scanned(b"<id=1;123") == ([], b"<id=1;123")


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"1", b"22", b"333"]),
            st.sampled_from([b"", b"<", b"<<"]),
            st.binary(min_size=4, max_size=4).filter(lambda payload: END[0] not in payload),
        ),
        max_size=40,
    ),
    st.integers(0, 12),
)
def test_runs_and_pattern_find_the_same(parts: list[tuple[bytes, bytes, bytes]], cut: int) -> None:
    data = b"".join(message(*part) for part in parts)
    data = data[: max(0, len(data) - cut)]
    handles, end = MessageScanner(PATTERN, END).scan(memoryview(data))
    assert handles == PATTERN.findall(data)
    assert end == (data.rindex(END) + len(END) if handles else 0)
