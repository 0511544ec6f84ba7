"""Content filters on subscriptions: the messages they deliver, live and from the log, and how a filter is refused.

protocol.md §8 and §13, transaction_log.md §7.3, expressions.md §12.3. The results of single expressions are tested in
test_expressions_*.py.
"""

import itertools
import threading
from pathlib import Path

import pytest

from tests.support.patched_servers import patched
from tests.support.peer import Message, RawClient, bodies_of
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer

EPOCH = "0"


@pytest.fixture
def client(peers: Peers, plain_server: ServerProcess) -> RawClient:
    return peers.logged_on(plain_server)


@pytest.fixture
def recorder(peers: Peers, logged_server: ServerProcess) -> RawClient:
    return peers.logged_on(logged_server)


def numbers(count: int) -> list[bytes]:
    return [b'{"n":%d}' % number for number in range(1, count + 1)]


def test_protocol_26_a_malformed_filter_is_refused_with_its_place(
    client: RawClient, plain_server: ServerProcess, topic: str
) -> None:
    """protocol.md §21 26, expressions.md §14.7, §15 65: the log names the place; other subscriptions go on."""
    client.subscribe(topic, "other")
    for text in ("/a >", "/a = (", "NOSUCH(/a) = 1", "/a LIKE '('", "/a LIKE /b", "SUM(/a) > 1", ")"):
        ack = client.try_subscribe(topic, "s", f=text)
        assert (ack["status"], ack.reason, ack["sub_id"]) == ("failure", "bad filter", "s")
    client.publish(topic, b"{}")
    assert client.receive().subscriptions == {"other"}
    client.expect_silence()
    plain_server.log.wait_for("02-0030", "there is no function NOSUCH", "at character 1: --> NOSUCH(/a) = 1")
    plain_server.log.wait_for("02-0030", "at character 5: /a > -->")


@pytest.mark.parametrize(
    ("text", "detail", "position"),
    [
        ("/a >", "the expression ends where a field, a literal or a function is expected", 4),
        ("NOSUCH(/a) = 1", "there is no function NOSUCH", 0),
        ("/a = 1 AND /b LIKE '('", "broken pattern", 19),
    ],
)
def test_protocol_26_the_refusal_of_a_filter_says_what_is_wrong_and_where(
    client: RawClient, topic: str, text: str, detail: str, position: int
) -> None:
    """protocol.md §21 26, §3: clients ignore keys that they do not know, so failures may have further fields."""
    ack = client.try_subscribe(topic, "s", f=text)
    assert (ack.reason, ack["position"]) == ("bad filter", position)
    assert detail in str(ack["detail"])


@pytest.mark.parametrize(
    ("fields", "reason", "detail"),
    [
        ({"t": "^("}, "bad regex topic", "'^(': "),
        ({"o": "bogus"}, "invalid options", "subscribe has no option 'bogus'"),
        ({"bm": "yesterday"}, "invalid bookmark", "'yesterday'"),
        ({"o": "x" * 2000}, "invalid options", "subscribe has no option 'xxx"),
    ],
    ids=["topic", "option", "bookmark", "long"],
)
def test_protocol_26_other_refusals_say_what_is_wrong(
    client: RawClient, topic: str, fields: dict[str, str], reason: str, detail: str
) -> None:
    """protocol.md §21 26, 27, D12: the reason is one of few texts; the detail explains it, with bounded length."""
    ack = client.try_subscribe(fields.get("t", topic), "s", **{k: v for k, v in fields.items() if k != "t"})
    assert ack.reason == reason
    assert str(ack["detail"]).startswith(detail)
    assert len(str(ack["detail"])) < 600
    assert "position" not in ack.header


def test_protocol_26_a_query_checks_its_filter(client: RawClient, topic: str) -> None:
    """protocol.md §9: a query that matches no SOW topic is empty, but a malformed filter fails nevertheless."""
    client.send({"c": "sow", "cid": "q1", "t": f"^{topic}", "f": "/a =", "a": "processed"})
    ack = client.receive()
    assert (ack["status"], ack.reason) == ("failure", "bad filter")
    client.send({"c": "sow", "cid": "q2", "t": f"^{topic}", "f": "/a = 1", "a": "completed"})
    assert [client.receive()["c"] for _ in range(3)] == ["group_begin", "group_end", "ack"]


