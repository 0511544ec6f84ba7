"""Actions on messages that leave queues, over sockets: queues.md §15; behaviours 34-36, 40, 41, 51, 52 and 54 of §24.

Other files test the state of such messages in the queue itself (test_queues_delivering.py, _acknowledging.py).
"""

import json
import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.support.peer import RawClient, bodies_of
from tests.support.peers import Peers
from tests.support.queues import Queueing, acknowledge, bodies, options, queue_xml, quiet
from tests.support.server import ServerOptions, StartServer
from tests.support.services import action, do, echo, on

Start = Callable[..., Queueing]
LETTER = '{"why":"{{AMPS_REASON}}","body":{{AMPS_DATA}}}'


def expired(queue: str = "Q", reason: str = "") -> str:
    """The `On` element of an action for messages that leave a queue unsuccessfully."""
    more = {"Reason": reason} if reason else {}
    return on("sow-expire-message", Topic=queue, MessageType="json", **more)


def publish(data: str = LETTER, topic: str = "T_DEAD") -> str:
    return do("publish-message", Topic=topic, MessageType="json", Data=data)


def dead_letters(queue: str = "Q", reason: str = "") -> str:
    """The expire action of the fixture of queues.md §24."""
    return action(expired(queue, reason), publish())


@pytest.fixture
def start(start_server: StartServer, peers: Peers) -> Start:
    """A server with queues and actions."""

    def start(*queues: str, actions: str = dead_letters(), **more: object) -> Queueing:
        made = options(*queues, **more)
        made["instance_xml"] += f"<Actions>{actions}</Actions>"
        return Queueing(start_server(**made), peers)

    return start


class Reader:
    """Reads a topic from the beginning of the log."""

    def __init__(self, queueing: Queueing, topic: str = "T_DEAD") -> None:
        self.client = queueing.client()
        self.client.subscribe(topic, "dead", bm="0")

    def letters(self, count: int) -> list[tuple[str, int]]:
        """Receive that number of letters. Return them as (reason, number of the message)."""
        read = [json.loads(message.body) for message in self.client.receive_published(count)]
        return [(letter["why"], letter["body"]["id"]) for letter in read]

    def quiet(self) -> None:
        quiet(self.client)


def restarted(queueing: Queueing, peers: Peers, down_s: float = 0.0) -> Queueing:
    """Start the server again after SIGKILL to all of its processes, and a pause."""
    queueing.server.kill_all()
    time.sleep(down_s)
    return Queueing(queueing.server.start(), peers)


def held(consumer: RawClient) -> list[bytes]:
    return bodies_of(consumer.receive_published(1))


def test_queues_too_many_cancels(start: Start) -> None:
    """queues.md §24, 34: the first cancel redelivers, the second removes."""
    queueing = start(queue_xml("Q", "T", MaxCancels=2))
    reader = Reader(queueing)
    queueing.publish(1)
    consumer = queueing.consumer(1)
    (first,) = consumer.receive_published(1)
    acknowledge(consumer, first, o="cancel")
    (again,) = consumer.receive_published(1)
    assert again.body == first.body
    reader.quiet()
    acknowledge(consumer, again, o="cancel")
    assert reader.letters(1) == [("max_cancels", 1)]
    quiet(consumer)


def test_queues_expired_by_a_client(start: Start) -> None:
    """queues.md §24, 35: without any limit configured."""
    queueing = start(queue_xml("Q", "T"))
    reader = Reader(queueing)
    queueing.publish(1)
    consumer = queueing.consumer(1)
    acknowledge(consumer, *consumer.receive_published(1), o="expire")
    assert reader.letters(1) == [("forced_expire", 1)]
    quiet(consumer)
    reader.quiet()


def test_queues_only_for_some_reasons(start: Start) -> None:
    """queues.md §24, 36: only `max_deliveries` produces a letter; `expire` and time do not."""
    queueing = start(queue_xml("Q", "T", MaxDeliveries=1), actions=dead_letters("Q", "max_deliveries"))
    reader = Reader(queueing)
    queueing.publish(1)
    consumer = queueing.consumer(1)
    acknowledge(consumer, *consumer.receive_published(1), o="expire")
    consumer.unsubscribe("s")
    queueing.publish(2, e=1)
    time.sleep(1.5)
    reader.quiet()
    queueing.publish(3)
    consumer.subscribe("Q", "s", o="max_backlog=1")
    assert held(consumer) == bodies(3)
    consumer.unsubscribe("s")
    assert reader.letters(1) == [("max_deliveries", 3)]


