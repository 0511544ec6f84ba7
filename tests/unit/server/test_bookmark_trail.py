"""The places of a bookmark subscription: the newest one that all sync destinations have reached is told."""

from hypothesis import given
from hypothesis import strategies as st

from amps.server.transport.bookmark_trail import PLACES_MAX, BookmarkTrail


def test_replication_26_9_a_stopped_destination_stops_the_bookmark() -> None:
    """replication.md §26 behaviour 9."""
    trail = BookmarkTrail()
    trail.note(100, (7, 1))
    assert trail.take(100) == (7, 1)
    trail.note(200, (7, 2))
    assert trail.take(150) is None
    trail.note(300, (7, 3))
    assert trail.take(150) is None
    assert trail.take(250) == (7, 2)
    assert trail.take(300) == (7, 3)
    assert trail.take(300) is None


def test_a_place_that_was_left_backwards_is_not_told() -> None:
    trail = BookmarkTrail()
    trail.note(300, (7, 3))
    trail.note(200, (7, 2))
    assert trail.take(400) == (7, 2)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 1000)), max_size=100))
def test_what_is_told_was_reached_and_rises(steps: list[tuple[int, int]]) -> None:
    trail = BookmarkTrail()
    position = reached = told = 0
    for forward, limit in steps:
        position += forward
        reached = max(reached, min(limit, position))
        trail.note(position, (1, position))
        bookmark = trail.take(reached)
        if bookmark is not None:
            assert told < bookmark[1] <= reached
            told = bookmark[1]
    assert trail.take(position) in (None, (1, position))


def test_the_places_are_bounded_and_the_newest_is_kept() -> None:
    trail = BookmarkTrail()
    for position in range(1, 1000):
        trail.note(position, (1, position))
    assert len(trail._places) <= PLACES_MAX
    assert trail.take(999) == (1, 999)
