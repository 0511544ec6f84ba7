"""Conflation on replays: transaction_log.md §11, §22 43 to 45; protocol.md §21 64."""

import json
import time

from tests.support.peer import RawClient, bodies_of
from tests.support.peers import Peers
from tests.support.server import ServerProcess


def body(key: object, number: int) -> bytes:
    return json.dumps({"k": key, "n": number}).encode()


BY_KEY = "conflation_key=[/k]"


def test_transaction_log_43_one_message_for_many(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §22 43: the newest, with bookmark and time of the first; each key by itself, in the order of
    the keys' first messages.
    """
    messages = [body(key, number) for number in range(3) for key in ("a", "b")]
    publisher.publish_persisted(recorded_topic, messages, 1)
    subscriber.subscribe(recorded_topic, "all", bm="0", o="timestamp")
    everything = subscriber.receive_published(6)
    subscriber.unsubscribe("all")
    subscriber.subscribe(recorded_topic, "s", bm="0", o=f"conflation=5s,{BY_KEY},timestamp")
    got = subscriber.receive_published(2)
    assert bodies_of(got) == [body("a", 2), body("b", 2)]
    assert [(m["bm"], m["ts"]) for m in got] == [(m["bm"], m["ts"]) for m in everything[:2]]
    subscriber.expect_silence()


def test_transaction_log_44_time_is_that_of_the_messages(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §22 44, protocol.md §21 64: however fast the replay is."""
    for number in range(1, 8):
        publisher.publish(recorded_topic, body("k", number), s=number)
        publisher.flush()
        if number < 7:
            time.sleep(0.25)
    began_s = time.monotonic()
    subscriber.subscribe(recorded_topic, "s", bm="0", o=f"conflation=600ms,{BY_KEY}")
    got = []
    while not got or got[-1].body != body("k", 7):
        got.append(subscriber.receive())
    # 1.5 s of messages: intervals of 0.6 s begin with the first one and with each that comes after their end.
    assert 2 <= len(got) <= 4
    assert time.monotonic() - began_s < 5
    subscriber.unsubscribe("s")
    subscriber.subscribe(recorded_topic, "short", bm="0", o=f"conflation=50ms,{BY_KEY}")
    assert bodies_of(subscriber.receive_published(7)) == [body("k", number) for number in range(1, 8)]


def test_transaction_log_43_a_resuming_subscriber_loses_nothing(
    peers: Peers, logged_server: ServerProcess, publisher: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §11: resuming after any delivered bookmark shows every key's last message, some of them a
    second time. The same holds for `persisted` acknowledgements, which are never ahead of held messages.
    """
    messages = [body(n % 7, n) for n in range(500)]
    publisher.publish_persisted(recorded_topic, messages, 1)
    subscriber = peers.logged_on(logged_server)
    subscriber.subscribe(recorded_topic, "s", bm="0", o=f"conflation=2s,{BY_KEY}", a="processed,persisted")
    persisted = None
    delivered: list[bytes] = []
    while len(delivered) < 7:
        message = subscriber.receive()
        if message.is_ack("persisted"):
            assert not delivered
            persisted = message["bm"]
        else:
            delivered.append(message.body)
    assert delivered == [body(n % 7, max(range(n, 500, 7))) for n in range(7)]
    if persisted is not None:
        resumed = peers.logged_on(logged_server)
        resumed.subscribe(f"^{recorded_topic}$", "s", bm=persisted)
        assert resumed.receive().body == messages[0]


def test_transaction_log_43_new_messages_are_conflated_by_the_clock(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §11: after the cutover, in real time; also `auto`, and with a rate, a filter, a range."""
    publisher.publish_persisted(recorded_topic, [body("k", 0)], 1)
    subscriber.subscribe(recorded_topic, "s", bm="0", o=f"conflation=300ms,{BY_KEY}", filter="/n < 1000")
    assert subscriber.receive().body == body("k", 0)
    began_s = time.monotonic()
    publisher.publish_persisted(recorded_topic, [body("k", n) for n in range(1, 2000)], 2)
    took_s = time.monotonic() - began_s
    got = [subscriber.receive()]
    while got[-1].body != body("k", 999):
        got.append(subscriber.receive())
    assert len(got) <= 2 + took_s / 0.3
    assert str(got[0]["bm"]).endswith("|2|")
    subscriber.unsubscribe("s")
    subscriber.subscribe(recorded_topic, "auto", bm="0", o=f"conflation=auto,{BY_KEY}")
    while subscriber.receive().body != body("k", 1999):
        pass
    subscriber.unsubscribe("auto")
    options = f"conflation=1h,{BY_KEY},rate=100"
    subscriber.send({"c": "subscribe", "t": recorded_topic, "bm": "[0:0|1|]", "sub_id": "range", "o": options,
                     "a": "completed"})  # fmt: skip
    assert subscriber.receive().body == body("k", 1999)
    assert subscriber.receive().is_ack("completed")


def test_transaction_log_43_fields_that_make_a_key(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §11: several fields, by text; missing ones are equal; an unreadable message is delivered."""
    messages = [
        b'{"k":1,"l":"x"}', b'{"k":"1","l":"x","new":1}', b'{"l":"1","k":"x"}', b'{"k":1}', b'{"k":1,"l":null}',
        b"no json", b"{}", b'{"k":[1,"2"],"l":2}', b'{"k":[1,"2"],"l":2,"new":1}', b'{"k":["1,2"],"l":2}',
        b"no json", b'{"k":"\\u0031","l":"x","new":2}',
    ]  # fmt: skip
    publisher.publish_persisted(recorded_topic, messages, 1)
    subscriber.subscribe(recorded_topic, "s", bm="0", o="conflation=1h,conflation_key=[/k,/l],rate=10000")
    subscriber.unsubscribe("s")
    subscriber.send({"c": "subscribe", "t": recorded_topic, "bm": "[0:0|1|]", "sub_id": "range", "a": "completed",
                     "o": "conflation=1h,conflation_key=[ /k , /l ]"})  # fmt: skip
    got = []
    while not (message := subscriber.receive()).is_ack("completed"):
        if message.subscriptions == {"range"}:
            got.append(message.body)
    assert got[:2] == [b"no json", b"no json"]
    assert set(got[2:]) >= {
        b'{"k":"\\u0031","l":"x","new":2}',
        b'{"l":"1","k":"x"}',
        b'{"k":[1,"2"],"l":2,"new":1}',
    }
    assert b'{"k":["1,2"],"l":2}' in got
    assert b'{"k":1,"l":"x"}' not in got
    assert b'{"k":[1,"2"],"l":2}' not in got


def test_transaction_log_43_large_messages_are_held_too(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """Such payloads are sent from the file if they are not held."""
    messages = [b'{"k":%d,"pad":"%s"}' % (n % 2, b"%d" % n * 50_000) for n in range(6)]
    publisher.publish_persisted(recorded_topic, messages, 1)
    subscriber.send({"c": "subscribe", "t": recorded_topic, "bm": "[0:0|1|]", "sub_id": "range", "a": "completed",
                     "o": f"conflation=1h,{BY_KEY}"})  # fmt: skip
    assert bodies_of(subscriber.receive_published(2)) == messages[4:]
    assert subscriber.receive().is_ack("completed")


def test_transaction_log_45_a_key_is_needed(subscriber: RawClient, recorded_topic: str) -> None:
    """transaction_log.md §22 45"""
    for options in ("conflation=1s", "conflation=auto", "conflation=1s,conflation_key=[]"):
        ack = subscriber.try_subscribe(recorded_topic, "s", bm="0", o=options)
        assert (ack["status"], ack.reason) == ("failure", "invalid options")
