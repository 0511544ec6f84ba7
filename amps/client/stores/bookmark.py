"""The bookmark store in memory, and the algorithm of client.md §19.7.

For each subscription the store keeps the messages that have arrived in their order, and its *point*: for each publisher
the highest number below which everything is discarded. Messages leave the store when they and all before them are
discarded, so memory holds what the application has not processed yet, and what it has processed out of order.
"""

import threading
from dataclasses import dataclass, field

from amps.client.protocol.message import Message

_END_OF_TIME = "99991231T235959"


@dataclass(slots=True)
class _Entry:
    """One message that has arrived."""

    store_seq: int
    bookmark: str
    discarded: bool = False
    in_run: bool = True
    """Whether it was delivered since the subscription was last entered."""


@dataclass(slots=True)
class _Subscription:
    """The state of one subscription id."""

    entries: dict[tuple[str, int], _Entry] = field(default_factory=dict)
    keys: dict[int, tuple[str, int]] = field(default_factory=dict)
    point: dict[str, int] = field(default_factory=dict)
    last_seq: int = 0
    stable: tuple[int, str] | None = None
    """A persisted bookmark, and the store number of the last message before it."""

    def advance(self) -> None:
        """Move the point over everything that is processed."""
        while self.entries:
            key = next(iter(self.entries))
            entry = self.entries[key]
            if not entry.discarded:
                break
            del self.entries[key], self.keys[entry.store_seq]
            self.raise_point(*key)
        if self.stable is not None and (not self.keys or next(iter(self.keys)) > self.stable[0]):
            for bookmark in self.stable[1].split(","):
                self.raise_point(*_key(bookmark))
            self.stable = None

    def raise_point(self, publisher: str, number: int) -> None:
        self.point[publisher] = max(number, self.point.get(publisher, 0))

    def most_recent(self) -> str | None:
        if self.point:
            return ",".join(f"{publisher}|{number}|" for publisher, number in self.point.items())
        if not self.entries:
            return None
        if all(entry.in_run for entry in self.entries.values()):
            newest: dict[str, int] = {}
            for publisher, number in self.entries:
                newest[publisher] = max(number, newest.get(publisher, 0))
            return ",".join(f"{publisher}|{number}|" for publisher, number in newest.items())
        oldest = next(entry for entry in self.entries.values() if not entry.discarded)
        return f"[{oldest.bookmark}:{_END_OF_TIME}]"


class MemoryBookmarkStore:
    """Remembers in memory which messages of bookmark subscriptions were processed: for one run of the program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscriptions: dict[str, _Subscription] = {}

    def log(self, message: Message) -> int:
        """Record an arriving message; return its store number, the same one if it was recorded before."""
        bookmark = message.bookmark or ""
        key = _key(bookmark)
        with self._lock:
            subscription = self._of(message.sub_id or "")
            entry = subscription.entries.get(key)
            if entry is None:
                subscription.last_seq += 1
                entry = subscription.entries[key] = _Entry(subscription.last_seq, bookmark)
                subscription.keys[entry.store_seq] = key
            entry.in_run = True
            return entry.store_seq

    def is_discarded(self, message: Message) -> bool:
        """Whether the message was discarded before, or delivered before in this run."""
        publisher, number = _key(message.bookmark or "")
        with self._lock:
            subscription = self._of(message.sub_id or "")
            if number <= subscription.point.get(publisher, 0):
                return True
            entry = subscription.entries.get((publisher, number))
            return entry is not None and (entry.discarded or entry.in_run)

    def discard(self, sub_id: str, store_seq: int) -> None:
        """Note that the application has processed a message; calls may come in any order."""
        with self._lock:
            subscription = self._of(sub_id)
            key = subscription.keys.get(store_seq)
            if key is not None:
                subscription.entries[key].discarded = True
                subscription.advance()

    def persisted(self, sub_id: str, bookmark: str) -> None:
        """Note that the log up to this bookmark is stable and holds no more messages for this subscription."""
        if "|" not in bookmark:  # the log is empty
            return
        with self._lock:
            subscription = self._of(sub_id)
            subscription.stable = (subscription.last_seq, bookmark)
            subscription.advance()

    def get_most_recent(self, sub_id: str) -> str | None:
        """Return the bookmark, list of bookmarks or range to resume from; None = nothing known."""
        with self._lock:
            return self._of(sub_id).most_recent()

    def get_oldest_seq(self, sub_id: str) -> int:
        """The store number of the oldest message not discarded; 0 = none."""
        with self._lock:
            return next(iter(self._of(sub_id).keys), 0)

    def released(self, sub_id: str) -> None:
        """Note that the subscription ended: undiscarded messages may be delivered again."""
        with self._lock:
            for entry in self._of(sub_id).entries.values():
                entry.in_run = False

    def purge(self, sub_id: str | None = None) -> None:
        """Remove the state of one subscription, or of all."""
        with self._lock:
            if sub_id is None:
                self._subscriptions.clear()
            else:
                self._subscriptions.pop(sub_id, None)

    def prune(self) -> None:
        """No effect: processed messages are not kept."""

    def close(self) -> None:
        """Forget everything."""
        self.purge()

    def _of(self, sub_id: str) -> _Subscription:
        subscription = self._subscriptions.get(sub_id)
        if subscription is None:
            subscription = self._subscriptions[sub_id] = _Subscription()
        return subscription


def _key(bookmark: str) -> tuple[str, int]:
    publisher, _, rest = bookmark.partition("|")
    return publisher, int(rest.partition("|")[0])
