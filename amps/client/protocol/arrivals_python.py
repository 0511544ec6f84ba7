"""What has arrived of a bookmark subscription, in Python: the same interface and results as in `amps._core.client`.

It serves installations without a compiler, like `traffic_python`. The extension module's texts explain the class; it
needs 20 bytes for a message, this module about 200.
"""

from collections.abc import Iterator

_NEVER = 2**64 - 1
_NUMBER_DIGITS = 19
_NUMBERS = 2**63

Key = tuple[str, int]
"""Publisher and number: the parts of a bookmark that identify a message."""


def parse_bookmark(bookmark: str | None) -> Key | None:
    """Return the publisher and number of a bookmark; None if it does not identify a message."""
    if bookmark is None:
        return None
    publisher, bar, rest = bookmark.partition("|")
    digits = rest.partition("|")[0]
    if not bar or not digits.isdecimal() or not digits.isascii() or len(digits) > _NUMBER_DIGITS:
        return None
    number = int(digits)
    return (publisher, number) if number < _NUMBERS else None


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

    def lowest(self) -> int:
        if self.disordered:
            return min(self.kept, default=-1)
        return next(iter(self.kept), -1)

    def is_processed(self, number: int) -> bool:
        return number <= self.point or number in self.beyond

    def raise_point(self, number: int) -> None:
        """Move the point to a number, or as far as the messages kept allow."""
        self.reached = max(self.reached, number)
        target = min(self.reached, self.lowest() - 1) if self.kept else self.reached
        if target < number and number not in self.kept:
            self.beyond.add(number)
        if target > self.point:
            self.point = target
            self.beyond = {above for above in self.beyond if above > target}
        if not self.kept:
            self.disordered = False


class Arrivals:
    """The messages of one subscription that have arrived and are not processed, and each publisher's point."""

    __slots__ = ("_done", "_kept", "_old", "_publishers", "due", "last", "oldest")

    def __init__(self) -> None:
        self.oldest = 1
        self.last = 0
        self.due = _NEVER
        self._kept: dict[int, tuple[_Publisher, int]] = {}
        self._publishers: dict[str, _Publisher] = {}
        self._done: set[int] = set()
        """Store numbers that were discarded out of order."""
        self._old: set[int] = set()
        """Store numbers that were not delivered since the subscription was last entered."""

    @property
    def kept_count(self) -> int:
        """How many messages are kept."""
        return len(self._kept)

    @property
    def done_count(self) -> int:
        """How many of them were discarded out of order."""
        return len(self._done)

    @property
    def old_count(self) -> int:
        """How many of them were not delivered since the subscription was last entered."""
        return len(self._old)

    def _publisher(self, name: str) -> _Publisher:
        publisher = self._publishers.get(name)
        if publisher is None:
            publisher = self._publishers[name] = _Publisher(name)
        return publisher

    def log(self, bookmark: str) -> int:
        """Keep an arriving message. Returns its store number; 0 = processed before, or no bookmark of a message."""
        key = parse_bookmark(bookmark)
        if key is None:
            return 0
        number = key[1]
        publisher = self._publishers.get(key[0]) or self._publisher(key[0])
        seq = publisher.kept.get(number)
        if seq is None:
            if publisher.is_processed(number):
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

    def is_discarded(self, bookmark: str) -> bool:
        """Whether a message was discarded, or delivered in this run."""
        key = parse_bookmark(bookmark)
        publisher = self._publishers.get(key[0]) if key is not None else None
        if key is None or publisher is None:
            return False
        if publisher.is_processed(key[1]):
            return True
        seq = publisher.kept.get(key[1])
        return seq is not None and (seq not in self._old or seq in self._done)

    def discard(self, seq: int) -> bool:
        """Note that a message was processed; False if that is known, or the number is not."""
        if seq not in self._kept or seq in self._done:
            return False
        self._done.add(seq)
        while self.oldest in self._done:
            self._remove_oldest()
        if self.due < self.oldest:
            self.settle()
        return True

    def _remove_oldest(self) -> None:
        seq = self.oldest
        publisher, number = self._kept.pop(seq)
        del publisher.kept[number]
        self._done.remove(seq)
        self._old.discard(seq)
        self.oldest = seq + 1
        if publisher.disordered:
            publisher.raise_point(number)
        elif number > publisher.point:
            publisher.point = number

    def settle(self) -> None:
        """Called when all messages up to `due` have left."""

    def raise_point(self, name: str, number: int) -> None:
        """Move the point of a publisher to a number, or as far as its messages kept allow."""
        self._publisher(name).raise_point(number)

    def above_points(self, bookmarks: str) -> dict[str, int]:
        """Return publisher and number of the bookmarks, joined by commas, that are above the points."""
        found: dict[str, int] = {}
        for bookmark in bookmarks.split(","):
            key = parse_bookmark(bookmark)
            if key is not None:
                publisher = self._publishers.get(key[0])
                if (publisher is None or key[1] > publisher.point) and key[1] > found.get(key[0], -1):
                    found[key[0]] = key[1]
        return found

    def begin_at(self, name: str, number: int) -> None:
        """Note the number from which to begin, of an earlier run whose messages are not known."""
        self._publisher(name).start = number

    def places(self) -> list[tuple[str, int, int, int, int]]:
        """Return of each publisher: name, point, start, lowest number kept, last one received and kept; -1 = none."""
        return [
            (one.name, one.point, one.start, one.lowest(), next(reversed(one.kept), -1))
            for one in self._publishers.values()
        ]

    def begins_with(self, bookmark: str) -> bool:
        """Whether a kept message is part of the recovery point: its publisher has no point, and no lower message."""
        key = parse_bookmark(bookmark)
        publisher = self._publishers.get(key[0]) if key is not None else None
        return key is not None and publisher is not None and publisher.point < 0 and publisher.lowest() == key[1]

    def released(self) -> None:
        """Note that the subscription ended: messages that are not discarded may be delivered again."""
        self._old.update(self._kept)

    def continue_from(self, last: int) -> None:
        """Set the last store number given. Nothing may be kept."""
        if self._kept:
            raise ValueError("messages are kept")
        self.last = last
        self.oldest = last + 1

    def kept(self) -> Iterator[tuple[int, str, int, bool]]:
        """Yield store number, name of the publisher, number and whether it is done, of each message kept."""
        for seq, (publisher, number) in self._kept.items():
            yield seq, publisher.name, number, seq in self._done
