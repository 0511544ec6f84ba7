"""The SOW topics of the core process: their memory, their files, and their recovery at a start (sow.md §4).

All changes are made in `amps._core.sow` and by the sequencer. This module provides what they need: for each topic a key
table in the runtime directory, which other processes read, and a value file.

At every start the slots are made again: from the value file, then from the records of the journals. The records win
where they are newer. A value file that cannot be used is set aside, never overwritten: the state is then made from the
journals alone, as far as they go.

Before journals are removed, the values in them are carried over into the value files (`CarryOver`), in small steps
between turns. The housekeeping thread then syncs the files, and only after that the journals count as not needed.
"""

import contextlib
import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from amps._core.journal.reader import LogCursor, LogDamaged, LogDirectory
from amps._core.journal.writer import LogWriter
from amps._core.sequencer.sequencer import CarryOver, Sequencer, SowTopic, replay_states
from amps._core.shm.memory import NO_JOURNAL
from amps._core.sow.shaping import KeyMaker
from amps._core.sow.table import (
    JournalPlaces,
    KeyTable,
    TopicState,
    ValueFile,
    table_bytes,
)
from amps.config import ServerConfig
from amps.config.model_sow import SLAB_OVERHEAD_BYTES, SowTopicConfig
from amps.config.sow_topics import SowTopics
from amps.journal.disk import Disk
from amps.journal.files import JournalHeader
from amps.journal.names import reading_places
from amps.journal.value_file import LogPlace
from amps.messages import make_message_types
from amps.server.core.older import RecoveryRefused
from amps.server.core.sow_chains import TopicChains
from amps.server.core.sow_value_files import TopicFile, set_aside
from amps.server.eventlog import EventLog
from amps.server.runtime import Runtime
from amps.server.shared.sow_shaping import enrichment_stage, instance_context, key_maker, logical_key_maker
from amps.server.shared.sow_topics import (
    LogicalNames,
    documents_of,
    expires,
    gives_keys,
    logical_names_path,
    value_path,
)
from amps.server.topics import TopicMatcher

STEP_BYTES = 64 << 20
CARRIED_BYTES_PER_TURN = 512 << 10
CARRIED_SLOTS_PER_TURN = 1024
CARRY_AGAIN_S = 10.0
PROGRESS_INTERVAL_S = 5.0
Member = tuple[SowTopic, int, KeyMaker]


@dataclass
class _Topic:
    config: SowTopicConfig
    sow: SowTopic
    file: TopicFile
    keys: KeyMaker
    logical: LogicalNames | None  # of a topic with Pattern
    chains: TopicChains | None  # of a topic with a key generator

    def take(self) -> None:
        """Take the values of the value file. What a scan finds is synced, so no other state of the pages comes back."""
        self.file.sync()
        self.sow.state.take_file(self.file.size)

    @property
    def lacks_names(self) -> bool:
        """Whether values belong to logical topics whose names are not known."""
        state = self.sow.state
        return (
            self.logical is not None
            and state.table.slots_used > 0
            and state.values.highest_topic >= len(self.logical.names)
        )

    def begin_txid(self, next_txid: int) -> int:
        """From which transaction id on the file allows to read the past. If it is damaged: from the start on."""
        begin = self.file.begin_txid()
        return next_txid if begin is None or self.sow.state.values.damage is not None else begin

    def sync(self) -> None:
        """Sync the value file. Raises OSError."""
        values = self.sow.state.values
        changes = values.changes
        try:
            self.file.sync()
        except OSError:
            values.write_pages_again()
            self.file.write_header_again()
            raise
        values.note_synced(changes)


