"""Sets of transaction ids, and the onward tracker: what a sink acknowledges (replication.md §24.7)."""

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amps._core.journal.reader import LogCursor
from amps._core.replication.stream import (
    EXCEPTIONS_MAX,
    OnwardTracker,
    Rules,
    SourceFlow,
    StreamError,
    TxidSet,
)
from tests.support.streams import GrowingLog, Logged, ack_payload, records_in, topic_table, whole

ALL = 1 << 60
UPSTREAM = 4711

# --- sets of transaction ids ------------------------------------------------------------------------------


def ranges_of(ids: set[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for one in sorted(ids):
        if found and found[-1][1] == one - 1:
            found[-1] = (found[-1][0], one)
        else:
            found.append((one, one))
    return found


@given(
    through=st.integers(0, 60),
    missing=st.sets(st.integers(1, 60)),
    first=st.integers(1, 70),
    length=st.integers(0, 9),
)
def test_a_set_is_all_ids_up_to_one_except_some(
    through: int, missing: set[int], first: int, length: int
) -> None:
    missing = {one for one in missing if one <= through}
    exceptions = ranges_of(missing)
    ids = TxidSet(through, exceptions)
    held = set(range(1, through + 1)) - missing
    assert [one for one in range(1, 80) if one in ids] == sorted(held)
    assert ids.covers(first, first + length) == (set(range(first, first + length + 1)) <= held)
    assert ids.first_missing == min(set(range(1, 80)) - held)
    assert (ids.through, ids.exceptions, len(ids)) == (through, exceptions, len(exceptions))
    assert ids.to_payload() == ack_payload(through, exceptions)
    assert TxidSet.from_payload(ids.to_payload()) == ids
    assert ids != TxidSet(through + 1, exceptions)
    assert ids != TxidSet(through + 1, [*exceptions, (through + 1, through + 1)])


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        bytes(15),
        ack_payload(9, [])[:-1] + b"\1\0",
        ack_payload(9, [(3, 4)]) + b"x",
        ack_payload(9, [(3, 4)])[:-1],
        struct.pack("<QII", 9, 0xFFFFFFFF, 0),
        struct.pack("<QII", 1 << 62, EXCEPTIONS_MAX + 1, 0)
        + b"".join(struct.pack("<QQ", 2 * n, 2 * n) for n in range(1, EXCEPTIONS_MAX + 2)),
        ack_payload(9, [(4, 3)]),
        ack_payload(9, [(0, 3)]),
        ack_payload(9, [(3, 10)]),
        ack_payload(9, [(3, 4), (4, 5)]),
        ack_payload(9, [(6, 7), (3, 4)]),
    ],
)
def test_a_malformed_acknowledgement_is_refused(payload: bytes) -> None:
    """replication.md §24.1: the link is closed with PROTOCOL."""
    with pytest.raises(StreamError):
        TxidSet.from_payload(payload)


# --- the tracker ------------------------------------------------------------------------------------------

PEER = ("U", "1")
"""Name and epoch of the upstream."""
TOPICS = ("x", "a", "b", "ab")
"""`a` goes to the first destination, `b` to the third one; nobody waits for the second one, which is async."""


