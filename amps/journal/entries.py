"""One journal file as entries, for whoever looks into it: opened plain or compressed, read as a stream.

`JournalFile` opens a journal and checks its header, `Entry` is one message (or other event) of the log with all that
is known of it, `Entries` iterates over those that a search wants. A file is never held in memory; what lies before a
damaged place is given, then the damage is told. How entries are written as text is the business of `layout`.
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
"""How long a write of a server may take until all of it can be read."""
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
}


class Entry(NamedTuple):
    """An entry of a journal; the order of the fields is that of `RecordWalker.fields`."""

    number: int
    """From 0, in this file."""
    file_offset: int
    byte_count: int
    """Of the record with its padding."""
    checksum: int
    kind: int
    flags: int
    txid: int
    previous_txid: int
    source_txid: int
    """Transaction id on the instance that it was published to. Of a message that was published here and numbered by the
    server: name id of the client.
    """
    source_name_hash: int
    """Name id of the instance that it was published to; 0: this one."""
    publisher_id: int
    sequence: int
    topic_hash: int
    expiry_ns: int | None
    """UNIX time at which the message's own lifetime ends; None: it has none, or never expires."""
    timestamp_ns: int
    previous_byte_count: int
    topic: bytes
    message_type: bytes
    payload_byte_count: int
    payload: bytes
    """Empty if payloads were not asked for."""
    correlation_id: bytes
    user_id: bytes
    sow_key: bytes
    client_name: bytes
    """Empty: the file does not name the client."""
    path: bytes
    """Names of the instances that it has passed, with a line feed between them; empty for what was published here."""
    previous_position: int | None
    """Log position of the previous record of the same key; None: it is not told."""

    @property
    def kind_name(self) -> str:
        """Command or kind of record, in words."""
        return KIND_NAMES.get(self.kind, f"unknown ({self.kind})")

    @property
    def flag_names(self) -> list[str]:
        """Flags in words."""
        known = {FLAG_NUMBERED_BY_SERVER: "numbered_by_server", FLAG_DELTA: "delta"}
        names = [name for bit, name in known.items() if self.flags & bit]
        rest = self.flags & ~(FLAG_NUMBERED_BY_SERVER | FLAG_DELTA)
        return [*names, f"unknown ({rest})"] if rest else names


class Survey(NamedTuple):
    """What one walk through a whole journal finds out."""

    entry_count: int
    end_offset: int
    """File offset after the last intact record."""
    first_txid: int
    last_txid: int
    first_timestamp_ns: int
    last_timestamp_ns: int


class JournalFile:
    """An open journal, plain or compressed; `close` it, or use it in a `with` statement."""

    def __init__(
        self,
        path: Path | None,
        stream: Stream | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        """`stream`: read this instead of a file, once. `progress` is told how many bytes of the file, as it lies on
        the disk, were read. Raises OSError, and LogDamaged for what is no journal.
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
        """Close the file; a stream that was given stays open."""
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
        """The next bytes of the journal as it is uncompressed. Raises LogDamaged."""
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
        """The entries that are searched for (default: all but no-ops), from the first on."""
        if self._begun:
            if not self.can_rewind:
                raise io.UnsupportedOperation("a stream can be read once")
            self._raw.seek(0)
            self._open()
        self._begun = True
        return Entries(self, search or RecordSearch(), with_payload)

    def grows_beyond(self, offset: int) -> bool:
        """Whether what was no intact record at an offset is one now: a server is writing to the journal."""
        if self.path is None:
            return False
        time.sleep(WRITE_TIME_S)
        with JournalFile(self.path) as again:
            nothing = RecordSearch(topic_flags=lambda topic, message_type: 0)
            walker = RecordWalker(again, again.size, again.start_position, nothing)
            walker.next_match()
            return walker.end_offset > offset

    def survey(self) -> tuple[Survey, LogDamaged | None]:
        """Walk through all of it: what is intact, and the damage that ends it."""
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
        """Of what was walked through so far."""
        walker = self._walker
        return Survey(
            walker.entry_count,
            walker.end_offset,
            walker.first_txid,
            walker.last_txid,
            walker.first_timestamp_ns,
            walker.last_timestamp_ns,
        )

    @property
    def topics(self) -> list[tuple[bytes, bytes, int, int]]:
        """(topic, message type, hash, file offset of its record) by topic id, of what was walked through."""
        return self._walker.topics


def _read_exactly(file: JournalFile, size: int) -> bytes:
    """So many bytes, fewer only at the end."""
    data = bytearray(size)
    view = memoryview(data)
    filled = 0
    while filled < size:
        count = file.readinto(view[filled:])
        if not count:
            break
        filled += count
    return bytes(view[:filled])