def test_queues_too_many_deliveries(start: Start) -> None:
    """queues.md §24, 40: two consumers one after the other disconnect without an acknowledgement."""
    queueing = start(queue_xml("Q", "T", MaxDeliveries=2))
    reader = Reader(queueing)
    queueing.publish(1)
    for _ in range(2):
        consumer = queueing.consumer()
        assert held(consumer) == bodies(1)
        consumer.close()
    assert reader.letters(1) == [("max_deliveries", 1)]
    assert queueing.waiting("Q", 0) == []


def test_queues_one_delivery(start: Start) -> None:
    """queues.md §24, 41: an unsubscribe expires, an acknowledgement does not."""
    queueing = start(queue_xml("Q", "T", MaxDeliveries=1))
    reader = Reader(queueing)
    queueing.publish(1, 2)
    consumer = queueing.consumer(2)
    first, second = consumer.receive_published(2)
    acknowledge(consumer, first)
    consumer.unsubscribe("s")
    assert reader.letters(1) == [("max_deliveries", 2)]
    reader.quiet()
    assert second.body == bodies(2)[0]
    assert queueing.waiting("Q", 0) == []


def test_queues_time_passes(start: Start) -> None:
    """queues.md §24, 51 and 52: by the queue's time or the message's own, as the model says."""
    models = ("default", "queue", "latest", "earliest")
    named = [f"Qn{model}" for model in models] + [f"Qh{model}" for model in models] + ["Qs"]
    letter = '{"why":"{{AMPS_REASON}} {{AMPS_TOPIC}}","body":{{AMPS_DATA}}}'
    queueing = start(
        *[queue_xml(f"Qn{model}", "T", ExpirationModel=model) for model in models],
        *[queue_xml(f"Qh{model}", "T", ExpirationModel=model, Expiration="1h") for model in models],
        queue_xml("Qs", "T", Expiration="1s"),
        actions=action(*[expired(name) for name in named], publish(letter)),
    )
    reader = Reader(queueing)
    queueing.publish(1)
    queueing.publish(2, e=2)
    queues = ["Qs", "Qndefault", "Qnearliest", "Qhdefault", "Qhearliest"]
    wanted = [(f"time_limit {name}", 2) for name in queues] + [("time_limit Qs", 1)]
    assert Counter(reader.letters(6)) == Counter(wanted)
    reader.quiet()


def test_queues_time_passes_during_a_lease(start: Start) -> None:
    """queues.md §24, 54: an acknowledgement is a success then; a disconnect expires the message."""
    queueing = start(queue_xml("Q", "T", Expiration="1s"))
    reader = Reader(queueing)
    consumer, other = queueing.consumer(1), queueing.consumer(1)
    queueing.publish(1, 2)
    (mine,) = consumer.receive_published(1)
    assert held(other) == bodies(2)
    time.sleep(2)
    assert acknowledge(consumer, mine).succeeded
    reader.quiet()
    other.close()
    assert reader.letters(1) == [("time_limit", 2)]
    quiet(consumer)
    assert queueing.waiting("Q", 0) == []


def test_queues_messages_that_expired_while_the_instance_was_down(start: Start, peers: Peers) -> None:
    """queues.md §22, D-19: once after the start, and not again after another one."""
    queueing = start(queue_xml("Q", "T", Expiration="1s"))
    queueing.publish(1, 2, 3)
    queueing = restarted(queueing, peers, 2)
    assert Reader(queueing).letters(3) == [("time_limit", number) for number in (1, 2, 3)]
    queueing = restarted(queueing, peers)
    reader = Reader(queueing)
    assert len(reader.letters(3)) == 3
    reader.quiet()


def test_queues_several_reasons(start: Start) -> None:
    """queues.md §22, D-25: all reasons that apply, in the order of the documents."""
    queueing = start(queue_xml("Q", "T", Expiration="1s", MaxDeliveries=1, MaxCancels=1))
    reader = Reader(queueing)
    queueing.publish(1)
    consumer = queueing.consumer(1)
    (mine,) = consumer.receive_published(1)
    time.sleep(1.5)
    acknowledge(consumer, mine, o="cancel")
    assert reader.letters(1) == [("time_limit,max_cancels,max_deliveries", 1)]


