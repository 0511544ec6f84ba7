"""Redis Streams and Redis publish/subscribe, from Debian's redis-server.

Append-only file with `appendfsync everysec` (an acknowledgement does not wait for the disk) or, for
information, `always`. Snapshots and rewriting of the append-only file are off, because they would slow Redis
down here.
"""

import re
import shutil
import socket
import subprocess

from perf.load import build
from perf.peers.server import LivePair, Reader, ServerPeer
from perf.pump import Lane, PeerError, connect, receive_exactly_until

ENTRY_ID = re.compile(rb"\r\n(\d+-\d+)\r\n")


def encode(*words: bytes) -> bytes:
    """A command in the Redis protocol."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def count_replies(received: memoryview) -> int:
    """The number of replies to XADD: one `$` per reply, which is the id of the new entry."""
    data = received.tobytes()
    if b"\n-" in data or b"-ERR" in data:
        raise PeerError(f"Redis refused: {data[:300]!r}")
    return data.count(b"$")


class RedisEverySecond(ServerPeer):
    name = "redis-everysec"
    title = "Redis (appendfsync everysec)"
    window = 16_000
    read_batch = 100
    fsync = "everysec"

    def version(self) -> str:
        found = shutil.which("redis-server")
        if not found:
            raise PeerError("redis-server is not installed: apt-get install redis-server")
        text = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
        match = re.search(r"v=(\S+)", text)
        return f"redis-server {match[1] if match else text}"

    def command(self) -> list[str]:
        config = self.directory / "redis.conf"
        config.write_text(
            f'bind 127.0.0.1\nport {self.port}\ndir {self.directory}\nsave ""\nappendonly yes\n'
            f"appendfsync {self.fsync}\nauto-aof-rewrite-percentage 0\n"
            "client-output-buffer-limit pubsub 0 0 0\n"
        )
        return ["redis-server", str(config)]

    def prepare(self) -> None:
        sock = connect(self.port)
        sock.sendall(encode(b"PING"))
        receive_exactly_until(sock, b"+PONG\r\n")
        sock.close()

    def publish_lanes(self, connections: int, messages: int) -> list[Lane]:
        words = encode(b"XADD", b"bench", b"*", b"d", b"").removesuffix(b"$0\r\n\r\n")
        prefix = words + b"$%d\r\n" % self.payload_bytes
        return [
            Lane(
                connect(self.port),
                build(prefix, b"\r\n", messages // connections, payload_bytes=self.payload_bytes),
                count_replies,
                self.window // connections,
            )
            for _ in range(connections)
        ]

    def live_pair(self) -> LivePair:
        subscriber = connect(self.port)
        subscriber.sendall(encode(b"SUBSCRIBE", b"live"))
        receive_exactly_until(subscriber, b":1\r\n")
        prefix = encode(b"PUBLISH", b"live", b"").removesuffix(b"$0\r\n\r\n") + b"$256\r\n"
        return LivePair(connect(self.port), subscriber, prefix, b"\r\n")

    def reader(self, messages: int) -> Reader:
        """XREAD in batches; the next request needs the id of the last entry, as any reader's does."""
        sock: socket.socket = connect(self.port)
        asked = 0

        def ask(last_id: bytes) -> None:
            nonlocal asked
            asked = min(messages, asked + self.read_batch)
            sock.sendall(encode(b"XREAD", b"COUNT", b"%d" % self.read_batch, b"STREAMS", b"bench", last_id))

        def advance(received: int, tail: memoryview) -> None:
            if received < asked or asked == messages:
                return
            text = tail.tobytes()
            if text.endswith(b'~"}\r\n'):  # the whole reply is here
                ask(ENTRY_ID.findall(text)[-1])

        return Reader(sock, lambda: ask(b"0-0"), advance)


class RedisAlways(RedisEverySecond):
    name = "redis-always"
    title = "Redis (appendfsync always)"
    fsync = "always"


class RedisReads(RedisEverySecond):
    name = "redis-xread-100"
    title = "Redis (XREAD COUNT 100)"


class RedisLargeReads(RedisEverySecond):
    name = "redis-xread-1000"
    title = "Redis (XREAD COUNT 1000)"
    read_batch = 1000
