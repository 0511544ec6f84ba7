"""Publish stores: they number all commands that change stored state and keep them until they are persisted.

A store assigns sequence numbers without gaps between its messages, keeps each encoded frame until the
server has acknowledged it, and returns the remaining frames after a reconnect. Its numbers start above both
its own last number and the number in the logon acknowledgement. The engine calls it with the engine
lock held, so that order of numbers is order on the wire; no call may wait. The client waits for room, not the
store.
"""

import threading
from collections.abc import Callable

from amps.client.errors import PublishStoreGapException, StoreException, StoreFullException
from amps.client.protocol.command import Command, command_from_frame
from amps.client.protocol.store_interfaces import OnFullStore
from amps.client.protocol.traffic import FrameLog


class MemoryPublishStore:
    """Keeps messages in memory: they survive the loss of the server, not of this process.

    `max_bytes` bounds the kept frames (one message may exceed it); `on_full` determines whether publishing then
    waits or raises StoreFullException. With `error_on_publish_gap`, a logon fails if the server's last sequence is
    below the last one that is known to be persisted.
    """

    def __init__(
        self,
        *,
        max_bytes: int | None = None,
        on_full: OnFullStore = "wait",
        error_on_publish_gap: bool = False,
    ) -> None:
        if max_bytes is not None and max_bytes <= 0:
            raise ValueError(f"max_bytes must be positive: {max_bytes}")
        if on_full not in ("wait", "raise"):
            raise ValueError(f"on_full must be 'wait' or 'raise': {on_full!r}")
        self.on_full: OnFullStore = on_full
        """What publishing does when the store is full: `wait` or `raise`."""
        self.error_on_publish_gap = error_on_publish_gap
        """Whether a logon fails if the server lacks messages that are known to be persisted."""
        self.frames = FrameLog(max_bytes or 0)
        """The frames that are not persisted. `Outbox.publish` appends to it, too, without a lock."""
        self._lock = threading.Lock()
        self._persisted = 0
        self._name: str | None = None
        self._listener: Callable[[int], None] | None = None

    @property
    def max_bytes(self) -> int | None:
        """The limit for the kept frames in bytes; None = no limit."""
        return self.frames.max_bytes or None

    @max_bytes.setter
    def max_bytes(self, limit: int | None) -> None:
        self.frames.max_bytes = limit or 0

    def open(self, client_name: str) -> None:
        """Bind the store to a client name. Raises StoreException if it belongs to another."""
        if self._name not in (None, client_name):
            raise StoreException(
                f"this publish store belongs to client {self._name!r}; use another store for {client_name!r}"
            )
        self._name = client_name

    def store(self, command: Command) -> int:
        """Assign and return `command.sequence`; keep the encoded command. Raises as `append` does."""
        command.sequence = self.append(*command.numbered_parts())
        return command.sequence

    def append(self, start: bytes, body: bytes) -> int:
        """Number and keep a frame; return its number. Raises StoreFullException at `max_bytes`."""
        while not (sequence := self.frames.append(start, body)):
            self.make_room(0)
        return sequence

    def make_room(self, frame_bytes: int) -> None:
        """Raise StoreFullException, unless there is room by now."""
        if self.frames.full:
            raise StoreFullException(
                f"the publish store holds {self.frames.kept_bytes} of {self.max_bytes} bytes"
            )

    def sync(self, sequence: int) -> None:
        """No effect: this store is in memory only."""

    def discard_up_to(self, sequence: int) -> None:
        """Discard everything up to this number; later numbers are above it.

        Raises PublishStoreGapException, with `error_on_publish_gap`, for a number below the last persisted one.
        """
        with self._lock:
            if sequence < self._persisted:
                if self.error_on_publish_gap:
                    raise PublishStoreGapException(
                        f"the server has persisted up to {sequence} of this client, another server up to"
                        f" {self._persisted}: this server lags behind"
                    )
                return
            self.frames.drop_up_to(sequence)
            self.frames.raise_next(sequence + 1)
            self._persisted = sequence
            listener = self._listener
        if listener is not None:
            listener(sequence)

    def replay(self, replayer: Callable[[bytes, int], None]) -> None:
        """Call `replayer` with each kept frame and its number, in ascending order."""
        for sequence in range(self.frames.lowest, self.frames.next_number):
            self.replay_single(replayer, sequence)

    def replay_single(self, replayer: Callable[[bytes, int], None], sequence: int) -> bool:
        """Call `replayer` for one number; return False if it is not kept."""
        frame = self.frames.frame(sequence)
        if frame is None:
            return False
        replayer(frame, sequence)
        return True

    def find(self, sequence: int) -> Command | None:
        """Return the command with this number; None if it is not kept."""
        frame = self.frames.frame(sequence)
        return None if frame is None else command_from_frame(frame)

    def unpersisted_count(self) -> int:
        """The number of messages kept."""
        return self.frames.count

    def lowest_unpersisted(self) -> int:
        """The lowest kept number; 0 = none."""
        return self.frames.lowest

    def highest_unpersisted(self) -> int:
        """The highest kept number; 0 = none."""
        return self.frames.next_number - 1 if self.frames.count else 0

    def last_persisted(self) -> int:
        """The highest number known to be persisted; 0 = none."""
        return self._persisted

    def set_discard_listener(self, fn: Callable[[int], None] | None) -> None:
        """Call `fn` with the last persisted number whenever it rises; the client sets it."""
        self._listener = fn

    def close(self) -> None:
        """Forget everything."""
        self.frames.clear()
