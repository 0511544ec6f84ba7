"""The raw peer itself, against a scripted server: it must split frames, check headers and notice silence."""

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.support.peer import (
    ConnectionClosed,
    PeerError,
    RawClient,
    Silence,
    decode_payload,
    frame,
)


@pytest.fixture
def pair() -> Iterator[tuple[RawClient, socket.socket]]:
    """A peer and the scripted end of its connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield RawClient(ours, timeout_s=5), theirs


def test_frames_split_and_joined_anywhere_arrive_whole(pair: tuple[RawClient, socket.socket]) -> None:
    peer, server = pair
    stream = frame({"c": "p", "t": "a", "sids": "1", "l": 4}, b'}{"\0') + frame(
        {"c": "group_end", "query_id": "7"}
    )

    def dribble() -> None:
        for position in range(len(stream)):
            server.sendall(stream[position : position + 1])

    writer = threading.Thread(target=dribble)
    writer.start()
    first, second = peer.receive_many(2)
    writer.join()
    assert (first.command, first.body, first["l"]) == ("p", b'}{"\0', 4)
    assert (second.command, second.body) == ("group_end", b"")


@pytest.mark.parametrize(
    "payload",
    [
        b'{"t":"a","c":"p"}',  # `c` not first
        b'{"c":"p","topic":"a"}',  # not abbreviated
        b'{"c":"p","t":"a","t":"b"}',  # a key twice
        b'{"c":"p","l":"4"}',  # an integer in quotes
        b'{"c":"ack","status":1}',  # a string without quotes
        b'{"c":"p"',  # no end
        b"body",
    ],
)
def test_a_badly_written_header_is_refused(payload: bytes) -> None:
    with pytest.raises(PeerError):
        decode_payload(payload)


def test_a_brace_in_a_string_does_not_end_the_header() -> None:
    message = decode_payload(b'{"c":"p","t":"a}\\"}b"}}')
    assert message["t"] == 'a}"}b'
    assert message.body == b"}"


def test_helpers_keep_what_arrives_in_between(pair: tuple[RawClient, socket.socket]) -> None:
    peer, server = pair
    server.sendall(
        frame({"c": "p", "t": "a", "sids": "1"}, b"1")
        + frame({"c": "ack", "a": "persisted", "s": 3, "status": "success"})
        + frame({"c": "ack", "a": "persisted", "s": 9, "status": "success"})
        + frame({"c": "p", "t": "a", "sids": "1"}, b"2")
        + frame({"c": "p", "t": "a", "sids": "1"}, b"end")
    )
    assert [ack["s"] for ack in peer.wait_for_persisted(9)] == [3, 9]
    assert [message.body for message in peer.receive_until(b"end")] == [b"1", b"2"]


def test_silence_and_close_are_distinguished(pair: tuple[RawClient, socket.socket]) -> None:
    peer, server = pair
    with pytest.raises(Silence):
        peer.receive(0.05)
    server.close()
    with pytest.raises(ConnectionClosed):
        peer.receive()


def test_expect_silence_fails_when_a_frame_was_on_its_way(pair: tuple[RawClient, socket.socket]) -> None:
    peer, server = pair
    for cid, ack in (("id-1", "completed"), ("id-2", "processed")):
        server.sendall(frame({"c": "ack", "a": ack, "cid": cid, "status": "success"}))
    peer.expect_silence()
    server.sendall(frame({"c": "ack", "a": "completed", "cid": "id-3", "status": "success"}))
    server.sendall(frame({"c": "p", "t": "a", "sids": "1"}, b"late"))
    with pytest.raises(PeerError, match="expected silence"):
        peer.expect_silence()