def test_queues_dead_letters_in_a_queue(start: Start) -> None:
    """queues.md §15: named as their topics; the letter contains a value of the message, and is consumed
    as any other.
    """
    value = do("extract-values", MessageType="json", Data="{{AMPS_DATA}}", Value="KIND = /kind")
    letter = '{"message":{{AMPS_DATA}},"reason":"{{AMPS_REASON}}","kind":"{{KIND}}"}'
    note = do("publish-message", Topic="plain", MessageType="json", Data="{{AMPS_DATA}}")
    queueing = start(
        queue_xml("Qjobs", MaxCancels=3, MaxDeliveries=10),
        queue_xml("Qfailed"),
        actions=action(expired("Qjobs"), value, publish(letter, "Qfailed"), note),
    )
    listener = queueing.client()
    listener.subscribe("plain", "p")
    queueing.publish_bodies([b'{"kind":"a"}'], topic="Qjobs")
    consumer, undertaker = queueing.consumer(1, "Qjobs"), queueing.consumer(1, "Qfailed")
    for _ in range(3):
        (job,) = consumer.receive_published(1)
        acknowledge(consumer, job, o="cancel")
    (failed,) = undertaker.receive_published(1)
    assert json.loads(failed.body) == {"message": {"kind": "a"}, "reason": "max_cancels", "kind": "a"}
    assert failed["t"] == "Qfailed"
    # A topic that is not recorded receives it, too.
    assert bodies_of(listener.receive_published(1)) == [b'{"kind":"a"}']
    acknowledge(undertaker, failed)
    assert queueing.waiting("Qfailed", 0) == []
    quiet(consumer)


def test_queues_expired_twice_before_it_is_active(start: Start, peers: Peers) -> None:
    """queues.md §13, §8.5: a message beyond the target depth; its acknowledgement is kept, its letter written once."""
    queueing = start(queue_xml("Q", "T", TargetQueueDepth=1000))
    queueing.publish(*range(1001))
    everything = queueing.client()
    everything.subscribe("T", "t", bm="0")
    last = everything.receive_published(1001)[-1]
    for _ in range(2):
        acknowledge(everything, last, queue="Q", o="expire")
    for _ in range(2):
        reader = Reader(queueing)
        assert reader.letters(1) == [("forced_expire", 1000)]
        reader.quiet()
        queueing = restarted(queueing, peers)


def test_queues_large_dead_letters(start: Start, peers: Peers) -> None:
    """Messages that do not go through memory shared with the core, between small ones, across a restart after
    SIGKILL.
    """
    queueing = start(
        queue_xml("Q", "T", Expiration="1s"), actions=action(expired(), publish("{{AMPS_DATA}}"))
    )
    large = [b'"%d%s"' % (number, b"x" * 3_000_000) for number in range(4)]
    published = [each for pair in zip(large, bodies(*range(4)), strict=True) for each in pair]
    queueing.publish_bodies(published)
    (first,) = Reader(queueing).client.receive_published(1)
    queueing = restarted(queueing, peers)
    reader = Reader(queueing)
    assert bodies_of(reader.client.receive_published(8)) == published
    assert first.body == published[0]
    reader.quiet()


def test_queues_acknowledged(start: Start, peers: Peers) -> None:
    """queues.md §22, D-30: for each acknowledged message, by bookmark or filter; not for expiry or at-most-once."""
    deleted = on("sow-delete-message", Topic="Q", MessageType="json")
    at_most_once = on("sow-delete-message", Topic="Qo", MessageType="json")
    data = '{"why":"{{AMPS_TOPIC}} {{AMPS_DATA_LENGTH}} {{AMPS_CORRELATION_ID}}","body":{{AMPS_DATA}}}'
    queueing = start(
        queue_xml("Q", "T"),
        queue_xml("Qo", "T", Semantics="at-most-once"),
        actions=action(deleted, at_most_once, publish(data)),
    )
    queueing.publish(1, x="mine")
    queueing.publish(2, 3)
    queueing.publish(4, e=1)
    consumer = queueing.consumer(2)
    first, second = consumer.receive_published(2)
    once = queueing.consumer(2, "Qo", "o")
    acknowledge(once, *once.receive_published(2))
    acknowledge(consumer, second, o="expire")
    acknowledge(consumer, first)
    consumer.request({"c": "sow_delete", "t": "Q", "filter": "/id = 3"})
    for _ in range(2):
        reader = Reader(queueing)
        assert reader.letters(2) == [("Q 8 mine", 1), ("Q 8 ", 3)]
        reader.quiet()
        queueing = restarted(queueing, peers)


