"""The load on queues: consumers beside the publishers of `perf.pump`, in one epoll loop.

A *consumer* is a connection that takes messages and acknowledges them in batches of `ACK_BATCH`, with at most
`PREFETCH` that are not acknowledged. What differs between peers is the pattern of a message in the received bytes, what
an acknowledgement calls the message (its *handle*) and how acknowledgements are written. A consumer's time is the
load's, not the server's, and both share the processors: messages are found as `perf.scanning` does it, and the pattern
steps over the payload, whose size is known, without looking at it.

Once every message has arrived, each consumer acknowledges what is left and asks the server to confirm that it has dealt
with its acknowledgements, in whatever way the protocol has. The clock stops at the last confirmation.
"""

import contextlib
import re
import select
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from perf.load import MARKER
from perf.pump import RECEIVE_BYTES, STALL_S, Lane, PeerError
from perf.scanning import MessageScanner

ACK_BATCH = 80
PREFETCH = 100
PAYLOAD_END = b'%c"}' % MARKER


class Demand:
    """How many messages consumers may still ask for, together.

    For protocols in which a request that finds no message blocks its connection, with the acknowledgements behind it.
    """

    def __init__(self, messages: int) -> None:
        self.left = messages

    def take(self, wanted: int) -> int:
        """As many of the wanted ones as are left."""
        granted = min(wanted, self.left)
        self.left -= granted
        return granted

    def give_back(self, granted: int) -> None:
        """So many were asked for and did not come."""
        self.left += granted


