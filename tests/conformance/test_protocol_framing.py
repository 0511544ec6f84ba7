"""Frames and headers: protocol.md §2, §3 and the behaviours 1 to 4 of §21."""

import contextlib
import itertools

import pytest

from amps._core.wire.framing import MAX_HEADER_BYTES
from tests.support.peer import ConnectionClosed, RawClient, frame
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer


@pytest.fixture
def subscriber(peers: Peers, plain_server: ServerProcess, topic: str) -> RawClient:
    client = peers.logged_on(plain_server)
    client.subscribe(topic, "s")
    return client


@pytest.fixture
def publisher(peers: Peers, plain_server: ServerProcess) -> RawClient:
    return peers.logged_on(plain_server)


def test_protocol_1_publish_without_ack_request_is_silent(publisher: RawClient, topic: str) -> None:
    """protocol.md §21 1"""
    publisher.publish(topic, b'{"n":1}')
    publisher.expect_silence()
    publisher.publish(topic, b'{"n":2}', cid="given")
    publisher.publish(topic, b'{"n":3}', cid="given", a="none")
    publisher.expect_silence()


def test_protocol_1_a_frame_may_arrive_byte_by_byte(
    publisher: RawClient, subscriber: RawClient, topic: str
) -> None:
    """protocol.md §21 1: split frames."""
    data = frame({"c": "p", "t": topic, "a": "processed", "cid": "1"}, b'{"n":1}')
    for position in range(len(data)):
        publisher.send_bytes(data[position : position + 1])
    assert publisher.wait_for_ack("processed", "1").succeeded
    assert subscriber.receive().body == b'{"n":1}'


def test_protocol_1_several_frames_may_arrive_in_one_write(
    publisher: RawClient, subscriber: RawClient, topic: str
) -> None:
    """protocol.md §21 1: joined frames, cut in the middle of the last one."""
    frames = [frame({"c": "p", "t": topic}, b"%d" % n) for n in range(4)]
    publisher.send_bytes(b"".join(frames[:3]) + frames[3][:9])
    assert [subscriber.receive().body for _ in range(3)] == [b"0", b"1", b"2"]
    publisher.send_bytes(frames[3][9:])
    assert subscriber.receive().body == b"3"


HEADER_FORMS = {
    "abbreviations": '{"c":"p","t":"%s","cid":"7","a":"processed"}',
    "full names": '{"cmd":"publish","topic":"%s","cmd_id":"7","ack_type":"processed"}',
    "mixed": '{"c":"publish","topic":"%s","cmd_id":"7","a":"processed"}',
    "blanks": '{ "c" : "p" ,\t"t":"%s",\r\n "cid":"7" , "a":"processed" }',
    "unknown keys": '{"zz":"9","c":"p","t":"%s","maybe":true,"count":3,"cid":"7","a":"processed"}',
    "command not first": '{"a":"processed","cid":"7","t":"%s","c":"p"}',
    "last duplicate wins": '{"c":"flush","c":"p","t":"x","t":"%s","cid":"6","cid":"7","a":"processed"}',
    "numbers quoted or bare": '{"c":"p","t":"%s","cid":7,"a":"processed","e":"0","bs":"1"}',
    "escapes": r'{"c":"p","t":"%s","cid":"\u0037","a":"proc\u0065ssed"}',
    "legacy keys": '{"c":"p","t":"%s","cid":"7","a":"processed","max_msgs":"1","src":"x","use_ns":false}',
}


@pytest.mark.parametrize("form", HEADER_FORMS)
def test_protocol_2_header_forms_are_accepted_alike(
    publisher: RawClient, subscriber: RawClient, topic: str, form: str
) -> None:
    """protocol.md §21 2, §3 D2"""
    publisher.send(HEADER_FORMS[form] % topic, b'{"n":1}')
    assert publisher.wait_for_ack("processed", "7").succeeded
    delivered = subscriber.receive()
    assert (delivered.command, delivered["t"], delivered.body) == ("p", topic, b'{"n":1}')


