"""Acknowledgements: protocol.md §5, and the behaviours 13 to 17 and 66 of §21."""

import os
import signal
import time

import pytest

from tests.support.peer import Message, frame
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer, numbered_bodies


def types_of(messages: list[Message]) -> list[str]:
    return [str(message["a"]) for message in messages]


def test_protocol_13_persisted_acks_are_conflated(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """protocol.md §21 13 (T)"""
    client = peers.logged_on(logged_server, o="")
    client.publish_all(recorded_topic, numbered_bodies(100), first_sequence=1, a="persisted", cid="c")
    acks = client.wait_for_persisted(100, timeout_s=5)
    assert len(acks) < 20
    assert all("cid" not in ack for ack in acks)
    assert all(ack.succeeded for ack in acks)
    sequences = [ack["s"] for ack in acks]
    assert sequences == sorted(set(sequences))
    assert sequences[-1] == 100
    assert str(acks[-1]["bm"]).endswith("|100|")


def test_protocol_13_the_interval_is_a_logon_option(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """protocol.md §21 13 (T): `ack_conflation=10ms` brings the last ack within 0.3 s (best of ten).

    Each time an ack came just before, so that with the interval of 1 s the next one would be held for that long.
    """
    client = peers.logged_on(logged_server, o="ack_conflation=10ms")
    client.publish_persisted(recorded_topic, [b"0"], 1)
    best_s = 60.0
    for attempt in range(10):
        started = time.monotonic()
        first = attempt * 100 + 2
        client.publish_all(recorded_topic, numbered_bodies(100), first_sequence=first, a="persisted")
        client.wait_for_persisted(first + 99)
        best_s = min(best_s, time.monotonic() - started)
    assert best_s < 0.3


def test_protocol_13_a_long_interval_holds_acks_back(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """protocol.md §5.3: about one ack per interval, however many publishes."""
    client = peers.logged_on(logged_server, o="ack_conflation=2s")
    started = time.monotonic()
    acks: list[Message] = []
    for burst in range(30):
        client.publish_all(recorded_topic, [b"x"] * 10, first_sequence=burst * 10 + 1, a="persisted")
        time.sleep(0.1)
    acks = client.wait_for_persisted(300)
    allowed = 2 + (time.monotonic() - started) / 2
    assert len(acks) <= allowed


def test_protocol_13_a_flush_does_not_wait_for_the_interval(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """protocol.md §14: a persisted flush is answered when everything is stored, whatever the interval."""
    client = peers.logged_on(logged_server, o="ack_conflation=60s")
    client.publish_all(recorded_topic, [b"1", b"2"], first_sequence=1, a="persisted")
    client.flush("persisted", timeout_s=10)


def test_protocol_14_without_a_log_every_publish_gets_its_own_ack(
    peers: Peers, plain_server: ServerProcess, topic: str
) -> None:
    """protocol.md §21 14 (J)"""
    client = peers.logged_on(plain_server)
    for number in range(1, 31):
        client.publish(topic, b"x", a="persisted", cid=f"c{number}", **({"s": number} if number % 2 else {}))
    acks = client.receive_many(30)
    assert [ack["cid"] for ack in acks] == [f"c{number}" for number in range(1, 31)]
    assert all(ack.is_ack("persisted") and ack.succeeded for ack in acks)


def test_protocol_15_a_failure_splits_the_conflated_acks(
    peers: Peers, entitled_server: ServerProcess, recorded_topic: str, unique: str
) -> None:
    """protocol.md §21 15 (E), transaction_log.md §22 51: success 2 and failure 3 come at once."""
    client = peers.logged_on(entitled_server, o="ack_conflation=5s")
    burst = b"".join(
        frame({"c": "p", "t": f"deny.{unique}" if s == 3 else recorded_topic, "s": s, "a": "persisted"}, b"x")
        for s in range(1, 6)
    )
    client.send_bytes(burst)
    before, failure = client.receive_many(2, timeout_s=3)
    assert (before["s"], before["status"]) == (2, "success")
    assert (failure["s"], failure["status"], failure.reason) == (3, "failure", "not entitled")
    last = client.receive(timeout_s=15)
    assert (last["s"], last["status"]) == (5, "success")


def test_protocol_15_several_failures_in_one_burst_are_each_reported(
    peers: Peers, entitled_server: ServerProcess, recorded_topic: str, unique: str
) -> None:
    """protocol.md §5.3: no failure is conflated with another ack."""
    denied = {1, 4, 5, 9}
    client = peers.logged_on(entitled_server, o="ack_conflation=200ms")
    burst = b"".join(
        frame(
            {"c": "p", "t": f"deny.{unique}" if s in denied else recorded_topic, "s": s, "a": "persisted"},
            b"x",
        )
        for s in range(1, 11)
    )
    client.send_bytes(burst)
    acks: list[Message] = []
    while not acks or acks[-1]["s"] != 10:
        acks.append(client.wait_for_ack("persisted"))
    failures = [ack for ack in acks if ack.failed]
    assert [ack["s"] for ack in failures] == sorted(denied)
    assert [ack["s"] for ack in acks] == sorted({ack["s"] for ack in acks})
    subscriber = peers.logged_on(entitled_server)
    subscriber.subscribe(recorded_topic, "s", bm="0")
    stored = [str(m["bm"]).split("|")[1] for m in subscriber.receive_published(10 - len(denied))]
    assert stored == [str(s) for s in range(1, 11) if s not in denied]


def test_protocol_15_a_failure_does_not_wait_for_an_ack_that_is_not_due(
    peers: Peers, entitled_server: ServerProcess, recorded_topic: str, unique: str
) -> None:
    """protocol.md §5.3: the failure and the success before it are sent long before the interval ends."""
    client = peers.logged_on(entitled_server, o="ack_conflation=1h")
    client.publish_persisted(recorded_topic, [b"1"], 1)
    client.publish(recorded_topic, b"2", s=2, a="persisted")
    client.expect_silence()
    client.publish(f"deny.{unique}", b"3", s=3, a="persisted")
    before, failure = client.receive_many(2)
    assert (before["s"], before["status"]) == (2, "success")
    assert (failure["s"], failure["status"]) == (3, "failure")


def test_protocol_16_a_duplicate_is_discarded_and_acknowledged(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """protocol.md §21 16 (T), D13"""
    live = peers.logged_on(logged_server)
    live.subscribe(recorded_topic, "live")
    client = peers.logged_on(logged_server, o="ack_conflation=50ms")
    client.publish_persisted(recorded_topic, [b"1", b"2", b"3", b"4", b"5"], 1)
    client.publish(recorded_topic, b"again", s=3, a="persisted")
    client.publish(recorded_topic, b"6", s=6, a="persisted")
    client.wait_for_persisted(6)
    assert [m.body for m in live.receive_published(6)] == [b"1", b"2", b"3", b"4", b"5", b"6"]
    replay = peers.logged_on(logged_server)
    replay.subscribe(recorded_topic, "s", bm="0")
    assert [m.body for m in replay.receive_published(6)] == [b"1", b"2", b"3", b"4", b"5", b"6"]


def test_protocol_16_a_publisher_that_resends_everything_is_acknowledged(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str, unique: str
) -> None:
    """protocol.md D13: after a reconnect a publisher may send its whole store again, and the store must drain."""
    peers.logged_on(logged_server, name=unique).publish_persisted(recorded_topic, numbered_bodies(20), 1)
    again = peers.logged_on(logged_server, name=unique)
    again.publish_all(recorded_topic, numbered_bodies(20), first_sequence=1, a="persisted")
    again.wait_for_persisted(20)
    replay = peers.logged_on(logged_server)
    replay.subscribe(recorded_topic, "s", bm="0")
    again.publish(recorded_topic, b"end")
    assert [m.body for m in replay.receive_until(b"end")] == numbered_bodies(20)


def test_protocol_17_numbered_and_unnumbered_publishes_mix(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """protocol.md §21 17 (T), §7.1: unnumbered publishes have their own publisher id and numbers."""
    client = peers.logged_on(logged_server)
    for number in range(1, 11):
        client.publish(recorded_topic, b"numbered %d" % number, s=number)
        client.publish(recorded_topic, b"plain %d" % number)
    subscriber = peers.logged_on(logged_server)
    subscriber.subscribe(recorded_topic, "s", bm="0")
    messages = subscriber.receive_published(20)
    assert [m.body for m in messages] == [
        word % number for number in range(1, 11) for word in (b"numbered %d", b"plain %d")
    ]
    ids = [str(m["bm"]).split("|") for m in messages]
    numbered, plain = ids[::2], ids[1::2]
    assert [int(sequence) for _, sequence, _ in numbered] == list(range(1, 11))
    assert len({publisher for publisher, _, _ in numbered}) == 1
    assert len({publisher for publisher, _, _ in plain}) == 1
    assert numbered[0][0] != plain[0][0]
    plain_sequences = [int(sequence) for _, sequence, _ in plain]
    assert plain_sequences == sorted(set(plain_sequences))


def test_protocol_d9_an_unnumbered_publish_gets_its_own_persisted_ack(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str, topic: str
) -> None:
    """protocol.md §5.3 D9, transaction_log.md §20 43: with its `cid`, recorded topic or not."""
    client = peers.logged_on(logged_server, o="ack_conflation=60s")
    for name, cid in ((recorded_topic, "one"), (topic, "two")):
        client.publish(name, b"x", a="persisted", cid=cid)
        assert client.wait_for_ack("persisted", cid, timeout_s=10).succeeded


def test_protocol_d9_numbered_publishes_to_other_topics_join_the_sequence(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str, topic: str
) -> None:
    """protocol.md §5.3 D9: a publisher must be able to clear its store."""
    client = peers.logged_on(logged_server)
    for sequence in range(1, 11):
        name = topic if sequence % 2 == 0 else recorded_topic
        client.publish(name, b"x", s=sequence, a="persisted")
    acks = client.wait_for_persisted(10)
    assert all("cid" not in ack for ack in acks)


PUBLISH = {"c": "p"}
SUBSCRIBE = {"c": "subscribe"}
UNSUBSCRIBE = {"c": "unsubscribe", "sub_id": "nobody"}
HEARTBEAT = {"c": "heartbeat", "o": "stop"}
FLUSH = {"c": "flush"}

SUPPORTED = {
    "publish": (PUBLISH, {"received", "processed", "persisted", "completed"}),
    "subscribe": (SUBSCRIBE, {"received", "processed"}),
    "unsubscribe": (UNSUBSCRIBE, {"received", "processed"}),
    "heartbeat": (HEARTBEAT, {"received", "processed"}),
    "flush": (FLUSH, {"received", "processed", "persisted", "completed"}),
}


@pytest.mark.parametrize("command", SUPPORTED)
def test_protocol_each_command_sends_the_acks_it_supports(
    peers: Peers, plain_server: ServerProcess, topic: str, command: str
) -> None:
    """protocol.md §5.1, D7, D30: each requested type has its own ack with one `a`; other types are
    silently not sent.
    """
    header, supported = SUPPORTED[command]
    client = peers.logged_on(plain_server)
    if command in ("publish", "subscribe"):
        header = {**header, "t": topic}
    client.send({**header, "cid": "c", "a": "none,received,parsed,processed,persisted,completed,stats"})
    received = client.receive_many(len(supported))
    assert all(message.is_ack(cid="c") and message.succeeded for message in received)
    assert set(types_of(received)) == supported
    assert types_of(received)[0] == "received"
    assert types_of(received).index("processed") == 1
    client.expect_silence()


@pytest.mark.parametrize("ids", [{"sub_id": "named"}, {}])
def test_protocol_a_refused_subscription_is_named_in_its_acks(
    peers: Peers, plain_server: ServerProcess, topic: str, ids: dict[str, str]
) -> None:
    """protocol.md §4, §5: `received` is sent nevertheless, and the failure carries the id that was requested."""
    client = peers.logged_on(plain_server)
    client.send({"c": "subscribe", "t": "^ord(", "cid": "c", "a": "received,processed", **ids})
    received, processed = client.receive_many(2)
    assert received.is_ack("received", "c")
    assert processed.is_ack("processed", "c")
    assert (processed["status"], processed.reason) == ("failure", "bad regex topic")
    assert processed["sub_id"] == ids.get("sub_id", "c")


def test_protocol_completed_waits_until_the_message_has_its_place(
    peers: Peers, start_server: StartServer, topic: str
) -> None:
    """protocol.md §5.1, §14: `completed` of a publish and of a flush waits for the core; `processed` does not."""
    server = start_server()
    client = peers.logged_on(server)
    core = server.core_pid()
    os.kill(core, signal.SIGSTOP)
    try:
        client.publish(topic, b"x", cid="p", a="processed,completed")
        client.send({"c": "flush", "cid": "f", "a": "processed,completed"})
        assert client.receive().is_ack("processed", "p")
        assert client.receive().is_ack("processed", "f")
        client.expect_nothing_for(0.3)
    finally:
        os.kill(core, signal.SIGCONT)
    assert client.receive().is_ack("completed", "p")
    assert client.receive().is_ack("completed", "f")


def test_protocol_an_ack_request_for_nothing_known_is_silent(
    peers: Peers, plain_server: ServerProcess, topic: str
) -> None:
    """protocol.md §5, D30: `none`, `parsed`."""
    client = peers.logged_on(plain_server)
    for wanted in ("none", "parsed", "", "none,parsed"):
        client.publish(topic, b"x", cid="c", a=wanted)
        client.send({"c": "subscribe", "t": topic, "cid": f"s-{wanted}", "a": wanted})
        client.send({"c": "unsubscribe", "sub_id": "all"})
    client.expect_silence()


def test_protocol_a_failure_without_ack_request_is_silent(peers: Peers, plain_server: ServerProcess) -> None:
    """protocol.md §5, §13: no ack; the command has no effect and the connection stays."""
    client = peers.logged_on(plain_server)
    client.send({"c": "subscribe", "t": "^ord("})
    client.send({"c": "subscribe", "t": ""})
    client.send({"c": "subscribe", "t": "x", "o": "bogus"})
    client.send({"c": "p", "t": ""}, b"x")
    client.send({"c": "unsubscribe"})
    client.expect_silence()


def test_protocol_66_flush_follows_the_publishes_before_it(
    peers: Peers, plain_server: ServerProcess, topic: str
) -> None:
    """protocol.md §21 66, §14: `completed` when all earlier commands are processed.

    A subscription entered afterwards therefore receives none of the earlier messages.
    """
    publisher = peers.logged_on(plain_server)
    publisher.publish_all(topic, numbered_bodies(1000))
    publisher.flush("completed")
    subscriber = peers.logged_on(plain_server)
    subscriber.subscribe(topic, "s")
    publisher.publish(topic, b"later")
    assert subscriber.receive().body == b"later"


def test_protocol_66_persisted_flush_comes_after_the_last_persisted_ack(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """protocol.md §21 66 (T)"""
    client = peers.logged_on(logged_server, o="")
    client.publish_all(recorded_topic, numbered_bodies(1000), first_sequence=1, a="persisted")
    client.send({"c": "flush", "cid": "f", "a": "processed,completed,persisted"})
    arrived: list[Message] = []
    while not (arrived and arrived[-1].is_ack("persisted", "f")):
        arrived.append(client.receive())
    covered = [m["s"] for m in arrived if m.is_ack("persisted") and "s" in m and m.get("cid") != "f"]
    assert covered[-1] == 1000
    flush_acks = [str(m["a"]) for m in arrived if m.get("cid") == "f"]
    assert flush_acks[0] == "processed"
    assert set(flush_acks) == {"processed", "completed", "persisted"}


def test_protocol_66_later_commands_are_not_held_back_by_a_flush(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """protocol.md §14"""
    client = peers.logged_on(logged_server)
    client.subscribe(recorded_topic, "s")
    client.publish_all(recorded_topic, numbered_bodies(100), first_sequence=1)
    client.send({"c": "flush", "cid": "f", "a": "persisted"})
    client.publish(recorded_topic, b"after", s=101)
    assert [m.body for m in client.receive_until(b"after")] == numbered_bodies(100)
    assert client.wait_for_ack("persisted", "f").succeeded


def test_protocol_flush_accepts_its_optional_fields(peers: Peers, plain_server: ServerProcess) -> None:
    """protocol.md §14: `client_name` is optional and changes nothing."""
    client = peers.logged_on(plain_server)
    assert client.request({"c": "flush", "client_name": client.client_name}, ack="completed").succeeded


@pytest.mark.parametrize("word", ["start_timer", "stop_timer"])
def test_protocol_timers_are_accepted_and_do_nothing(
    peers: Peers, plain_server: ServerProcess, word: str
) -> None:
    """protocol.md §16 D25"""
    client = peers.logged_on(plain_server)
    assert client.request({"c": word}).succeeded
    client.send({"c": word})
    client.expect_silence()


def test_protocol_persisted_acks_carry_sequence_and_bookmark(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """protocol.md §5.2: `s` and `bm` of the last message covered; the bookmark is the delivered one."""
    client = peers.logged_on(logged_server)
    client.subscribe(recorded_topic, "s", o="bookmark")
    client.publish(recorded_topic, b"x", s=7, a="persisted")
    ack = client.wait_for_persisted(7)[-1]
    assert client.receive()["bm"] == ack["bm"]
    assert str(ack["bm"]).endswith("|7|")


def test_protocol_16_a_burst_with_duplicates_is_acknowledged_up_to_its_highest(
    peers: Peers, start_server: StartServer
) -> None:
    """protocol.md §5.3, D13: the ack names the highest number, even if duplicates came after it."""
    server = start_server(log_topics=["^L"])
    client = peers.logged_on(server, o="ack_conflation=100ms")
    client.publish_persisted("L", numbered_bodies(10), 1)
    client.send_bytes(
        b"".join(
            frame({"c": "publish", "t": "L", "s": sequence, "a": "persisted"}, b"x")
            for sequence in (5, 11, 9, 9)
        )
    )
    assert client.wait_for_persisted(11)[-1]["s"] == 11
