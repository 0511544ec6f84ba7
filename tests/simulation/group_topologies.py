"""The topologies that groups are simulated in (replication.md §18): who replicates to whom, and where clients may move.

A topology is plain data, so that the model and real instances are built from the same.
"""

from dataclasses import dataclass

from tests.simulation.group_model import ASYNC, SYNC, Destination, Instance


@dataclass(frozen=True)
class Way:
    """A destination: its source, and the instances that it may connect to, the preferred one first."""

    source: str
    candidates: tuple[str, ...]
    mode: str = SYNC
    pass_through: str | None = ".*"

    @property
    def label(self) -> str:
        return "-".join(self.candidates)


@dataclass(frozen=True)
class Topology:
    """`groups`: name of each instance -> its group. `moves`: sets of instances between which clients may fail over:
    each two of a set replicate to each other directly and sync (docs/spec/replication_histories.md, "Clients that
    move twice").
    """

    name: str
    groups: dict[str, str]
    ways: tuple[Way, ...]
    moves: tuple[frozenset[str], ...]


def _both(one: str, other: str, mode: str = SYNC) -> list[Way]:
    return [Way(one, (other,), mode), Way(other, (one,), mode)]


def _all_sync(name: str, groups: dict[str, str], pairs: str, moves: str) -> Topology:
    ways = [way for pair in pairs.split() for way in _both(*pair.split("-"))]
    return Topology(name, groups, tuple(ways), tuple(frozenset(names.split("-")) for names in moves.split()))


PAIR = _all_sync("pair", {"a": "g", "b": "g"}, "a-b", "a-b")
CHAIN = _all_sync("chain", {"a": "ga", "b": "gb", "c": "gc"}, "a-b b-c", "a-b b-c")
TRIANGLE = _all_sync("triangle", {"a": "g", "b": "g", "c": "g"}, "a-b b-c c-a", "a-b-c")
STAR = _all_sync("star", {"hub": "h", "a": "g", "b": "g", "c": "g"}, "hub-a hub-b hub-c", "hub-a hub-b hub-c")
SITES = Topology(
    "sites",
    {"east1": "east", "east2": "east", "west1": "west", "west2": "west"},
    (
        *_both("east1", "east2"),
        *_both("west1", "west2"),
        Way("east1", ("west1", "west2"), ASYNC),
        Way("east2", ("west2", "west1"), ASYNC),
        Way("west1", ("east1", "east2"), ASYNC),
        Way("west2", ("east2", "east1"), ASYNC),
    ),
    (frozenset({"east1", "east2"}), frozenset({"west1", "west2"})),
)
TOPOLOGIES = {topology.name: topology for topology in (PAIR, CHAIN, TRIANGLE, STAR, SITES)}


def model_of(topology: Topology) -> list[Instance]:
    """The instances of the model."""
    return [
        Instance(
            name,
            group,
            [
                Destination(way.label, way.candidates, way.mode, way.pass_through, mode=way.mode)
                for way in topology.ways
                if way.source == name
            ],
        )
        for name, group in topology.groups.items()
    ]