def test_protocol_2_topics_are_unicode_text(publisher: RawClient, subscriber: RawClient, topic: str) -> None:
    """protocol.md §3 D2: UTF-8 or escaped, the same topic."""
    subscriber.subscribe(f"{topic}/Zürich🙂", "u")
    publisher.publish(f"{topic}/Zürich🙂", b"utf-8")
    publisher.send(f'{{"c":"p","t":"{topic}/Z\\u00fcrich\\ud83d\\ude42"}}', b"escaped")
    for body in (b"utf-8", b"escaped"):
        delivered = subscriber.receive()
        assert (delivered["t"], delivered.body) == (f"{topic}/Zürich🙂", body)


MALFORMED = {
    "unknown command": b'{"c":"nosuch"}',
    "word reserved for the server": b'{"c":"ack","a":"processed","status":"success"}',
    "no command": b'{"t":"x"}',
    "empty header": b"{}",
    "no header": b"hello",
    "header without end": b'{"c":"p","t":"x"',
    "end only inside a string": b'{"c":"p","t":"}',
    "nested object": b'{"c":"p","t":{"a":1}}',
    "array": b'{"c":"p","t":["x"]}',
    "null": b'{"c":"p","t":null}',
    "no colon": b'{"c" "p"}',
    "no comma": b'{"c":"p" "t":"x"}',
    "bare word": b"{c:p}",
    "bad escape": b'{"c":"p","t":"\\q"}',
    "trailing comma": b'{"c":"p","t":"x",}',
}


@pytest.mark.parametrize("case", MALFORMED)
def test_protocol_3_a_malformed_command_closes_its_connection(
    peers: Peers,
    plain_server: ServerProcess,
    subscriber: RawClient,
    publisher: RawClient,
    topic: str,
    case: str,
) -> None:
    """protocol.md §21 3: disconnect reason `unknown command`; no other connection is affected."""
    culprit = peers.logged_on(plain_server)
    culprit.send(MALFORMED[case])
    assert culprit.wait_for_close() == []
    plain_server.log.wait_for("07-0013", culprit.client_name, "unknown command")
    publisher.publish(topic, b"still here")
    assert subscriber.receive().body == b"still here"


