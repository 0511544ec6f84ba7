"""Evaluation of messages when they enter queues, over sockets.

queues.md §3, §9.3, §12, behaviours 50, 58, 59 and 61 of §24; behaviour 17 is in test_queues_filters.py.
"""

from pathlib import Path

import pytest

from tests.support.peer import bodies_of
from tests.support.peers import Peers
from tests.support.queues import Queueing, acknowledge, bodies, options, queue_xml, quiet
from tests.support.server import StartServer, loaded_module_xml

FUNCTIONS = Path(__file__).parent.parent / "support" / "data" / "own_functions.py"
BARRIER = b'{"bar":1}'


@pytest.fixture
def queueing(start_server: StartServer, peers: Peers) -> Queueing:
    """Qp over Tp with priorities, Qb over Tb with barriers, Qf over Tb with a filter; Q1 over T1."""
    server = start_server(
        **options(
            queue_xml("Qp", "Tp", Priority="/p"),
            queue_xml("Qb", "Tb", BarrierExpression="/bar IS NOT NULL", LeasePeriod="30s"),
            queue_xml("Qf", "Tb", Filter="/bar IS NULL AND TOPIC_NAME() = 'Tb'"),
            queue_xml("Q1", "T1"),
        )
    )
    return Queueing(server, peers)


def ranked(*priorities: str) -> list[bytes]:
    return [b'{"p":%s,"n":%d}' % (text.encode(), number) for number, text in enumerate(priorities)]


def test_queues_priority(queueing: Queueing) -> None:
    """queues.md §9.3, D-12; §24, 50."""
    published = ranked("1", "5", "3", "null", '"x"', "0")
    queueing.publish_bodies(published, topic="Tp")
    expected = [published[at] for at in (1, 2, 0, 5, 3, 4)]
    assert queueing.waiting("Qp", 6) == expected
    client = queueing.consumer(1, "Qp")
    (top,) = client.receive_published(1)
    assert top.body == expected[0]
    assert acknowledge(client, top, o="cancel").succeeded
    (again,) = client.receive_published(1)
    assert (again.body, again["bm"]) == (expected[0], top["bm"])
    assert acknowledge(client, again).succeeded
    assert bodies_of(client.receive_published(1)) == [expected[1]]


def test_queues_equal_priorities_keep_the_order_of_the_log(queueing: Queueing) -> None:
    """queues.md §9.3, D-12; §24, 50."""
    published = ranked("2.9", "2", '"2.5"', "-3", "0", "2.1", "1e30", "18446744073709551615")
    queueing.publish_bodies(published, topic="Tp")
    expected = [published[at] for at in (6, 7, 0, 1, 2, 5, 3, 4)]
    assert queueing.waiting("Qp", 8) == expected
    queueing.server.restart()
    assert queueing.waiting("Qp", 8) == expected


def test_queues_a_barrier_waits_for_earlier_messages(queueing: Queueing) -> None:
    """queues.md §12; §24, 58."""
    m1, m2, m3 = bodies(1, 2, 3)
    one, other = queueing.consumer(1, "Qb"), queueing.consumer(1, "Qb")
    queueing.publish_bodies([m1, m2, BARRIER, m3], topic="Tb")
    (first,) = one.receive_published(1)
    (second,) = other.receive_published(1)
    assert sorted([first.body, second.body]) == [m1, m2]
    assert "lp" in first
    quiet(one)
    assert acknowledge(one, first).succeeded
    quiet(one)
    assert acknowledge(other, second).succeeded
    # A client that receives m3 has received the barrier before.
    barrier = one.receive_published(1)[0]
    assert (barrier.body, "lp" in barrier) == (BARRIER, False)
    assert bodies_of(other.receive_published(1)) == [BARRIER]
    one.close()
    other.close()
    assert queueing.waiting("Qb", 1) == [m3]


def test_queues_a_barrier_comes_to_full_subscriptions(queueing: Queueing) -> None:
    """queues.md §12; §24, 59."""
    nothing = queueing.consumer(0, "Qb")
    full = queueing.client()
    full.subscribe("^Q[1b]$", "s", o="max_backlog=1")
    queueing.publish(1, topic="T1")
    assert bodies_of(full.receive_published(1)) == bodies(1)
    queueing.publish_bodies([BARRIER], topic="Tb")
    for client in (nothing, full):
        (message,) = client.receive_published(1)
        assert (message["t"], message.body) == ("Qb", BARRIER)
        quiet(client)


def test_queues_a_barrier_waits_for_a_consumer(queueing: Queueing) -> None:
    """queues.md §24, 61; D-16."""
    queueing.publish_bodies([BARRIER], topic="Tb")
    assert queueing.waiting("Qb", 1) == [BARRIER]
    assert queueing.waiting("Qb", 0) == []


def test_queues_a_restart_evaluates_again(queueing: Queueing, peers: Peers) -> None:
    """queues.md §3, §12, §17."""
    m1, m2 = bodies(1, 2)
    queueing.publish_bodies([m1, BARRIER, m2], topic="Tb")
    again = Queueing(queueing.server.restart(), peers)
    assert again.waiting("Qf", 2) == [m1, m2]
    client = again.consumer(10, "Qb")
    (message,) = client.receive_published(1)
    assert message.body == m1
    quiet(client)
    assert acknowledge(client, message).succeeded
    assert bodies_of(client.receive_published(2)) == [BARRIER, m2]


def test_queues_an_unparsable_message_is_logged(queueing: Queueing) -> None:
    """An unparsable message enters a queue without a filter, without a priority, and not as a barrier."""
    queueing.publish_bodies([b"no json", *bodies(1)], topic="Tb")
    queueing.server.log.wait_for("14-0003", "of type json could not be parsed", "topic 'Tb'")
    assert queueing.waiting("Qf", 1) == bodies(1)
    assert queueing.waiting("Qb", 2) == [b"no json", *bodies(1)]
    queueing.publish_bodies([b"no json", *ranked("0")], topic="Tp")
    assert queueing.waiting("Qp", 2) == [*ranked("0"), b"no json"]


def test_queues_a_function_of_the_user_that_fails_gives_null(start_server: StartServer, peers: Peers) -> None:
    """expressions.md §10.11: the rule applies in the core, too."""
    function = "<Function><Name>HALF_OF</Name><Module>own</Module><Symbol>half_of</Symbol></Function>"
    given = options(
        queue_xml("Q", "T", Filter="HALF_OF(/n) = 2"), queue_xml("Qp", "T", Priority="HALF_OF(/n)")
    )
    given["instance_xml"] += f"<UserDefinedFunctions>{function}</UserDefinedFunctions>"
    server = start_server(**given, modules_xml=loaded_module_xml("own", str(FUNCTIONS)))
    queueing = Queueing(server, peers)
    published = [b'{"n":%s}' % text for text in (b'"x"', b"4", b"8")]
    queueing.publish_bodies(published)
    server.log.wait_for("14-0005", "function HALF_OF failed", "the last time: TypeError: ")
    assert queueing.waiting("Q", 1) == published[1:2]
    assert queueing.waiting("Qp", 3) == [published[2], published[1], published[0]]
