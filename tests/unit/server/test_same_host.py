"""Connections within one host are not paced; all others keep the system's setting."""

import socket
from collections.abc import Iterator

import pytest

from amps.same_host import send_unpaced
from tests.support.congestion import another_control, congestion_control


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.mark.parametrize(("source", "expected"), [("127.0.0.1", b"reno"), ("127.0.0.2", None)])
def test_by_the_addresses_of_both_ends(listening: socket.socket, source: str, expected: bytes | None) -> None:
    """Two addresses stand for two hosts."""
    before = another_control()
    with socket.socket() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, before)
        sock.bind((source, 0))
        sock.connect(listening.getsockname())
        send_unpaced(sock)
        assert congestion_control(sock) == (expected or before)


def test_other_sockets_are_left_alone(listening: socket.socket) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send_unpaced(ours)
    send_unpaced(ours)  # closed
    before = congestion_control(listening)
    send_unpaced(listening)
    assert congestion_control(listening) == before
