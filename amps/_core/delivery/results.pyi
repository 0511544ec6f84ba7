from collections.abc import Iterable

from _typeshed import ReadableBuffer

from amps._core.delivery.output import OutputBuffer
from amps._core.expressions.machine import FilterSet
from amps._core.journal.reader import LogFile
from amps._core.sow.ranking import Ranking
from amps._core.sow.table import StateReader
from amps._core.values.documents import Documents, Selection
from amps._core.wire.topics import TopicEntry

SCAN_DONE: int
SCAN_MORE: int
SCAN_FULL: int
SCAN_WAITS: int
SCAN_MISSING: int

class ResultFrames:
    def __init__(
        self,
        output: OutputBuffer,
        batch_size: int,
        with_key: bool = True,
        with_timestamp: bool = False,
        documents: Documents | None = None,
        selection: Selection | None = None,
        skip_count: int = 0,
        row_limit: int = ...,
        apart: bool = False,
    ) -> None: ...
    @property
    def returned(self) -> int: ...
    @property
    def frames(self) -> int: ...
    @property
    def is_full(self) -> bool: ...
    @property
    def waiting(self) -> int: ...
    def begin_topic(self, beginning: bytes) -> None: ...
    def add(
        self,
        key: ReadableBuffer,
        correlation: ReadableBuffer,
        timestamp_ns: int,
        deliver_at_ns: int,
        payload: ReadableBuffer,
    ) -> None: ...
    def flush(self) -> None: ...

class StateScan:
    def __init__(
        self,
        reader: StateReader,
        entry: TopicEntry,
        filters: FilterSet | None,
        txid: int,
        keys: Iterable[int] | None = None,
        frames: ResultFrames | None = None,
        counts_all: bool = True,
        collects_keys: bool = False,
        excluded: FilterSet | None = None,
        logical: list[tuple[TopicEntry, bytes] | None] | None = None,
        ranking: Ranking | None = None,
    ) -> None: ...
    @property
    def txid(self) -> int: ...
    @property
    def compared(self) -> int: ...
    @property
    def matched(self) -> int: ...
    @property
    def missing(self) -> tuple[LogFile, int, int, int]: ...
    def take_rows(self) -> list[tuple[int, int, bytes, int, bytes, bytes]]: ...
    def take_keys(self) -> dict[int, bytearray]: ...
    def run(self, written: int, until_ns: int) -> int: ...