class Consumer(ABC):
    """One consuming connection, logged on. `outgoing` is what it wants to send."""

    pattern: re.Pattern[bytes]
    """A whole message from somewhere in its header to the end of the payload, with one group: the handle."""
    message_end = PAYLOAD_END
    """What a message ends with, and nothing else does."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.scanner = MessageScanner(self.pattern, self.message_end)
        self.outgoing = bytearray()
        self.rest = b""
        """What was received behind the last whole message."""
        self.unacknowledged: list[bytes] = []
        self.finishing = False
        self.confirmed = False

    @abstractmethod
    def start(self) -> None:
        """Ask for the first messages."""

    @abstractmethod
    def acknowledge(self, handles: Sequence[bytes]) -> None:
        """Write the acknowledgement of these messages, the oldest ones without."""

    @abstractmethod
    def ask_for_confirmation(self) -> None:
        """Write what the server answers once it has dealt with all acknowledgements."""

    @abstractmethod
    def is_confirmed(self) -> bool:
        """Whether `rest`, which has all that came behind the last message, has that answer."""

    def see(self, data: memoryview) -> None:
        """Look at what was received up to the end of a message, if what is between messages matters."""
        return

    def ask_for_more(self, arrived: int) -> None:
        """Called once so many messages have arrived and batches are acknowledged, if one has to ask."""
        return

    def take(self, chunk: memoryview) -> int:
        """Handle received bytes; how many messages they completed."""
        data = memoryview(self.rest + chunk) if self.rest else chunk
        handles, end = self.scanner.scan(data)
        if not handles:
            self.rest = bytes(data)
            if self.finishing:
                self.confirmed = self.is_confirmed()
            return 0
        self.rest = bytes(data[end:])
        self.see(data[:end])
        waiting = self.unacknowledged
        waiting += handles
        whole = len(waiting) - len(waiting) % ACK_BATCH
        for first in range(0, whole, ACK_BATCH):
            self.acknowledge(waiting[first : first + ACK_BATCH])
        del waiting[:whole]
        self.ask_for_more(len(handles))
        return len(handles)

    def finish(self) -> None:
        """No more messages will come: acknowledge the rest."""
        self.finishing = True
        if self.unacknowledged:
            self.acknowledge(self.unacknowledged)
            self.unacknowledged = []
        self.ask_for_confirmation()
        self.confirmed = self.is_confirmed()

    def receive(self, buffer: memoryview) -> int:
        """Receive once; how many messages that completed."""
        size = self.sock.recv_into(buffer)
        if size == 0:
            raise PeerError(f"the server closed a consumer's connection after {self.rest[-300:]!r}")
        return self.take(buffer[:size])

    def send_some(self) -> None:
        """Send what is to be sent, as far as the socket takes it."""
        with contextlib.suppress(BlockingIOError):
            del self.outgoing[: self.sock.send(self.outgoing)]


@dataclass(frozen=True)
class Exchanged:
    """What one run did: messages that consumers got and acknowledged."""

    messages: int
    elapsed_s: float


def exchange(lanes: Sequence[Lane], consumers: Sequence[Consumer], messages: int) -> Exchanged:
    """Send every lane's load while consumers take and acknowledge `messages`, some of which may be there before.

    Returns once all publishes are acknowledged and all acknowledgements confirmed. PeerError: more than `messages`
    arrived, or nothing happened for `STALL_S`.
    """
    running = Exchange(lanes, consumers, messages)
    try:
        return running.run()
    finally:
        running.close()


class Exchange:
    """One run of publishers and consumers."""

    def __init__(self, lanes: Sequence[Lane], consumers: Sequence[Consumer], messages: int) -> None:
        self.messages = messages
        self.arrived = 0
        self.lanes = {lane.sock.fileno(): lane for lane in lanes}
        self.consumers = {consumer.sock.fileno(): consumer for consumer in consumers}
        self.unfinished = len(lanes) + len(consumers)
        self.writing = dict.fromkeys((*self.lanes, *self.consumers), False)
        self.buffer = memoryview(bytearray(RECEIVE_BYTES))
        self.progress_s = 0.0
        self.poll = select.epoll()
        for sock in (*(lane.sock for lane in lanes), *(consumer.sock for consumer in consumers)):
            sock.setblocking(False)
            self.poll.register(sock.fileno(), select.EPOLLIN)

    def close(self) -> None:
        self.poll.close()

    def run(self) -> Exchanged:
        started_s = self.progress_s = time.perf_counter()
        for fd, consumer in self.consumers.items():
            consumer.start()
            self.send(fd, consumer)
        for fd, lane in self.lanes.items():
            self.send_load(fd, lane)
        while self.unfinished:
            for fd, event in self.poll.poll(1.0):
                if fd in self.consumers:
                    self.on_consumer(fd, self.consumers[fd], event)
                else:
                    self.on_lane(fd, self.lanes[fd], event)
            if time.perf_counter() - self.progress_s > STALL_S:
                raise PeerError(self.stall())
        return Exchanged(self.arrived, self.progress_s - started_s)

    def on_lane(self, fd: int, lane: Lane, event: int) -> None:
        if event & ~select.EPOLLOUT and lane.take_answers(self.buffer):
            self.progress_s = time.perf_counter()
            if lane.done:
                self.unfinished -= 1
                self.poll.unregister(fd)
                return
        self.send_load(fd, lane)

    def on_consumer(self, fd: int, consumer: Consumer, event: int) -> None:
        if event & ~select.EPOLLOUT:
            before = consumer.confirmed
            completed = consumer.receive(self.buffer)
            if completed:
                self.progress_s = time.perf_counter()
                self.arrived += completed
                if self.arrived >= self.messages:
                    self.finish()
                    return
            if consumer.confirmed and not before:
                self.progress_s = time.perf_counter()
                self.unfinished -= 1
        self.send(fd, consumer)

    def finish(self) -> None:
        """Everything has arrived."""
        if self.arrived > self.messages:
            raise PeerError(f"{self.arrived} messages arrived instead of {self.messages}")
        for fd, consumer in self.consumers.items():
            consumer.finish()
            self.unfinished -= consumer.confirmed
            self.send(fd, consumer)

    def send(self, fd: int, consumer: Consumer) -> None:
        if consumer.outgoing:
            consumer.send_some()
        self.want_to_write(fd, bool(consumer.outgoing))

    def send_load(self, fd: int, lane: Lane) -> None:
        if lane.wants_to_send:
            lane.send_some()
        self.want_to_write(fd, lane.wants_to_send)

    def want_to_write(self, fd: int, wanted: bool) -> None:
        if wanted != self.writing[fd]:
            self.writing[fd] = wanted
            self.poll.modify(fd, select.EPOLLIN | (select.EPOLLOUT if wanted else 0))

    def stall(self) -> str:
        published = [(lane.acknowledged, lane.stop_at) for lane in self.lanes.values()]
        lately = [consumer.rest[-100:] for consumer in self.consumers.values()]
        return (
            f"nothing happened for {STALL_S:g} s: {self.arrived} of {self.messages} messages arrived, "
            f"published {published}, last received {lately}"
        )
