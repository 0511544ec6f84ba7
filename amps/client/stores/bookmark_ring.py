"""The bookmark store that keeps only the recovery point of each subscription in a file (client.md §7).

It is the store in memory with an adapter of its own. The adapter appends each point to a `RecordLog`, which is replaced
by a file with the newest points when it is long.
"""

import os
import struct
import threading
from collections.abc import Iterable, Iterator

from amps.client.protocol.message import Message
from amps.client.stores.bookmark import MemoryBookmarkStore
from amps.client.stores.bookmark_log import RecordLog, SyncMode, record
from amps.client.stores.recovery import RecoveryPoint

_LENGTH = struct.Struct("<H")


class _PointFile:
    """An adapter: keeps the newest recovery point of each subscription in a file."""

    def __init__(self, path: str | os.PathLike[str], sync: SyncMode, sync_interval: float) -> None:
        self._lock = threading.Lock()
        self._points: dict[str, str] = {}
        self._log = RecordLog(
            path, self._lock, state=self._records, live=lambda: len(self._points),
            sync=sync, sync_interval=sync_interval,
        )  # fmt: skip
        self._log.load(self._repeat)

    def load(self) -> Iterable[RecoveryPoint]:
        return [RecoveryPoint(*point) for point in self._points.items()]

    def update(self, point: RecoveryPoint) -> None:
        with self._lock:
            self._points[point.sub_id] = point.bookmark
            self._log.add(_record(*point))
            self._log.write()

    def purge(self, sub_id: str | None = None) -> None:
        with self._lock:
            before = self._points
            self._points = {} if sub_id is None else {name: p for name, p in before.items() if name != sub_id}
            try:
                self._log.replace()
            except BaseException:
                self._points = before
                raise

    def prune(self) -> None:
        with self._lock:
            self._log.replace()

    def close(self) -> None:
        with self._lock:
            self._log.close()

    def _repeat(self, kind: bytes, payload: bytes) -> None:
        try:
            (length,) = _LENGTH.unpack_from(payload)
        except struct.error as error:
            raise ValueError(f"a record of {len(payload)} bytes is too short") from error
        if kind != b"p":
            raise ValueError("it is the file of a FileBookmarkStore")
        rest = payload[_LENGTH.size :]
        self._points[rest[:length].decode()] = rest[length:].decode()

    def _records(self) -> Iterator[bytes]:
        return (_record(*point) for point in self._points.items())


def _record(sub_id: str, bookmark: str) -> bytes:
    name = sub_id.encode()
    return record(b"p", _LENGTH.pack(len(name)) + name + bookmark.encode())


class RingBookmarkStore:
    """Remembers in a file where each bookmark subscription resumes: a small file, of bounded length.

    After a crash all messages after the first that was not discarded repeat, also those that were discarded. `path`,
    `sync` and `sync_interval`, in seconds, and what happens if the file is damaged, locked or cannot be written: as for
    FileBookmarkStore.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, sync: SyncMode = "interval", sync_interval: float = 0.01
    ) -> None:
        self._store = MemoryBookmarkStore(adapter=_PointFile(path, sync, sync_interval))

    def log(self, message: Message) -> int:
        """Record an arriving message; return its store number, the same one if it was recorded before, 0 = none."""
        return self._store.log(message)

    def is_discarded(self, message: Message) -> bool:
        """Whether the message was discarded before, or delivered before in this run."""
        return self._store.is_discarded(message)

    def discard(self, sub_id: str, store_seq: int) -> None:
        """Note that the application has processed a message. StoreException: it is noted in memory only so far."""
        self._store.discard(sub_id, store_seq)

    def persisted(self, sub_id: str, bookmark: str) -> None:
        """Note that the log up to this bookmark is stable and holds no more messages for this subscription."""
        self._store.persisted(sub_id, bookmark)

    def get_most_recent(self, sub_id: str) -> str | None:
        """Return the bookmark, list of bookmarks or range to resume from; None = nothing known."""
        return self._store.get_most_recent(sub_id)

    def get_oldest_seq(self, sub_id: str) -> int:
        """The store number of the oldest message not discarded; 0 = none."""
        return self._store.get_oldest_seq(sub_id)

    def released(self, sub_id: str) -> None:
        """Note that the subscription ended: undiscarded messages may be delivered again."""
        self._store.released(sub_id)

    def purge(self, sub_id: str | None = None) -> None:
        """Remove the state of one subscription, or of all. StoreException if the file cannot be written: nothing is."""
        self._store.purge(sub_id)

    def prune(self) -> None:
        """Replace the file by one that has only the newest points. StoreException if there is no room for it."""
        self._store.prune()

    def close(self) -> None:
        """Write and sync what is left, and unlock the file. StoreException if that fails; it is closed then, too."""
        self._store.close()
