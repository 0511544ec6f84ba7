"""The SOW topics of the core process: their memory, their files, and their recovery at a start (sow.md §4).

All changes are made in `amps._core.sow` and by the sequencer. This module provides what they need: for each topic a key
table in the runtime directory, which other processes read, and a value file.

At every start the slots are made again: from the value file, then from the records of the journals. The records win
where they are newer. A value file that cannot be used is set aside, never overwritten: the state is then made from the
journals alone, as far as they go.

Before journals are removed, the values in them are carried over into the value files (`CarryOver`), in small steps
between turns. The housekeeping thread then syncs the files, and only after that the journals count as not needed.
"""

import fcntl
import mmap
import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgpack

from amps._core.journal.reader import LogCursor, LogDamaged, LogDirectory, checksum
from amps._core.journal.writer import LogWriter
from amps._core.sequencer.sequencer import CarryOver, Sequencer, SowTopic, replay_states
from amps._core.shm.memory import NO_JOURNAL
from amps._core.sow.shaping import KeyMaker
from amps._core.sow.table import (
    VALUE_FILE_HEADER_BYTES,
    VALUE_FILE_MAGIC,
    VALUE_FILE_VERSION,
    JournalPlaces,
    KeyTable,
    TopicState,
    ValueFile,
    slab_bytes,
    table_bytes,
)
from amps.config import ServerConfig
from amps.config.model_sow import SLAB_OVERHEAD_BYTES, SowTopicConfig
from amps.config.sow_topics import SowTopics
from amps.journal.disk import Disk
from amps.journal.files import JournalHeader
from amps.journal.names import reading_places
from amps.messages import make_message_types
from amps.server.core.older import RecoveryRefused
from amps.server.core.sow_chains import TopicChains
from amps.server.eventlog import EventLog
from amps.server.runtime import Runtime
from amps.server.shared.sow_shaping import enrichment_stage, key_maker, logical_key_maker
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
_HEADER = struct.Struct("<8sIIQII")  # magic, version, header checksum, slab size, definition, length of the texts


class ValueFileUnusable(Exception):
    """A value file that is damaged, or belongs to another topic or definition; the text has the reason."""


@dataclass
class _Topic:
    config: SowTopicConfig
    sow: SowTopic
    path: Path
    descriptor: int
    keys: KeyMaker
    logical: LogicalNames | None  # of a topic with Pattern
    chains: TopicChains | None  # of a topic with a key generator


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
        """The SOW topic that keeps the records of a topic, the number that the topic has there, and what makes its keys;
        None if there is none. Raises OSError.
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

    @property
    def last_txid(self) -> int:
        """The highest transaction id of a value or removal; 0: there is none."""
        return max((topic.sow.state.table.counters()["last_txid"] for topic in self._topics), default=0)

    # --- files ----------------------------------------------------------------------------------------------

    def _make(self, config: SowTopicConfig) -> _Topic:
        path = value_path(config, self._runtime)
        keys = _KeyFile(self._runtime.sow_keys_path(config.number))
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise RecoveryRefused(
                f"another process uses {path}, the FileName of SOW topic {config.name!r}: give each instance its own"
            ) from None
        kind = self._types[config.message_type]
        maker = key_maker(config, kind)
        begin_ns = _begin_ns(config, self._now_ns)
        header = _header(config, maker.definition, begin_ns)
        used_file = os.fstat(descriptor).st_size >= VALUE_FILE_HEADER_BYTES
        if used_file:
            try:
                begin_ns = _check_header(os.pread(descriptor, VALUE_FILE_HEADER_BYTES, 0), header)
            except ValueFileUnusable as problem:
                descriptor, aside = _set_aside(path, descriptor)
                self._log.log("32-0002", text=f"{path} is not used: {problem}; it was renamed to {aside.name}")
                used_file = False
        if not used_file:
            os.pwrite(descriptor, header, 0)
        values = ValueFile(
            descriptor,
            config.slab_size_bytes,
            True,
            lambda offset, length: os.posix_fallocate(descriptor, offset, length),
        )
        if not used_file:
            os.posix_fallocate(
                descriptor, 0, VALUE_FILE_HEADER_BYTES + config.initial_slab_count * slab_bytes(config.slab_size_bytes)
            )
        table = KeyTable(keys.view, keys.make_room)
        state = TopicState(table, values, expires(config), self._recorded[config.number])
        chains: TopicChains | None = None
        if config.key_generator is not None:
            up_to = self._last_txid if self._recorded[config.number] else None
            settings = config.key_generator
            chains = TopicChains(maker, settings.validation, settings.file_name, self._disk, up_to)
        sow = SowTopic(
            state,
            gives_keys(config),
            documents_of(kind),
            enrichment_stage(config, kind, self._config.functions),
            None if chains is None else chains.key,
            config.slab_size_bytes - SLAB_OVERHEAD_BYTES,
        )
        sow.replay_from_ns = begin_ns
        logical = None if config.pattern is None else LogicalNames(logical_names_path(config, self._runtime))
        return _Topic(config, sow, path, descriptor, maker, logical, chains)

    # --- the start ------------------------------------------------------------------------------------------

    def recover(self, journals: Sequence[JournalHeader], limit: int) -> None:
        """Make the state of all topics, from their files and from the log up to `limit`.

        `journals`: oldest first; empty without a log. Raises RecoveryRefused, OSError.
        """
        began_s = time.monotonic()
        try:
            for topic in self._topics:
                size = os.fstat(topic.descriptor).st_size
                topic.sow.state.take_file(size)
            if journals and any(self._recorded):
                self._replay(journals, limit)
                for topic in self._topics:
                    topic.sow.state.begin_carrying(journals[0].first_txid)
                    topic.sow.state.end_carrying(journals[0].start_position)
                self._carried = self._copied = journals[0].start_position
        except (LogDamaged, ValueError) as problem:
            raise RecoveryRefused(
                f"the SOW topics cannot be rebuilt from the log: {problem}; run 'amps journal verify'"
            ) from problem
        except MemoryError as problem:
            raise OSError(
                f"the SOW topics cannot be rebuilt: {problem}; more memory is needed in "
                f"{self._runtime.directory.path.parent}, see AMPS_RUNTIME_DIRECTORY"
            ) from problem
        self._log.log("32-0001", text=f"{self._live():,} values in SOW topics, {time.monotonic() - began_s:.1f} s")

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
        """Begin to carry values over, so that the log can begin with that journal. None: no journal is to be removed."""
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
            self._carry = None
            self._carry_failed(problem)
            return
        if done:
            self._carry = None
            self._copied = carry.limit
            self._log_txid = carry.txid

    def _carry_failed(self, problem: Exception) -> None:
        self._carry_again_s = time.monotonic() + CARRY_AGAIN_S
        self._log.log(
            "32-0004",
            text=f"values cannot be copied from journals that are to be removed: {problem}; the journals stay, and it "
            "is tried again",
        )

    def due(self) -> bool:
        """A Chore of the housekeeping thread: whether files must be synced."""
        return self._carried < self._copied or any(
            topic.chains is not None and topic.chains.unsynced for topic in self._with_chains
        )

    def step(self) -> bool:
        """Sync the chains; then the value files, so that the journals are not needed any more."""
        for topic in self._with_chains:
            assert topic.chains is not None
            try:
                topic.chains.sync()
            except OSError as problem:
                self._chains_failed(topic, problem)
        copied = self._copied
        if self._carried >= copied:
            return False
        try:
            self._sync()
        except OSError as problem:
            self._carry_failed(problem)
            return False
        self._carried = copied
        return True

    def _sync(self) -> None:
        for topic in self._topics:
            if topic.config.durability == "persistent":
                os.fdatasync(topic.descriptor)

    def close(self) -> None:
        """Sync the files of persistent topics: the server ends."""
        self._sync()
        for topic in self._with_chains:
            assert topic.chains is not None
            topic.chains.close()


class _KeyFile:
    """The memory of a key table; it takes memory only where it is written to."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._descriptor, table_bytes())
        self.view = mmap.mmap(self._descriptor, table_bytes())

    def make_room(self, offset: int, length: int) -> None:
        """Allocate the pages: a write to a page without memory would end the process. Raises OSError."""
        os.posix_fallocate(self._descriptor, offset, length)


