"""Logs of several journals, and replays of them run as a transport's worker runs them, without a worker."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from amps._core.delivery.delivery import REPLAY_DUE_LATER, REPLAY_ENDED, REPLAY_UNFINISHED, ReplayBounds
from amps._core.delivery.output import OutputBuffer
from amps._core.journal.reader import FrameCache
from amps._core.values.value import publisher_id
from amps._core.wire.topics import TopicTable
from amps.expressions.filters import compile_filter
from amps.journal.compression import compress_journal
from amps.journal.disk import Disk
from amps.journal.names import compressed_path, index_path, journal_path, topic_index_path
from amps.journal.topic_index import make_topic_index
from amps.messages import make_message_types, standard_settings
from amps.server.evaluation_contexts import EvaluationContexts
from amps.server.shared.journal_floor import JournalFloor
from amps.server.shared.journal_view import JournalView, at_once
from amps.server.topics import topic_predicate
from amps.server.transport.options import Options
from amps.server.transport.replay import Clocks, Replay
from amps.server.transport.session import Subscription
from amps.server.transport.start_search import Start
from amps.server.transport.topic_indexes import TopicIndexes
from tests.support.feed import Feed, Feeder
from tests.support.records import RecordParts

NAME = "journal"
MANY = 1 << 40


@dataclass(frozen=True)
class Stored:
    """A message to be stored."""

    topic: str
    publisher: int
    sequence: int
    time_us: int
    payload: bytes = field(repr=False)


class StoredLog:
    """Journals with these messages, and the index beside each full one."""

    def __init__(self, directory: Path, file_bytes: int, messages: Sequence[Stored]) -> None:
        self.directory = directory
        feeder = Feeder(directory, file_bytes)
        self.places: list[int] = [feeder.journal.position]
        """The log position behind each message, preceded by the one before all messages."""
        for message in messages:
            parts = RecordParts(payload=message.payload, publisher_id=publisher_id(f"p{message.publisher}"))
            feeder.push(Feed(message.publisher, message.sequence, message.topic, parts))
            feeder.turn(message.time_us * 1000, 0)
            self.places.append(feeder.journal.position)
        self.control = feeder.control
        self.full = list(range(feeder.journal.number))
        for number, index in feeder.journal_storage.indexes.items():
            index_path(directory, NAME, number).write_bytes(index)
        self.end: int = feeder.journal.position

    def journal(self, number: int) -> Path:
        return journal_path(self.directory, NAME, number)

    def topic_index(self, number: int) -> Path:
        return topic_index_path(self.directory, NAME, number)

    def make_topic_index(self, number: int) -> None:
        journal = self.journal(number)
        packed = compressed_path(self.directory, NAME, number)
        self.topic_index(number).write_bytes(make_topic_index(journal if journal.exists() else packed))

    def compress(self, number: int) -> None:
        for _ in compress_journal(
            Disk(), self.journal(number), compressed_path(self.directory, NAME, number)
        ):
            pass


@dataclass(eq=False)
class Reader:
    """The connection of a replay, and the frames that it has received."""

    message_type: str = "json"
    output: OutputBuffer = field(default_factory=lambda: OutputBuffer(lambda: None))
    events: list[bytes | tuple[str, tuple[int, int]]] = field(default_factory=list)
    """Frames, and (subscription, bookmark) of `completed` acknowledgements."""
    came: dict[int, int] = field(default_factory=dict)
    """The number of bytes received by the end of each time."""

    def may(self, permission: str, topic: str) -> bool:
        return True

    def send_completed(
        self, subscription: Subscription, command_id: str | None, bookmark: tuple[int, int]
    ) -> None:
        self._take()
        self.events.append((subscription.sub_id, bookmark))

    def take(self, now_ns: int) -> None:
        """Read the received frames."""
        self._take()
        total = sum(len(event) for event in self.events if isinstance(event, bytes))
        if total > max(self.came.values(), default=0):
            self.came[now_ns] = total

    def _take(self) -> None:
        frames = b"".join(self.output.take())
        if self.events and isinstance(self.events[-1], bytes):
            self.events[-1] += frames
        elif frames:
            self.events.append(frames)


class Reading:
    """A process that reads the log: its open files, its topics, and its replays."""

    def __init__(self, log: StoredLog, *, with_indexes: bool, cache: FrameCache | None = None) -> None:
        self.log = log
        self.reports: list[tuple[str, str]] = []
        cache = cache or FrameCache(MANY)
        self.topics = TopicTable(lambda topic, message_type: (True, False, None, None))
        runtime: Any = SimpleNamespace(
            control=log.control, index_path=lambda number: log.directory / f"{number}.none"
        )
        floor = JournalFloor(log.control, 0)
        self.view = JournalView(log.directory, None, NAME, runtime, self.topics.entry, cache, floor)
        events: Any = SimpleNamespace(log=lambda record_id, reason: self.reports.append((record_id, reason)))
        self.indexes = (
            TopicIndexes(
                lambda number: [log.topic_index(number)],
                self.view,
                lambda number: number in log.full,
                events,
            )
            if with_indexes
            else None
        )
        self._evaluations = EvaluationContexts(
            make_message_types(standard_settings().values()), "i", "g", events
        )

    def replay(
        self,
        topics: Sequence[tuple[str, str | None]],
        options: Options | None = None,
        *,
        position: int = 0,
        start: Start | None = None,
        bounds: ReplayBounds | None = None,
        messages_max: int | None = None,
        completed_at: int | None = None,
    ) -> tuple[Replay, Reader]:
        """A replay for subscriptions, each a topic and a filter, from a position, or from the place of another
        replay.
        """
        reader = Reader()
        connection: Any = reader
        members = []
        for number, (topic, filter_text) in enumerate(topics):
            predicate = topic_predicate(topic, regex_allowed=True)
            member = Subscription(
                connection, f"s{number}", topic, predicate, options or Options(bookmark=True), bookmark="0"
            )
            member.filter = None if filter_text is None else compile_filter(filter_text)
            member.messages_max = messages_max
            if completed_at is not None:
                member.completions.append((completed_at, None))
            members.append(member)
        if start is None:
            bookmark = at_once(self.view.last_bookmark_before(position))
            start = Start(at_once(self.view.cursor_at(position, True)), bookmark, bounds)
        return Replay(members, start, self._evaluations, self.indexes), reader


def run_replay(
    replay: Replay,
    reader: Reader,
    limit: int,
    *,
    now_ns: int = 10**9,
    unix_ns: int = 1,
    settled: tuple[int, int] = (0, 0),
    between: Callable[[int], None] = lambda turn: None,
) -> tuple[int, int]:
    """Run up to a limit, and let time pass as needed. Return the final state and the time.

    `between` is called after each turn.
    """
    turn = 0
    while True:
        work = replay.work_ahead(limit, now_ns)
        if work is not None:
            work()
            continue
        state = replay.run(limit, Clocks(now_ns, unix_ns, *settled))
        reader.take(now_ns)
        turn += 1
        if state == REPLAY_DUE_LATER:
            now_ns = max(now_ns + 1, replay.due_ns)
        elif state == REPLAY_UNFINISHED:
            between(turn)
        else:
            assert state == REPLAY_ENDED or replay.tailer.position >= limit
            return state, now_ns
        if not replay.members:
            return REPLAY_ENDED, now_ns
