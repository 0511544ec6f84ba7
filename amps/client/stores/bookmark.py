"""The bookmark store in memory, and the algorithm of client.md §19.7 (`Progress`), which all bookmark stores share.

For each subscription a store keeps the messages that have arrived, in their order, and its *point*: for each publisher
the highest number up to which everything is discarded. Messages leave the store when they and all before them are
discarded, so memory holds what the application has not processed yet, and what it has processed out of order.

The store numbers of the messages kept are consecutive, so the oldest is found, and removed, without a search. The
numbers of one publisher arrive in ascending order, as in every log, unless a subscription is replaced by one that
begins earlier. Then a point stays below the messages that arrived late, until they are processed.

What is done for each message is in `Arrivals`, an extension module or its equivalent in Python. Here is the rest:
bookmarks that the server reports as persisted, and places to resume from.

Invariant: a point is never at or above the number of a message kept.

What may not live here: files (`bookmark_file`, `bookmark_ring`) and adapters (`recovery`).
"""

import threading
from collections import deque
from collections.abc import Iterator, Mapping

from amps.client.protocol.arrivals_python import parse_bookmark
from amps.client.protocol.message import Message
from amps.client.protocol.traffic import Arrivals
from amps.client.stores.recovery import AdapterFeed, RecoveryPointAdapter

_END_OF_TIME = "99991231T235959"
_NEVER = 2**64 - 1


class Progress(Arrivals):
    """The state of one subscription id. Needs its caller's lock."""

    __slots__ = ("_stable", "_start")

    def __init__(self) -> None:
        super().__init__()
        self._stable: deque[tuple[int, dict[str, int]]] = deque()
        """Persisted bookmarks, as numbers by publisher, each with the store number of the last message before them."""
        self._start: str | None = None
        """A place from which to begin, of another form than this module's."""

    def persisted(self, bookmarks: str) -> bool:
        """Note persisted bookmarks; False if they say nothing new."""
        numbers = self.above_points(bookmarks)
        if not numbers:
            return False
        if self.oldest > self.last:
            self._raise_points(numbers)
            return True
        if self._stable and self._stable[-1][0] == self.last:
            known = self._stable[-1][1]
            if all(number <= known.get(name, -1) for name, number in numbers.items()):
                return False
            known.update({name: max(number, known.get(name, -1)) for name, number in numbers.items()})
        else:
            self._stable.append((self.last, numbers))
            self.due = self._stable[0][0]
        return True

    def settle(self) -> None:
        """Move the points to the persisted bookmarks before which everything is processed."""
        while self._stable and self._stable[0][0] < self.oldest:
            self._raise_points(self._stable.popleft()[1])
        self.due = self._stable[0][0] if self._stable else _NEVER

    def _raise_points(self, numbers: dict[str, int]) -> None:
        for name, number in numbers.items():
            self.raise_point(name, number)

    def restore(self, point: str) -> None:
        """Begin at the recovery point of an earlier run."""
        inclusive = point.startswith("[")
        start = point[1:].partition(":")[0] if inclusive else point
        if any(parse_bookmark(bookmark) is None for bookmark in start.split(",")):
            self._start = point
        elif inclusive:
            for key in map(parse_bookmark, start.split(",")):
                if key is not None:
                    self.begin_at(*key)
        else:
            self._raise_points(self.above_points(start))

    def most_recent(self) -> str | None:
        """Return where this run resumes; None = nothing known. Messages that it has received are not needed again."""
        return self._place(all_kept=not self.old_count)

    def recovery_point(self) -> str | None:
        """Return where a run resumes to which all messages that are not discarded are delivered again.

        A publisher without a point contributes its lowest message. Then it is a range, which begins at that message.
        """
        return self._place(all_kept=False)

    def _place(self, *, all_kept: bool) -> str | None:
        known = []
        inclusive = False
        for name, point, start, lowest, newest in self.places():
            if point >= 0:
                number = point
            elif lowest >= 0 and all_kept:
                number = newest
            else:
                number = lowest if lowest >= 0 else start
                inclusive = True
            known.append(_text(name, number))
        if not known:
            return self._start
        return f"[{','.join(known)}:{_END_OF_TIME}]" if inclusive else ",".join(known)

    def purged(self) -> "Progress":
        """Return a state that knows nothing, whose numbers continue: an old number never means a new message."""
        empty = Progress()
        empty.continue_from(self.last)
        return empty

    @property
    def record_count(self) -> int:
        """How many calls `history` has, about."""
        return self.kept_count + self.done_count + len(self._stable) + 1

    def history(self) -> Iterator[tuple[str, int, str]]:
        """Yield a shortest sequence of calls that leads to this state: (kind, store number, bookmark).

        `p` = the point, or persisted; `b` = received; `d` = discarded.
        """
        places = self.places()
        points = ",".join(_text(name, point) for name, point, *_ in places if point >= 0)
        starts = ",".join(_text(name, start) for name, point, start, *_ in places if point < 0 <= start)
        for restored in (self._start, f"[{starts}:{_END_OF_TIME}]" if starts else None, points):
            if restored:
                yield "p", 0, restored
        stable = deque(self._stable)
        for seq, name, number, _ in self.kept():
            while stable and stable[0][0] < seq:
                yield "p", 0, _list(stable.popleft()[1])
            yield "b", seq, _text(name, number)
        for _, numbers in stable:
            yield "p", 0, _list(numbers)
        for seq, _, _, done in self.kept():
            if done:
                yield "d", seq, ""

    def repeat(self, kind: str, seq: int, bookmark: str) -> None:
        """Apply a call of an earlier run, in order; `released` follows the last. ValueError if it is impossible."""
        if kind == "d":
            self.discard(seq)
        elif kind == "p":
            if not self.kept_count:
                self.restore(bookmark)
            else:
                self.persisted(bookmark)
        else:
            if seq <= self.last or (self.kept_count and seq != self.last + 1):
                raise ValueError(f"message {bookmark!r} has the number {seq}, after {self.last}")
            if not self.kept_count:
                self.continue_from(seq - 1)
            if self.log(bookmark) != seq:
                raise ValueError(f"message {bookmark!r} names no message, or was received before")


