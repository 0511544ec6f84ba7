"""Types of the topic index; see topic_index.pyx."""

from collections.abc import Iterable

import numpy
from _typeshed import ReadableBuffer
from numpy.typing import NDArray

from amps._core.record_search import RecordWalker

MAGIC: bytes
VERSION: int
FILE_BYTES_MAX: int
HEADER_DTYPE: numpy.dtype[numpy.void]
ROW_DTYPE: numpy.dtype[numpy.void]

def build_topic_index(
    walker: RecordWalker, file_number: int, start_position: int, file_size: int
) -> bytes: ...

class TopicIndexReader:
    def __init__(self, memory: ReadableBuffer) -> None: ...
    @property
    def file_number(self) -> int: ...
    @property
    def start_position(self) -> int: ...
    @property
    def file_size(self) -> int: ...
    def topics(self) -> list[tuple[bytes, bytes, int]]: ...
    def offsets(self, topic_id: int) -> NDArray[numpy.uint64]: ...
    def blocks(self, topic_id: int, block_bytes: int) -> NDArray[numpy.uint64]: ...
    def next_offset(self, topic_ids: Iterable[int], from_offset: int) -> int | None: ...