def test_queues_deleted_by_an_action(start: Start) -> None:
    """queues.md §22, D-35: the action acknowledges by filter as a client does that holds no lease."""
    clear = do("delete-sow", Topic="^Q", MessageType="json", Filter="/id {{AMPS_DATA}}")
    clean = on("sow-delete-message", Topic="Qclean", MessageType="json")
    queueing = start(
        queue_xml("Q", "T"),
        queue_xml("Qs", "T", Leasing="strict"),
        queue_xml("Qclean"),
        actions=action(clean, clear, echo("cleared"))
        + action(
            on("sow-delete-message", Topic="Q", MessageType="json"),
            publish('{"why":"","body":{{AMPS_DATA}}}'),
        ),
    )
    queueing.publish(*range(1, 7))
    one, other = queueing.consumer(2, "Q"), queueing.consumer(2, "Qs")
    held_by_one, held_by_other = one.receive_published(2), other.receive_published(2)
    worker = queueing.consumer(1, "Qclean")
    queueing.publish_bodies([b"< 5"], topic="Qclean")
    acknowledge(worker, *worker.receive_published(1))
    assert Reader(queueing).letters(4) == [("", number) for number in (1, 2, 3, 4)]
    assert queueing.server.log.wait_for("29-0001", "cleared")
    # Leased messages left the queue that shares leases, and make room there; they stay in the strict one.
    assert bodies_of(one.receive_published(2)) == bodies(5, 6)
    quiet(other)
    assert acknowledge(one, *held_by_one).succeeded
    acknowledge(other, *held_by_other)
    assert bodies_of(other.receive_published(2)) == bodies(5, 6)


def test_queues_an_action_that_is_new(start: Start, start_server: StartServer, peers: Peers) -> None:
    """It receives no earlier messages. An existing action misses none after it was away, or after it was changed."""
    with_actions = start(queue_xml("Q", "T"), actions="<!-- -->")
    consumer = with_actions.consumer(2)
    with_actions.publish(1)
    acknowledge(consumer, *consumer.receive_published(1), o="expire")
    server = with_actions.server
    bare = server.options.instance_xml
    server.restart(instance_xml=bare.replace("<!-- -->", dead_letters()))
    queueing = Queueing(server, peers)
    consumer = queueing.consumer(2)
    queueing.publish(2)
    acknowledge(consumer, *consumer.receive_published(1), o="expire")
    reader = Reader(queueing)
    assert reader.letters(1) == [("forced_expire", 2)]
    reader.quiet()
    # Killed immediately, it continues at the position in the log; a changed template makes no difference to that.
    server.kill_process(server.pids("amps: services")[0])
    queueing.publish(3)
    acknowledge(consumer, *consumer.receive_published(1), o="expire", a="processed,persisted", s=1)
    assert consumer.wait_for_persisted(1)
    server.kill_all()
    server.options = ServerOptions(
        **{
            **vars(server.options),
            "instance_xml": bare.replace(
                "<!-- -->",
                action(expired(), publish('{"why":"changed {{AMPS_REASON}}","body":{{AMPS_DATA}}}')),
            ),
        }
    )
    server.start()
    reader = Reader(Queueing(server, peers))
    letters = reader.letters(2)
    assert letters[0] == ("forced_expire", 2)
    assert letters[1] in [("forced_expire", 3), ("changed forced_expire", 3)]
    reader.quiet()


@pytest.mark.parametrize("victim", ["everything", "core", "services"])
def test_queues_each_dead_letter_once_across_kills(start: Start, peers: Peers, victim: str) -> None:
    """queues.md §15, §22, D-19: SIGKILL several times while letters are written; each is there once, in order."""
    count = 1500
    # The letter goes to a queue, which records it under another name.
    queueing = start(
        queue_xml("Q", "T", Expiration="2s"),
        queue_xml("Q_DEAD", "T_DEAD"),
        actions=action(expired(), publish(topic="Q_DEAD"), publish('{"second":{{AMPS_DATA}}}', "T_SECOND")),
    )
    queueing.publish_bodies([b'{"id":%d}' % number for number in range(count)])
    for _ in range(4):
        reader = Reader(queueing)
        assert reader.letters(1) == [("time_limit", 0)]
        reader.client.close()
        if victim == "everything":
            queueing.server.kill_all()
            queueing = Queueing(queueing.server.start(), peers)
            continue
        title = {"core": "amps: core", "services": "amps: services"}[victim]
        old = queueing.server.pids() if victim == "core" else queueing.server.pids(title)
        queueing.server.kill_process(queueing.server.pids(title)[0])
        queueing.server.wait_for_new_tree(set(old) - set(queueing.server.pids("amps: log")))
        queueing = Queueing(queueing.server, peers)
    reader, second = Reader(queueing), Reader(queueing, "T_SECOND")
    assert reader.letters(count) == [("time_limit", number) for number in range(count)]
    reader.quiet()
    found = [json.loads(message.body)["second"]["id"] for message in second.client.receive_published(count)]
    assert found == list(range(count))
    second.quiet()
