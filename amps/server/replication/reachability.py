"""Which instances can be reached over replication links (replication.md §24.8, decision 25.37).

Each instance floods LINKSTATE: its name, its neighbours, and a counter that grows. From these everyone knows the graph
of the links. An instance is reachable if a path of connected links leads to it. Own links count at once; what others
said counts for ENTRY_AGE_S.

Nothing here does input or output: the time is passed in.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from amps.server.replication.frames import Content, ProtocolError, number

FLOOD_INTERVAL_S = 10.0
ENTRY_AGE_S = 30.0
INSTANCES_MAX = 4096


@dataclass(slots=True)
class _Entry:
    counter: int
    neighbours: frozenset[str]
    heard_s: float


class Reachability:
    """The graph of links as one instance knows it."""

    def __init__(self, name: str, first_counter: int) -> None:
        """`first_counter`: above those of earlier runs of the instance, such as the time."""
        self._name = name
        self._counter = first_counter
        self._neighbours: frozenset[str] = frozenset()
        self._entries: dict[str, _Entry] = {}

    def set_neighbours(self, names: Iterable[str]) -> bool:
        """The instances that this one is connected to now. Return whether that has changed."""
        neighbours = frozenset(names)
        if neighbours == self._neighbours:
            return False
        self._neighbours = neighbours
        return True

    def own_state(self) -> dict[str, object]:
        """The next LINKSTATE of this instance."""
        self._counter += 1
        return {
            "name": self._name,
            "neighbours": sorted(self._neighbours),
            "counter": number(self._counter),
        }

    def states(self, now_s: float) -> list[dict[str, object]]:
        """What is known of others, for an instance that has just been connected."""
        self._forget_old(now_s)
        return [
            {"name": name, "neighbours": sorted(entry.neighbours), "counter": number(entry.counter)}
            for name, entry in self._entries.items()
        ]

    def heard(self, content: Content, now_s: float) -> bool:
        """Take a LINKSTATE. Return whether it is new, and so is to be sent on. Raises ProtocolError."""
        name = content.text("name", chars_max=1024)
        neighbours = content.texts("neighbours", INSTANCES_MAX, 1024)
        counter = content.number("counter")
        if not name:
            raise ProtocolError("the LINKSTATE has no name")
        if name == self._name:
            return False
        known = self._entries.get(name)
        if known is not None and counter <= known.counter:
            return False
        self._forget_old(now_s)
        if known is None and len(self._entries) >= INSTANCES_MAX:
            return False
        self._entries[name] = _Entry(counter, frozenset(neighbours), now_s)
        return True

    def _forget_old(self, now_s: float) -> None:
        for name in [n for n, entry in self._entries.items() if now_s - entry.heard_s > ENTRY_AGE_S]:
            del self._entries[name]

    def first_hops(self, now_s: float) -> dict[str, str]:
        """Each reachable instance, with the neighbour over which the shortest way leads."""
        self._forget_old(now_s)
        hops: dict[str, str] = {name: name for name in sorted(self._neighbours)}
        waiting = deque(hops)
        while waiting:
            at = waiting.popleft()
            entry = self._entries.get(at)
            if entry is None:
                continue
            for name in sorted(entry.neighbours):
                if name not in hops and name != self._name:
                    hops[name] = hops[at]
                    waiting.append(name)
        return hops
