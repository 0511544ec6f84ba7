"""What has arrived of a bookmark subscription: the extension module and its equivalent in Python agree."""

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amps._core.client import traffic as compiled
from amps.client.protocol import arrivals_python
from amps.client.protocol.arrivals_python import parse_bookmark

KINDS: Any = [compiled.Arrivals, arrivals_python.Arrivals]
BOTH = pytest.mark.parametrize("kind", KINDS, ids=["compiled", "python"])

publishers = st.sampled_from(["7", "8", "é"])
numbers = st.integers(0, 30)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), publishers, numbers, st.integers(1, 25)),
        st.tuples(st.just("discard"), st.integers(0, 60)),
        st.tuples(st.just("discard all"), st.integers(0, 60)),
        st.tuples(st.just("raise"), publishers, numbers),
        st.tuples(st.just("begin"), publishers, numbers),
        st.tuples(st.just("released")),
        st.tuples(st.just("due"), st.integers(0, 60)),
    ),
    max_size=40,
)


def apply(step: tuple[Any, ...], arrivals: Any) -> Any:
    match step:
        case ("arrive", name, first, count):
            return [arrivals.log(f"{name}|{number}|") for number in range(first, first + count)]
        case ("discard", ahead):
            return arrivals.discard(arrivals.oldest + ahead - 5)
        case ("discard all", up_to):
            return [arrivals.discard(seq) for seq in range(up_to)]
        case ("raise", name, number):
            return arrivals.raise_point(name, number)
        case ("begin", name, number):
            return arrivals.begin_at(name, number)
        case ("released",):
            return arrivals.released()
        case ("due", number):
            arrivals.due = number
    return None


@given(steps)
@settings(deadline=None)
def test_both_agree_in_any_history(history: list[tuple[Any, ...]]) -> None:
    """Numbers arrive in any order, and again, as if a subscription were replaced by ones that begin earlier."""
    settled: list[list[int]] = [[], []]

    def made(kind: Any, settled: list[int]) -> Any:
        class Settling(kind):  # type: ignore[misc]
            def settle(self) -> None:
                settled.append(self.oldest)
                self.due = 2**64 - 1

        return Settling()

    both = [made(kind, calls) for kind, calls in zip(KINDS, settled, strict=True)]
    for step in history:
        results = [apply(step, arrivals) for arrivals in both]
        assert results[0] == results[1], step
        facts = [
            (a.oldest, a.last, a.kept_count, a.done_count, a.old_count, a.places(), list(a.kept())) for a in both
        ]
        assert facts[0] == facts[1], step
        for name in ("7", "8", "é", "unknown"):
            for number in range(60):
                bookmark = f"{name}|{number}|"
                known = [
                    (a.is_discarded(bookmark), a.begins_with(bookmark), a.above_points(f"{bookmark},7|9|,x"))
                    for a in both
                ]
                assert known[0] == known[1], (step, bookmark)
        points = {name: point for name, point, *_ in both[0].places()}
        assert all(number > points[name] for _, name, number, _ in both[0].kept())
    assert settled[0] == settled[1]


@BOTH
@pytest.mark.parametrize(
    ("bookmark", "key"),
    [
        ("7|1|", ("7", 1)),
        ("7|1", ("7", 1)),
        ("|0|x|y", ("", 0)),
        (f"7|{2**63 - 1}|", ("7", 2**63 - 1)),
        ("7|007|", ("7", 7)),
        (f"7|{2**63}|", None),
        (f"7|{'0' * 20}|", None),
        ("7|-1|", None),
        ("7|+1|", None),
        ("7|1_0|", None),
        ("7| 1|", None),
        ("7|١|", None),
        ("7||", None),
        ("7|", None),
        ("7", None),
        ("", None),
        ("20240101T000000Z", None),
    ],
)
def test_what_a_bookmark_names(kind: Any, bookmark: str, key: tuple[str, int] | None) -> None:
    arrivals = kind()
    assert parse_bookmark(bookmark) == key
    assert not arrivals.is_discarded(bookmark)
    assert arrivals.log(bookmark) == (key is not None)
    assert [(name, number) for _, name, number, _ in arrivals.kept()] == ([key] if key else [])
    assert arrivals.is_discarded(bookmark) == (key is not None)


@BOTH
def test_a_long_history_of_messages_that_leave(kind: Any) -> None:
    """The arrays are compacted and released on the way."""
    arrivals = kind()
    for begin in range(0, 20_000, 2_000):
        seqs = [arrivals.log(f"{at % 3}|{at}|") for at in range(begin, begin + 2_000)]
        assert seqs == list(range(begin + 1, begin + 2_001))
        for seq in [*seqs[1::2], *seqs[:-100:2]]:
            assert arrivals.discard(seq)
        left = [seq for seq, _, _, done in arrivals.kept() if not done]
        assert left == seqs[-100::2]
        for seq in left[:-1]:
            assert arrivals.discard(seq)
        assert arrivals.kept_count == 2
        arrivals.discard(left[-1])
        assert (arrivals.kept_count, arrivals.oldest) == (0, begin + 2_001)
    assert [(name, point) for name, point, *_ in arrivals.places()] == [("0", 19_998), ("1", 19_999), ("2", 19_997)]


@BOTH
def test_late_messages_are_found_after_others_have_left(kind: Any) -> None:
    """The arrays are compacted while they hold two ascending runs."""
    arrivals = kind()
    seqs = {number: arrivals.log(f"7|{number}|") for number in range(1_000, 101_000, 1_000)}
    for number in range(1_000, 91_000, 1_000):
        assert arrivals.discard(seqs.pop(number))
    for number in (*range(90_001, 90_100), *range(101_000, 201_000, 1_000)):
        seqs[number] = arrivals.log(f"7|{number}|")
        assert all(arrivals.log(f"7|{one}|") == seq for one, seq in seqs.items())
    assert arrivals.places() == [("7", 90_000, -1, 90_001, 200_000)]
    for number, seq in sorted(seqs.items(), key=lambda item: item[1]):
        assert arrivals.discard(seq)
        assert arrivals.is_discarded(f"7|{number}|")
    assert arrivals.places() == [("7", 200_000, -1, -1, -1)]


def test_a_message_kept_needs_little_memory() -> None:
    """At most 50 bytes, with what the arrays grow by."""
    arrivals = compiled.Arrivals()
    tracemalloc.start()
    try:
        for at in range(20_000):
            arrivals.log(f"7|{at}|")
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used < 50 * 20_000


@BOTH
def test_only_an_empty_state_continues_from_a_number(kind: Any) -> None:
    arrivals = kind()
    arrivals.continue_from(41)
    assert arrivals.log("7|1|") == 42
    with pytest.raises(ValueError, match="kept"):
        arrivals.continue_from(50)
