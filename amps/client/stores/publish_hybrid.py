"""A publish store in memory with a bound, whose oldest messages go to files (client.md §8, §19.7).

Invariants: the messages in the files come before those in memory. The numbers of both together are consecutive.
`Outbox.publish` adds messages to those in memory without a lock, up to a number (`FrameLog.stop_at`). There the store
decides again: what goes to files, and up to where. With `max_bytes` it decides for each message.
"""

import threading
from collections.abc import Callable
from os import PathLike
from typing import Any

from amps.client.errors import PublishStoreGapException, StoreException, StoreFullException
from amps.client.protocol.command import Command, command_from_frame
from amps.client.protocol.store_interfaces import OnFullStore
from amps.client.protocol.traffic import FrameLog
from amps.client.stores.publish_file import FilePublishStore, abandon_after_fork

SPILL_MESSAGES = 16
"""How many messages one publish moves to the files: no publish takes long."""


class HybridPublishStore:
    """Keeps up to `memory_messages` messages in memory; beyond that, the oldest go to files.

    Each publish then moves some, until `low_watermark` are in memory, by default half of `memory_messages`. Messages in
    memory do not survive the death of this process; `close` writes them to the files. The other arguments are those
    of FilePublishStore.
    """

    keeps_name = True
    """The directory belongs to the client's name, so the client must have the same in each run."""

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        memory_messages: int = 100_000,
        low_watermark: int | None = None,
        **file_args: Any,
    ) -> None:
        if memory_messages < 1:
            raise ValueError(f"memory_messages must be positive: {memory_messages}")
        self.memory_messages = memory_messages
        """The number of messages in memory beyond which the oldest go to files."""
        self.low_watermark = memory_messages // 2 if low_watermark is None else low_watermark
        """The number of messages that are left in memory then."""
        if not 0 <= self.low_watermark < memory_messages:
            raise ValueError(f"low_watermark must lie between 0 and {memory_messages - 1}: {low_watermark}")
        self._file = FilePublishStore(path, **file_args)
        self.path = self._file.path
        """The directory of the files."""
        self.sync_waits = self._file.sync_waits
        """Whether `sync` waits for the disk."""
        self._max_bytes = self._file.max_bytes
        self._file.max_bytes = None  # the limit is for both together
        self.on_full: OnFullStore = self._file.on_full
        """What publishing does when the store is full: `wait` or `raise`."""
        self.error_on_publish_gap = self._file.error_on_publish_gap
        """Whether a logon fails if the server lacks messages that are known to be persisted."""
        self._memory = FrameLog()
        self._memory.stop_at = 0
        self.frames: FrameLog | None = None if self.sync_waits else self._memory
        """Where `Outbox.publish` adds messages without a lock; None if the files are synced meanwhile."""
        self._lock = threading.Lock()
        self._spilling = False
        self._listener: Callable[[int], None] | None = None
        abandon_after_fork(self)

    @property
    def max_bytes(self) -> int | None:
        """The limit for the kept messages in bytes; None = no limit."""
        return self._max_bytes

    @max_bytes.setter
    def max_bytes(self, limit: int | None) -> None:
        with self._lock:
            self._max_bytes = limit
            self._memory.stop_at = 0

    def _forked(self) -> None:
        self._lock = threading.Lock()
        self._memory.stop_at = 0

    def open(self, client_name: str) -> None:
        """Lock the directory and recover the messages in the files. Raises as FilePublishStore.open does."""
        with self._lock:
            if self._file.is_open:
                self._file.open(client_name)  # the same name, or refused
                return
            self._file.open(client_name)
            self._memory.restart(self._file.next_number)

    def store(self, command: Command) -> int:
        """Assign and return `command.sequence`; keep the encoded command. Raises as `append` does."""
        command.sequence = self.append(*command.numbered_parts())
        return command.sequence

    def append(self, start: bytes, body: bytes) -> int:
        """Number and keep a frame; return its number.

        Raises StoreFullException at `max_bytes`, StoreException if messages must go to files and the disk is full.
        """
        with self._lock:
            while not (sequence := self._memory.append(start, body)):
                self._make_room()
            return sequence

    def make_room(self, frame_bytes: int) -> None:
        """Make room for a message that `frames` has refused. Raises as `append` does."""
        with self._lock:
            self._make_room()

    def _make_room(self) -> None:
        memory = self._memory
        if not self._file.is_open:
            raise StoreException(f"the publish store {self.path} is not open; call open(name)")
        if memory.next_number < memory.stop_at:
            return
        if self.max_bytes is not None and self._kept_bytes() >= self.max_bytes:
            raise StoreFullException(
                f"the publish store holds {self._kept_bytes()} of {self.max_bytes} bytes"
            )
        if self._spilling or memory.count >= self.memory_messages:
            self._spill(max(self.low_watermark, memory.count - SPILL_MESSAGES))
            self._spilling = memory.count > self.low_watermark
        if self._spilling or self.max_bytes is not None:
            memory.stop_at = memory.next_number + 1
        else:
            memory.stop_at = memory.next_number + self.memory_messages - memory.count

    def _kept_bytes(self) -> int:
        return self._memory.kept_bytes + self._file.kept_bytes

    def _spill(self, left: int) -> None:
        """Move the oldest messages from memory to the files, until `left` are in memory."""
        memory = self._memory
        first = memory.lowest
        try:
            for number in range(first, first + memory.count - left):
                frame = memory.frame(number)
                assert frame is not None
                self._file.append_frame(frame)
        finally:
            memory.drop_up_to(self._file.next_number - 1)

    def sync(self, sequence: int) -> None:
        """Make messages in the files durable, as FilePublishStore does; messages in memory are not."""
        self._file.sync(min(sequence, self._file.next_number - 1))

    def discard_up_to(self, sequence: int) -> None:
        """Discard everything up to this number; later numbers are above it.

        Raises PublishStoreGapException, with `error_on_publish_gap`, for a number below the last persisted one.
        """
        with self._lock:
            persisted = self._file.last_persisted()
            if sequence < persisted:
                if self.error_on_publish_gap:
                    raise PublishStoreGapException(
                        f"the server has persisted up to {sequence} of this client, another server up to"
                        f" {persisted}: this server lags behind"
                    )
                return
            self._file.discard_up_to(sequence)
            self._memory.drop_up_to(sequence)
            self._memory.raise_next(sequence + 1)
            listener = self._listener
        if listener is not None:
            listener(sequence)

    def replay(self, replayer: Callable[[bytes, int], None]) -> None:
        """Call `replayer` with each kept frame and its number, in ascending order."""
        for sequence in range(self._file.last_persisted() + 1, self._memory.next_number):
            self.replay_single(replayer, sequence)

    def replay_single(self, replayer: Callable[[bytes, int], None], sequence: int) -> bool:
        """Call `replayer` for one number; return False if it is not kept."""
        frame = self._frame(sequence)
        if frame is None:
            return False
        replayer(frame, sequence)
        return True

    def find(self, sequence: int) -> Command | None:
        """Return the command with this number; None if it is not kept."""
        frame = self._frame(sequence)
        return None if frame is None else command_from_frame(frame)

    def _frame(self, sequence: int) -> bytes | None:
        with self._lock:
            return self._memory.frame(sequence) or self._file.frame(sequence)

    def unpersisted_count(self) -> int:
        """The number of messages kept."""
        with self._lock:
            return self._memory.count + self._file.unpersisted_count()

    def lowest_unpersisted(self) -> int:
        """The lowest kept number; 0 = none."""
        with self._lock:
            return self._file.lowest_unpersisted() or self._memory.lowest

    def highest_unpersisted(self) -> int:
        """The highest kept number; 0 = none."""
        with self._lock:
            return self._memory.next_number - 1 if self._memory.count else self._file.highest_unpersisted()

    def last_persisted(self) -> int:
        """The highest number known to be persisted; 0 = none."""
        return self._file.last_persisted()

    def set_discard_listener(self, fn: Callable[[int], None] | None) -> None:
        """Call `fn` with the last persisted number whenever it rises; the client sets it."""
        self._listener = fn

    def close(self) -> None:
        """Write the messages in memory to the files and release the directory; the messages stay there."""
        with self._lock:
            self._memory.stop_at = 0
            try:
                if self._file.is_open:
                    self._spill(0)
            finally:
                self._memory.clear()
                self._file.close()
