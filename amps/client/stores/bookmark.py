"""The interface of a bookmark store, as the engine uses it."""

from typing import Protocol

from amps.client.message import Message


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
