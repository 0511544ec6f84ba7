"""Conflated ordinary subscriptions: protocol.md §8.3, and the behaviours 27 and 63 of §21, on topics without state.

An interval is long where a message must be held, and short where it must come: a slow machine changes neither.
"""

import pytest

from tests.support.peer import Message, RawClient, bodies_of
from tests.support.peers import Peers
from tests.support.server import ServerProcess

KEY = "conflation_key=[/id]"
LONG = f"conflation=1h,{KEY}"
SHORT = f"conflation=300ms,{KEY}"


@pytest.fixture(params=["unrecorded", "recorded"])
def name(request: pytest.FixtureRequest, topic: str, recorded_topic: str) -> str:
    return topic if request.param == "unrecorded" else recorded_topic


@pytest.fixture
def client(peers: Peers, logged_server: ServerProcess) -> RawClient:
    return peers.logged_on(logged_server)


def update(number: int, value: int) -> bytes:
    return b'{"id":%d,"v":%d}' % (number, value)


def test_protocol_63_of_many_updates_the_last_comes_once(
    publisher: RawClient, client: RawClient, name: str
) -> None:
    """protocol.md §21 63: no message for an interval, then one message of each key, with the time of the first."""
    client.subscribe(name, "all", o="timestamp")
    client.subscribe(name, "s", o=f"timestamp,conflation=1s,{KEY}")
    publisher.publish_all(name, [update(n % 2, n) for n in range(10)])
    # Unconflated messages come at once, and so show which messages were held.
    whole = client.receive_published(10)
    assert [message.subscriptions for message in whole] == [{"all"}] * 10
    held = client.receive_published(2)
    assert [(message.body, message.subscriptions) for message in held] == [
        (update(0, 8), {"s"}),
        (update(1, 9), {"s"}),
    ]
    assert [message["ts"] for message in held] == [whole[0]["ts"], whole[1]["ts"]]
    assert {message["t"] for message in held} == {name}
    client.expect_silence()
    publisher.publish(name, update(0, 10))
    assert bodies_of(client.receive_published(2)) == [update(0, 10)] * 2


def test_protocol_63_a_held_message_is_not_sent_before_its_time(
    publisher: RawClient, client: RawClient, name: str
) -> None:
    """protocol.md §8.3: the first update is delayed, too; messages of other subscriptions are not."""
    client.subscribe(name, "s", o=LONG)
    client.subscribe(f"{name}/other", "other")
    publisher.publish_all(name, [update(1, n) for n in range(100)])
    publisher.publish(f"{name}/other", b"at once")
    assert client.receive().body == b"at once"
    client.expect_silence()


@pytest.mark.parametrize("topic_form", ["{}", "^{}$"])
@pytest.mark.parametrize("text", ["", "/v >= 5"])
def test_protocol_63_filters_and_expressions(
    publisher: RawClient, client: RawClient, name: str, topic_form: str, text: str
) -> None:
    """protocol.md §8.3: only a message that matches the subscription replaces the held one."""
    client.subscribe(topic_form.format(name), "s", o=SHORT, **({"f": text} if text else {}))
    publisher.publish_all(name, [update(1, n) for n in (1, 7, 5, 2)])
    assert bodies_of(client.receive_published(1)) == [update(1, 5) if text else update(1, 2)]
    client.expect_silence()


def test_protocol_63_topics_of_an_expression_are_apart(
    publisher: RawClient, client: RawClient, name: str
) -> None:
    """protocol.md §8.3: the same key in two topics is two records."""
    client.subscribe(f"^{name}/[ab]$", "s", o=SHORT)
    for place, value in (("a", 1), ("b", 2), ("a", 3), ("b", 4)):
        publisher.publish(f"{name}/{place}", update(1, value))
    assert sorted(bodies_of(client.receive_published(2))) == [update(1, 3), update(1, 4)]


def test_protocol_63_each_conflated_subscription_has_frames_of_its_own(
    publisher: RawClient, client: RawClient, name: str
) -> None:
    """protocol.md §4, §8.3: deliveries at different times cannot be one message."""
    client.subscribe(name, "plain")
    client.subscribe(name, "short", o=SHORT)
    client.subscribe(name, "long", o=LONG)
    client.subscribe(name, "none", o=f"conflation=none,{KEY}")
    publisher.publish_all(name, [update(1, 1), update(1, 2)])
    got = [(message.body, message.subscriptions) for message in client.receive_published(3)]
    assert got == [
        (update(1, 1), {"plain", "none"}),
        (update(1, 2), {"plain", "none"}),
        (update(1, 2), {"short"}),
    ]
    client.expect_silence()


def test_protocol_63_an_unreadable_message_is_not_held(
    publisher: RawClient, client: RawClient, name: str
) -> None:
    """Such a message has no key; transaction_log.md §11 has the same rule for replays."""
    client.subscribe(name, "s", o=LONG)
    publisher.publish_all(name, [b'{"id":', b"", update(1, 1)])
    assert bodies_of(client.receive_published(1)) == [b'{"id":']


def test_protocol_63_a_large_message_is_whole(publisher: RawClient, client: RawClient, name: str) -> None:
    """protocol.md §8.3: it is held as a copy, which does not depend on the log."""
    body = b'{"id":1,"pad":"%s"}' % (b"x" * 3_000_000)
    client.subscribe(name, "s", o=SHORT)
    publisher.publish(name, b'{"id":1}')
    publisher.publish(name, body, x="corr")
    (message,) = client.receive_published(1)
    assert (message.body == body, message["x"]) == (True, "corr")


