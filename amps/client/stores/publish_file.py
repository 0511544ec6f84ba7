"""A publish store in a directory: its messages survive the death of the process (client.md §8, §19.7).

Invariants: the numbers and the files are those of `segments`. `_lock` guards the log, apart from the records that
`Outbox.publish` adds through `frames`. `_commit_lock` is held while a thread waits for the disk, so that one fsync
serves all threads that wait; `_lock` is never held meanwhile. After a failure of the disk, the log stays sealed.
"""

import os
import threading
import weakref
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Literal, Protocol

from amps.client.errors import PublishStoreGapException, StoreException, StoreFullException
from amps.client.protocol.command import FRAME_OVERHEAD_BYTES, Command, command_from_frame
from amps.client.protocol.store_interfaces import OnFullStore
from amps.client.protocol.traffic import SegmentWriter
from amps.client.stores.segments import SegmentLog

Sync = Literal["always", "interval", "never"]


class FilePublishStore:
    """Keeps messages in files: they survive the death of this process at any instant.

    After a restart, a client with the same name sends the messages that are not persisted, and continues numbering.
    One store can use the directory `path` at a time; it belongs to one client name. In a forked child, the store is
    closed. A client that is given a store does not close it: the store may outlive it, and serve another client. Call
    `close` before another store opens the directory. `HAClient.file_backed` makes stores that the client closes.

    `sync` determines what survives a crash of the machine. With `always`, a publish returns when its message is on the
    disk. With `interval`, messages are written every `sync_interval` seconds; with `never`, the operating system
    decides. `segment_bytes` is the size of a file, which is allocated in full. `max_bytes`, `on_full` and
    `error_on_publish_gap` are as for MemoryPublishStore; a message counts with 16 bytes more. If the disk is full,
    publishing raises StoreException; the store keeps what it holds, and takes messages when there is room again.
    """

    keeps_name = True
    """The directory belongs to the client's name, so the client must have the same in each run."""

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        max_bytes: int | None = None,
        on_full: OnFullStore = "wait",
        segment_bytes: int = 64 * 2**20,
        sync: Sync = "interval",
        sync_interval: float = 0.01,
        error_on_publish_gap: bool = False,
    ) -> None:
        if max_bytes is not None and max_bytes <= 0:
            raise ValueError(f"max_bytes must be positive: {max_bytes}")
        if on_full not in ("wait", "raise"):
            raise ValueError(f"on_full must be 'wait' or 'raise': {on_full!r}")
        if not 4096 <= segment_bytes <= 2**31:
            raise ValueError(f"segment_bytes must lie between 4096 and 2**31: {segment_bytes}")
        if sync not in ("always", "interval", "never"):
            raise ValueError(f"sync must be 'always', 'interval' or 'never': {sync!r}")
        if not sync_interval > 0:
            raise ValueError(f"sync_interval must be positive: {sync_interval}")
        self.path = Path(path)
        """The directory of the files."""
        self.on_full: OnFullStore = on_full
        """What publishing does when the store is full: `wait` or `raise`."""
        self.error_on_publish_gap = error_on_publish_gap
        """Whether a logon fails if the server lacks messages that are known to be persisted."""
        self.sync_mode: Sync = sync
        """When messages are written to the disk: `always`, `interval` or `never`."""
        self.sync_waits = sync == "always"
        """Whether `sync` waits for the disk."""
        self.sync_interval = sync_interval
        """Seconds between two writes to the disk, with `interval`."""
        self._lock = threading.Lock()
        self._commit_lock = threading.Lock()
        self._log = SegmentLog(self.path, segment_bytes)
        self.max_bytes = max_bytes
        self.frames: SegmentWriter | None = None if self.sync_waits else self._log.writer
        """Where `Outbox.publish` adds messages without a lock; None if each waits for the disk."""
        self._name: str | None = None
        self._listener: Callable[[int], None] | None = None
        self._durable = 0
        self._failed: StoreException | None = None
        self._closing = threading.Event()
        self._flusher: threading.Thread | None = None
        abandon_after_fork(self)

    @property
    def max_bytes(self) -> int | None:
        """The limit for the kept messages in bytes; None = no limit."""
        return self._log.writer.max_bytes or None

    @max_bytes.setter
    def max_bytes(self, limit: int | None) -> None:
        self._log.writer.max_bytes = limit or 0

    def _forked(self) -> None:
        self._lock = threading.Lock()
        self._commit_lock = threading.Lock()
        self._flusher = None
        self._log.abandon()

    def open(self, client_name: str) -> None:
        """Lock the directory and recover its messages.

        Raises StoreException if another process uses it or it belongs to another name, StoreCorruptException if a
        file is damaged.
        """
        with self._lock:
            if self._log.is_open:
                if self._name != client_name:
                    raise StoreException(
                        f"the publish store {self.path} belongs to client {self._name!r}; give client"
                        f" {client_name!r} another directory"
                    )
                return
            self._log.open(client_name)
            self._name = client_name
            self._failed = None
            self._durable = 0
            self._closing.clear()
            if self.sync_mode == "interval":
                self._flusher = threading.Thread(
                    target=self._flush_regularly, name=f"amps-store:{client_name}", daemon=True
                )
                self._flusher.start()

    @property
    def is_open(self) -> bool:
        """Whether the directory is locked by this store."""
        return self._log.is_open

    @property
    def next_number(self) -> int:
        """The number after the highest one in the files, or persisted."""
        return self._log.next_number

    @property
    def kept_bytes(self) -> int:
        """The bytes of the messages in the files that are not persisted."""
        return self._log.kept_bytes

    def store(self, command: Command) -> int:
        """Assign and return `command.sequence`; keep the encoded command. Raises as `append` does."""
        command.sequence = self.append(*command.numbered_parts())
        return command.sequence

    def append(self, start: bytes, body: bytes) -> int:
        """Number and keep a frame; return its number.

        Raises StoreFullException at `max_bytes`, StoreException if the disk is full or has failed.
        """
        with self._lock:  # not acquire(): an interrupt right after it would leave the lock held for ever
            while not (sequence := self._log.writer.append(start, body)):
                self._make_room(len(start) + len(body) + FRAME_OVERHEAD_BYTES)
            return sequence

    def make_room(self, frame_bytes: int) -> None:
        """Make room for a frame that `frames` has refused. Raises as `append` does."""
        with self._lock:
            self._make_room(frame_bytes)

    def _make_room(self, frame_bytes: int) -> None:
        log = self._log
        if self.max_bytes is not None and log.kept_bytes >= self.max_bytes:
            raise StoreFullException(f"the publish store holds {log.kept_bytes} of {self.max_bytes} bytes")
        if self._failed is not None:
            raise StoreException(str(self._failed))
        log.make_room(frame_bytes)

    def append_frame(self, frame: bytes) -> None:
        """Keep a frame that has `next_number` already. Raises StoreException if the disk is full or has failed."""
        with self._lock:
            while not self._log.writer.add(frame):
                self._make_room(len(frame))

    def sync(self, sequence: int) -> None:
        """With sync="always": return when everything up to this number is on the disk. One fsync serves all threads.

        Raises StoreException if the disk fails; the message is in the store, but may not survive a crash.
        """
        if self.sync_mode != "always" or sequence <= self._durable:
            return
        with self._commit_lock:
            if sequence > self._durable:
                self._commit()

    def _commit(self) -> None:
        with self._lock:
            if self._failed is not None:
                raise StoreException(str(self._failed))
            if not self._log.is_open:
                return
            last = self._log.next_number - 1
            paths = self._log.take_unsynced()
        try:
            self._log.synced(paths)
        except StoreException as error:
            with self._lock:
                self._failed = error  # after a failed fsync, nothing tells which messages are on the disk
                self._log.writer.seal()
            raise
        with self._lock:
            self._log.note_durable(last)
        self._durable = last

    def _flush_regularly(self) -> None:
        while not self._closing.wait(self.sync_interval):
            if self._log.next_number - 1 > self._durable:
                try:
                    with self._commit_lock:
                        self._commit()
                except StoreException:
                    return  # the next append raises it

    def discard_up_to(self, sequence: int) -> None:
        """Discard everything up to this number; later numbers are above it.

        Raises PublishStoreGapException, with `error_on_publish_gap`, for a number below the last persisted one.
        """
        with self._lock:
            persisted = self._log.persisted
            if sequence < persisted:
                if self.error_on_publish_gap:
                    raise PublishStoreGapException(
                        f"the server has persisted up to {sequence} of this client, another server up to"
                        f" {persisted}: this server lags behind"
                    )
                return
            self._log.discard_up_to(sequence)
            listener = self._listener
        if listener is not None:
            listener(sequence)

    def replay(self, replayer: Callable[[bytes, int], None]) -> None:
        """Call `replayer` with each kept frame and its number, in ascending order."""
        for sequence in range(self._log.persisted + 1, self._log.next_number):
            self.replay_single(replayer, sequence)

    def replay_single(self, replayer: Callable[[bytes, int], None], sequence: int) -> bool:
        """Call `replayer` for one number; return False if it is not kept."""
        frame = self.frame(sequence)
        if frame is None:
            return False
        replayer(frame, sequence)
        return True

    def find(self, sequence: int) -> Command | None:
        """Return the command with this number; None if it is not kept."""
        frame = self.frame(sequence)
        return None if frame is None else command_from_frame(frame)

    def frame(self, sequence: int) -> bytes | None:
        """Return the frame with this number; None if it is not kept."""
        with self._lock:
            return self._log.frame(sequence)

    def unpersisted_count(self) -> int:
        """The number of messages kept."""
        with self._lock:
            return self._log.count

    def lowest_unpersisted(self) -> int:
        """The lowest kept number; 0 = none."""
        with self._lock:
            return self._log.lowest

    def highest_unpersisted(self) -> int:
        """The highest kept number; 0 = none."""
        with self._lock:
            return self._log.next_number - 1 if self._log.count else 0

    def last_persisted(self) -> int:
        """The highest number known to be persisted; 0 = none."""
        return self._log.persisted

    def set_discard_listener(self, fn: Callable[[int], None] | None) -> None:
        """Call `fn` with the last persisted number whenever it rises; the client sets it."""
        self._listener = fn

    def close(self) -> None:
        """Write everything to the disk (unless sync="never") and release the directory; the messages stay there."""
        self._closing.set()
        if self._flusher is not None:
            self._flusher.join()
            self._flusher = None
        try:
            if self.sync_mode != "never" and self._failed is None:
                with self._commit_lock:
                    self._commit()
        finally:
            with self._lock:
                self._log.close()


class _Forkable(Protocol):
    def _forked(self) -> None:
        """Forget the directory in a forked child; no other thread exists there, and no old lock may be taken."""


_stores: weakref.WeakSet[_Forkable] = weakref.WeakSet()


def abandon_after_fork(store: _Forkable) -> None:
    """Call `_forked` of a store in each forked child: the directory belongs to the parent."""
    _stores.add(store)


def _abandon_all() -> None:
    for store in list(_stores):
        store._forked()


os.register_at_fork(after_in_child=_abandon_all)
