"""The interfaces of the stores that an application may give to a client, as the engine uses them.

A publish store numbers all commands that change stored state, and keeps each until the server has acknowledged it. A
bookmark store remembers which messages of a bookmark subscription the application has processed. The implementations
are in `amps.client.stores`; an application may write its own.
"""

from collections.abc import Callable
from typing import Literal, Protocol

from amps.client.protocol.command import Command
from amps.client.protocol.message import Message
from amps.client.protocol.traffic import NumberedFrames

OnFullStore = Literal["wait", "raise"]


class PublishStore(Protocol):
    """The interface of a publish store, as the engine and the clients use it. Thread-safe.

    The stores of this library may have two more members. `frames`, a NumberedFrames, numbers and keeps a frame without
    a call of the store; None = it does not now. `make_room(frame_bytes)` is called after `frames` has refused a frame
    of at most this length: it makes room, or raises as `append` does.
    """

    error_on_publish_gap: bool
    """Whether a logon fails if the server lacks messages that are known to be persisted."""
    on_full: OnFullStore
    """What publishing does when the store is full: `wait`, or `raise` StoreFullException."""

    def open(self, client_name: str) -> None:
        """Bind the store to a client name; StoreException if it belongs to another."""

    def store(self, command: Command) -> int:
        """Assign and return `command.sequence`; keep the encoded command. Raises StoreFullException if full."""

    def append(self, start: bytes, body: bytes) -> int:
        """Number and keep a frame; return its number. Raises StoreFullException if the store is full.

        `start` is the frame's header up to the number, which is its last field: see `numbered_frame`.
        """

    def sync(self, sequence: int) -> None:
        """Make everything up to this number durable; called before publish returns."""

    def discard_up_to(self, sequence: int) -> None:
        """Discard everything up to this number. After a number above all known ones, numbering continues above it."""

    def replay(self, replayer: Callable[[bytes, int], None]) -> None:
        """Call `replayer` with each kept frame and its number, in ascending order."""

    def replay_single(self, replayer: Callable[[bytes, int], None], sequence: int) -> bool:
        """Call `replayer` for one number; return False if it is not kept."""

    def find(self, sequence: int) -> Command | None:
        """Return the command with this number; None if the store does not keep it any more."""

    def unpersisted_count(self) -> int:
        """The number of messages kept."""

    def lowest_unpersisted(self) -> int:
        """The lowest kept number; 0 = none."""

    def highest_unpersisted(self) -> int:
        """The highest kept number; 0 = none."""

    def last_persisted(self) -> int:
        """The highest number known to be persisted; 0 = none."""

    def set_discard_listener(self, fn: Callable[[int], None] | None) -> None:
        """Call `fn` with the last persisted number whenever it rises."""

    def close(self) -> None:
        """Close the store; it is not used afterwards."""


def frames_of(store: PublishStore | None) -> NumberedFrames | None:
    """Return `frames` of a store that has it, and `make_room`: then most publishes need no call of the store."""
    frames = getattr(store, "frames", None)
    return frames if isinstance(frames, NumberedFrames) and hasattr(store, "make_room") else None


def check_stable_name(name: str | None, store: PublishStore | None) -> None:
    """Raise ValueError for a client without a name whose store, with `keeps_name`, belongs to the name for ever."""
    if not name and getattr(store, "keeps_name", False):
        raise ValueError(
            "a publish store in files needs the same client name in each run: pass name= to the client"
        )


def sync_waits(store: PublishStore) -> bool:
    """Whether `store.sync` may wait for the disk. A store without the attribute `sync_waits` may."""
    return bool(getattr(store, "sync_waits", True))


class BookmarkStore(Protocol):
    """Records, per subscription id, which messages the application has processed. Thread-safe; no call may wait."""

    def log(self, message: Message) -> int:
        """Record an arriving message; return its store number (the same one if the message was recorded before)."""

    def is_discarded(self, message: Message) -> bool:
        """Whether the message was discarded before, or delivered before in this run."""

    def discard(self, sub_id: str, store_seq: int) -> None:
        """Note that the application has processed a message; calls may come in any order."""

    def persisted(self, sub_id: str, bookmark: str) -> None:
        """Note that the log up to this bookmark is stable and holds no more messages for this subscription."""

    def get_most_recent(self, sub_id: str) -> str | None:
        """Return the bookmark, or list of bookmarks, to resume from; None = nothing known."""

    def get_oldest_seq(self, sub_id: str) -> int:
        """The store number of the oldest message not discarded; 0 = none."""

    def released(self, sub_id: str) -> None:
        """Note that the subscription ended: undiscarded messages may be delivered again."""

    def purge(self, sub_id: str | None = None) -> None:
        """Remove the state of one subscription, or of all."""

    def prune(self) -> None:
        """Free unused space."""

    def close(self) -> None:
        """Close the store; it is not used afterwards."""
