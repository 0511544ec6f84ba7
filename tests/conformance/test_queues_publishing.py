"""Publishing to queues over sockets: queues.md §3, §4, §14.5, behaviours 15, 16, 20, 21 and 65 of §24."""

import pytest

from tests.support.peer import RawClient, bodies_of
from tests.support.peers import Peers
from tests.support.queues import Queueing, acknowledge, bodies, options, queue_xml, quiet
from tests.support.server import StartServer, Transport, loaded_module_xml, module_xml

TWO_QUEUES = (
    queue_xml("QA", "^T_ORD$|^T_A$", DefaultPublishTarget="T_A"),
    queue_xml("QB", "^T_ORD$|^T_B$", DefaultPublishTarget="T_B"),
)


@pytest.mark.parametrize(
    ("topic", "entered", "recorded"),
    [
        ("T_ORD", ("QA", "QB"), "T_ORD"),
        ("QA", ("QA",), "T_A"),
        ("T_A", ("QA",), "T_A"),
        ("QB", ("QB",), "T_B"),
        ("T_B", ("QB",), "T_B"),
    ],
)
def test_queues_a_publish_enters_the_queues_of_its_topic(
    start_server: StartServer, peers: Peers, topic: str, entered: tuple[str, ...], recorded: str
) -> None:
    """queues.md §4; §24, 15."""
    queueing = Queueing(start_server(**options(*TWO_QUEUES)), peers)
    subscriber = queueing.client()
    subscriber.subscribe("^T_", "t")
    queueing.publish(1, topic=topic)
    (copy,) = subscriber.receive_published(1)
    assert (copy["t"], copy.body) == (recorded, bodies(1)[0])
    for queue in ("QA", "QB"):
        expected = bodies(1) if queue in entered else []
        assert queueing.waiting(queue, len(expected)) == expected
    client = queueing.consumer(10, entered[0])
    acknowledge(client, *client.receive_published(1))
    client.close()
    assert queueing.waiting(entered[0], 0) == []
    if len(entered) == 2:
        assert queueing.waiting(entered[1], 1) == bodies(1)


def test_queues_a_publish_to_the_name_goes_to_the_underlying_topic(
    start_server: StartServer, peers: Peers
) -> None:
    """queues.md §24, 16."""
    queueing = Queueing(start_server(**options(queue_xml("Q", "T"))), peers)
    subscriber = queueing.client()
    subscriber.subscribe("T", "t")
    queueing.publish(1, topic="Q")
    (copy,) = subscriber.receive_published(1)
    assert (copy["t"], copy.body) == ("T", bodies(1)[0])
    assert queueing.waiting("Q", 1) == bodies(1)


def test_queues_a_duplicate_does_not_enter(start_server: StartServer, peers: Peers) -> None:
    """queues.md §24, 20."""
    queueing = Queueing(start_server(**options(queue_xml("Q", "T"))), peers)
    for topic in ("T", "Q"):
        queueing.publish(1, topic=topic, s=5)
    assert queueing.waiting("Q", 1) == bodies(1)


@pytest.mark.parametrize(
    ("recovery_point", "waiting"),
    [
        (None, bodies(1, 2, 3)),
        ("now", []),
    ],
)
def test_queues_that_are_new_begin_at_their_recovery_point(
    start_server: StartServer, peers: Peers, recovery_point: str | None, waiting: list[bytes]
) -> None:
    """queues.md §24, 21."""
    server = start_server(log_topics=("^T", "^Q"))
    publisher = peers.logged_on(server)
    for body in bodies(1, 2, 3):
        publisher.publish("T", body)
    publisher.flush("persisted")
    added = queue_xml("Q", "T", **({} if recovery_point is None else {"RecoveryPoint": recovery_point}))
    queueing = Queueing(server.restart(**options(added)), peers)
    assert queueing.waiting("Q", len(waiting)) == waiting
    queueing.publish(4)
    assert queueing.waiting("Q", len(waiting) + 1) == [*waiting, *bodies(4)]


# --- permissions (§14.5) ------------------------------------------------------------------------------------


@pytest.fixture
def guarded(start_server: StartServer, peers: Peers) -> Queueing:
    """Transport `reader` may read Q and nothing else, `writer` may write Q and nothing else."""
    server = start_server(
        **options(
            queue_xml("Q", "T"),
            modules_xml=loaded_module_xml("simple", "libamps_simple_access_entitlement.so"),
            transports=(
                Transport("open"),
                *(
                    Transport(
                        name,
                        extra_xml=module_xml(
                            "Entitlement", "simple", AllowedTopics="^Q$", GrantedPermissions=permission
                        ),
                    )
                    for name, permission in (("reader", "read"), ("writer", "write"))
                ),
            ),
        )
    )
    return Queueing(server, peers)


def refusal(client: RawClient, **header: str) -> object:
    """Return the reason of a command's failure."""
    answer = client.request(header)
    assert answer.failed
    return answer["reason"]


def test_queues_read_lets_consume_and_acknowledge(guarded: Queueing) -> None:
    """queues.md §24, 65."""
    guarded.publish(1, 2)
    reader = guarded.client("reader")
    reader.subscribe("Q", "s", o="max_backlog=1")
    (message,) = reader.receive_published(1)
    assert acknowledge(reader, message).succeeded
    assert bodies_of(reader.receive_published(1)) == bodies(2)
    assert refusal(reader, c="publish", t="Q") == "not entitled"
    assert refusal(reader, c="subscribe", t="T") == "not entitled"
    assert refusal(reader, c="subscribe", t="Q", bm="0") == "not entitled"


def test_queues_write_lets_publish_to_the_name(guarded: Queueing) -> None:
    """queues.md §24, 65; D-33."""
    subscriber = guarded.client("open")
    subscriber.subscribe("T", "t")
    writer = guarded.client("writer")
    assert writer.request({"c": "publish", "t": "Q"}, bodies(1)[0]).succeeded
    (copy,) = subscriber.receive_published(1)
    assert (copy["t"], copy.body) == ("T", bodies(1)[0])
    assert refusal(writer, c="publish", t="T") == "not entitled"
    assert refusal(writer, c="subscribe", t="Q") == "not entitled"
    assert refusal(writer, c="sow_delete", t="Q", bm="1|1|") == "not entitled"
    subscriber.expect_silence()


def test_queues_an_expression_leaves_out_topics_without_permission(guarded: Queueing) -> None:
    """queues.md §14.5."""
    reader = guarded.client("reader")
    reader.subscribe("^[QT]$", "s", o="max_backlog=10")
    guarded.publish(1)
    (message,) = reader.receive_published(1)
    assert message["t"] == "Q"
    quiet(reader)
