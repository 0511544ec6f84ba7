"""The bookmark store in a file: what was received and discarded survives the end of the process (client.md §19.7).

Each call that changes the state is a record of a `RecordLog`. `b`: sub id, store number, bookmark of a received
message; `d`: sub id, store number; `p`: sub id, bookmarks. A new process repeats the calls. Records of received
messages are written together with the next `d` or `p`: until then the server delivers these messages again anyway.
Only the first message of a publisher is written at once, because the place to resume from depends on it.

What may not live here: the algorithm (`bookmark`), the file's format and its failures (`bookmark_log`).
"""

import os
import struct
import threading
from collections.abc import Iterator

from amps.client.errors import StoreException
from amps.client.protocol.message import Message
from amps.client.stores.bookmark import Progress, purged
from amps.client.stores.bookmark_log import RecordLog, SyncMode, record
from amps.client.stores.recovery import AdapterFeed, RecoveryPointAdapter

_HEAD = struct.Struct("<QH")


class FileBookmarkStore:
    """Remembers in a file which messages of bookmark subscriptions were processed.

    - path: the file, made if it does not exist. `<path>.lock` beside it excludes a second store, here or in another
      process: StoreException. A client that is given the store does not close it: call `close`.
    - sync: `always`: a discarded message is on the device when `discard` returns; `interval`: after at most about
      `sync_interval` seconds; `never`: when the system decides. The death of the process loses nothing in any mode.
    - sync_interval: seconds.
    - prune_ratio: the file is replaced by a shorter one when more than this share of its records is obsolete; 1 =
      only by `prune`.
    - adapter: keeps recovery points outside, too; used for subscriptions that the file does not know.

    Raises StoreCorruptException if the file is damaged; a torn record at its end is dropped. If a write fails,
    `discard` raises StoreException; the discard is noted in memory, and is written when a later call finds room. What
    was discarded meanwhile repeats after a crash; nothing is lost. Messages without a bookmark are not recorded.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        sync: SyncMode = "interval",
        sync_interval: float = 0.01,
        prune_ratio: float = 0.5,
        adapter: RecoveryPointAdapter | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self._subscriptions: dict[str, Progress] = {}
        self._log = RecordLog(
            path, self._lock, state=self._records, live=self._live,
            sync=sync, sync_interval=sync_interval, prune_ratio=prune_ratio,
        )  # fmt: skip
        self._log.load(self._repeat)
        for progress in self._subscriptions.values():
            progress.released()
        self._feed = AdapterFeed(adapter) if adapter is not None else None
        if self._feed is not None:
            try:
                for point in self._feed.load():
                    if point.sub_id not in self._subscriptions:
                        self._of(point.sub_id).restore(point.bookmark)
            except BaseException:
                self._log.close()
                raise

    def log(self, message: Message) -> int:
        """Record an arriving message; return its store number, the same one if it was recorded before, 0 = none."""
        bookmark = message.bookmark
        if bookmark is None:
            return 0
        sub_id = message._sub_id or message.sub_id or ""
        with self._lock:
            progress = self._subscriptions.get(sub_id) or self._of(sub_id)
            last = progress.last
            seq = progress.log(bookmark)
            if seq > last:
                self._log.add(_record("b", sub_id, seq, bookmark))
                if progress.begins_with(bookmark):
                    self._write_quietly()
                    if self._feed is not None:
                        self._feed.note(sub_id, progress.recovery_point)
            return seq

    def is_discarded(self, message: Message) -> bool:
        """Whether the message was discarded before, or delivered before in this run."""
        bookmark = message.bookmark
        if bookmark is None:
            return False
        with self._lock:
            progress = self._subscriptions.get(message._sub_id or message.sub_id or "")
            return progress is not None and progress.is_discarded(bookmark)

    def discard(self, sub_id: str, store_seq: int) -> None:
        """Note that the application has processed a message; calls may come in any order. Repeated ones have no effect.

        StoreException: it is noted in memory only so far.
        """
        with self._lock:
            progress = self._subscriptions.get(sub_id)
            if progress is None:
                return
            oldest = progress.oldest
            if progress.discard(store_seq):
                self._log.add(_record("d", sub_id, store_seq, ""))
                try:
                    self._log.write()
                finally:
                    if self._feed is not None and progress.oldest != oldest:
                        self._feed.note(sub_id, progress.recovery_point)
            elif self._log.failed:
                self._log.write()
            if self._feed is not None:
                self._feed.settle()

    def persisted(self, sub_id: str, bookmark: str) -> None:
        """Note that the log up to this bookmark is stable and holds no more messages for this subscription."""
        with self._lock:
            progress = self._of(sub_id)
            if progress.persisted(bookmark):
                self._log.add(_record("p", sub_id, 0, bookmark))
                self._write_quietly()
                if self._feed is not None:
                    self._feed.note(sub_id, progress.recovery_point)

    def get_most_recent(self, sub_id: str) -> str | None:
        """Return the bookmark, list of bookmarks or range to resume from; None = nothing known."""
        with self._lock:
            progress = self._subscriptions.get(sub_id)
            return progress.most_recent() if progress is not None else None

    def get_oldest_seq(self, sub_id: str) -> int:
        """The store number of the oldest message not discarded; 0 = none."""
        with self._lock:
            progress = self._subscriptions.get(sub_id)
            return progress.oldest if progress is not None and progress.oldest <= progress.last else 0

    def released(self, sub_id: str) -> None:
        """Note that the subscription ended: undiscarded messages may be delivered again."""
        with self._lock:
            progress = self._subscriptions.get(sub_id)
            if progress is not None:
                progress.released()

    def purge(self, sub_id: str | None = None) -> None:
        """Remove the state of one subscription, or of all. StoreException if the file cannot be written: nothing is."""
        with self._lock:
            before = self._subscriptions
            self._subscriptions = {**before, **purged(before, sub_id)}
            try:
                self._log.replace()
            except StoreException:
                self._subscriptions = before
                raise
            if self._feed is not None:
                self._feed.purge(sub_id)

    def prune(self) -> None:
        """Replace the file by one that has only what is still needed. StoreException if there is no room for it."""
        with self._lock:
            self._log.replace()
            if self._feed is not None:
                self._feed.prune()

    def close(self) -> None:
        """Write and sync what is left, and unlock the file. StoreException if that fails; it is closed then, too."""
        with self._lock:
            try:
                self._log.close()
            finally:
                if self._feed is not None:
                    self._feed.close()

    def _write_quietly(self) -> None:
        try:
            self._log.write()
        except StoreException:
            """On the thread that receives: the next `discard` raises it."""

    def _of(self, sub_id: str) -> Progress:
        progress = self._subscriptions.get(sub_id)
        if progress is None:
            progress = self._subscriptions[sub_id] = Progress()
        return progress

    def _repeat(self, kind: bytes, payload: bytes) -> None:
        try:
            seq, length = _HEAD.unpack_from(payload)
            sub_id = payload[_HEAD.size : _HEAD.size + length].decode()
            bookmark = payload[_HEAD.size + length :].decode()
        except struct.error as error:
            raise ValueError(f"a record of {len(payload)} bytes is too short") from error
        self._of(sub_id).repeat(kind.decode(), seq, bookmark)

    def _records(self) -> Iterator[bytes]:
        for sub_id, progress in self._subscriptions.items():
            for kind, seq, bookmark in progress.history():
                yield _record(kind, sub_id, seq, bookmark)

    def _live(self) -> int:
        return sum(progress.record_count for progress in self._subscriptions.values())


def _record(kind: str, sub_id: str, seq: int, bookmark: str) -> bytes:
    name = sub_id.encode()
    return record(kind.encode(), _HEAD.pack(seq, len(name)) + name + bookmark.encode())
