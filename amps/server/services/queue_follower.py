"""One event of a queue: its actions run for every message that left the queue, in the order of the log.

Their messages are published exactly once, also over failures. Each event has a publishing session of its own, and each
publish a number that follows from the place of the removal in the log: position of its record, place of the entry in
it, place of the publish among those for this message (`first_number`). The log has the highest number published. After
a failure of any kind the follower reads again from an earlier position, skips the messages before that number, and
publishes the others as before: messages that are in the log already are dropped as duplicates.

So no publish has to be awaited before the next one: many messages are in progress at a time. If the log refuses one (a
full disk), later ones are refused, too. The follower then logs on again and goes back to the first one that is not in
the log.

Other steps (commands, echo, counters) have no number. They run again for the messages in progress at a failure, and
after a forced stop for the messages of the last second. Publishes to topics that are not recorded are recognised by
their number while the core lives; after that they are repeated like other steps.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from amps._core.journal.reader import LogDamaged, LogMissing, LogRemoved, Record
from amps._core.journal.search import ENTRY_BYTES
from amps.config.action_modules import PUBLISHES_PER_MESSAGE_MAX, REASONS
from amps.config.queue_events import QueueEvent, reasons_of
from amps.server.eventlog import EventLog
from amps.server.services.actions.engine import Engine, Occurrence, Source
from amps.server.services.actions.step import Interrupted
from amps.server.services.actions.variables import from_bytes
from amps.server.services.publisher import Publisher, PublishFailure, Session, StorageUnavailable

UNDER_WAY_MAX: Final = 512
"""Maximum number of publishes that are not durable yet."""
ENTRIES_PER_TURN: Final = 32
RETRY_S: Final = 1.0

# An entry takes at least as many bytes of its record as it has numbers, so numbers rise from record to record.
assert ENTRY_BYTES >= PUBLISHES_PER_MESSAGE_MAX


def first_number(position: int, index: int) -> int:
    """The number of the first publish for entry `index` of the record of removals at a log position."""
    return position + 1 + index * PUBLISHES_PER_MESSAGE_MAX


@dataclass(frozen=True, slots=True)
class Removals:
    """A record of the log: the messages that left the queue, as (log position of the message or 0, reasons)."""

    position: int
    entries: list[tuple[int, int]]


class Follower:
    """Runs the actions of one event. `run` is its task; `take` adds records."""

    def __init__(
        self,
        event: QueueEvent,
        source: Source,
        engine: Engine,
        publisher: Publisher,
        read: Callable[[int], Record],
        log: EventLog,
        begin: int,
    ) -> None:
        """`begin`: log position before which all actions are done. `read`: see QueueMessages."""
        self.event = event
        self.begin = begin
        self._source = source
        self._engine = engine
        self._publisher = publisher
        self._read = read
        self._log = log
        self._session: Session = publisher.session(f"{event.kind} {event.which}")
        self._records: deque[Removals] = deque()
        self._at = 0  # index of the next record to run
        self._under_way: deque[tuple[Removals, asyncio.Future[None]]] = deque()
        self._came = asyncio.Event()
        self._done_until = 0  # the log contains publishes up to this number
        self._said = ""
        self.waiting = 0
        """Entries that are not done."""

    def take(self, record: Removals) -> None:
        """Add a record of the log."""
        if record.position >= self.begin:
            self._records.append(record)
            self.waiting += len(record.entries)
            self._came.set()

    def done_until(self, read_until: int) -> int:
        """Log position before which all actions are done, when all records before `read_until` have been added."""
        return self._records[0].position if self._records else max(read_until, self.begin)

    async def run(self) -> None:
        """Run the actions, for ever."""
        while True:
            try:
                self._done_until = await self._publisher.log_on(self._session)
                await self._work()
            except (Interrupted, StorageUnavailable) as problem:
                self._say(str(problem))
                self._go_back()
                await asyncio.sleep(RETRY_S)

    def _go_back(self) -> None:
        """Begin again with the first record that is not done."""
        for _, future in self._under_way:
            if not future.done():
                future.cancel()
            elif not future.cancelled():
                future.exception()
        self._under_way.clear()
        self._at = 0

    def _say(self, reason: str) -> None:
        if reason != self._said:
            self._said = reason
            self._log.log("29-0007", event=self._source.name, reason=reason)

    # --- the work -------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            while self._at < len(self._records):
                await self._record(self._records[self._at])
                self._at += 1
                await self._settle(UNDER_WAY_MAX)
            await self._settle(0)
            self._said = ""
            self._came.clear()
            if self._at >= len(self._records):
                await self._came.wait()

    async def _record(self, record: Removals) -> None:
        for index, (position, reasons) in enumerate(record.entries):
            first = first_number(record.position, index)
            if position and first + PUBLISHES_PER_MESSAGE_MAX > self._done_until:
                await self._entry(record, first, position, frozenset(reasons_of(reasons)))
            if index % ENTRIES_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _entry(self, record: Removals, first: int, position: int, reasons: frozenset[str]) -> None:
        occurrence = Occurrence({}, reasons=reasons)
        if not self._source.wanted(occurrence):
            return
        message = await self._message(position)
        if message is None:
            return
        occurrence.variables = self._variables(message, reasons)
        occurrence.publisher = _QueuePublisher(self, record, first)
        await self._engine.run_actions(self._source, occurrence)

    async def _message(self, position: int) -> Record | None:
        """The message at a log position; None: it is lost, which has been logged."""
        while True:
            try:
                return self._read(position)
            except LogMissing as problem:
                self._say(str(problem))
                await asyncio.sleep(RETRY_S)
            except (LogDamaged, LogRemoved) as problem:
                self._log.log("29-0008", event=self._source.name, position=position, reason=str(problem))
                return None

    def _variables(self, message: Record, reasons: frozenset[str]) -> Mapping[str, str]:
        """The variables of queues.md §15. The correlation id is escaped, as in the header."""
        variables = {
            "AMPS_TOPIC": self.event.queue,
            "AMPS_DATA": from_bytes(message.payload),
            "AMPS_DATA_LENGTH": str(len(message.payload)),
            "AMPS_CORRELATION_ID": from_bytes(message.correlation_id),
        }
        if self.event.expired:
            variables["AMPS_REASON"] = ",".join(name for name in REASONS if name in reasons)
        return variables

    # --- publishes in progress ------------------------------------------------------------------------------

    async def publish(
        self,
        record: Removals,
        number: int,
        topic: str,
        message_type: str,
        data: bytes,
        delay_ms: int | None = None,
    ) -> None:
        """Push one publish of a run. Raises PublishFailure, Interrupted."""
        try:
            future = await self._publisher.push(self._session, topic, message_type, data, number, delay_ms)
        except StorageUnavailable as problem:
            raise Interrupted(str(problem)) from None
        self._under_way.append((record, future))
        await self._settle(UNDER_WAY_MAX)

    async def _settle(self, count: int) -> None:
        """Wait until no more than so many publishes are in progress. Raises Interrupted."""
        while len(self._under_way) > count:
            try:
                await self._under_way[0][1]
            except StorageUnavailable as problem:
                raise Interrupted(str(problem)) from None
            self._under_way.popleft()
            self._forget_done()
        self._forget_done()

    def _forget_done(self) -> None:
        first = self._under_way[0][0] if self._under_way else None
        while self._at and self._records[0] is not first:
            self.waiting -= len(self._records.popleft().entries)
            self._at -= 1


class _QueuePublisher:
    """Publishes messages for one queue message, each with its next number."""

    def __init__(self, follower: Follower, record: Removals, first: int) -> None:
        self._follower = follower
        self._record = record
        self._next = first
        self._end = first + PUBLISHES_PER_MESSAGE_MAX

    async def publish(self, topic: str, message_type: str, data: bytes, delay_ms: int | None = None) -> None:
        if self._next == self._end:
            raise PublishFailure(
                f"more than {PUBLISHES_PER_MESSAGE_MAX} messages about one message of a queue"
            )
        number = self._next
        self._next += 1
        await self._follower.publish(self._record, number, topic, message_type, data, delay_ms)