class World:
    """A log that has records of clients and of an upstream, and two destinations."""

    def __init__(self, directory: Path, waiting_max: int = 1 << 18) -> None:
        self.log = GrowingLog(directory, 1 << 16)
        self.topics = topic_table()
        self.names: dict[int, bytes] = {}
        self.begun_at: list[int] = []
        """Log positions at which the tracker began to read again."""
        self.flows: list[SourceFlow | None] = [self._flow("a"), None, self._flow("b")]
        self.acked: list[set[int]] = [set(), set()]
        self.sent: list[set[int]] = [set(), set()]
        self.tracker = self.track(0, waiting_max)
        self.upstream_txid = 0
        self.reached = 0

    def track(self, acked_txid: int = 0, waiting_max: int = 1 << 18) -> OnwardTracker:
        return OnwardTracker(
            self.log.cursor(self.topics),
            UPSTREAM,
            self.flows,
            self.names,
            acked_txid,
            waiting_max,
            PEER,
            self._cursor_before,
        )

    def _cursor_before(self, position: int) -> LogCursor:
        self.begun_at.append(position)
        return self.log.cursor(self.topics, position // self.log.file_bytes + 1)

    def _flow(self, letter: str, peer: tuple[str, str] | None = None) -> SourceFlow:
        rules = Rules(
            lambda topic, kind: letter in topic, lambda group: True, self.names, peer or (letter.upper(), "1")
        )
        flow = SourceFlow(rules, self.log.cursor(self.topics))
        flow.waits = True
        flow.begin(self.log.cursor(self.topics), self.log.position, 0)
        return flow

    def append(self, topic: str, step: int) -> None:
        """A record of the upstream, or, with step 0, of a client here."""
        if step == 0:
            self.log.append("p", self.log.txid, topic)
            return
        self.upstream_txid += step
        self.log.append("q", self.log.txid, topic, b"U\tG\t1", (UPSTREAM, self.upstream_txid))

    def ack(self, number: int, late: list[int]) -> None:
        """The destination acknowledges what was sent, except records whose number is late."""
        flow = self.flows[2 * number]
        assert flow is not None
        frames = whole(flow.fill(self.log.position, ALL))
        self.sent[number] |= {one.txid for one in records_in(frames)}
        sent = sorted(self.sent[number])
        if sent:
            missing = [one for one in sent if one % 7 in late and one not in self.acked[number]]
            self.acked[number] |= set(sent) - set(missing)
            flow.ack(TxidSet(sent[-1], [(one, one) for one in missing]))

    def waits(self, record: Logged) -> bool:
        return any(
            flow is not None
            and flow.waits
            and record.parts.position >= flow.upgraded_at
            and letter in record.topic
            and record.parts.txid not in acked
            for flow, letter, acked in zip(self.flows[::2], "ab", self.acked, strict=True)
        )

    def of_upstream(self) -> dict[int, Logged]:
        """The records of the upstream, by transaction id there."""
        # The element of the source comes first, behind the header and its own tag and length.
        return {struct.unpack_from("<QQ", one.raw, 84)[1]: one for one in self.log.records if one.path}


WORLD_STEP = st.one_of(
    st.tuples(st.just("append"), st.sampled_from(TOPICS), st.integers(0, 3)),
    st.tuples(st.just("scan"), st.sampled_from([1, 300, ALL]), st.none()),
    st.tuples(st.just("reach"), st.integers(0, 2), st.none()),
    st.tuples(st.just("ack"), st.integers(0, 1), st.lists(st.integers(0, 6), max_size=6)),
    st.tuples(st.just("mode"), st.integers(0, 1), st.booleans()),
    st.tuples(st.just("check"), st.none(), st.none()),
)


@settings(deadline=None)
@given(steps=st.lists(WORLD_STEP, max_size=60), waiting_max=st.sampled_from([2, 1 << 18]))
def test_a_record_is_acknowledged_when_all_to_whom_it_goes_on_have_it(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[Any],
    waiting_max: int,
) -> None:
    """replication.md §24.7: first arrivals wait for the sync destinations of their own way, duplicates for none."""
    world = World(tmp_path_factory.mktemp("log"), waiting_max)
    for verb, first, second in steps:
        if verb == "append":
            world.append(first, second)
        elif verb == "scan":
            world.tracker.scan(world.log.position, first)
        elif verb == "reach":
            # Records up to here are in the log, or are duplicates, such as the next ids.
            world.upstream_txid += first
            world.reached = world.upstream_txid
            world.tracker.reach(world.reached, world.log.position)
        elif verb == "ack":
            world.ack(first, second)
        elif verb == "mode":
            flow = world.flows[2 * first]
            assert flow is not None
            if second and not flow.waits:
                flow.upgraded_at = world.log.position
            flow.waits = second
        else:
            check(world, exact=False)
    world.tracker.reach(world.upstream_txid, world.log.position)
    while not world.tracker.scan(world.log.position, 500):
        pass
    check(world, exact=waiting_max > 2)
    for number in (0, 1):
        world.ack(number, [])
    assert world.tracker.acknowledged() == TxidSet(world.upstream_txid)
    assert world.tracker.pending == 0


def check(world: World, *, exact: bool) -> None:
    acknowledged = world.tracker.acknowledged()
    records = world.of_upstream()
    for txid, record in records.items():
        if txid in acknowledged:
            assert record.parts.position < world.tracker.scanned_position
            assert not world.waits(record)
    if exact:
        waiting = [txid for txid in sorted(records) if world.waits(records[txid])]
        assert acknowledged.exceptions == [(txid, txid) for txid in waiting]
        assert acknowledged.through == world.upstream_txid


def test_nothing_is_acknowledged_before_its_place_is_durable(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.append("x", 5)
    position = world.log.position
    world.append("x", 1)
    world.tracker.reach(5, position)
    assert world.tracker.scan(world.log.records[0].parts.position, ALL)
    assert world.tracker.acknowledged().through == 0
    world.tracker.scan(position, ALL)
    assert world.tracker.acknowledged().through == 5
    world.tracker.reach(0, world.log.position)
    world.tracker.scan(world.log.position, ALL)
    assert world.tracker.acknowledged().through == 5  # the core has not said that it took all up to 6


def test_records_before_a_known_acknowledgement_are_not_followed(tmp_path: Path) -> None:
    world = World(tmp_path)
    for _ in range(4):
        world.append("a", 1)
    tracker = world.track(2)
    assert tracker.acknowledged() == TxidSet(2)
    tracker.reach(4, world.log.position)
    tracker.scan(world.log.position, ALL)
    assert tracker.acknowledged() == TxidSet(4, [(3, 3), (4, 4)])


def test_records_of_other_upstreams_do_not_count(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.log.append("q", 1, "a", b"C\tG\t1", (UPSTREAM + 1, 1))
    world.tracker.reach(1, world.log.position)
    world.tracker.scan(world.log.position, ALL)
    assert world.tracker.acknowledged() == TxidSet(1)


def test_many_exceptions_become_few(tmp_path: Path) -> None:
    """Neighbours are joined from 1024 exceptions on; there is no gap between those, so nothing else is excepted."""
    world = World(tmp_path)
    world.log = GrowingLog(tmp_path / "many", 4 << 20)
    tracker = world.track()
    for number in range(3000):
        world.append("x" if number == 1500 else "a", 2)
    tracker.reach(world.upstream_txid, world.log.position)
    tracker.scan(world.log.position, ALL)
    assert tracker.acknowledged() == TxidSet(6000, [(2, 3000), (3004, 6000)])


def test_the_log_is_passed_over_while_records_can_only_go_back(tmp_path: Path) -> None:
    """replication.md §24.7: a record waits for the destinations to which it goes on, and none goes back (§9.4)."""
    world = World(tmp_path)
    world.flows[:] = [world._flow("a", PEER), None]
    world.append("a", 1)
    world.log.rotate()
    world.append("a", 1)
    world.tracker.reach(2, world.log.position)
    assert world.tracker.scan(world.log.position, 1)
    assert world.tracker.scanned_position == world.log.position
    assert world.tracker.acknowledged() == TxidSet(2)
    assert not world.begun_at
    # Another instance is at the end of the destination now.
    passed = world.log.position
    world.flows[0] = world._flow("a", (PEER[0], "2"))
    world.append("a", 1)
    world.tracker.reach(3, world.log.position)
    while not world.tracker.scan(world.log.position, 200):
        pass
    assert world.begun_at == [passed]
    assert world.tracker.acknowledged() == TxidSet(3, [(3, 3)])
    assert world.tracker.scanned_position == world.log.position


def test_a_position_that_was_passed_over_never_goes_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.flows[:] = []
    world.append("a", 1)
    first = world.log.position
    world.append("a", 1)
    assert world.tracker.scan(world.log.position, ALL)
    assert world.tracker.scan(first, ALL)
    assert world.tracker.scanned_position == world.log.position


def test_a_tracker_takes_64_destinations(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.flows = [None] * 65
    with pytest.raises(ValueError, match="64"):
        world.track()


def test_an_upgraded_destination_is_not_waited_for_before_the_upgrade(tmp_path: Path) -> None:
    """replication.md §24.7: a downgraded link is not waited for, also for older messages; an upgrade adds new ones."""
    world = World(tmp_path)
    flow = world.flows[0]
    assert flow is not None
    flow.waits = False
    world.append("a", 1)
    flow.upgraded_at = world.log.position
    flow.waits = True
    world.append("a", 1)
    world.tracker.reach(2, world.log.position)
    world.tracker.scan(world.log.position, ALL)
    assert world.tracker.acknowledged() == TxidSet(2, [(2, 2)])


def test_a_joined_run_waits_for_all_its_destinations(tmp_path: Path) -> None:
    world = World(tmp_path, 2)
    for number in range(64):
        world.append("ab"[number % 2], 1)
    world.append("x", 1)
    for _ in range(64):
        world.append("b", 1)
    world.tracker.reach(world.upstream_txid, world.log.position)
    world.tracker.scan(world.log.position, ALL)
    world.ack(1, [])
    acknowledged = world.tracker.acknowledged()
    assert world.tracker.pending < 64
    assert not any(number in acknowledged for number in range(1, 65, 2))
    world.ack(0, [])
    assert world.tracker.acknowledged() == TxidSet(world.upstream_txid)


def test_runs_with_a_settled_record_between_them_are_not_joined(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.log = GrowingLog(tmp_path / "many", 8 << 20)
    world.flows[0], world.flows[2] = world._flow("a"), world._flow("b")
    tracker = world.track()
    for number in range(3000):
        world.append("b" if number == 1500 else "a", 2)
    tracker.reach(world.upstream_txid, world.log.position)
    tracker.scan(world.log.position, ALL)
    assert len(tracker.acknowledged()) == 1
    world.ack(1, [])
    assert tracker.acknowledged().exceptions == [(2, 3000), (3004, 6000)]


class Unread(World):
    """A world whose tracker notes each time that it begins to read the log."""

    def __init__(self, directory: Path, peers: tuple[tuple[str, str] | None, ...]) -> None:
        super().__init__(directory)
        self.flows[:] = [self.flow_to(peer) if peer is not None else None for peer in peers]
        self.read_from: list[int] = []
        self.tracker = OnwardTracker(
            self.log.cursor(self.topics),
            UPSTREAM,
            self.flows,
            self.names,
            upstream=("U", "1"),
            cursor_at=self.cursor_at,
        )

    def flow_to(self, peer: tuple[str, str]) -> SourceFlow:
        rules = Rules(lambda topic, kind: True, lambda group: True, self.names, peer)
        flow = SourceFlow(rules, self.log.cursor(self.topics))
        flow.waits = True
        return flow

    def cursor_at(self, position: int) -> LogCursor:
        self.read_from.append(position)
        return self.log.cursor(self.topics)  # long before the position

    def follow(self, records: int) -> None:
        for _ in range(records):
            self.append("a", 1)
        self.tracker.reach(self.upstream_txid, self.log.position)
        assert self.tracker.scan(self.log.position, ALL)
        assert self.tracker.scanned_position == self.log.position


@pytest.mark.parametrize("peers", [(None,), (("U", "1"),), (None, ("U", "1"))])
def test_a_log_from_which_nothing_goes_on_is_not_read(
    tmp_path: Path, peers: tuple[tuple[str, str] | None, ...]
) -> None:
    """replication.md §24.7: nothing goes back to the upstream, and nobody waits for async destinations."""
    world = Unread(tmp_path, peers)
    world.follow(3)
    world.tracker.reach(4, world.log.position + 100)
    assert world.tracker.acknowledged() == TxidSet(3)
    assert world.tracker.scan(world.log.position + 99, ALL)
    assert world.tracker.acknowledged() == TxidSet(3)  # not durable yet
    assert world.tracker.scan(world.log.position + 100, ALL)
    assert world.tracker.acknowledged() == TxidSet(4)
    assert world.read_from == []


def test_when_a_destination_leads_elsewhere_later_records_wait_for_it(tmp_path: Path) -> None:
    """replication.md §24.7: what was acknowledged before stays so, though the log is read from before it."""
    world = Unread(tmp_path, (("U", "1"),))
    world.follow(3)
    passed = world.log.position
    world.flows[0] = world.flow_to(("C", "1"))
    world.follow(2)
    assert world.read_from == [passed]
    assert world.tracker.acknowledged() == TxidSet(5, [(4, 4), (5, 5)])
    world.flows[0] = world.flow_to(("U", "2"))  # the upstream was wiped: it lacks what it had sent
    world.follow(1)
    assert world.tracker.acknowledged() == TxidSet(6, [(4, 4), (5, 5), (6, 6)])
    world.flows[0] = world.flow_to(("U", "1"))
    world.follow(1)
    assert world.read_from == [passed]
    world.flows[0] = None
    assert world.tracker.acknowledged() == TxidSet(7)
