"""Reachable instances (decision 25.37), and requests for queue messages on their way (replication.md §24.8)."""

import json
import struct
from typing import Any

import pytest

from amps.config import ServerConfig
from amps.config.model_queues import QueueConfig
from amps.server.replication import frames
from amps.server.replication.frames import Content, Frame, ProtocolError
from amps.server.replication.reachability import ENTRY_AGE_S, Reachability
from amps.server.replication.transfers import TTL, Transfers


def _content(values: dict[str, Any]) -> Content:
    return Content(Frame(frames.LINKSTATE, 0, json.dumps(values).encode()))


def _state(name: str, *neighbours: str, counter: int = 1) -> Content:
    return _content({"name": name, "neighbours": list(neighbours), "counter": counter})


def test_a_path_of_links_makes_an_instance_reachable() -> None:
    graph = Reachability("A", 0)
    assert graph.first_hops(0) == {}
    assert graph.set_neighbours(["B", "D"])
    assert not graph.set_neighbours(["D", "B"])
    assert graph.heard(_state("B", "A", "C"), 0)
    assert graph.heard(_state("C", "B", "E"), 0)
    assert graph.first_hops(1) == {"B": "B", "D": "D", "C": "B", "E": "B"}
    # A link that is lost here counts at once.
    graph.set_neighbours(["D"])
    assert graph.first_hops(1) == {"D": "D"}


def test_states_are_taken_once_in_the_order_of_their_counters_and_grow_old() -> None:
    graph = Reachability("A", 0)
    graph.set_neighbours(["B"])
    assert graph.heard(_state("B", "C", counter=2**63), 0)
    assert not graph.heard(_state("B", counter=2**63), 1)
    assert not graph.heard(_state("B", counter=5), 1)
    assert not graph.heard(_state("A", "X", counter=2**63), 1)
    assert graph.first_hops(ENTRY_AGE_S) == {"B": "B", "C": "B"}
    assert graph.first_hops(ENTRY_AGE_S + 1) == {"B": "B"}
    assert graph.heard(_state("B", "C", counter=5), ENTRY_AGE_S + 2)


def test_own_states_have_rising_counters_and_those_of_others_can_be_passed_on() -> None:
    graph, other = Reachability("A", 10), Reachability("B", 0)
    graph.set_neighbours(["C"])
    first, second = graph.own_state(), graph.own_state()
    assert other.heard(_content(first), 0)
    assert other.heard(_content(second), 0)
    assert not other.heard(_content(first), 0)
    assert [state["name"] for state in other.states(0)] == ["A"]


@pytest.mark.parametrize(
    "values", [{}, {"name": "", "counter": 1}, {"name": "B", "neighbours": [1], "counter": 1}]
)
def test_malformed_states_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        Reachability("A", 0).heard(_content(values), 0)


def _queue(name: str, kind: Any = "Queue", domain: str | None = None) -> QueueConfig:
    return QueueConfig(name, "json", kind, name, False, name, domain=domain)


class _Instance:
    def __init__(self, name: str, hops: dict[str, str], queues: list[QueueConfig], group: str = "G") -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.passed: list[tuple[Any, ...]] = []
        self.transfers = Transfers(
            ServerConfig(name, group, queues=tuple(queues)),
            lambda: hops,
            lambda neighbour, content: self.sent.append((neighbour, content)),
            lambda *values: self.passed.append(values),
        )

    def receive(self, content: dict[str, Any]) -> None:
        self.transfers.received(_content(content))


BOOKMARKS = struct.pack("<QQQQ", 2**64 - 1, 1, 7, 2)


def test_a_request_goes_to_the_owner_over_other_instances() -> None:
    asking = _Instance("A", {"C": "B", "B": "B"}, [_queue("other"), _queue("q")])
    between = _Instance("B", {"C": "C", "A": "A"}, [])
    owner = _Instance("C", {}, [_queue("q")])
    asking.transfers.wanted(1, "C", BOOKMARKS, 2)
    [(neighbour, content)] = asking.sent
    assert neighbour == "B"
    between.receive(content)
    [(neighbour, content)] = between.sent
    assert neighbour == "C"
    assert content["ttl"] == TTL - 1
    assert content["path"] == ["A", "B"]
    owner.receive(content)
    assert owner.passed == [(0, "A", BOOKMARKS, 2)]
    assert not between.passed
    assert not owner.sent


def test_requests_do_not_go_in_circles() -> None:
    asking = _Instance("A", {"C": "B"}, [_queue("q")])
    asking.transfers.wanted(0, "C", BOOKMARKS, 1)
    [(_, content)] = asking.sent
    between = _Instance("B", {"C": "A"}, [])
    between.receive(content)
    between.receive({**content, "path": ["A", "B"]})
    assert not between.sent
    forwarding = _Instance("D", {"C": "C"}, [])
    forwarding.receive({**content, "ttl": 1})
    assert not forwarding.sent


def test_a_request_for_an_owner_out_of_reach_is_for_this_instance() -> None:
    """replication.md §14.4: a proxy may grant it."""
    asking = _Instance("A", {"C": "B"}, [_queue("q")])
    asking.transfers.wanted(0, "C", BOOKMARKS, 1)
    proxy = _Instance("B", {}, [_queue("q")])
    proxy.receive(asking.sent[0][1])
    assert proxy.passed == [(0, "A", BOOKMARKS, 1)]
    asking.receive({**asking.sent[0][1], "path": []})
    assert not asking.passed


def test_group_local_queues_of_other_domains_are_other_queues() -> None:
    """Behaviour 64."""
    asking = _Instance("A", {"C": "C"}, [_queue("q", "GroupLocalQueue")])
    asking.transfers.wanted(0, "C", BOOKMARKS, 1)
    content = asking.sent[0][1]
    for owner, number in (
        (_Instance("C", {}, [_queue("q", "GroupLocalQueue")]), 1),
        (_Instance("C", {}, [_queue("q", "GroupLocalQueue", "G")], "H"), 1),
        (_Instance("C", {}, [_queue("q", "GroupLocalQueue")], "H"), 0),
        (_Instance("C", {}, [_queue("q")]), 0),
    ):
        owner.receive(content)
        assert len(owner.passed) == number


@pytest.mark.parametrize(
    "bookmarks", [None, [1], [["a", "1"]], [["1"]], [[str(2**64), "1"]], [["1", "1"]] * 5000]
)
def test_malformed_bookmarks_are_refused(bookmarks: Any) -> None:
    content = {
        "requester": "A",
        "owner": "C",
        "path": [],
        "ttl": 3,
        "queue": "q",
        "type": "json",
        "bookmarks": bookmarks,
    }
    with pytest.raises(ProtocolError):
        _Instance("C", {}, [_queue("q")]).receive(content)
