"""What the engine asks of a bookmark store."""

from typing import Protocol

from amps.client.message import Message


class BookmarkStore(Protocol):
    """Remembers, per subscription id, how far the application has got. Thread-safe; no call may wait."""

    def log(self, message: Message) -> int:
        """Note an arriving message; returns its store number (the old one for a message noted before)."""

    def is_discarded(self, message: Message) -> bool:
        """Whether the message was discarded before, or delivered before in this run."""

    def discard(self, sub_id: str, store_seq: int) -> None:
        """The application is done with a message; any order."""

    def persisted(self, sub_id: str, bookmark: str) -> None:
        """The log up to this bookmark is stable and holds nothing more for this subscription."""

    def get_most_recent(self, sub_id: str) -> str | None:
        """The bookmark (list) to resume from; None = nothing known."""

    def get_oldest_seq(self, sub_id: str) -> int:
        """The store number of the oldest message not discarded; 0 = none."""

    def released(self, sub_id: str) -> None:
        """The subscription ended: undiscarded messages may be delivered again."""

    def purge(self, sub_id: str | None = None) -> None:
        """Forget one subscription, or all."""

    def prune(self) -> None:
        """Give back space."""

    def close(self) -> None:
        """Finish; the store is not used afterwards."""
