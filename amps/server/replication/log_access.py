"""What the flows of this process read: the log, its topics and paths, and the rules of destinations.

All flows share one view of the journals, one topic table and one map of names. So each journal is open once, and the
core keeps it until no flow reads it any more.

A flow begins in the middle of a journal: the index has places where reading may begin, and the ends of the chains of
topics and names. Without an index, or with one of an earlier release, it begins at the first record of the journal.
"""

import contextlib
from collections.abc import Callable, Iterable

from amps._core.expressions.machine import EvaluationContext, Filter
from amps._core.journal.reader import LogCursor, LogDamaged, LogRemoved, LogUnreadable
from amps._core.journal.writer import IndexReader
from amps._core.replication.stream import Rules, find_start, learn_names_before
from amps.config import ServerConfig
from amps.config.model_replication import DestinationConfig, ReplicatedTopic
from amps.messages import make_message_types
from amps.server.evaluation_contexts import EvaluationContexts
from amps.server.eventlog import EventLog
from amps.server.replication.hello import Identity
from amps.server.runtime import Runtime
from amps.server.shared.filters import FilterCompiler
from amps.server.shared.journal_pages import JournalPages
from amps.server.shared.journal_view import at_once, make_journal_view
from amps.server.shared.sow_topics import make_sow_rules
from amps.server.shared.topic_classes import make_topic_table, queue_topics
from amps.server.topics import TopicMatcher, topic_predicate

LOG_PROBLEMS = (LogDamaged, LogUnreadable, LogRemoved)
"""What reading the log raises. A flow that meets one ends, and is tried again."""

Choice = tuple[EvaluationContext, list[Filter]] | bool


class LogAccess:
    """The log for the flows of one process. The instance has a transaction log."""

    def __init__(self, config: ServerConfig, runtime: Runtime, log: EventLog) -> None:
        assert runtime.replication_index is not None
        self._config = config
        self._control = runtime.control
        types = make_message_types(config.message_types.values())
        self.evaluations = EvaluationContexts(
            types,
            config.name,
            config.group,
            log,
            functions=config.functions,
        )
        self._filters = FilterCompiler(config.functions)
        self.topics = make_topic_table(
            TopicMatcher(config),
            True,
            self.evaluations.of_type,
            self._filters,
            queue_topics(config),
            make_sow_rules(config, types),
        )
        journal = make_journal_view(config, runtime, runtime.replication_index, self.topics.entry, log)
        assert journal is not None
        self.journal = journal
        settings = config.transaction_log
        self._pages: JournalPages | None = None
        if settings is not None and settings.o_direct:
            self._pages = JournalPages(journal, runtime.control, runtime.replication_index)
        self.paths: dict[int, bytes] = {}
        """Texts of the clients and paths that records of the log have, by name id."""

    def cursor_before(self, position: int) -> LogCursor:
        """A cursor shortly before a log position, but not within a transaction; or where the log begins."""
        control, directory = self._control, self.journal.directory
        while True:
            first, last = control.first_journal_number, control.watermarks()[3]
            with contextlib.suppress(LogRemoved):
                number = directory.number_at(position, first, last)
                return self._cursor_in(number, lambda index: _entrance_before(index, position))

    def find_start(self, last_txid: int, covered_txid: int) -> tuple[LogCursor, tuple[int, int] | None]:
        """A cursor shortly before the first record behind a transaction id, and the gap (first, last transaction id) if
        journals in front of it are missing. The cursor is not within a transaction. `covered_txid`: up to there the
        sink has acknowledged what goes to it.
        """
        control, directory = self._control, self.journal.directory
        while True:
            first, last = control.first_journal_number, control.watermarks()[3]
            with contextlib.suppress(LogRemoved):
                number, gap = find_start(directory, first, last, last_txid, covered_txid)
                return self._cursor_in(number, lambda index: index.entrance_of_txid(last_txid)), gap

    def _cursor_in(self, number: int, entrance: Callable[[IndexReader], int | None]) -> LogCursor:
        """A cursor at a place of a journal that its index knows, else at its first record. Raises LogRemoved."""
        directory = self.journal.directory
        index = self.journal.index(number)
        offset = entrance(index) if index is not None else None
        if index is None or offset is None:
            return LogCursor(directory, number, 0, True)
        cursor = at_once(self.journal.cursor_in(number, directory.start_position(number) + offset, True))
        # Names that are newer than the place are learnt here, too, which does no harm.
        learn_names_before(cursor.file, index.last_name_offset, self.paths)
        return cursor

    def last_txid(self) -> int | None:
        """The last transaction id of the log; None: it is not known."""
        control = self._control
        for number in range(control.watermarks()[3], control.first_journal_number - 1, -1):
            index = self.journal.index(number)
            if index is None:
                return None
            if index.last_txid:
                return int(index.last_txid)
        return 0

    def rules_of(self, destination: DestinationConfig, peer: Identity | None) -> Rules:
        """The rules of a destination, for the instance that is connected or was connected last."""
        passes: Callable[[str], bool] | None = None
        if destination.pass_through is not None:
            passes = topic_predicate(destination.pass_through, True) or _has(destination.pass_through)
        known = (peer.name, peer.epoch) if peer is not None else None
        return Rules(_Choices(destination.topics, self._choice_of).choose, passes, self.paths, known)

    def _choice_of(self, message_type: str, texts: list[str]) -> Choice:
        return self.evaluations.of_type(message_type), [self._filters.compile(text) for text in texts]

    def release_unused(self) -> None:
        """Close journals without readers."""
        self.journal.release_unused()

    def release_pages(self, positions: Iterable[int]) -> None:
        """Let the core release pages of the journal. `positions`: where flows of this process will read soon."""
        if self._pages is not None:
            self._pages.look(positions)


def _entrance_before(index: IndexReader, position: int) -> int | None:
    return index.entrance_before(position - index.start_position) if position > index.start_position else None


def _has(text: str) -> Callable[[str], bool]:
    """The predicate of an expression without special characters, which matches anywhere."""
    return lambda name: text in name


class _Choices:
    """The topics of one destination."""

    def __init__(
        self, topics: tuple[ReplicatedTopic, ...], choice_of: Callable[[str, list[str]], Choice]
    ) -> None:
        self._choice_of = choice_of
        self._topics = [
            (topic, (topic_predicate(topic.name, True) if topic.is_regex else None)) for topic in topics
        ]

    def choose(self, name: str, message_type: str) -> Choice:
        """Whether a topic is replicated: all its messages, none, or those that match one of the filters."""
        filters: list[str] = []
        for topic, predicate in self._topics:
            if topic.message_type != message_type:
                continue
            if not (predicate(name) if predicate is not None else name == topic.name):
                continue
            if topic.filter is None:
                return True
            filters.append(topic.filter)
        return self._choice_of(message_type, filters) if filters else False
