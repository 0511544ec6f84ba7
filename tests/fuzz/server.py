"""Attacks on a live server: after each, every process lives and a witness connection still works.

The server's output to an attacker is checked, too: the peer's strict reader refuses malformed frames.
"""

import itertools
import socket
from collections.abc import Callable
from typing import Any

from tests.fuzz import cases
from tests.fuzz.codec import Finding
from tests.support.peer import ConnectionClosed, PeerError, RawClient, Silence, frame
from tests.support.server import ServerProcess

ATTACKER_TIMEOUT_S = 10.0

OPTIONS: dict[str, Any] = {"log_topics": ("^L/", "^witness/")}


class Witness:
    """Well-behaved clients: their messages must go on arriving, live and from the log."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._numbers = itertools.count(1)
        self._publisher = RawClient.tcp(server.port())
        self._publisher.logon("witness-publisher")
        self._subscribers = []
        for number in range(4):  # on every transport worker
            subscriber = RawClient.tcp(server.port())
            subscriber.logon(f"witness-{number}")
            subscriber.subscribe("witness/live", "live")
            subscriber.subscribe("witness/logged", "replay", bm="0")
            self._subscribers.append(subscriber)

    def check(self) -> None:
        """Check that publishing, delivery and replay still work; raise Finding if not."""
        number = next(self._numbers)
        body = b"%d" % number
        try:
            self._publisher.publish("witness/live", body)
            self._publisher.publish("witness/logged", body, s=number)
            expected = {("witness/live", body), ("witness/logged", body)}
            for subscriber in self._subscribers:
                arrived = {(str(m["t"]), m.body) for m in subscriber.receive_published(2)}
                if arrived != expected:
                    raise Finding(f"the witness expected {expected}, got {arrived}")
            self._server.check_undisturbed()
        except (OSError, PeerError) as error:
            raise Finding(f"the witness is disturbed: {error}") from error

    def close(self) -> None:
        for client in [self._publisher, *self._subscribers]:
            client.close()


def attack(server: ServerProcess, seed: int) -> list[bytes]:
    """Misbehave in one way on one connection. Return the bytes that were sent."""
    rng = cases.Random(seed)
    behaviour = rng.choice(BEHAVIOURS)
    sent: list[bytes] = []
    with RawClient.tcp(server.port(), timeout_s=ATTACKER_TIMEOUT_S) as client:
        try:
            behaviour(client, rng, sent)
        except (ConnectionClosed, ConnectionResetError, BrokenPipeError):
            pass  # a disconnect is the correct answer to most attacks
        except Silence as silence:
            raise Finding(f"the server neither answers nor closes: {silence}; sent {sent!r}") from None
        except PeerError as error:
            raise Finding(f"the server's answer is malformed: {error}; sent {sent!r}") from None
    return sent


def _send(client: RawClient, sent: list[bytes], data: bytes) -> None:
    sent.append(data)
    client.send_bytes(data)


def _log_on(client: RawClient, rng: cases.Random, sent: list[bytes]) -> None:
    name = f"fuzz-{rng.randrange(4)}"
    _send(client, sent, frame({"c": "logon", "client_name": name, "a": "processed", "cid": "logon"}))
    client.wait_for_ack("processed", "logon")


def _wait_for_answer(client: RawClient, sent: list[bytes]) -> None:
    """Wait until the server has processed everything sent before, or has closed the connection."""
    _send(client, sent, frame({"c": "flush", "cid": "the-end", "a": "processed"}))
    while not client.receive().is_ack("processed", "the-end"):
        pass


def _commands(client: RawClient, rng: cases.Random, sent: list[bytes]) -> None:
    """Send well-formed commands with strange contents."""
    _log_on(client, rng, sent)
    for _ in range(rng.randrange(1, 12)):
        _send(client, sent, frame(cases.encode_oddly(rng, cases.random_command(rng)), cases.random_body(rng)))
    _wait_for_answer(client, sent)


def _frames(client: RawClient, rng: cases.Random, sent: list[bytes]) -> None:
    """Send frames of the right length with random contents, in pieces."""
    _log_on(client, rng, sent)
    data = b"".join(cases.random_frame(rng) for _ in range(rng.randrange(1, 6)))
    for piece in cases.cuts(rng, data):
        _send(client, sent, piece)
    _wait_for_answer(client, sent)


def _strangers(client: RawClient, rng: cases.Random, sent: list[bytes]) -> None:
    """Send random bytes or frames before a logon."""
    _send(client, sent, cases.random_frame(rng))
    _wait_for_answer(client, sent)


def _noise(client: RawClient, rng: cases.Random, sent: list[bytes]) -> None:
    """Send bytes that are no frames. The length they seem to announce may never arrive, so no answer is awaited."""
    if rng.random() < 0.5:
        _log_on(client, rng, sent)
    _send(client, sent, rng.choice([b"", b"GET ", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\0\xff"]))
    _send(client, sent, cases.random_bytes(rng, 3000))


def _wrong_lengths(client: RawClient, rng: cases.Random, sent: list[bytes]) -> None:
    """Send correct frames behind a wrong length."""
    _log_on(client, rng, sent)
    data = bytearray(frame({"c": "p", "t": "L/a"}, cases.random_body(rng)))
    data[rng.randrange(4)] = rng.randrange(256)
    _send(client, sent, bytes(data))
    _send(client, sent, cases.random_frame(rng))


def _rude_ends(client: RawClient, rng: cases.Random, sent: list[bytes]) -> None:
    """Leave in the middle of a frame, of an answer, or with a reset."""
    _log_on(client, rng, sent)
    for _ in range(rng.randrange(20)):
        _send(client, sent, frame({"c": "subscribe", "t": "L/.*", "bm": "0", "a": "processed,completed"}))
    data = cases.random_frame(rng)
    _send(client, sent, data[: rng.randrange(len(data) + 1)])
    if rng.random() < 0.5:
        linger = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


BEHAVIOURS: list[Callable[[RawClient, cases.Random, list[bytes]], None]] = [
    _commands, _commands, _commands, _frames, _frames, _strangers, _noise, _wrong_lengths, _rude_ends,
]  # fmt: skip
