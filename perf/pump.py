"""The load generator: one epoll loop that sends prebuilt bytes and counts the answers.

The same loop serves every peer. Per wake-up it makes one `send` of up to `SEND_BYTES` and one `recv` per
ready connection. The lane's `count_answers` returns the number of publishes that the received bytes acknowledge.
"""

import contextlib
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from amps.same_host import send_unpaced
from perf.load import Load

SEND_BYTES = 256 * 1024
RECEIVE_BYTES = 1024 * 1024
STALL_S = 30.0


class PeerError(RuntimeError):
    """A peer reported a failure, or stopped answering."""


@dataclass
class Lane:
    """One publishing connection: its bytes, and the function that counts its answers."""

    sock: socket.socket
    load: Load
    count_answers: Callable[[memoryview], int]  # received bytes -> number of publishes that they acknowledge
    window: int  # publishes that may be unacknowledged at a time
    sent_bytes: int = 0
    acknowledged: int = 0
    stop_at: int = 0  # messages to send

    def __post_init__(self) -> None:
        self.stop_at = self.load.count

    @property
    def allowed_bytes(self) -> int:
        return min(self.stop_at, self.acknowledged + self.window) * self.load.message_bytes

    @property
    def done(self) -> bool:
        return self.acknowledged >= self.stop_at

    @property
    def wants_to_send(self) -> bool:
        return self.sent_bytes < self.allowed_bytes

    def take_answers(self, buffer: memoryview) -> int:
        """Receive once; return the number of publishes acknowledged by that."""
        size = self.sock.recv_into(buffer)
        if size == 0:
            raise PeerError("the server closed the connection")
        answers = self.count_answers(buffer[:size])
        self.acknowledged += answers
        return answers

    def send_some(self) -> None:
        """Send once, as many bytes as the window allows and the socket takes."""
        end = min(self.allowed_bytes, self.sent_bytes + SEND_BYTES)
        with contextlib.suppress(BlockingIOError):
            self.sent_bytes += self.sock.send(self.load.data[self.sent_bytes : end])


@dataclass(frozen=True)
class Pumped:
    """The result of one run of the pump."""

    acknowledged: int
    elapsed_s: float


def pump(lanes: list[Lane], limit_s: float) -> Pumped:
    """Send every lane's load; after `limit_s` send no more. Returns once every sent publish is answered."""
    poll = select.epoll()
    by_fd = {lane.sock.fileno(): lane for lane in lanes}
    writing = dict.fromkeys(by_fd, True)
    for lane in lanes:
        lane.sock.setblocking(False)
        poll.register(lane.sock.fileno(), select.EPOLLIN | select.EPOLLOUT)
    received = memoryview(bytearray(RECEIVE_BYTES))
    unfinished = len(lanes)
    started = time.perf_counter()
    last_answer = started
    limit_passed = False
    try:
        while unfinished:
            events = poll.poll(1.0)
            now = time.perf_counter()
            if now - last_answer > STALL_S:
                raise PeerError(
                    f"no answer for {STALL_S:g} s: {[(lane.acknowledged, lane.stop_at) for lane in lanes]}"
                )
            if not limit_passed and now - started > limit_s:
                limit_passed = True
                for lane in lanes:
                    if lane.done:
                        continue
                    lane.stop_at = min(lane.stop_at, -(-lane.sent_bytes // lane.load.message_bytes))
                    if lane.done:
                        unfinished -= 1
            for fd, event in events:
                lane = by_fd[fd]
                if lane.done:
                    continue
                if event & (select.EPOLLIN | select.EPOLLHUP) and lane.take_answers(received):
                    last_answer = time.perf_counter()
                    if lane.done:
                        unfinished -= 1
                        poll.unregister(fd)
                        continue
                if lane.wants_to_send and (event & select.EPOLLOUT or not writing[fd]):
                    lane.send_some()
                want_write = lane.wants_to_send
                if want_write != writing[fd]:
                    writing[fd] = want_write
                    poll.modify(fd, select.EPOLLIN | (select.EPOLLOUT if want_write else 0))
    finally:
        poll.close()
    return Pumped(sum(lane.acknowledged for lane in lanes), last_answer - started)


def receive_exactly_until(sock: socket.socket, end: bytes, limit_bytes: int = 1 << 20) -> bytes:
    """Blocking read for handshakes: everything up to and including `end`."""
    got = b""
    while end not in got:
        chunk = sock.recv(65536)
        if not chunk:
            raise PeerError(f"the server closed the connection after {got!r}")
        got += chunk
        if len(got) > limit_bytes:
            raise PeerError(f"no {end!r} in {limit_bytes} bytes")
    return got


def connect(port: int) -> socket.socket:
    """A blocking connection to the local host, without Nagle's delay, and without pacing by the system's default."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    send_unpaced(sock)
    return sock
