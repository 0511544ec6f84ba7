"""The bookmark store in memory, and the algorithm of client.md §19.7 (`Progress`), which all bookmark stores share.

For each subscription a store keeps the messages that have arrived, in their order, and its *point*: for each publisher
the highest number up to which everything is discarded. Messages leave the store when they and all before them are
discarded, so memory holds what the application has not processed yet, and what it has processed out of order.

The store numbers of the messages kept are consecutive, so the oldest is found, and removed, without a search. The
numbers of one publisher arrive in ascending order, as in every log, unless a subscription is replaced by one that
begins earlier. Then a point stays below the messages that arrived late, until they are processed.

Invariant: a point is never at or above the number of a message kept.

What may not live here: files (`bookmark_file`, `bookmark_ring`) and adapters (`recovery`).
"""

import threading
from collections import deque
from collections.abc import Iterator, Mapping

from amps.client.protocol.message import Message
from amps.client.stores.recovery import AdapterFeed, RecoveryPointAdapter

_END_OF_TIME = "99991231T235959"

Key = tuple[str, int]
"""Publisher and number: the parts of a bookmark that identify a message."""


def parse_bookmark(bookmark: str | None) -> Key | None:
    """Return the publisher and number of a bookmark; None if it does not identify a message."""
    if bookmark is None:
        return None
    parts = bookmark.split("|", 2)
    try:
        return parts[0], int(parts[1])
    except (IndexError, ValueError):
        return None


class _Publisher:
    """What a subscription knows of one publisher."""

    __slots__ = ("beyond", "disordered", "highest", "kept", "name", "point", "reached", "start")

    def __init__(self, name: str) -> None:
        self.name = name
        self.point = -1
        self.start = -1
        """The number from which to begin, of an earlier run whose messages are not known."""
        self.kept: dict[int, int] = {}
        """The store number of each message kept, by the publisher's number."""
        self.highest = -1
        """The highest number that has arrived."""
        self.disordered = False
        """Whether a message kept arrived after one with a higher number."""
        self.reached = -1
        """Where the point goes when the messages kept allow it."""
        self.beyond: set[int] = set()
        """Numbers above the point that were processed."""

    def raise_point(self, number: int) -> None:
        """Move the point to a number, or as far as the messages kept allow."""
        self.reached = max(self.reached, number)
        target = min(self.reached, min(self.kept) - 1) if self.kept else self.reached
        if target < number and number not in self.kept:
            self.beyond.add(number)
        if target > self.point:
            self.point = target
            self.beyond = {above for above in self.beyond if above > target}
        if not self.kept:
            self.disordered = False


