"""The load on queues: consumers beside the publishers of `perf.pump`, in one epoll loop.

A *consumer* is a connection that receives messages and acknowledges them in batches of `ACK_BATCH`, with at most
`PREFETCH` unacknowledged. Peers differ in the pattern of a message in the received bytes, in the identifier by which an
acknowledgement names the message (its *handle*), and in the form of acknowledgements. A consumer's time is the load's,
not the server's, and both share the processors. So `perf.scanning` finds the messages, and the pattern skips the
payload, whose size is known.

Once every message has arrived, each consumer acknowledges the rest and requests a confirmation that the server has
processed its acknowledgements, in the way of the protocol. The clock stops at the last confirmation.
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
    """The number of messages that all consumers together may still request.

    For protocols in which a request that finds no message blocks its connection, with the acknowledgements behind it.
    """

    def __init__(self, messages: int) -> None:
        self.left = messages

    def take(self, wanted: int) -> int:
        """Take up to the wanted number of messages; return the number granted."""
        granted = min(wanted, self.left)
        self.left -= granted
        return granted

    def give_back(self, granted: int) -> None:
        """Return the number of messages that were requested and did not come."""
        self.left += granted


class Consumer(ABC):
    """One consuming connection, logged on. `outgoing` has the bytes to send."""

    pattern: re.Pattern[bytes]
    """A whole message from somewhere in its header to the end of the payload, with one group: the handle."""
    message_end = PAYLOAD_END
    """The bytes at the end of each message; they occur nowhere else."""
    eager = False
    """True: it acknowledges all that has arrived at once, without waiting for a full batch."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.scanner = MessageScanner(self.pattern, self.message_end)
        self.outgoing = bytearray()
        self.rest = b""
        """The received bytes behind the last whole message."""
        self.unacknowledged: list[bytes] = []
        self.finishing = False
        self.confirmed = False

    @abstractmethod
    def start(self) -> None:
        """Request the first messages."""

    @abstractmethod
    def acknowledge(self, handles: Sequence[bytes]) -> None:
        """Write the acknowledgement of these messages, the oldest unacknowledged ones."""

    @abstractmethod
    def ask_for_confirmation(self) -> None:
        """Write a request that the server answers once it has processed all acknowledgements."""

    @abstractmethod
    def is_confirmed(self) -> bool:
        """True if `rest`, all bytes behind the last message, has the answer to that request."""

    def see(self, data: memoryview) -> None:
        """Inspect the bytes up to the end of a message, if the protocol has data between messages."""
        return

    def ask_for_more(self, arrived: int) -> None:
        """Request more messages, if the protocol needs requests.

        Called when `arrived` messages have come, after full batches are acknowledged.
        """
        return

    def take(self, chunk: memoryview) -> int:
        """Process received bytes; return the number of messages that they completed."""
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
        whole = len(waiting) if self.eager else len(waiting) - len(waiting) % ACK_BATCH
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
        """Receive once; return the number of messages completed."""
        size = self.sock.recv_into(buffer)
        if size == 0:
            raise PeerError(f"the server closed a consumer's connection after {self.rest[-300:]!r}")
        return self.take(buffer[:size])

    def send_some(self) -> None:
        """Send as much of `outgoing` as the socket takes."""
        with contextlib.suppress(BlockingIOError):
            del self.outgoing[: self.sock.send(self.outgoing)]


@dataclass(frozen=True)
class Exchanged:
    """The result of one run: messages that consumers received and acknowledged."""

    messages: int
    elapsed_s: float


def exchange(lanes: Sequence[Lane], consumers: Sequence[Consumer], messages: int) -> Exchanged:
    """Send every lane's load while consumers receive and acknowledge `messages`; some may be in the queue before.

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
