"""Redis with a replica. A batch of publishes is followed by `WAIT 1 0`, which is answered when the replica has them.

That the replica has them means in its memory: Redis 7.0 has no command that waits until a replica has synced its
append-only file. A `WAIT` blocks its connection, so there is one per BATCH publishes, and a connection sends the next
batches meanwhile.
"""

import re
from collections.abc import Sequence

from perf.consuming import Consumer, Demand
from perf.load import in_batches
from perf.peers.groups import ServerGroup, until_true
from perf.peers.redis import RedisEverySecond, encode
from perf.peers.redis_group import COUNT, GroupConsumer, RedisGroup
from perf.peers.server import ServerPeer
from perf.pump import Lane, PeerError, connect, receive_exactly_until

BATCH = 8_000
WAIT = encode(b"WAIT", b"1", b"0")


class WaitingConsumer(GroupConsumer):
    """Its last acknowledgement is confirmed when the replica has it, too."""

    def ask_for_confirmation(self) -> None:
        self.outgoing += WAIT

    def is_confirmed(self) -> bool:
        """WAIT is answered with the number of replicas, which is one."""
        return self.counted + sum(map(int, COUNT.findall(self.rest))) == 2 * self.acknowledged + 1


class RedisNode(RedisGroup):
    """A Redis server that may be a replica."""

    of_port = 0
    """The port of the primary; 0: it is the primary."""

    def command(self) -> list[str]:
        command = super().command()
        config = self.directory / "redis.conf"
        lines = ["repl-diskless-sync yes", "repl-diskless-sync-delay 0"]
        if self.of_port:
            lines.append(f"replicaof 127.0.0.1 {self.of_port}")
        config.write_text(config.read_text() + "\n".join(lines) + "\n")
        return command

    def consumers(self, count: int, messages: int) -> Sequence[Consumer]:
        demand = Demand(messages)
        return [WaitingConsumer(connect(self.port), number, demand) for number in range(count)]

    def count(self) -> int:
        """The number of entries of the stream; -1 while the server reads a copy of the primary's data."""
        with connect(self.port) as sock:
            sock.sendall(encode(b"XLEN", b"bench"))
            answer = receive_exactly_until(sock, b"\r\n")
        return int(answer[1:]) if answer.startswith(b":") else -1


def count_waits(received: memoryview) -> int:
    """The number of answers to WAIT, which are the only numbers among the answers."""
    data = received.tobytes()
    if b"\n-" in data or b"-ERR" in data or b":0\r" in data:
        raise PeerError(f"Redis refused: {data[:300]!r}")
    return data.count(b":")


class RedisPair(ServerGroup):
    name = "redis-pair-always"
    title = "Redis with WAIT 1 (appendfsync always on both)"
    window = 64_000
    batch = BATCH
    pace = 60_000
    fsync = "always"

    def make_members(self) -> Sequence[ServerPeer]:
        members = [RedisNode(), RedisNode()]
        for member in members:
            member.fsync = self.fsync
        return members

    def nodes(self) -> list[RedisNode]:
        return [member for member in self.members if isinstance(member, RedisNode)]

    def connect_members(self) -> None:
        primary, replica = self.nodes()
        replica.of_port = primary.port

    def prepare(self) -> None:
        primary, replica = self.nodes()
        RedisEverySecond.prepare(replica)
        primary.prepare()
        self.await_link()

    def await_link(self, limit_s: float = 60.0) -> None:
        """Wait until the replica has a copy of the primary's data and follows it."""
        for _ in until_true("Redis' replica is in step", limit_s):
            with connect(self.nodes()[1].port) as sock:
                sock.sendall(encode(b"INFO", b"replication"))
                size = re.search(rb"^\$(\d+)\r\n", head := receive_exactly_until(sock, b"\r\n"))
                while size and len(head) < size.end() + int(size[1]):
                    head += sock.recv(65536)
            if b"master_link_status:up" in head:
                return

    def publish_lanes(self, connections: int, messages: int) -> list[Lane]:
        lanes = super().publish_lanes(connections, messages)
        return [
            Lane(
                lane.sock,
                in_batches(lane.load, self.batch, WAIT),
                count_waits,
                max(1, lane.window // self.batch),
            )
            for lane in lanes
        ]

    def stored_copies(self, messages: int) -> int:
        found = 0
        for _ in until_true("Redis' copies are complete", self.copies_limit_s):
            found = min(node.count() for node in self.nodes())
            if found >= messages:
                break
        return found


class RedisPairEverySecond(RedisPair):
    name = "redis-pair-everysec"
    title = "Redis with WAIT 1 (appendfsync everysec on both)"
    fsync = "everysec"
    pace = 100_000