class Progress:
    """The state of one subscription id. Needs its caller's lock."""

    __slots__ = ("_done", "_kept", "_old", "_publishers", "_stable", "_start", "last", "oldest")

    def __init__(self) -> None:
        self.oldest = 1
        """The lowest store number kept, or `last + 1` if none is."""
        self.last = 0
        """The highest store number given."""
        self._kept: dict[int, tuple[_Publisher, int]] = {}
        self._publishers: dict[str, _Publisher] = {}
        self._done: set[int] = set()
        """Store numbers that were discarded out of order."""
        self._old: set[int] = set()
        """Store numbers that were not delivered since the subscription was last entered."""
        self._stable: deque[tuple[int, str]] = deque()
        """Persisted bookmarks, each with the store number of the last message before it."""
        self._start: str | None = None
        """A place from which to begin, of another form than this module's."""

    def log(self, key: Key) -> int:
        """Keep an arriving message; return its store number, 0 if it was processed before."""
        number = key[1]
        publisher = self._publishers.get(key[0]) or self._publisher(key[0])
        seq = publisher.kept.get(number)
        if seq is None:
            if number <= publisher.point or number in publisher.beyond:
                return 0
            seq = self.last = self.last + 1
            publisher.kept[number] = seq
            self._kept[seq] = (publisher, number)
            if number > publisher.highest:
                publisher.highest = number
            else:
                publisher.disordered = True
        elif self._old:
            self._old.discard(seq)
        return seq

    def is_discarded(self, key: Key) -> bool:
        """Whether a message was discarded, or delivered in this run."""
        publisher = self._publishers.get(key[0])
        if publisher is None:
            return False
        if key[1] <= publisher.point or key[1] in publisher.beyond:
            return True
        seq = publisher.kept.get(key[1])
        return seq is not None and (seq not in self._old or seq in self._done)

    def discard(self, seq: int) -> bool:
        """Note that a message was processed; False if that is known, or the number is not."""
        if seq not in self._kept or seq in self._done:
            return False
        if seq != self.oldest:
            self._done.add(seq)
            return True
        self._remove_oldest()
        if self._done or self._stable:
            self._advance()
        return True

    def persisted(self, bookmarks: str) -> bool:
        """Note persisted bookmarks; False if they say nothing new."""
        if all(self._is_reached(bookmark) for bookmark in bookmarks.split(",")):
            return False
        before = ""
        if self._stable and self._stable[-1][0] == self.last:
            before = self._stable.pop()[1]
            bookmarks = f"{before},{bookmarks}"
        numbers: dict[str, int] = {}
        for key in map(parse_bookmark, bookmarks.split(",")):
            if key is not None:
                numbers[key[0]] = max(key[1], numbers.get(key[0], key[1]))
        known = ",".join(_text(*key) for key in numbers.items())
        self._stable.append((self.last, known))
        self._advance()
        return known != before

    def _is_reached(self, bookmark: str) -> bool:
        key = parse_bookmark(bookmark)
        publisher = self._publishers.get(key[0]) if key is not None else None
        return key is None or (publisher is not None and key[1] <= publisher.point)

    def _publisher(self, name: str) -> _Publisher:
        publisher = self._publishers.get(name)
        if publisher is None:
            publisher = self._publishers[name] = _Publisher(name)
        return publisher

    def _remove_oldest(self) -> None:
        seq = self.oldest
        publisher, number = self._kept.pop(seq)
        del publisher.kept[number]
        if publisher.disordered:
            publisher.raise_point(number)
        elif number > publisher.point:
            publisher.point = number
        self.oldest = seq + 1
        if self._old:
            self._old.discard(seq)

    def _advance(self) -> None:
        """Move the point over everything that is processed."""
        while True:
            while self.oldest in self._done:
                self._done.remove(self.oldest)
                self._remove_oldest()
            if not self._stable or self._stable[0][0] >= self.oldest:
                return
            self._raise_point(self._stable.popleft()[1])

    def _raise_point(self, bookmarks: str) -> None:
        for key in map(parse_bookmark, bookmarks.split(",")):
            if key is not None:
                self._publisher(key[0]).raise_point(key[1])

    def restore(self, point: str) -> None:
        """Begin at the recovery point of an earlier run."""
        inclusive = point.startswith("[")
        start = point[1:].partition(":")[0] if inclusive else point
        if any(parse_bookmark(bookmark) is None for bookmark in start.split(",")):
            self._start = point
        elif inclusive:
            for key in map(parse_bookmark, start.split(",")):
                if key is not None:
                    self._publisher(key[0]).start = key[1]
        else:
            self._raise_point(start)

    def released(self) -> None:
        """Note that the subscription ended: messages that are not discarded may be delivered again."""
        self._old.update(self._kept)

    def most_recent(self) -> str | None:
        """Return where this run resumes; None = nothing known. Messages that it has received are not needed again."""
        return self._place(all_kept=not self._old)

    def recovery_point(self) -> str | None:
        """Return where a run resumes to which all messages that are not discarded are delivered again.

        A publisher without a point contributes its oldest message. Then it is a range, which begins at that message.
        """
        return self._place(all_kept=False)

    def _place(self, *, all_kept: bool) -> str | None:
        known = []
        inclusive = False
        for publisher in self._publishers.values():
            if publisher.point >= 0:
                number = publisher.point
            elif publisher.kept and all_kept:
                number = next(reversed(publisher.kept))
            else:
                number = next(iter(publisher.kept), publisher.start)
                inclusive = True
            known.append(_text(publisher.name, number))
        if not known:
            return self._start
        return f"[{','.join(known)}:{_END_OF_TIME}]" if inclusive else ",".join(known)

    def begins_with(self, key: Key) -> bool:
        """Whether a kept message is part of the recovery point: its publisher has no point, and no earlier message."""
        publisher = self._publishers[key[0]]
        return publisher.point < 0 and next(iter(publisher.kept)) == key[1]

    def purged(self) -> "Progress":
        """Return a state that knows nothing, whose numbers continue: an old number never means a new message."""
        empty = Progress()
        empty.last, empty.oldest = self.last, self.last + 1
        return empty

    @property
    def record_count(self) -> int:
        """How many calls `history` has, about."""
        return len(self._kept) + len(self._done) + len(self._stable) + 1

    def history(self) -> Iterator[tuple[str, int, str]]:
        """Yield a shortest sequence of calls that leads to this state: (kind, store number, bookmark).

        `p` = the point, or persisted; `b` = received; `d` = discarded.
        """
        point = ",".join(_text(p.name, p.point) for p in self._publishers.values() if p.point >= 0)
        start = ",".join(_text(p.name, p.start) for p in self._publishers.values() if p.point < 0 <= p.start)
        for restored in (self._start, f"[{start}:{_END_OF_TIME}]" if start else None, point):
            if restored:
                yield "p", 0, restored
        stable = deque(self._stable)
        for seq, (publisher, number) in self._kept.items():
            while stable and stable[0][0] < seq:
                yield "p", 0, stable.popleft()[1]
            yield "b", seq, _text(publisher.name, number)
        for _, bookmarks in stable:
            yield "p", 0, bookmarks
        for seq in sorted(self._done):
            yield "d", seq, ""

    def repeat(self, kind: str, seq: int, bookmark: str) -> None:
        """Apply a call of an earlier run, in order. Raises ValueError if it is impossible."""
        if kind == "d":
            self.discard(seq)
        elif kind == "p":
            if not self._kept:
                self.restore(bookmark)
            else:
                self.persisted(bookmark)
        else:
            key = parse_bookmark(bookmark)
            if key is None or seq <= self.last or (self._kept and seq != self.last + 1):
                raise ValueError(f"message {bookmark!r} has the number {seq}, after {self.last}")
            if not self._kept:
                self.last, self.oldest = seq - 1, seq
            if self.log(key) != seq:
                raise ValueError(f"message {bookmark!r} was received before")
            self._old.add(seq)


