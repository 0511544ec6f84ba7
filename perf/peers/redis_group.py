"""Redis Streams with a consumer group as a queue.

A consumer requests as many entries as its prefetch has room for, and blocks until there is one. XACK removes entries
from the group's pending list and XDEL from the stream, because a queue does not keep finished messages. Both return the
number of entries found, which must be all.
"""

import re
import socket
from collections.abc import Sequence

from perf.consuming import PREFETCH, Consumer, Demand
from perf.peers.queueing import QueuePeer
from perf.peers.redis import RedisEverySecond, encode
from perf.pump import connect, receive_exactly_until

GROUP = b"workers"
ENTRIES = re.compile(rb"\$5\r\nbench\r\n\*(\d+)\r\n")
"""The number of entries in a reply."""
COUNT = re.compile(rb"\n:(\d+)(?=\r\n)")


def encode_with(words: Sequence[bytes], encoded: Sequence[bytes]) -> bytes:
    """A command whose last arguments are already encoded, except for their last CRLF."""
    head = [b"$%d\r\n%s" % (len(word), word) for word in words]
    return b"*%d\r\n%s\r\n" % (len(words) + len(encoded), b"\r\n".join((*head, *encoded)))


class GroupConsumer(Consumer):
    """A handle is the id of an entry in the form of replies and commands: `$15\\r\\n1700000000000-0`."""

    entries = ENTRIES
    stream = b"bench"
    pattern = re.compile(rb"(\$\d+\r\n\d+-\d+)\r\n\*2\r\n\$1\r\nd\r\n\$256\r\n.{256}", re.DOTALL)

    def __init__(self, sock: socket.socket, number: int, demand: Demand) -> None:
        super().__init__(sock)
        self.demand = demand
        self.rest = b"\n"  # every reply stands behind the end of a line
        self.name = b"c%d" % number
        self.asked = 0
        """Number of entries in the current request; 0: there is no request."""
        self.coming = 0
        """Number of entries of its reply that have not arrived."""
        self.counted = 0
        self.acknowledged = 0

    def start(self) -> None:
        self.read()

    def read(self) -> None:
        self.asked = self.demand.take(PREFETCH - len(self.unacknowledged))
        if self.asked == 0:
            return
        self.outgoing += encode(
            *(b"XREADGROUP", b"GROUP", GROUP, self.name, b"COUNT", b"%d" % self.asked),
            *(b"BLOCK", b"0", b"STREAMS", self.stream, b">"),
        )

    def see(self, data: memoryview) -> None:
        if self.coming == 0 and (found := self.entries.search(data)):
            self.coming = int(found[1])
            self.demand.give_back(self.asked - self.coming)
        self.counted += sum(map(int, COUNT.findall(data)))

    def ask_for_more(self, arrived: int) -> None:
        self.coming -= arrived
        if self.coming == 0:
            self.read()

    def acknowledge(self, handles: Sequence[bytes]) -> None:
        self.acknowledged += len(handles)
        self.outgoing += encode_with((b"XACK", self.stream, GROUP), handles)
        self.outgoing += encode_with((b"XDEL", self.stream), handles)

    def ask_for_confirmation(self) -> None:
        """Nothing to send: each acknowledgement is answered."""

    def is_confirmed(self) -> bool:
        return self.counted + sum(map(int, COUNT.findall(self.rest))) == 2 * self.acknowledged


class RedisGroup(RedisEverySecond, QueuePeer):
    name = "redis-group"
    title = "Redis Streams group (appendfsync everysec)"
    pace = 180_000

    def prepare(self) -> None:
        super().prepare()
        self.ask(b"+OK\r\n", b"XGROUP", b"CREATE", b"bench", GROUP, b"0", b"MKSTREAM")

    def ask(self, end: bytes, *words: bytes) -> bytes:
        with connect(self.port) as sock:
            sock.sendall(encode(*words))
            return receive_exactly_until(sock, end)

    def consumers(self, count: int, messages: int) -> Sequence[Consumer]:
        demand = Demand(messages)
        return [GroupConsumer(connect(self.port), number, demand) for number in range(count)]

    def left(self) -> int:
        """Number of entries left. Pending entries that are deleted would be an error of the load, and count too."""
        entries = int(self.ask(b"\r\n", b"XLEN", b"bench")[1:])
        pending = self.ask(b"\r\n", b"XPENDING", b"bench", GROUP)
        first_line = pending.split(b"\r\n")[1] if pending.count(b"\r\n") > 1 else b":0"
        return max(entries, int(first_line[1:]))


class RedisGroupAlways(RedisGroup):
    name = "redis-group-always"
    title = "Redis Streams group (appendfsync always)"
    fsync = "always"
    pace = 130_000
