"""The invariants of a log, which must hold after every start."""

import bisect
import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amps._core.journal.reader import FrameCache, LogCursor
from amps._core.values.value import derived_publisher_id, publisher_id
from amps.server.runtime import Runtime
from amps.server.shared.journal_floor import JournalFloor
from amps.server.shared.journal_view import JournalView, at_once
from tests.simulation.clients import Client

READER = 9
"""The number under which the readers of a simulation announce the journals they need; no transport has it."""
MESSAGES = (1, 2)
"""Kinds of records that are messages; records about queues are not."""
WHOLE_REPLAYS, PARTIAL_REPLAY = 4, 20
"""How many replays of a check go to the end of the log, and how many messages the others read."""
CACHE_BYTES = 1 << 19
"""Two frames of compressed journals, so that frames leave the cache soon."""


@dataclass(frozen=True)
class Entry:
    """A message as a reader of the log receives it."""

    position: int
    txid: int
    timestamp_ns: int
    publisher_id: int
    sequence: int
    topic: str
    body: bytes
    correlation_id: bytes
    user_id: bytes
    expiration_s: int | None

    @property
    def bookmark(self) -> tuple[int, int]:
        return self.publisher_id, self.sequence


def entry_of(record: Any) -> Entry:
    """The parts of a `Record` that must never change."""
    return Entry(
        record.position,
        record.txid,
        record.timestamp_ns,
        record.publisher_id,
        record.sequence,
        record.topic[0],
        record.payload,
        record.correlation_id,
        record.user_id,
        record.expiration_s,
    )


class Log:
    """The journal of one directory as readers see it."""

    def __init__(self, directory: Path, archive: Path | None, instance_name: str, runtime: Runtime) -> None:
        self._runtime = runtime
        self.view = JournalView(
            directory,
            archive,
            instance_name,
            runtime,
            lambda topic, message_type: (topic, message_type),
            FrameCache(CACHE_BYTES),
            JournalFloor(runtime.control, READER),
        )
        runtime.control.set_transport_alive(READER, True)

    def cursor(self) -> LogCursor:
        """Return a cursor at the first message."""
        return self.view.cursor_at_start(True)

    def cursor_after(self, entry: Entry) -> LogCursor | None:
        """Return a cursor behind the message with the bookmark of `entry`; None if the log does not hold that
        bookmark.
        """
        found = at_once(self.view.find(*entry.bookmark, {}))
        return None if found is None else at_once(self.view.cursor_at(found[1], True))

    def read(
        self, cursor: LogCursor | None = None, limit: int | None = None, count: int | None = None
    ) -> list[Entry]:
        """Read all messages, or the first ones, from a cursor (default: the start) up to the written watermark, and
        verify every checksum.
        """
        cursor = cursor or self.cursor()
        end = self._runtime.control.watermarks()[0] if limit is None else limit
        return list(itertools.islice(steps(cursor, end), count))

    def bookmarks(self) -> list[tuple[int, tuple[int, int]]]:
        """Log position and bookmark of every record that has one: of messages, and of acknowledgements."""
        cursor, end, found = self.cursor(), self._runtime.control.watermarks()[0], []
        while (record := cursor.step(end)) is not None:
            if record.publisher_id:
                found.append((record.position, (record.publisher_id, record.sequence)))
        return found


def steps(cursor: LogCursor, limit: int) -> Iterable[Entry]:
    """The messages up to a limit."""
    while True:
        record = cursor.step(limit)
        if record is None:
            return
        if record.kind in MESSAGES:
            yield entry_of(record)


def check_order(entries: list[Entry]) -> None:
    """Check that the order is total, no message occurs twice, each publisher's sequences rise and times do not fall."""
    highest: dict[int, int] = {}
    for before, after in itertools.pairwise(entries):
        assert before.txid < after.txid, f"transaction ids do not rise: {before}, {after}"
        assert before.position < after.position
        assert before.timestamp_ns <= after.timestamp_ns, f"times fall: {before}, {after}"
    for entry in entries:
        assert entry.sequence > highest.get(entry.publisher_id, 0), f"twice, or out of order: {entry}"
        highest[entry.publisher_id] = entry.sequence


def check_contents(entries: list[Entry], clients: Iterable[Client], instance_name: str) -> None:
    """Check that no promised message is missing, and that the log holds no message that no client has sent."""
    by_publisher: dict[int, dict[int, Entry]] = {}
    for entry in entries:
        by_publisher.setdefault(entry.publisher_id, {})[entry.sequence] = entry
    for client in clients:
        found = by_publisher.pop(publisher_id(client.name), {})
        for message in client.owed():
            assert message.sequence in found, (
                f"{client.name}: {message.sequence} was acknowledged and is missing"
            )
        assert not client.given_up & found.keys(), f"{client.name}: refused and nevertheless there"
        for sequence, entry in found.items():
            message = client.store[sequence]
            assert (entry.topic, entry.body) == (message.topic, message.body), (
                f"{client.name}: {sequence} changed"
            )
            assert entry.user_id == client.user.encode()
            assert entry.expiration_s == (len(entry.body) if len(entry.body) % 5 == 0 else None)
            if len(entry.body) % 3 == 0:
                assert len(entry.correlation_id) == len(entry.body) % 20
        derived = by_publisher.pop(derived_publisher_id(client.name, instance_name), {})
        bodies = [entry.body for entry in derived.values()]
        assert len(bodies) == len(set(bodies)), f"{client.name}: an unnumbered message is there twice"
        assert set(bodies) <= client.sent_unnumbered.keys()
        missing = client.promised_unnumbered.keys() - set(bodies)
        assert not missing, f"{client.name}: {missing} were flushed and are missing"
    assert not by_publisher, "messages of publishers that do not exist"


def check_bookmarks(log: Log, entries: list[Entry], chance: random.Random, samples: int) -> None:
    """Check that a replay from a bookmark returns exactly the messages after it, and an unknown one is not found.

    Few replays go to the end: behind its beginning, one is like the other.
    """
    places = range(len(entries))
    bookmarks = log.bookmarks()
    for number, place in enumerate(chance.sample(places, min(samples, len(entries)))):
        entry = entries[place]
        found = at_once(log.view.find(*entry.bookmark, {}))
        assert found is not None, f"the bookmark of {entry} is not found"
        assert found[0] == entry.position
        count = None if number < WHOLE_REPLAYS else PARTIAL_REPLAY
        rest = entries[place + 1 :][:count]
        assert log.read(at_once(log.view.cursor_at(found[1], True)), count=count) == rest, (
            f"the replay after {entry} is not the rest"
        )
        before = (0, 0)
        if earlier := bisect.bisect_left(bookmarks, (entry.position, (0, 0))):
            before = bookmarks[earlier - 1][1]
        assert at_once(log.view.last_bookmark_before(entry.position)) == before
    known = {entry.bookmark for entry in entries}
    for _ in range(5):
        publisher = chance.choice(entries).publisher_id if entries else 1
        bookmark = (publisher, chance.randrange(1, 1 << 30))
        if bookmark not in known:
            assert at_once(log.view.find(*bookmark, {})) is None