def _text(publisher: str, number: int) -> str:
    return f"{publisher}|{number}|"


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
        self._asked: tuple[Message, Key] | None = None
        self._feed = AdapterFeed(adapter) if adapter is not None else None
        if self._feed is not None:
            for point in self._feed.load():
                self._of(point.sub_id).restore(point.bookmark)

    def log(self, message: Message) -> int:
        """Record an arriving message; return its store number, the same one if it was recorded before, 0 = none."""
        asked = self._asked
        if asked is not None and asked[0] is message:
            key: Key | None = asked[1]
            self._asked = None
        else:
            key = parse_bookmark(message.bookmark)
        if key is None:
            return 0
        sub_id = message.sub_id or ""
        with self._lock:
            progress = self._subscriptions.get(sub_id) or self._of(sub_id)
            seq = progress.log(key)
            if self._feed is not None and seq and progress.begins_with(key):
                self._feed.note(sub_id, progress.recovery_point)
            return seq

    def is_discarded(self, message: Message) -> bool:
        """Whether the message was discarded before, or delivered before in this run."""
        key = parse_bookmark(message.bookmark)
        if key is None:
            return False
        with self._lock:
            progress = self._subscriptions.get(message.sub_id or "")
            if progress is not None and progress.is_discarded(key):
                return True
        self._asked = (message, key)
        return False

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
            progress = self._of(sub_id)
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