def _begin_ns(config: SowTopicConfig, now_ns: int) -> int:
    """UNIX time from which on records of the log belong to a topic whose file is made now (sow.md §4, RecoveryPoint)."""
    point = config.recovery_point
    if point.kind == "now":
        return now_ns
    return point.time_ns or 0


def _header(config: SowTopicConfig, definition: int, begin_ns: int) -> bytes:
    """The header page of a value file: docs/files.md."""
    texts: bytes = msgpack.packb([config.name, config.message_type, begin_ns])
    rest = struct.pack("<QII", config.slab_size_bytes, definition, len(texts)) + texts
    head = struct.pack("<8sII", VALUE_FILE_MAGIC, VALUE_FILE_VERSION, checksum(rest)) + rest
    return head.ljust(VALUE_FILE_HEADER_BYTES, b"\0")


def _check_header(found: bytes, expected: bytes) -> int:
    """Check that a value file can be used. Returns the time from which on records of the log belong to the topic."""
    magic, version, sum_, slab_size, definition, length = _HEADER.unpack_from(found)
    if magic != VALUE_FILE_MAGIC or length > len(found) - _HEADER.size:
        raise ValueFileUnusable("it is no value file of a SOW topic")
    if version != VALUE_FILE_VERSION:
        raise ValueFileUnusable(f"its format has version {version}, and this server writes {VALUE_FILE_VERSION}")
    if checksum(found[16 : _HEADER.size + length]) != sum_:
        raise ValueFileUnusable("the checksum of its header does not match")
    name, message_type, begin_ns = msgpack.unpackb(found[_HEADER.size : _HEADER.size + length])
    _, _, _, wanted_size, wanted, wanted_length = _HEADER.unpack_from(expected)
    wanted_names = msgpack.unpackb(expected[_HEADER.size : _HEADER.size + wanted_length])
    if [name, message_type] != wanted_names[:2]:
        raise ValueFileUnusable(f"it belongs to topic {name!r} of type {message_type}")
    if slab_size != wanted_size:
        raise ValueFileUnusable(f"it was made with a SlabSize of {slab_size} bytes")
    if definition != wanted:
        raise ValueFileUnusable("it was made with another Key or KeyDomain")
    return int(begin_ns)


def _set_aside(path: Path, descriptor: int) -> tuple[int, Path]:
    """Rename an unusable file, and make a new one. Returns its descriptor, and the new name of the old one."""
    aside = path.with_name(f"{path.name}.unusable-{time.time_ns()}")
    path.rename(aside)
    os.close(descriptor)
    made = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
    fcntl.flock(made, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return made, aside