def test_protocol_3_a_header_over_its_limit_closes_its_connection(
    peers: Peers, plain_server: ServerProcess, topic: str
) -> None:
    """protocol.md §21 3: a list of bookmarks may be long, but the size of a header is bounded; the log reports it."""
    culprit = peers.logged_on(plain_server)
    bookmarks = b"1|1|," * (MAX_HEADER_BYTES // 5)
    with contextlib.suppress(OSError):  # it need not wait for the whole header
        culprit.send(b'{"c":"sow_delete","t":"%s","bm":"%s"}' % (topic.encode(), bookmarks))
    plain_server.log.wait_for("07-0013", culprit.client_name, "unknown command")
    plain_server.log.wait_for("02-0001", culprit.client_name, "over 4 MiB")


def test_protocol_4_a_body_is_any_bytes(publisher: RawClient, subscriber: RawClient, topic: str) -> None:
    """protocol.md §21 4: delivered byte for byte, `l` is the number of bytes."""
    bodies = [b"", b"\0", b'}{"\\', b'{"c":"nosuch"}', bytes(range(256)) * 5, b"\xff" * 70_000]
    for body in bodies:
        publisher.publish(topic, body)
    for body in bodies:
        delivered = subscriber.receive()
        assert delivered.body == body
        assert delivered["l"] == len(body)


@pytest.mark.parametrize("length", [0xFFFFFFFF, 0x80000000, 200 * 2**20 + 1])
def test_protocol_4_an_oversize_length_closes_the_connection_only(
    peers: Peers,
    plain_server: ServerProcess,
    subscriber: RawClient,
    publisher: RawClient,
    topic: str,
    length: int,
) -> None:
    """protocol.md §21 4 (R), §2: at once, without waiting for the announced bytes; logged."""
    culprit = peers.logged_on(plain_server)
    culprit.send_bytes(length.to_bytes(4, "big"))
    assert culprit.wait_for_close() == []
    plain_server.log.wait_for("07-0013", culprit.client_name)
    publisher.publish(topic, b"still here")
    assert subscriber.receive().body == b"still here"


def test_protocol_4_an_oversize_length_before_the_logon_closes_the_connection(
    peers: Peers, plain_server: ServerProcess
) -> None:
    """protocol.md §2: the limit also applies before the logon."""
    stranger = peers.open(plain_server)
    stranger.send_bytes(b"\xff\xff\xff\xff")
    with pytest.raises(ConnectionClosed):
        stranger.receive()


def test_protocol_4_length_zero_is_ignored(publisher: RawClient, subscriber: RawClient, topic: str) -> None:
    """protocol.md §21 4 (R)"""
    publisher.send_bytes(b"\0\0\0\0" * 3 + frame({"c": "p", "t": topic}, b"1") + b"\0\0\0\0")
    publisher.expect_silence()
    assert subscriber.receive().body == b"1"


def test_protocol_delivery_has_exactly_the_documented_fields(
    publisher: RawClient, subscriber: RawClient, topic: str
) -> None:
    """protocol.md §12.1: a plain delivery carries `c`, `t`, `sids`, `l` and nothing else."""
    publisher.publish(topic, b"{}", cid="hidden", a="processed", s=5, e=60)
    assert subscriber.receive().header == {"c": "p", "t": topic, "sids": "s", "l": 2}


def test_protocol_order_holds_across_topics_and_publishers(
    peers: Peers, plain_server: ServerProcess, unique: str
) -> None:
    """protocol.md §4: every subscriber of an instance sees the same order, across topics."""
    subscribers = [peers.logged_on(plain_server) for _ in range(4)]
    for subscriber in subscribers:
        subscriber.subscribe(f"^{unique}/", "all")
    publishers = [peers.logged_on(plain_server) for _ in range(3)]
    for number in range(200):
        for index, publisher in enumerate(publishers):
            publisher.publish(f"{unique}/{number % 5}", b"%d/%d" % (index, number))
    seen = [[m.body for m in subscriber.receive_published(600)] for subscriber in subscribers]
    assert all(order == seen[0] for order in seen[1:])
    for index in range(3):
        own = [body for body in seen[0] if body.startswith(b"%d/" % index)]
        assert own == [b"%d/%d" % (index, number) for number in range(200)]


def test_protocol_workers_share_one_order(
    peers: Peers, plain_server: ServerProcess, recorded_topic: str, topic: str
) -> None:
    """protocol.md §4: connections served by different transport workers see the same order.

    With eight connections on two workers, some share a worker and some do not.
    """
    assert len(plain_server.transport_pids()) == 2
    subscribers = [peers.logged_on(plain_server) for _ in range(8)]
    for subscriber in subscribers:
        subscriber.subscribe(topic, "w")
    publishers = [peers.logged_on(plain_server) for _ in range(4)]
    for number, publisher in itertools.product(range(100), publishers):
        publisher.publish(topic, f"{publisher.client_name}:{number}".encode())
    seen = [[m.body for m in subscriber.receive_published(400)] for subscriber in subscribers]
    assert all(order == seen[0] for order in seen[1:])


@pytest.mark.parametrize("topic", [rb"x\ud800", rb"\udfff", rb"L/\ud83d"])
def test_protocol_3_a_topic_that_is_no_text_is_refused(
    peers: Peers, start_server: StartServer, topic: bytes
) -> None:
    """protocol.md §3: a lone surrogate is not UTF-8. The publish fails; no other client is affected."""
    server = start_server(log_topics=["^L"])
    witness = peers.logged_on(server)
    witness.subscribe(".*", "all")
    client = peers.logged_on(server)
    client.send(b'{"c":"publish","t":"%s","cid":"1","a":"processed"}' % topic, b"bad")
    assert client.wait_for_ack("processed", "1").reason == "invalid topic"
    client.publish("L", b"good")
    assert witness.receive(5).body == b"good"
