"""Redis with a replica that is away for a time. Publishes wait for no replica.

The messages are a list (RPUSH). That is faster for Redis than a stream (XADD), in each of the ways back.

A replica comes back in one of two ways:

- A full resynchronisation: the primary sends a snapshot of all data (RDB), through a file or straight from the process
  that makes it. The replica loads it, and then rewrites its append-only file from it. This is what happens with Redis'
  own settings, in which the primary keeps a megabyte of what it has sent.
- A partial one: the primary has kept everything in a backlog in its memory, 4 GB here. A restarted replica can ask for
  the rest only if it was stopped with a snapshot, and without an append-only file. Redis' documentation shows how:
  the file is switched off before the stop, and on again after the start.

The replica has everything when its link is up and its offset has reached that of the primary at the mark. It has stored
everything when no rewriting of the append-only file is under way.
"""

import re

from perf.load import build
from perf.peers.catch_up import CATCH_UP_LIMIT_S, CatchUpGroup, pause
from perf.peers.groups import ServerGroup, until_true
from perf.peers.redis import encode
from perf.peers.redis_pair import RedisNode, RedisPair
from perf.peers.server import START_S, ServerPeer
from perf.pump import Lane, PeerError, connect, receive_exactly_until

LIST = b"bench-list"
FIELD = re.compile(rb"^(\w+):(.*?)\r$", re.MULTILINE)
APPEND_ONLY_FILE_COMPLETE = {"aof_enabled": "1", "aof_rewrite_in_progress": "0", "aof_rewrite_scheduled": "0"}
COMMON_SETTINGS = (
    "client-output-buffer-limit replica 0 0 0",
    "rdbcompression no",
)
"""No limit ends a slow resynchronisation; the payloads are random letters, which cannot be compressed."""


def count_lengths(received: memoryview) -> int:
    """The number of replies to RPUSH: the length of the list for each."""
    data = received.tobytes()
    if b"\n-" in data or data.startswith(b"-"):
        raise PeerError(f"Redis refused: {data[:300]!r}")
    return data.count(b":")


class CatchUpNode(RedisNode):
    """A server of the group. `settings` are further lines of its configuration."""

    settings: tuple[str, ...] = ()
    window = 16_000

    def publish_lanes(self, connections: int, messages: int) -> list[Lane]:
        prefix = encode(b"RPUSH", LIST, b"").removesuffix(b"$0\r\n\r\n") + b"$%d\r\n" % self.payload_bytes
        return [
            Lane(
                connect(self.port),
                build(prefix, b"\r\n", messages // connections, payload_bytes=self.payload_bytes),
                count_lengths,
                self.window // connections,
            )
            for _ in range(connections)
        ]

    def count(self) -> int:
        """The length of the list; -1 while the server reads a copy of the primary's data."""
        answer = self.ask(b"\r\n", b"LLEN", LIST)
        return int(answer[1:]) if answer.startswith(b":") else -1

    def command(self) -> list[str]:
        command = super().command()
        config = self.directory / "redis.conf"
        config.write_text(config.read_text() + "\n".join((*COMMON_SETTINGS, *self.settings)) + "\n")
        return command

    def facts(self) -> dict[str, str]:
        """What INFO says."""
        with connect(self.port) as sock:
            sock.sendall(encode(b"INFO", b"everything"))
            size = re.match(rb"\$(\d+)\r\n", head := receive_exactly_until(sock, b"\r\n"))
            if size is None:
                raise PeerError(f"Redis refused: {head[:300]!r}")
            while len(head) < size.end() + int(size[1]):
                head += sock.recv(65536)
        return {name.decode(): value.decode() for name, value in FIELD.findall(head)}


class RedisCatchUp(RedisPair, CatchUpGroup):
    """A full resynchronisation."""

    window = 16_000
    batch = 1
    fsync = "everysec"
    settings: tuple[str, ...]
    """Further lines of the configuration of both servers."""
    way = "sync_full"
    """The counter of the primary that rises."""

    def make_members(self) -> list[ServerPeer]:
        members = [CatchUpNode(), CatchUpNode()]
        for member in members:
            member.fsync = self.fsync
            member.settings = self.settings
        return list(members)

    def catch_up_nodes(self) -> tuple[CatchUpNode, CatchUpNode]:
        primary, replica = self.members
        assert isinstance(primary, CatchUpNode)
        assert isinstance(replica, CatchUpNode)
        return primary, replica

    def publish_lanes(self, connections: int, messages: int) -> list[Lane]:
        return ServerGroup.publish_lanes(self, connections, messages)

    def stop_copy(self) -> None:
        self.catch_up_nodes()[1].stop()

    def mark(self) -> None:
        facts = self.catch_up_nodes()[0].facts()
        self.marked_offset = int(facts["master_repl_offset"])
        self.count_before = int(facts[self.way])

    def start_copy(self) -> None:
        self.catch_up_nodes()[1].launch()

    def await_everything(self) -> None:
        replica = self.catch_up_nodes()[1]
        replica.wait_for_port()
        for _ in until_true("Redis' replica has everything", CATCH_UP_LIMIT_S):
            facts = replica.facts()
            if facts["master_link_status"] == "up" and int(facts["slave_repl_offset"]) >= self.marked_offset:
                return
            pause()

    def await_stored(self) -> None:
        replica = self.catch_up_nodes()[1]
        for _ in until_true("Redis' replica has stored everything", CATCH_UP_LIMIT_S):
            facts = replica.facts()
            if all(facts[name] == value for name, value in APPEND_ONLY_FILE_COMPLETE.items()):
                if facts["aof_last_bgrewrite_status"] != "ok":
                    raise PeerError("Redis' replica could not write its append-only file")
                return
            pause()

    def check_way(self) -> None:
        if int(self.catch_up_nodes()[0].facts()[self.way]) <= self.count_before:
            raise PeerError(f"{self.name}: {self.way} of the primary did not rise")


class RedisDiskless(RedisCatchUp):
    name = "redis-full-diskless"
    title = "Redis (full resynchronisation, diskless)"
    settings = ("repl-diskless-sync yes", "repl-diskless-sync-delay 0", "repl-diskless-load swapdb")


class RedisFromDisk(RedisCatchUp):
    name = "redis-full-disk"
    title = "Redis (full resynchronisation, through files)"
    settings = ("repl-diskless-sync no", "repl-diskless-load disabled")


class RedisBacklog(RedisCatchUp):
    name = "redis-partial"
    title = "Redis (partial resynchronisation, backlog of 4 GB)"
    settings = ("repl-backlog-size 4gb", "repl-backlog-ttl 0")
    way = "sync_partial_ok"

    def stop_copy(self) -> None:
        replica = self.catch_up_nodes()[1]
        replica.ask(b"+OK\r\n", b"CONFIG", b"SET", b"appendonly", b"no")
        assert replica.process is not None
        with connect(replica.port) as sock:
            sock.sendall(encode(b"SHUTDOWN", b"SAVE"))
            replica.process.wait(START_S)
        replica.settings = (*self.settings, "appendonly no")
        replica.stop()

    def await_everything(self) -> None:
        replica = self.catch_up_nodes()[1]
        replica.wait_for_port()
        for _ in until_true("Redis' replica has switched its append-only file on"):
            answer = replica.ask(b"\r\n", b"CONFIG", b"SET", b"appendonly", b"yes")
            if answer == b"+OK\r\n":
                break
            if not answer.startswith(b"-LOADING"):
                raise PeerError(f"Redis refused: {answer[:300]!r}")
        super().await_everything()
