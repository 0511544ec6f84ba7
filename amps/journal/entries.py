"""One journal file as entries, for tools that inspect it: opened plain or compressed, read as a stream.

`JournalFile` opens a journal and checks its header. `Entry` is one message (or other event) of the log with all its
data. `Entries` iterates over the entries that match a search. A file is never held in memory. The entries before a
damaged place are returned, then the damage is raised. `layout` writes entries as text.
"""

import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, cast

from amps._core.journal.reader import FILE_HEADER_SIZE, LogDamaged, read_file_header
from amps._core.journal.search import RecordSearch, RecordWalker
from amps.journal.opening import READ_ERRORS, Stream, uncompressed

WRITE_TIME_S = 0.05
"""The longest time from the start of a server's write until all of it can be read."""
FLAG_NUMBERED_BY_SERVER = 1
FLAG_DELTA = 2

KIND_NAMES = {
    1: "publish",
    2: "delta_publish",
    3: "sow_delete",
    4: "queue_acknowledgement",
    5: "queue_expiry",
    6: "ownership_transfer",
    7: "checkpoint",
    8: "noop",
    9: "sow_expiry",
    20: "transaction_refused",
}


class Entry(NamedTuple):
    """An entry of a journal; the order of the fields is that of `RecordWalker.fields`."""

    number: int
    """Number of the entry in this file, from 0."""
    file_offset: int
    byte_count: int
    """Size of the record with its padding."""
    checksum: int
    kind: int
    flags: int
    txid: int
    previous_txid: int
    source_txid: int
    """Transaction id on the instance that sent it here. For a message that was published here and numbered by the
    server, name id of the client.
    """
    source_name_hash: int
    """Name id of the instance that sent it here, its upstream; 0: it was published here."""
    publisher_id: int
    sequence: int
    topic_hash: int
    expiry_ns: int | None
    """UNIX time in ns at which the message's own lifetime ends; None: it has no lifetime, or never expires."""
    timestamp_ns: int
    previous_byte_count: int
    topic: bytes
    message_type: bytes
    payload_byte_count: int
    payload: bytes
    """Empty if payloads were not requested."""
    correlation_id: bytes
    user_id: bytes
    sow_key: bytes
    client_name: bytes
    """Empty if the file has no name for the client."""
    path: bytes
    """The instances that it has passed, a line for each: name, group, epoch of its log, with tabs between; empty for a
    message published here.
    """
    previous_position: int | None
    """Log position of the previous record of the same key; None: the record does not have it."""
    client_id: int
    """Name id of the client that published it; 0: no client did."""
    deliver_at_ns: int | None = None
    """UNIX time in ns before which no queue delivers the message; None: it is not delayed."""
    transaction: tuple[int, int] | None = None
    """Its place among the entries of its transaction, from 1, and their number; None: it is in no transaction."""
    upstream: bytes = b""
    """The name of its upstream; empty if it was published here, or the file has no name for it."""

    @property
    def kind_name(self) -> str:
        """The command or kind of record, as text."""
        return KIND_NAMES.get(self.kind, f"unknown ({self.kind})")

    @property
    def flag_names(self) -> list[str]:
        """The flags, as texts."""
        known = {FLAG_NUMBERED_BY_SERVER: "numbered_by_server", FLAG_DELTA: "delta"}
        names = [name for bit, name in known.items() if self.flags & bit]
        rest = self.flags & ~(FLAG_NUMBERED_BY_SERVER | FLAG_DELTA)
        return [*names, f"unknown ({rest})"] if rest else names


class Survey(NamedTuple):
    """The summary of one walk through a journal."""

    entry_count: int
    end_offset: int
    """File offset after the last intact record."""
    first_txid: int
    last_txid: int
    first_timestamp_ns: int
    last_timestamp_ns: int
    upstreams: tuple[tuple[bytes, int, int], ...] = ()
    """Of each instance that sent entries here: name, its first and its last transaction id."""


