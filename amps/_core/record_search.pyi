"""Types of going through journals; see record_search.pyx."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

TOPIC_WANTED: int
TOPIC_HOLDS_TEXT: int
NO_LIMIT: int
NOTHING: bytes

class _Source(Protocol):
    def readinto(self, buffer: memoryview, /) -> int: ...

class RecordSearch:
    def __init__(
        self,
        publishers: Sequence[int] = (),
        bookmark: tuple[int, int] | None = None,
        txid: int | None = None,
        texts: Iterable[bytes] = (),
        whole_record: bool = False,
        text_bookmark: tuple[int, int] | None = None,
        topic_flags: Callable[[bytes, bytes], int] | None = None,
        first_number: int = 0,
        end_number: int = ...,
        include_noops: bool = False,
    ) -> None: ...

class RecordWalker:
    def __init__(
        self, source: _Source, file_size: int, start_position: int, search: RecordSearch
    ) -> None: ...
    @property
    def topics(self) -> list[tuple[bytes, bytes, int, int]]: ...
    @property
    def offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def entry_count(self) -> int: ...
    @property
    def previous_txid(self) -> int: ...
    @property
    def previous_byte_count(self) -> int: ...
    @property
    def first_txid(self) -> int: ...
    @property
    def last_txid(self) -> int: ...
    @property
    def first_timestamp_ns(self) -> int: ...
    @property
    def last_timestamp_ns(self) -> int: ...
    @property
    def finished(self) -> bool: ...
    @property
    def problem(self) -> tuple[int, str] | None: ...
    def next_match(self) -> bool: ...
    def fields(
        self, with_payload: bool
    ) -> tuple[
        int,
        int,
        int,
        int,
        int,
        int,
        int,
        int,
        int,
        int,
        int,
        int,
        int,
        int | None,
        int,
        int,
        bytes,
        bytes,
        int,
        bytes,
        bytes,
        bytes,
        bytes,
    ]: ...
