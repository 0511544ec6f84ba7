"""Stores with the documented constructors (client.md §7, §8). Their files have the format of this project.

A store of publishes has no limit unless a resize handler is set. Then its limit is its initial capacity, and the
handler is asked when it is reached: True doubles the limit, False means to wait and ask again.

A client closes its stores with itself (client.md §3.2), see `released`.
"""

import threading
import time
from collections.abc import Callable, Iterator
from os import PathLike
from typing import Any

from amps.client import FileBookmarkStore as _FileBookmarkStore
from amps.client import FilePublishStore as _FilePublishStore
from amps.client import HybridPublishStore as _HybridPublishStore
from amps.client import MemoryBookmarkStore as _MemoryBookmarkStore
from amps.client import MemoryPublishStore as _MemoryPublishStore
from amps.client import RecoveryPoint as _RecoveryPoint
from amps.client import RingBookmarkStore as _RingBookmarkStore
from amps.client import TimedOutException
from amps.compat.names import seconds, with_twins

BLOCK_BYTES = 2048
_WAIT_S = 1.0
"""The longest single wait of `flush`, so that a signal is noticed."""
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

    def _prepare(self, initial_bytes: int) -> None:
        self._initial_bytes = initial_bytes
        self._discarded = threading.Condition()

    def discard_up_to(self, sequence: int) -> None:
        """Discard everything up to this number; later numbers are above it."""
        super().discard_up_to(sequence)  # type: ignore[misc]
        with self._discarded:
            self._discarded.notify_all()

    def flush(self: Any, timeout: float = 0) -> None:
        """Wait until everything stored before the call is persisted, or refused; at most so many milliseconds.

        Raises TimedOutException.
        """
        last = self.highest_unpersisted()
        limit_s = seconds(timeout)
        deadline = None if limit_s is None else time.monotonic() + limit_s
        with self._discarded:
            while 0 < self.lowest_unpersisted() <= last:
                left_s = _WAIT_S if deadline is None else min(_WAIT_S, deadline - time.monotonic())
                if left_s <= 0:
                    raise TimedOutException(f"{self.unpersisted_count()} messages are not persisted in time")
                self._discarded.wait(left_s)

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
        self._prepare(initial_capacity * BLOCK_BYTES)

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
        self._prepare(blocks_per_realloc * BLOCK_BYTES)

    def truncate_on_close(self, enabled: bool) -> None:
        """No effect: files are removed as soon as all of their messages are persisted."""

    def set_limit(self, max_bytes: int | None) -> None:
        """Set the number of bytes that the store may keep; None = no limit."""
        self.max_bytes = max_bytes


@with_twins
class HybridPublishStore(_Resizable, _HybridPublishStore):
    """Keeps messages in memory up to a number, the oldest others in files. Those in memory die with this process."""

    def __init__(self, path: str | PathLike[str], max_memory_messages: int = 100_000) -> None:
        _HybridPublishStore.__init__(self, path, memory_messages=max_memory_messages)
        self._prepare(DEFAULT_BLOCKS * BLOCK_BYTES)

    def get_low_watermark(self) -> int:
        """The number of messages that are left in memory when the oldest go to files."""
        return self.low_watermark

    def set_low_watermark(self, messages: int) -> None:
        """Set the number of messages that are left in memory when the oldest go to files."""
        if not 0 <= messages < self.memory_messages:
            raise ValueError(f"low_watermark must lie between 0 and {self.memory_messages - 1}: {messages}")
        self.low_watermark = messages

    def set_limit(self, max_bytes: int | None) -> None:
        """Set the number of bytes that the store may keep; None = no limit."""
        self.max_bytes = max_bytes


class _Bookmarks:
    """What the documented API has for every bookmark store."""

    def get_oldest_bookmark_seq(self: Any, sub_id: str) -> int:
        """The position of the oldest message that is not discarded; 0 = none."""
        return int(self.get_oldest_seq(sub_id))

    def set_server_version(self, version: Any) -> None:
        """No effect: the store does not depend on the version of the server."""

    def set_resize_handler(self, handler: ResizeHandler | None) -> None:
        """No effect: the store has no limit, so there is nothing to ask."""


class _Point:
    """A recovery point that an adapter of the documented form fills in."""

    sub_id = ""
    bookmark = ""


class _Loading:
    """An adapter of the documented form, with the `load` that stores need; client.md §7."""

    def __init__(self, adapter: Any, factory: Callable[[], Any]) -> None:
        self._adapter = adapter
        self._factory = factory
        self.update = adapter.update
        self.purge = adapter.purge
        self.prune = adapter.prune
        self.close = adapter.close

    def load(self) -> Iterator[_RecoveryPoint]:
        """The points kept."""
        while self._adapter.next(point := self._factory()):
            yield _RecoveryPoint(point.sub_id, point.bookmark)


@with_twins
class MemoryBookmarkStore(_Bookmarks, _MemoryBookmarkStore):
    """Remembers in memory which messages of bookmark subscriptions were processed.

    `adapter` keeps the recovery points elsewhere. It has `load`, or the documented `next(point)`, which fills in the
    attributes `sub_id` and `bookmark` of a point and returns whether there was one. `factory` makes these points.
    """

    def __init__(self, adapter: Any = None, factory: Callable[[], Any] | None = None) -> None:
        if adapter is not None and not hasattr(adapter, "load"):
            adapter = _Loading(adapter, factory or _Point)
        super().__init__(adapter=adapter)


@with_twins
class MMapBookmarkStore(_Bookmarks, _FileBookmarkStore):
    """Remembers in a file which messages of bookmark subscriptions were processed."""

    def __init__(self, path: str | PathLike[str], use_last_modified_time: bool = False) -> None:
        # The file has all places itself, so its time is not needed.
        super().__init__(path)


LoggedBookmarkStore = MMapBookmarkStore
"""The name of MMapBookmarkStore in other languages."""


@with_twins
class RingBookmarkStore(_Bookmarks, _RingBookmarkStore):
    """Remembers in a file where each bookmark subscription resumes."""


def released(store: Any) -> None:
    """Close a store whose client is closed, so that the next client or process can open its files.

    Stores in memory have nothing to release, and closing them would forget messages that are not persisted. The adapter
    of a bookmark store is closed, because it may have points to write.
    """
    has_adapter = getattr(store, "_feed", None) is not None
    if store is not None and (has_adapter or not isinstance(store, _MemoryPublishStore | _MemoryBookmarkStore)):
        store.close()