class JournalFile:
    """An open journal, plain or compressed; `close` it, or use it in a `with` statement."""

    def __init__(
        self,
        path: Path | None,
        stream: Stream | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        """Open a file, or read `stream` instead, which can be read once.

        `progress` is called with the number of bytes read from the file as stored on the disk. Raises OSError, and
        LogDamaged if the content is no journal.
        """
        self.path = path
        self.name = str(path) if path is not None else "standard input"
        if path is None and stream is None:
            raise ValueError("there is neither a file nor a stream to read")
        self._raw = cast(Stream, path.open("rb") if path is not None else stream)
        self._owns_stream = path is not None
        self.can_rewind = path is not None
        self._begun = False
        self._progress = progress
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        self._stream = uncompressed(self._raw)
        header = read_file_header(_read_exactly(self, FILE_HEADER_SIZE), self.name)
        if header is None:
            raise LogDamaged(
                self.name, 0, "there is no journal header, only zeros: a spare that was not finished"
            )
        self.number, self.size, self.start_position, _, self.instance_name, self.in_use = header
        if self.size < FILE_HEADER_SIZE:
            raise LogDamaged(self.name, 32, f"the header says a file size of {self.size} bytes")
        if self.start_position >= 1 << 63:
            raise LogDamaged(self.name, 40, f"the header says log position {self.start_position}")

    def close(self) -> None:
        """Close the file; a stream passed by the caller stays open."""
        if self._owns_stream:
            self._raw.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def readinto(self, buffer: memoryview) -> int:
        """Read the next bytes of the uncompressed journal. Raises LogDamaged."""
        try:
            count = self._stream.readinto(buffer)
        except READ_ERRORS as error:
            raise LogDamaged(self.name, self._position(), f"it cannot be uncompressed: {error}") from error
        if self._progress is not None:
            self._progress(self._position())
        return count

    def _position(self) -> int:
        return self._raw.tell() if self.can_rewind else 0

    def entries(self, search: RecordSearch | None = None, *, with_payload: bool = True) -> "Entries":
        """The entries that match a search (default: all but no-ops), from the first on."""
        if self._begun:
            if not self.can_rewind:
                raise io.UnsupportedOperation("a stream can be read once")
            self._raw.seek(0)
            self._open()
        self._begun = True
        return Entries(self, search or RecordSearch(), with_payload)

    def grows_beyond(self, offset: int) -> bool:
        """True if an intact record is at `offset` now, where there was none: a server is writing to the journal."""
        if self.path is None:
            return False
        time.sleep(WRITE_TIME_S)
        with JournalFile(self.path) as again:
            nothing = RecordSearch(topic_flags=lambda topic, message_type: 0)
            walker = RecordWalker(again, again.size, again.start_position, nothing)
            walker.next_match()
            return walker.end_offset > offset

    def survey(self) -> tuple[Survey, LogDamaged | None]:
        """Walk through the whole journal. Returns the summary of the intact part, and the damage behind it or None."""
        walk = self.entries(RecordSearch(topic_flags=lambda topic, message_type: 0))
        damage = None
        try:
            for _ in walk:
                pass
        except LogDamaged as found:
            damage = found
        return walk.survey, damage


class Entries:
    """Iterates over the entries of a journal. Raises LogDamaged after the last intact one if the file is damaged."""

    def __init__(self, file: JournalFile, search: RecordSearch, with_payload: bool) -> None:
        self._file = file
        self._walker = RecordWalker(file, file.size, file.start_position, search)
        self._with_payload = with_payload

    def __iter__(self) -> Iterator[Entry]:
        if not self._file.in_use:
            return
        walker = self._walker
        while walker.next_match():
            yield Entry(*walker.fields(self._with_payload))
        if walker.problem is not None and not self._file.grows_beyond(walker.problem[0]):
            raise LogDamaged(self._file.name, *walker.problem)

    @property
    def survey(self) -> Survey:
        """The summary of the part read so far."""
        walker = self._walker
        return Survey(
            walker.entry_count,
            walker.end_offset,
            walker.first_txid,
            walker.last_txid,
            walker.first_timestamp_ns,
            walker.last_timestamp_ns,
            tuple(
                sorted(
                    (walker.names.get(upstream, b"%d" % upstream), *range_)
                    for upstream, range_ in walker.upstreams.items()
                )
            ),
        )

    @property
    def topics(self) -> list[tuple[bytes, bytes, int, int]]:
        """(topic, message type, hash, file offset of its record) by topic id, of the part read so far."""
        return self._walker.topics


def _read_exactly(file: JournalFile, size: int) -> bytes:
    """Read `size` bytes; fewer only at the end of the file."""
    data = bytearray(size)
    view = memoryview(data)
    filled = 0
    while filled < size:
        count = file.readinto(view[filled:])
        if not count:
            break
        filled += count
    return bytes(view[:filled])
