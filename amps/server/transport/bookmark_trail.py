"""Where a bookmark subscription was in the log, at a few moments.

With destinations of replication, the bookmark of a periodic `persisted` acknowledgement is that of a record before
which all sync destinations have everything (replication.md §7). The subscription itself may be further. So its place is
noted from time to time, and the newest one that the destinations have reached is told. The log need not be read for
this.

Invariant: positions rise, also those that are told. With too many places every second one is dropped: the bookmark told
may be earlier than necessary, never later.
"""

PLACES_MAX = 16
Bookmark = tuple[int, int]


class BookmarkTrail:
    """The places of one subscription that were not told yet."""

    def __init__(self) -> None:
        self._places: list[tuple[int, Bookmark]] = []
        self._told = 0

    def note(self, position: int, bookmark: Bookmark) -> None:
        """Note that everything before a log position was evaluated, and the bookmark of the last message before it."""
        places = self._places
        while places and places[-1][0] >= position:
            places.pop()  # it went back: a replacement began earlier
        if len(places) == PLACES_MAX:
            del places[1::2]
        places.append((position, bookmark))

    def take(self, reached: int) -> Bookmark | None:
        """The bookmark of the newest place up to a log position, if it is newer than the one told before."""
        found: tuple[int, Bookmark] | None = None
        places = self._places
        while places and places[0][0] <= reached:
            found = places.pop(0)
        if found is None or found[0] <= self._told:
            return None
        self._told = found[0]
        return found[1]
