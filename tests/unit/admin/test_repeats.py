"""Log records of repeated events: the first one is logged, further ones are counted."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from amps.server.repeats import INTERVAL_S_MAX, INTERVAL_S_MIN, KINDS_MAX, Repeats, peer_of
from tests.support.admin import AdminFixture

StartAdmin = Callable[..., AdminFixture]

DAY_S = 24 * 3600


class Watched:
    """A Repeats object with its own clock, and its records: (seconds, count or 0 for a first one, path)."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.said: list[tuple[float, int, str]] = []

        def first(values: dict[str, Any]) -> None:
            self.said.append((self.now_s, 0, values["path"]))

        def more(count: int, seconds: float, values: dict[str, Any]) -> None:
            assert seconds > 0
            self.said.append((self.now_s, count, values["path"]))

        self.repeats: Repeats[str] = Repeats(first, more, lambda: self.now_s)

    def wait(self, seconds: float) -> None:
        """Let time pass, and call look_around in steps."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s = min(until_s, self.now_s + INTERVAL_S_MIN)
            self.repeats.look_around()


def test_the_first_is_logged_and_the_others_are_counted() -> None:
    watched = Watched()
    for second in range(DAY_S):
        watched.now_s = float(second)
        watched.repeats.happened("a", path=str(second))
    times = [said[0] for said in watched.said]
    intervals = [later - earlier for earlier, later in pairwise(times)]
    assert watched.said[0] == (0.0, 0, "0")
    assert intervals[:4] == [10.0, 20.0, 40.0, 80.0]
    assert intervals == sorted(intervals)
    assert intervals[-1] == INTERVAL_S_MAX
    assert len(watched.said) < 40
    watched.repeats.end()
    assert 1 + sum(count for _, count, _ in watched.said) == DAY_S
    assert watched.said[-1][2] == str(DAY_S - 1), "what was last"


def test_a_count_is_logged_when_the_event_stops() -> None:
    watched = Watched()
    for path in "xyz":
        watched.repeats.happened("a", path=path)
    watched.wait(INTERVAL_S_MIN)
    assert watched.said == [(0.0, 0, "x"), (INTERVAL_S_MIN, 2, "z")]
    watched.wait(DAY_S)
    assert len(watched.said) == 2
    watched.repeats.happened("a", path="again")
    assert watched.said[2:] == [(watched.now_s, 0, "again")], "a new day"


def test_kinds_are_counted_separately_up_to_a_bound() -> None:
    watched = Watched()
    for round_number in range(3):
        for number in range(KINDS_MAX + 1000):
            watched.repeats.happened(str(number), path=f"{round_number}.{number}")
    assert len(watched.repeats._kinds) == KINDS_MAX + 1
    assert len(watched.said) == KINDS_MAX + 1
    watched.wait(INTERVAL_S_MIN)
    assert len(watched.said) == 2 * (KINDS_MAX + 1)
    assert watched.said[-1][1] == 3 * 1000 - 1
    watched.wait(2 * INTERVAL_S_MAX)
    assert not watched.repeats._kinds


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        ("127.0.0.1:80", "127.0.0.1"),
        ("[2001:db8:1:2:3:4:5:6]:80", "2001:db8:1:2::/64"),
        ("[fe80::1%eth0]:80", "fe80::/64"),
        ("unknown", ""),
    ],
)
def test_peers_by_address(address: str, peer: str) -> None:
    assert peer_of(address) == peer


def test_a_poller_that_is_refused(start_admin: StartAdmin) -> None:
    """One record and one count, for any number of paths, and separate from refusals with another status."""
    admin = start_admin()
    for number in range(30):
        assert admin.get(f"/amps/none{number}").status == 404
        assert admin.get("/amps", method="PUT").status == 405
    (missing, method) = admin.log.texts("19-0002")
    assert "/amps/none0 requested by 127.0.0.1" in missing
    assert "405" in method
    admin.close()
    (more, _) = admin.log.texts("19-0005")
    assert "29 more" in more
    assert "/amps/none29" in more
    assert "404 there is no such resource" in more
