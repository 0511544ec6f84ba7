"""Stores with the documented constructors (client.md §7, §8). Their files have the format of this project.

A store of publishes has no limit unless a resize handler is set. Then its limit is its initial capacity, and the
handler is asked when it is reached: True doubles the limit, False means to wait and ask again.
"""

from collections.abc import Callable
from os import PathLike
from typing import Any

from amps.client import FileBookmarkStore as _FileBookmarkStore
from amps.client import FilePublishStore as _FilePublishStore
from amps.client import HybridPublishStore as _HybridPublishStore
from amps.client import MemoryBookmarkStore as _MemoryBookmarkStore
from amps.client import MemoryPublishStore as _MemoryPublishStore
from amps.client import RingBookmarkStore as _RingBookmarkStore
from amps.compat.names import with_twins

BLOCK_BYTES = 2048
DEFAULT_BLOCKS = 10_000

ResizeHandler = Callable[[Any, int], bool]
"""`handler(store, new_size)`, with the size in bytes: whether the store may grow to it."""


class _Resizable:
    """The resize handler of a publish store. `Client` asks it when the store raises StoreFullException."""

    resize_handler: ResizeHandler | None = None
    """Set by `set_resize_handler`."""
    max_bytes: int | None
    """The limit for the kept messages in bytes; None = no limit."""
    on_full: Any
    """What publishing does when the store is full: `wait`, or `raise`, with a resize handler."""
    _initial_bytes: int

    def set_resize_handler(self, handler: ResizeHandler | None) -> None:
        """Set the handler that decides whether the store may grow; None removes it, and the limit."""
        self.resize_handler = handler
        self.set_limit(None if handler is None else self._initial_bytes)
        self.on_full = "wait" if handler is None else "raise"

    def set_limit(self, max_bytes: int | None) -> None:
        """Set the number of bytes that the store may keep; None = no limit."""
        raise NotImplementedError

    def get_lowest_unpersisted(self: Any) -> int:
        """The lowest number of a message that is not persisted; 0 = none."""
        return int(self.lowest_unpersisted())

    def get_highest_unpersisted(self: Any) -> int:
        """The highest number of a message that is not persisted; 0 = none."""
        return int(self.highest_unpersisted())

    def get_last_persisted(self: Any) -> int:
        """The highest number that is known to be persisted; 0 = none."""
        return int(self.last_persisted())

    def get_error_on_publish_gap(self) -> bool:
        """Whether a server that lacks persisted messages of this client is refused."""
        return bool(getattr(self, "error_on_publish_gap"))  # noqa: B009

    def set_error_on_publish_gap(self, enabled: bool) -> None:
        """Refuse servers that lack persisted messages of this client."""
        self.error_on_publish_gap = enabled


@with_twins
class MemoryPublishStore(_Resizable, _MemoryPublishStore):
    """Keeps messages in memory. Capacity is in blocks of 2048 bytes."""

    def __init__(self, initial_capacity: int = DEFAULT_BLOCKS, error_on_publish_gap: bool = False) -> None:
        _MemoryPublishStore.__init__(self, error_on_publish_gap=error_on_publish_gap)
        self._initial_bytes = initial_capacity * BLOCK_BYTES

    def set_limit(self, max_bytes: int | None) -> None:
        """Set the number of bytes that the store may keep; None = no limit."""
        self.max_bytes = max_bytes
        self.frames.max_bytes = max_bytes or 0


@with_twins
class PublishStore(_Resizable, _FilePublishStore):
    """Keeps messages in files below the directory `path`; they survive the death of this process."""

    def __init__(
        self,
        path: str | PathLike[str],
        blocks_per_realloc: int = DEFAULT_BLOCKS,
        error_on_publish_gap: bool = False,
    ) -> None:
        _FilePublishStore.__init__(self, path, error_on_publish_gap=error_on_publish_gap)
        self._initial_bytes = blocks_per_realloc * BLOCK_BYTES

    def set_limit(self, max_bytes: int | None) -> None:
        """Set the number of bytes that the store may keep; None = no limit."""
        self.max_bytes = max_bytes


@with_twins
class HybridPublishStore(_Resizable, _HybridPublishStore):
    """Keeps messages in memory up to a number, the oldest others in files. Those in memory die with this process."""

    def __init__(self, path: str | PathLike[str], max_memory_messages: int = 100_000) -> None:
        _HybridPublishStore.__init__(self, path, memory_messages=max_memory_messages)
        self._initial_bytes = DEFAULT_BLOCKS * BLOCK_BYTES

    def set_limit(self, max_bytes: int | None) -> None:
        """Set the number of bytes that the store may keep; None = no limit."""
        self.max_bytes = max_bytes


@with_twins
class MemoryBookmarkStore(_MemoryBookmarkStore):
    """Remembers in memory which messages of bookmark subscriptions were processed."""

    def get_oldest_bookmark_seq(self, sub_id: str) -> int:
        """The position of the oldest message that is not discarded; 0 = none."""
        return self.get_oldest_seq(sub_id)


@with_twins
class MMapBookmarkStore(_FileBookmarkStore):
    """Remembers in a file which messages of bookmark subscriptions were processed."""

    def __init__(self, path: str | PathLike[str], use_last_modified_time: bool = False) -> None:
        # The file has all places itself, so its time is not needed.
        super().__init__(path)

    def get_oldest_bookmark_seq(self, sub_id: str) -> int:
        """The position of the oldest message that is not discarded; 0 = none."""
        return self.get_oldest_seq(sub_id)


LoggedBookmarkStore = MMapBookmarkStore
"""The name of MMapBookmarkStore in other languages."""


@with_twins
class RingBookmarkStore(_RingBookmarkStore):
    """Remembers in a file where each bookmark subscription resumes."""

    def get_oldest_bookmark_seq(self, sub_id: str) -> int:
        """The position of the oldest message that is not discarded; 0 = none."""
        return self.get_oldest_seq(sub_id)