def test_filters_literal_and_regex_topics_are_filtered(client: RawClient, topic: str) -> None:
    """expressions.md §15 1"""
    client.subscribe(topic, "literal", f="/n > 3")
    client.subscribe(f"^{topic}$", "regex", f="/n = 2 OR /n = 5")
    for body in numbers(6):
        client.publish(topic, body)
    got = [(message.body, message.subscriptions) for message in client.receive_published(4)]
    assert got == [
        (b'{"n":2}', {"regex"}),
        (b'{"n":4}', {"literal"}),
        (b'{"n":5}', {"literal", "regex"}),
        (b'{"n":6}', {"literal"}),
    ]
    client.expect_silence()


def test_filters_one_message_names_all_subscriptions_that_match(client: RawClient, topic: str) -> None:
    """protocol.md §4: one copy per connection; subscriptions that do not match are not named."""
    client.subscribe(topic, "all")
    for number in range(1, 5):
        client.subscribe(topic, f"f{number}", f=f"/n >= {number}")
    client.subscribe(topic, "quiet", f="/n = 2", send_matching_ids=False)
    for body in numbers(3):
        client.publish(topic, body)
    assert [message.subscriptions for message in client.receive_published(3)] == [
        {"all", "f1"},
        {"all", "f1", "f2"},
        {"all", "f1", "f2", "f3"},
    ]
    client.expect_silence()


def test_filters_an_option_of_the_matching_subscription_holds(client: RawClient, topic: str) -> None:
    """protocol.md §10: the delivery has a timestamp if a matching subscription requested it."""
    client.subscribe(topic, "plain", f="/n > 0")
    client.subscribe(topic, "timed", f="/n = 2", o="timestamp")
    for body in numbers(2):
        client.publish(topic, body)
    first, second = client.receive_published(2)
    assert "ts" not in first
    assert "ts" in second


def test_filters_of_a_thousand_clients_on_one_field(
    peers: Peers, plain_server: ServerProcess, topic: str
) -> None:
    """Every subscription gets its own message and no other."""
    clients = [peers.logged_on(plain_server) for _ in range(5)]
    for number in range(1000):
        clients[number % 5].send(
            {
                "c": "subscribe",
                "cid": f"c{number}",
                "t": topic,
                "sub_id": f"s{number}",
                "f": f"/id = {number}",
            }
        )
    for each in clients:
        each.flush()
    publisher = peers.logged_on(plain_server)
    for number in range(1000):
        publisher.publish(topic, b'{"id":"%d"}' % number)
    for index, each in enumerate(clients):
        got = each.receive_published(200)
        assert [message.subscriptions for message in got] == [{f"s{n}"} for n in range(index, 1000, 5)]
        each.expect_silence()