def _text(publisher: str, number: int) -> str:
    return f"{publisher}|{number}|"


def _list(numbers: dict[str, int]) -> str:
    return ",".join(_text(*key) for key in numbers.items())


def purged(subscriptions: Mapping[str, Progress], sub_id: str | None) -> dict[str, Progress]:
    """Return the empty state of one subscription, or of all."""
    names = subscriptions if sub_id is None else subscriptions.keys() & {sub_id}
    return {name: subscriptions[name].purged() for name in names}


class MemoryBookmarkStore:
    """Remembers in memory which messages of bookmark subscriptions were processed: for one run of the program.

    `adapter` keeps recovery points outside, so that the next run resumes there (client.md §7). All points are read from
    it at once. Messages without a bookmark are not recorded. Exceptions of the adapter reach the caller of `discard`,
    `purge`, `prune` and `close`; the discard itself is noted, and the point is passed on with the next.
    """

    def __init__(self, *, adapter: RecoveryPointAdapter | None = None) -> None:
        self._lock = threading.Lock()
        self._subscriptions: dict[str, Progress] = {}
        self._feed = AdapterFeed(adapter) if adapter is not None else None
        if self._feed is not None:
            for point in self._feed.load():
                self._of(point.sub_id).restore(point.bookmark)

    def log(self, message: Message) -> int:
        """Record an arriving message; return its store number, the same one if it was recorded before, 0 = none."""
        bookmark = message.bookmark
        if bookmark is None:
            return 0
        sub_id = message._sub_id or message.sub_id or ""
        with self._lock:
            progress = self._subscriptions.get(sub_id) or self._of(sub_id)
            seq = progress.log(bookmark)
            if self._feed is not None and seq and progress.begins_with(bookmark):
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
        """Note that the application has processed a message; calls may come in any order, and repeatedly."""
        with self._lock:
            progress = self._subscriptions.get(sub_id)
            if progress is None:
                return
            oldest = progress.oldest
            progress.discard(store_seq)
            if self._feed is not None:
                if progress.oldest != oldest:
                    self._feed.update(sub_id, progress.recovery_point)
                else:
                    self._feed.settle()

    def persisted(self, sub_id: str, bookmark: str) -> None:
        """Note that the log up to this bookmark is stable and holds no more messages for this subscription."""
        with self._lock:
            progress = self._subscriptions.get(sub_id) or self._of(sub_id)
            if progress.persisted(bookmark) and self._feed is not None:
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
        """Remove the state of one subscription, or of all."""
        with self._lock:
            if self._feed is not None:
                self._feed.purge(sub_id)
            self._subscriptions.update(purged(self._subscriptions, sub_id))

    def prune(self) -> None:
        """Prune the adapter; without one no effect: processed messages are not kept."""
        with self._lock:
            if self._feed is not None:
                self._feed.prune()

    def close(self) -> None:
        """Forget everything, and close the adapter, which has the recovery points."""
        with self._lock:
            if self._feed is not None:
                self._feed.close()
            self._subscriptions.clear()

    def _of(self, sub_id: str) -> Progress:
        progress = self._subscriptions.get(sub_id)
        if progress is None:
            progress = self._subscriptions[sub_id] = Progress()
        return progress