def test_protocol_63_bookmarks_are_those_of_the_first(
    publisher: RawClient, client: RawClient, recorded_topic: str
) -> None:
    """protocol.md §8.3, transaction_log.md §11: a subscriber that resumes there misses nothing."""
    client.subscribe(recorded_topic, "all", o="bookmark")
    client.subscribe(recorded_topic, "s", o=f"bookmark,{SHORT}")
    publisher.publish_persisted(recorded_topic, [update(1, n) for n in range(3)], 1)
    whole = client.receive_published(3)
    (held,) = client.receive_published(1)
    assert (held.body, held["bm"]) == (update(1, 2), whole[0]["bm"])


def test_protocol_29_a_replacement_sends_held_messages(
    publisher: RawClient, client: RawClient, name: str
) -> None:
    """protocol.md §8.2: no held message of the old scope is lost."""
    client.subscribe(name, "s", o=LONG)
    publisher.publish_all(name, [update(n, n) for n in range(3)])
    publisher.flush()
    client.subscribe(name, "s", o="replace")
    assert sorted(bodies_of(client.receive_published(3))) == [update(n, n) for n in range(3)]
    publisher.publish(name, update(1, 7))
    assert bodies_of(client.receive_published(1)) == [update(1, 7)]
    client.subscribe(name, "s", o=f"replace,{SHORT}")
    publisher.publish_all(name, [update(1, 8), update(1, 9)])
    assert bodies_of(client.receive_published(1)) == [update(1, 9)]
    client.expect_silence()


def test_protocol_29_a_replacement_by_a_replay_sends_held_messages(
    publisher: RawClient, client: RawClient, recorded_topic: str
) -> None:
    """protocol.md §8.2, transaction_log.md §7.4: by one with a bookmark, too."""
    client.subscribe(recorded_topic, "s", o=LONG)
    publisher.publish_persisted(recorded_topic, [update(1, 1)], 1)
    client.subscribe(recorded_topic, "s", o="replace", bm="0|1|")
    assert bodies_of(client.receive_published(1)) == [update(1, 1)]
    publisher.publish_persisted(recorded_topic, [update(1, 2)], 2)
    assert bodies_of(client.receive_published(1)) == [update(1, 2)]


@pytest.mark.parametrize("end", ["unsubscribe", "disconnect"])
def test_protocol_31_nothing_held_comes_after_the_end(
    peers: Peers, logged_server: ServerProcess, publisher: RawClient, client: RawClient, name: str, end: str
) -> None:
    """protocol.md §21 31: and the server goes on."""
    client.subscribe(name, "s", o=SHORT)
    publisher.publish(name, update(1, 1))
    publisher.flush()
    if end == "unsubscribe":
        assert client.unsubscribe("s").succeeded
        client.subscribe(name, "s", o=SHORT)
    else:
        client.close()
        client = peers.logged_on(logged_server)
        client.subscribe(name, "s", o=SHORT)
    publisher.publish(name, update(2, 2))
    assert bodies_of(client.receive_published(1)) == [update(2, 2)]
    client.expect_silence()


@pytest.mark.parametrize("command", ["delta_subscribe", "sow_and_subscribe", "sow_and_delta_subscribe"])
def test_protocol_63_other_commands_are_conflated_alike(
    publisher: RawClient, client: RawClient, name: str, command: str
) -> None:
    """protocol.md §10: they accept the option, too."""
    assert client.request({"c": command, "t": name, "sub_id": "s", "o": SHORT}).succeeded
    publisher.publish_all(name, [update(1, 1), update(1, 2)])
    while (message := client.receive()).command != "p":
        assert message.command in ("group_begin", "group_end")
    assert message.body == update(1, 2)
    client.expect_silence()


def test_protocol_63_the_server_may_choose_the_interval(
    publisher: RawClient, client: RawClient, name: str
) -> None:
    """protocol.md §10: `auto`."""
    client.subscribe(name, "s", o=f"conflation=auto,{KEY}")
    publisher.publish_all(name, [update(1, n) for n in range(1000)])
    got: list[Message] = []
    while not got or got[-1].body != update(1, 999):
        got.append(client.receive())
    assert len(got) < 900


@pytest.mark.parametrize(
    "options", ["conflation=1s", f"conflation=soon,{KEY}", "conflation=1s,conflation_key=/id", KEY]
)
def test_protocol_63_a_key_is_needed(client: RawClient, name: str, options: str) -> None:
    """protocol.md §21 63: a topic without state has no key, so the option must name one."""
    ack = client.try_subscribe(name, "s", o=options)
    assert (ack["status"], ack.reason) == ("failure", "invalid options")


def test_protocol_63_many_keys_are_bounded_by_memory(
    publisher: RawClient, client: RawClient, topic: str
) -> None:
    """docs/messages.md: messages beyond the memory limit are sent before their time, the oldest first."""
    client.subscribe(topic, "s", o=LONG)
    pad = b"x" * 1_000_000
    for number in range(80):
        publisher.publish(topic, b'{"id":%d,"pad":"%s"}' % (number, pad))
    got = client.receive_published(10, timeout_s=60)
    assert [int(message.body[6 : message.body.index(b",")]) for message in got] == list(range(10))