def test_transaction_log_26_a_filter_on_a_replay_matches_as_live(
    peers: Peers, logged_server: ServerProcess, recorder: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §22 26"""
    live = peers.logged_on(logged_server)
    live.subscribe(recorded_topic, "live", f="/n > 3")
    recorder.publish_persisted(recorded_topic, numbers(6), 1)
    assert bodies_of(live.receive_published(3)) == numbers(6)[3:]
    recorder.subscribe(recorded_topic, "literal", bm=EPOCH, f="/n > 3")
    assert bodies_of(recorder.receive_published(3)) == numbers(6)[3:]
    recorder.subscribe(f"^{recorded_topic}$", "regex", bm=EPOCH, f="/n IN (1, 6)")
    assert bodies_of(recorder.receive_published(2)) == [numbers(6)[0], numbers(6)[5]]
    # Both have caught up now, and the durable tailer serves them together.
    recorder.publish_persisted(recorded_topic, [b'{"n":6}', b'{"n":0}', b'{"n":4}'], 7)
    got = sorted((message.body, *message.subscriptions) for message in recorder.receive_published(3))
    assert got == [(b'{"n":4}', "literal"), (b'{"n":6}', "literal"), (b'{"n":6}', "regex")]
    recorder.expect_silence()


def test_transaction_log_52_persisted_acks_do_not_need_a_match(
    peers: Peers, logged_server: ServerProcess, recorder: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §22 52, protocol.md §21 62"""
    recorder.subscribe(recorded_topic, "s", bm=EPOCH, f="/n < 0", a="processed,persisted")
    publisher = peers.logged_on(logged_server)
    publisher.publish_persisted(recorded_topic, numbers(5), 1)
    ack = recorder.wait_for_ack("persisted")
    assert ack["sub_id"] == "s"
    publisher.publish_persisted(recorded_topic, [b'{"n":-1}'], 6)
    late = peers.logged_on(logged_server)
    late.subscribe(recorded_topic, "late", bm=str(ack["bm"]))
    assert numbers(5)[0] not in bodies_of(late.receive_until(b'{"n":-1}'))
    assert bodies_of(recorder.receive_published(1)) == [b'{"n":-1}']


@pytest.mark.parametrize("by_bookmark", [False, True], ids=["live", "bookmark"])
def test_protocol_29_a_filter_is_replaced_without_gap_or_duplicate(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str, by_bookmark: bool
) -> None:
    """protocol.md §21 29: messages that match both filters arrive exactly once; then only the new filter applies."""
    publisher = peers.logged_on(logged_server)
    subscriber = peers.logged_on(logged_server)
    start = {"bm": EPOCH} if by_bookmark else {}
    stopped = threading.Event()
    sent = itertools.count(1)

    def publish() -> None:
        while not stopped.is_set():
            number = next(sent)
            publisher.publish(recorded_topic, b'{"n":%d,"even":%d}' % (number, number % 2 == 0), s=number)

    subscriber.subscribe(recorded_topic, "s", f="/n > 0 AND /even = 1", **start)
    thread = threading.Thread(target=publish)
    thread.start()
    try:
        before = subscriber.receive_published(50)
        cid = subscriber.new_id()
        subscriber.send(
            {"c": "subscribe", "cid": cid, "t": recorded_topic, "sub_id": "s", "o": "replace", "a": "processed",
             "f": "/n > 0 AND /even IN (0, 1)"} | start
        )  # fmt: skip
        received: list[Message] = []
        while not (received and received[-1].is_ack("processed", cid)):
            received.append(subscriber.receive())
        assert received.pop().succeeded
        after = subscriber.receive_published(50)
    finally:
        stopped.set()
        thread.join()
    values = [int(body.split(b":")[1].split(b",")[0]) for body in bodies_of(before + received + after)]
    turn = next(index for index, value in enumerate(values) if value % 2)
    assert values[: turn - 1] == list(range(2, 2 * turn, 2))[: turn - 1]
    assert values[turn:] == list(range(values[turn], values[turn] + len(values) - turn))
    assert values[turn] == values[turn - 1] + 1


def test_filters_can_be_added_and_taken_away(client: RawClient, topic: str) -> None:
    """protocol.md §8.2"""
    client.subscribe(topic, "s")
    client.publish(topic, b'{"n":1}')
    client.subscribe(topic, "s", o="replace", f="/n > 5")
    client.publish(topic, b'{"n":2}')
    client.publish(topic, b'{"n":6}')
    client.subscribe(topic, "s", o="replace")
    client.publish(topic, b'{"n":3}')
    assert bodies_of(client.receive_published(3)) == [b'{"n":1}', b'{"n":6}', b'{"n":3}']
    client.subscribe(topic, "s", o="replace", f="/n > 7")
    assert client.try_subscribe(topic, "s", o="replace", f="/n >").reason == "bad filter"
    client.publish(topic, b'{"n":7}')
    client.publish(topic, b'{"n":8}')
    assert bodies_of(client.receive_published(1)) == [b'{"n":8}']


def test_expressions_46_an_unparsable_message_reaches_subscriptions_without_filters_only(
    peers: Peers, plain_server: ServerProcess, topic: str
) -> None:
    """expressions.md §15 46, 47: byte for byte; the error is logged; bytes behind the last field are not parsed."""
    unfiltered = peers.logged_on(plain_server)
    unfiltered.subscribe(topic, "u")
    filtered = peers.logged_on(plain_server)
    filtered.subscribe(topic, "f", f="/id = 1")
    bodies = [b'{"id"', b"\x00\xff", b'{"id":1,"x":2} trailing', b'{"x":{"id":1', b"[1", b'{"id":1}']
    for body in bodies:
        unfiltered.publish(topic, body)
    assert bodies_of(unfiltered.receive_published(len(bodies))) == bodies
    assert bodies_of(filtered.receive_published(2)) == [bodies[2], bodies[5]]
    filtered.expect_silence()
    plain_server.log.wait_for("14-0003", "of type json could not be parsed", f"topic '{topic}'")


def test_filters_facts_about_the_message(recorder: RawClient, recorded_topic: str) -> None:
    """expressions.md §10.9, §15 63 (subscription)"""
    plain = f"plain/{recorded_topic}"
    for name, text in (
        ("size", "MESSAGE_SIZE() = 7"),
        ("topic", f"TOPIC_NAME() = '{plain}'"),
        ("correlation", "CORRELATION_ID() = 'a\\'b'"),
        ("none", "CORRELATION_ID() IS NULL"),
        ("recorded", "BOOKMARK() IS NOT NULL AND BOOKMARK() LIKE '^[0-9]+\\|[0-9]+\\|$'"),
        ("unrecorded", "BOOKMARK() IS NULL"),
        ("now", "LAST_UPDATED() > UNIX_TIMESTAMP() - 60 AND LAST_UPDATED() <= UNIX_TIMESTAMP()"),
        ("instance", "AMPS_INSTANCE_NAME() = 'TestT'"),
    ):
        recorder.subscribe(f"{recorded_topic}$", name, f=text)
    recorder.publish(recorded_topic, b'{"n":1}')
    recorder.publish(plain, b'{"n":22}', x="a'b")
    always = {"now", "instance"}
    assert recorder.receive().subscriptions == always | {"size", "none", "recorded"}
    assert recorder.receive().subscriptions == always | {"topic", "correlation", "unrecorded"}


def test_filters_facts_about_the_publisher(
    peers: Peers, spoofing_server: ServerProcess, recorded_topic: str, unique: str
) -> None:
    """expressions.md §10.10, §14.18: live messages have the publisher's facts, on any worker; replayed ones have
    none.
    """
    name = f"publisher-{unique}"
    filters = {
        "name": f"CLIENT_NAME() = '{name}'",
        "version": "CLIENT_VERSION() = '7.8-test'",
        "address": "REMOTE_ADDRESS() LIKE '^127\\.0\\.0\\.1:[0-9]+$'",
        "connection": "CONNECTION_NAME() LIKE '^TestU-json-[01]-[0-9]+$'",
        "user": "USER() = 'me'",
        "nobody": "CLIENT_NAME() IS NULL AND USER() IS NULL",
    }
    subscribers = [peers.logged_on(spoofing_server) for _ in range(4)]
    for subscriber in subscribers:
        for sub_id, text in filters.items():
            subscriber.subscribe(recorded_topic, sub_id, f=text)
    # With this number of connections each of the two workers serves some.
    for number in range(4):
        publisher = peers.logged_on(
            spoofing_server, name=name if number == 3 else None, version="7.8-test", user_id="me"
        )
        publisher.publish_persisted(recorded_topic, [b"{}"], 1)
        expected = {"version", "address", "connection", "user"} | ({"name"} if number == 3 else set())
        for subscriber in subscribers:
            assert subscriber.receive_published(1)[0].subscriptions == expected
    for sub_id, text in filters.items():
        subscribers[0].subscribe(recorded_topic, f"replay {sub_id}", bm=EPOCH, f=text)
    assert [m.subscriptions for m in subscribers[0].receive_published(4)] == [{"replay nobody"}] * 4
    subscribers[0].expect_silence()


def test_filters_with_oof_are_deterministic(client: RawClient, topic: str) -> None:
    """expressions.md §10.1, §15 55 (plain subscriptions)"""
    assert client.try_subscribe(topic, "s", f="UNIX_TIMESTAMP() > 0").succeeded
    assert client.try_subscribe(topic, "o", f="UNIX_TIMESTAMP() > 0", o="oof").reason == "bad filter"
    assert client.try_subscribe(topic, "d", f="/a > 0", o="oof").succeeded


def test_filters_an_enormous_one_delays_no_other_client(
    peers: Peers, plain_server: ServerProcess, topic: str
) -> None:
    """expressions.md §14.13: long filters are compiled without stopping the server's other work."""
    subscriber = peers.logged_on(plain_server)
    members = ",".join(f"'{number:07d}'" for number in range(3000))
    subscriber.send(
        {
            "c": "subscribe",
            "cid": "1",
            "t": topic,
            "sub_id": "s",
            "f": f"/id IN ({members})",
            "a": "processed",
        }
    )
    others = [peers.logged_on(plain_server) for _ in range(4)]
    for other in others:
        other.flush()
    ack = subscriber.wait_for_ack("processed", "1")
    assert ack.succeeded
    others[0].publish(topic, b'{"id":"0002999"}')
    others[0].publish(topic, b'{"id":"0003000"}')
    assert bodies_of(subscriber.receive_published(1)) == [b'{"id":"0002999"}']
    subscriber.expect_silence()


def test_filters_a_catastrophic_pattern_ends(peers: Peers, plain_server: ServerProcess, topic: str) -> None:
    """expressions.md §7: it finds nothing, the log reports it, and all other clients are served."""
    subscriber = peers.logged_on(plain_server)
    subscriber.subscribe(topic, "catastrophic", f="/s LIKE '^(a+)+$'")
    subscriber.subscribe(topic, "other", f="/s LIKE '^aa'")
    subscriber.publish(topic, b'{"s":"' + b"a" * 50_000 + b'!"}')
    subscriber.publish(topic, b'{"s":"aaa"}')
    assert [m.subscriptions for m in subscriber.receive_published(2)] == [
        {"other"},
        {"catastrophic", "other"},
    ]
    plain_server.log.wait_for("14-0006", "took too long")


def test_filters_many_slow_ones_share_the_time_of_a_message(
    peers: Peers, plain_server: ServerProcess, topic: str
) -> None:
    """expressions.md §7: thirty filters of two seconds each do not take a minute; NOT does not turn them into a
    match.
    """
    subscriber = peers.logged_on(plain_server)
    for number in range(15):
        subscriber.subscribe(topic, f"slow{number}", f=f"/s LIKE 'a*[bc]{number}'")
        subscriber.subscribe(topic, f"not{number}", f=f"/s NOT LIKE 'a*[bd]{number}'")
    subscriber.subscribe(topic, "other", f="/n = 1")
    subscriber.publish(topic, b'{"n":1,"s":"' + b"a" * 1_000_000 + b'"}')
    subscriber.publish(topic, b'{"n":1,"s":"aab7"}')
    first, second = subscriber.receive_published(2, timeout_s=25)
    assert first.subscriptions == {"other"}
    assert second.subscriptions == {
        "other",
        "slow7",
        *(f"not{number}" for number in range(15) if number != 7),
    }


def test_filters_of_the_longest_text(client: RawClient, topic: str) -> None:
    """expressions.md §14.13: a MiB is accepted, a longer one is refused with the reason, and the connection goes on."""
    longest = "/a = '" + "x" * ((1 << 20) - 7) + "'"
    assert client.try_subscribe(topic, "s", f=longest).succeeded
    ack = client.try_subscribe(topic, "t", f=longest + " ")
    assert (ack["status"], ack.reason) == ("failure", "bad filter")
    client.publish(topic, b'{"a":"' + b"x" * ((1 << 20) - 7) + b'"}')
    assert client.receive_published(1)[0].subscriptions == {"s"}


def test_filters_no_pattern_ends_a_worker(client: RawClient, topic: str) -> None:
    """expressions.md §7: a search that the regex engine aborts has found nothing."""
    client.subscribe(topic, "endless", f="/a LIKE '(?R)'")
    client.subscribe(topic, "other", f="/a IS NOT NULL")
    assert client.try_subscribe(topic, "utf", f="/a LIKE '(*UTF)x'").reason == "bad filter"
    for body in (b'{"a":"aaabbb"}', b'{"a":"\xe9\xff"}'):
        client.publish(topic, body)
        assert client.receive_published(1)[0].subscriptions == {"other"}


def test_filters_a_client_may_leave_while_its_filter_is_compiled(
    peers: Peers, plain_server: ServerProcess, topic: str
) -> None:
    leaving = peers.logged_on(plain_server)
    members = ",".join(map(str, range(2000)))
    leaving.send({"c": "subscribe", "cid": "1", "t": topic, "sub_id": "s", "f": f"/id IN ({members})"})
    leaving.close()
    staying = peers.logged_on(plain_server)
    staying.subscribe(topic, "s", f=f"/id IN ({members}, 5000)")
    staying.publish(topic, b'{"id":5000}')
    assert bodies_of(staying.receive_published(1)) == [b'{"id":5000}']


NO_REGULAR_EXPRESSION_LATER = """
import re._compiler

import amps.server.supervisor as supervisor

run_transport = supervisor.run_transport

def refuse(*arguments):
    raise AssertionError("a transport compiles a regular expression of the parser")

def run(*arguments, **named):
    re._compiler.compile = refuse
    return run_transport(*arguments, **named)

supervisor.run_transport = run
"""


def test_the_first_filter_of_a_worker_waits_for_nothing_that_all_filters_need(
    start_server: StartServer, peers: Peers, tmp_path: Path
) -> None:
    """The data that compilation needs is made before the workers are forked."""
    server = start_server(environment=patched(tmp_path, NO_REGULAR_EXPRESSION_LATER))
    client = peers.logged_on(server)
    for number, text in enumerate(("/a > 1", "/b = 'x' OR /c IN (1, 2)", "NOT /d LIKE 'e'")):
        assert client.try_subscribe("t", f"s{number}", f=text).succeeded, text
