"""Two instances of this server, of which one is away for a time.

The destinations are async, so that publishing goes on without the copy. A subscription with a bookmark at the copy
tells when it has everything: messages reach it when they are synced there, and records arrive in the leader's order.
"""

import socket

from perf.peers.amps import frame, receive_ack
from perf.peers.amps_pair import END_TOPIC, AmpsPair
from perf.peers.catch_up import CATCH_UP_LIMIT_S, CatchUpGroup
from perf.pump import PeerError

MARK = b'{"mark":true}'
RECEIVE_BYTES = 65536


class AmpsCatchUp(AmpsPair, CatchUpGroup):
    name = "amps-catch-up"
    title = "this server (synced)"
    sync_type = "async"

    def stop_copy(self) -> None:
        self.instances()[1].stop()

    def mark(self) -> None:
        """Publish a message behind all others."""
        with self.instances()[0].open() as sock:
            sock.sendall(frame({"c": "p", "t": END_TOPIC, "s": 1, "a": "persisted"}, MARK))
            receive_ack(sock, "persisted")

    def start_copy(self) -> None:
        self.instances()[1].launch()

    def await_everything(self) -> None:
        copy = self.instances()[1]
        copy.wait_for_port()
        copy.prepare()
        with copy.open() as sock:
            sock.sendall(frame({"c": "subscribe", "cid": "1", "t": END_TOPIC, "bm": "0", "a": "processed"}))
            receive_ack(sock, "processed")
            await_bytes(sock, MARK, self.name)

    def await_stored(self) -> None:
        """Nothing to wait for: the subscription gets what is synced."""

    def check_way(self) -> None:
        """There is only one way."""


def await_bytes(sock: socket.socket, wanted: bytes, name: str) -> None:
    """Read until `wanted` was received. Raises PeerError."""
    sock.settimeout(CATCH_UP_LIMIT_S)
    received = b""
    while wanted not in received:
        try:
            chunk = sock.recv(RECEIVE_BYTES)
        except TimeoutError:
            raise PeerError(f"{name}: the copy has not caught up after {CATCH_UP_LIMIT_S:g} s") from None
        if not chunk:
            raise PeerError(f"{name}: the copy closed the connection")
        received = received[-len(wanted) :] + chunk