class CoreStates:
    """All SOW topics of the instance. It is made once per core."""

    def __init__(
        self, config: ServerConfig, runtime: Runtime, log: EventLog, disk: Disk, now_ns: int, last_txid: int
    ) -> None:
        """Make the topics, without values. `last_txid`: of the log. Raises RecoveryRefused, OSError."""
        self._config = config
        self._disk = disk
        self._now_ns = now_ns
        self._last_txid = last_txid
        self._runtime = runtime
        self._log = log
        self._types = make_message_types(config.message_types.values())
        self._names = SowTopics(config)
        self.places: JournalPlaces | None = None
        self._recorded = [False] * len(config.sow_topics)
        if config.transaction_log is not None:
            matcher = TopicMatcher(config)
            self._recorded = [
                matcher.is_logged(topic.name, topic.message_type) for topic in config.sow_topics
            ]
        self._topics = [self._make(topic) for topic in config.sow_topics]
        self._with_chains = [topic for topic in self._topics if topic.chains is not None]
        self._chains_told_s = 0.0
        self._carry: CarryOver | None = None
        self._carry_again_s = 0.0
        self._sync_again_s = 0.0
        self.wake: Callable[[], None] = lambda: None
        """Called when `step` has new work."""
        self._begin_wanted = self._begin_written = 0
        """From which transaction id on the past can be read: as the value files are to say it, and as they do."""
        self._copied = 0
        """Log position from which on all values are in the value files; the files are not synced yet."""
        self._carried = 0
        """Log position before which no journal is needed."""
        self._log_txid = 0
        self._first_journal = 0

    @property
    def for_sequencer(
        self,
    ) -> tuple[Callable[[str, str], Member | None], list[SowTopic], JournalPlaces | None]:
        """What the sequencer takes."""
        return self.find, [topic.sow for topic in self._topics], self.places

    def find(self, name: str, message_type: str) -> Member | None:
        """The SOW topic that keeps the records of a topic, the number that the topic has there, and what makes its
        keys; None if there is none. Raises OSError.
        """
        found = self._names.find(name, message_type)
        if found is None:
            return None
        topic = self._topics[found.number]
        if topic.logical is None:
            return topic.sow, 0, topic.keys
        return topic.sow, topic.logical.number(name), logical_key_maker(topic.keys, found, name)

    def known_topics(self) -> Iterator[tuple[str, str]]:
        """Name and message type of all topics that may have values, logical ones too."""
        for topic in self._topics:
            names = [topic.config.name] if topic.logical is None else topic.logical.names
            for name in names:
                yield name, topic.config.message_type

    # --- files ----------------------------------------------------------------------------------------------

    def _make(self, config: SowTopicConfig) -> _Topic:
        path = value_path(config, self._runtime)
        keys = _KeyFile(self._runtime.sow_keys_path(config.number))
        kind = self._types[config.message_type]
        maker = key_maker(config, kind)
        persistent = config.durability == "persistent"
        recorded = self._recorded[config.number]
        file = TopicFile(path, config, maker.definition, self._disk if persistent else None, self._now_ns)
        if file.set_aside is not None:
            self._log.log("32-0002", text=file.set_aside)
        values = ValueFile(
            file.descriptor, config.slab_size_bytes, True, file.allocate, persistent and recorded
        )
        table = KeyTable(keys.view, keys.make_room)
        state = TopicState(table, values, expires(config), recorded)
        chains: TopicChains | None = None
        if config.key_generator is not None:
            settings = config.key_generator
            up_to = self._last_txid if recorded else None
            chains = TopicChains(maker, settings.validation, settings.file_name, self._disk, up_to)
        sow = SowTopic(
            state,
            gives_keys(config),
            documents_of(kind),
            enrichment_stage(config, kind, self._config.functions, instance_context(self._config)),
            None if chains is None else chains.key,
            config.slab_size_bytes - SLAB_OVERHEAD_BYTES,
        )
        logical = None if config.pattern is None else LogicalNames(logical_names_path(config, self._runtime))
        sow.replay_from_ns = file.begin_ns
        return _Topic(config, sow, file, maker, logical, chains)

    # --- the start ------------------------------------------------------------------------------------------

    def take_files(self) -> int:
        """Take the values of the value files. Returns the highest transaction id there. Raises OSError."""
        with _memory_named(self._runtime):
            for number, topic in enumerate(self._topics):
                topic.take()
                if topic.lacks_names:
                    self._topics[number] = self._begin_anew(topic)
                self._tell_of_damage(self._topics[number])
        return max(topic.sow.state.values.highest_txid for topic in self._topics)

    def _begin_anew(self, topic: _Topic) -> _Topic:
        """Set the value file of a topic aside whose file of names has lost names: its numbers have no meaning."""
        path = logical_names_path(topic.config, self._runtime)
        if path.exists():
            set_aside(path)
        self._log.log(
            "32-0002",
            text=f"{topic.file.path} is not used, because {path.name} beside it lacks names of logical topics; both "
            f"were renamed, the value file to {topic.file.rename().name}",
        )
        return self._make(topic.config)

    def _tell_of_damage(self, topic: _Topic) -> None:
        if topic.logical is not None and topic.logical.rest is not None:
            self._log.log(
                "32-0005",
                text=f"{logical_names_path(topic.config, self._runtime)} is cut off or damaged at offset "
                f"{topic.logical.rest}; nothing that is used refers to the rest, which will be replaced",
            )
        damage = topic.sow.state.values.damage
        if damage is not None:
            self._log.log(
                "32-0005",
                text=f"{topic.file.path} is cut off or damaged in {damage[0]:,} places, the first at offset "
                f"{damage[1]}: values of topic {topic.config.name!r} that were only there are lost, all others are "
                "used; after a crash of the machine, what was not synced may look so",
            )

    def recover(self, journals: Sequence[JournalHeader], limit: int, next_txid: int) -> None:
        """Complete the state of all topics from the log up to `limit`, after `take_files`.

        `journals`: oldest first; empty without a log. `next_txid`: of the next record. Raises RecoveryRefused, OSError.
        """
        began_s = time.monotonic()
        try:
            with _memory_named(self._runtime):
                if any(self._recorded):
                    if journals:
                        self._replay(journals, limit)
                        self._carried = self._copied = journals[0].start_position
                    for topic in self._topics:
                        first = journals[0].first_txid if journals else next_txid
                        topic.sow.state.begin_carrying(max(first, topic.begin_txid(next_txid)))
                        topic.sow.state.end_carrying(self._copied)
            for topic in self._topics:
                recorded = topic.sow.state.recorded
                topic.file.write_begin(topic.sow.state.table.begin_txid if recorded else None)
                topic.file.write_log_place(self._log_place() if recorded else None)
        except (LogDamaged, ValueError) as problem:
            raise RecoveryRefused(
                f"the SOW topics cannot be rebuilt from the log: {problem}; run 'amps journal verify'"
            ) from problem
        self._log.log("32-0001", text=f"{self._live():,} values in SOW topics, {time.monotonic() - began_s:.1f} s")

    def _log_place(self) -> LogPlace:
        settings = self._config.transaction_log
        assert settings is not None
        archive = settings.journal_archive_directory
        return LogPlace(
            self._config.name,
            settings.journal_directory.absolute(),
            None if archive is None else archive.absolute(),
        )

    def _replay(self, journals: Sequence[JournalHeader], limit: int) -> None:
        """Read the log. Raises LogDamaged, StateMemoryFull."""
        directory = self._directory(self.find)
        cursor = LogCursor(directory, journals[0].number, 0, True)
        cursor.fetch()
        begin = cursor.position
        told_s = time.monotonic()
        while not replay_states(cursor, limit, STEP_BYTES):
            now_s = time.monotonic()
            if now_s - told_s >= PROGRESS_INTERVAL_S:
                told_s = now_s
                share = (cursor.position - begin) / max(1, limit - begin)
                self._log.log(
                    "32-0003",
                    text=f"SOW topics are rebuilt from the log: {share:.0%} read, {self._live():,} values",
                )

    def read_journals(self, journal: LogWriter) -> None:
        """Let the sequencer read values in the journals, for deltas and enrichment.

        `journal` writes them. Its number counts, not that of the watermarks: these follow at the end of a turn, and
        a value may be needed before, in a journal that began in the same turn.
        """
        control = self._runtime.control
        directory = self._directory(lambda topic, message_type: None)
        self.places = JournalPlaces(
            directory, lambda: (control.first_journal_number, journal.number)
        )

    def _directory(self, resolve: Callable[[str, str], object]) -> LogDirectory:
        settings = self._config.transaction_log
        assert settings is not None
        first, *more = reading_places(
            settings.journal_directory, settings.journal_archive_directory, self._config.name
        )
        return LogDirectory(*first, resolve, more)

    def _live(self) -> int:
        return sum(topic.sow.state.table.live for topic in self._topics)

    # --- the removal of journals ----------------------------------------------------------------------------

    @property
    def recorded(self) -> bool:
        """Whether the journals have the values of any topic."""
        return any(self._recorded)

    def oldest_journal(self, number_at: Callable[[int], int]) -> int:
        """Number of the oldest journal with values that are nowhere else; any thread may call it."""
        return number_at(self._carried) if self.recorded else NO_JOURNAL

    @property
    def carries(self) -> bool:
        """Whether `turn` has work."""
        return self._carry is not None

    def look(self, sequencer: Sequencer, beginning: JournalHeader | None) -> None:
        """Begin to carry values over, so that the log can begin with that journal. None: no journal is to be
        removed.
        """
        if self._log_txid:
            sequencer.log_txid, self._log_txid = self._log_txid, 0
        first = self._runtime.control.first_journal_number
        if self.places is not None and first != self._first_journal:
            self._first_journal = first
            self.places.forget(first)
        if beginning is None or self._carry is not None or not self.recorded:
            return
        if beginning.start_position <= self._copied or time.monotonic() < self._carry_again_s:
            return
        control = self._runtime.control
        if control.durable < beginning.start_position:
            return  # a crash of the machine would take these values out of the log again
        if self._begin_written < beginning.first_txid:
            self._begin_wanted = beginning.first_txid
            self.wake()
            return
        directory = self._directory(self.find)
        try:
            cursor = LogCursor(directory, control.first_journal_number, 0, False)
            cursor.fetch()
        except LogDamaged as problem:
            self._carry_failed(problem)
            return
        self._carry = CarryOver(sequencer, cursor, beginning.start_position, beginning.first_txid)

    def after_turn(self) -> None:
        """Write the links of chains that were made in a turn."""
        for topic in self._with_chains:
            assert topic.chains is not None
            try:
                topic.chains.write()
            except OSError as problem:
                self._chains_failed(topic, problem)

    def _chains_failed(self, topic: _Topic, problem: OSError) -> None:
        if time.monotonic() >= self._chains_told_s:
            self._chains_told_s = time.monotonic() + CARRY_AGAIN_S
            self._log.log(
                "32-0004", text=f"the chains of {topic.config.name!r} cannot be written: {problem}; it is tried again"
            )

    def turn(self) -> None:
        """Carry some values over."""
        carry = self._carry
        if carry is None:
            return
        try:
            done = carry.step(self._runtime.control, CARRIED_BYTES_PER_TURN, CARRIED_SLOTS_PER_TURN)
        except (LogDamaged, MemoryError, OSError) as problem:
            self._end_carry(carry)
            self._carry_failed(problem)
            return
        if self._wants_sync():
            self.wake()
        if done:
            self._end_carry(carry)
            self._copied = carry.limit
            self._log_txid = carry.txid

    def _end_carry(self, carry: CarryOver) -> None:
        carry.end()
        self._carry = None

    def _carry_failed(self, problem: Exception) -> None:
        self._carry_again_s = time.monotonic() + CARRY_AGAIN_S
        self._log.log(
            "32-0004",
            text=f"values cannot be copied from journals that are to be removed: {problem}; the journals stay, and it "
            "is tried again",
        )

    def due(self) -> bool:
        """A Chore of the housekeeping thread: whether value files must be written or synced."""
        return time.monotonic() >= self._sync_again_s and (
            self._carried < self._copied
            or self._begin_written < self._begin_wanted
            or self._wants_sync()
            or any(topic.chains is not None and topic.chains.unsynced for topic in self._with_chains)
        )

    def _wants_sync(self) -> bool:
        return any(topic.sow.state.values.wants_sync for topic in self._topics)

    def step(self) -> bool:
        """Say in the value files from where on the past can be read. Sync them, so that the journals are not needed any
        more, and moved records can be released.
        """
        if not self.due():
            return False
        for topic in self._with_chains:
            assert topic.chains is not None
            try:
                topic.chains.sync()
            except OSError as problem:
                self._chains_failed(topic, problem)
        wanted, copied = self._begin_wanted, self._copied
        try:
            if self._begin_written < wanted:
                for number, topic in enumerate(self._topics):
                    if self._recorded[number]:
                        topic.file.write_begin(wanted)
                self._begin_written = wanted
            if self._carried < copied or self._wants_sync():
                self._sync()
        except OSError as problem:
            self._sync_again_s = time.monotonic() + CARRY_AGAIN_S
            self._carry_failed(problem)
            return False
        self._carried = copied
        return True

    def _sync(self) -> None:
        for topic in self._topics:
            topic.sync()

    def close(self) -> None:
        """Sync the files of persistent topics: the server ends."""
        self._sync()
        for topic in self._with_chains:
            assert topic.chains is not None
            topic.chains.close()


@contextlib.contextmanager
def _memory_named(runtime: Runtime) -> Iterator[None]:
    """Say which memory it is that does not suffice. Raises OSError."""
    try:
        yield
    except MemoryError as problem:
        raise OSError(
            f"the SOW topics cannot be rebuilt: {problem}; more memory is needed in {runtime.directory.path.parent}, "
            "see AMPS_RUNTIME_DIRECTORY"
        ) from problem


class _KeyFile:
    """The memory of a key table; it takes memory only where it is written to."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._descriptor, table_bytes())
        self.view = mmap.mmap(self._descriptor, table_bytes())

    def make_room(self, offset: int, length: int) -> None:
        """Allocate the pages: a write to a page without memory would end the process. Raises OSError."""
        os.posix_fallocate(self._descriptor, offset, length)
