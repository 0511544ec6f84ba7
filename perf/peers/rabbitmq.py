"""RabbitMQ, from Debian: a durable queue, persistent messages, publisher confirms, prefetch.

A classic queue is the default. It writes messages in batches, and confirms the messages of a batch together. A quorum
queue, which is made for safety, syncs its write-ahead log before it confirms. Here it has one member, because all peers
keep one copy. Acknowledgements have no confirmation in AMQP 0-9-1. So each consumer sends a request for the queue's
state behind its last acknowledgement, and the clock stops at the answer.

The node has a port mapper of its own (`epmd`), so that it neither uses another one nor leaves one behind.
"""

import re
import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from perf.consuming import PAYLOAD_END, PREFETCH, Consumer
from perf.load import PAYLOAD_BYTES, build
from perf.peers.queueing import QueuePeer
from perf.peers.server import free_port
from perf.pump import Lane, PeerError, connect

QUEUE = b"bench"
CONSUMER_TAG = b"c"
SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""The script itself. The command of the same name in the path changes user and directory."""

METHOD, HEADER, BODY = 1, 2, 3
FRAME_END = b"\xce"
FRAME_HEAD = struct.Struct(">BHI")  # type, channel, size
ACK_ARGUMENTS = struct.Struct(">QB")  # delivery tag, multiple

CONNECTION_START = (10, 10)
CONNECTION_START_OK = (10, 11)
CONNECTION_TUNE = (10, 30)
CONNECTION_TUNE_OK = (10, 31)
CONNECTION_OPEN = (10, 40)
CONNECTION_OPEN_OK = (10, 41)
CHANNEL_OPEN = (20, 10)
CHANNEL_OPEN_OK = (20, 11)
QUEUE_DECLARE = (50, 10)
QUEUE_DECLARE_OK = (50, 11)
BASIC_QOS = (60, 10)
BASIC_QOS_OK = (60, 11)
BASIC_CONSUME = (60, 20)
BASIC_CONSUME_OK = (60, 21)
BASIC_PUBLISH = (60, 40)
BASIC_DELIVER = (60, 60)
BASIC_ACK = (60, 80)
CONFIRM_SELECT = (85, 10)
CONFIRM_SELECT_OK = (85, 11)

DURABLE, PASSIVE = 2, 1
PERSISTENT = b"\x02"
DELIVERY_MODE_FLAG = 1 << 12

Method = tuple[int, int]


def short_text(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def long_text(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


def table(entries: Mapping[bytes, bytes]) -> bytes:
    """A table whose values are texts."""
    return long_text(b"".join(short_text(name) + b"S" + long_text(value) for name, value in entries.items()))


def frame(kind: int, channel: int, content: bytes) -> bytes:
    return FRAME_HEAD.pack(kind, channel, len(content)) + content + FRAME_END


def method(which: Method, arguments: bytes, channel: int = 1) -> bytes:
    return frame(METHOD, channel, struct.pack(">HH", *which) + arguments)


def declare(queue_type: bytes, flags: int = DURABLE) -> bytes:
    arguments = table({b"x-queue-type": queue_type}) if flags == DURABLE else table({})
    return method(QUEUE_DECLARE, b"\0\0" + short_text(QUEUE) + bytes([flags]) + arguments)


def publish_parts(payload_bytes: int = PAYLOAD_BYTES) -> tuple[bytes, bytes]:
    """The bytes before and after the payload of a message."""
    publish = method(BASIC_PUBLISH, b"\0\0" + short_text(b"") + short_text(QUEUE) + b"\0")
    properties = struct.pack(">HHQH", 60, 0, payload_bytes, DELIVERY_MODE_FLAG) + PERSISTENT
    body_head = FRAME_HEAD.pack(BODY, 1, payload_bytes)
    return publish + frame(HEADER, 1, properties) + body_head, FRAME_END


def deliver_pattern() -> re.Pattern[bytes]:
    """The pattern of a delivery; its group is the delivery tag, as eight bytes."""
    start = struct.pack(">HH", *BASIC_DELIVER) + short_text(CONSUMER_TAG)
    rest_of_method = 1 + len(short_text(b"")) + len(short_text(QUEUE)) + len(FRAME_END)
    properties_frame = FRAME_HEAD.size + len(struct.pack(">HHQH", 0, 0, 0, 0) + PERSISTENT) + len(FRAME_END)
    until_end = rest_of_method + properties_frame + FRAME_HEAD.size + PAYLOAD_BYTES + len(FRAME_END)
    return re.compile(re.escape(start) + b"(.{8}).{%d}" % until_end, re.DOTALL)


class Channel:
    """A blocking connection with one channel, for handshakes."""

    def __init__(self, port: int) -> None:
        self.sock = connect(port)
        self.sock.sendall(b"AMQP\x00\x00\x09\x01")
        self.expect(CONNECTION_START)
        login = table({}) + short_text(b"PLAIN") + long_text(b"\0guest\0guest") + short_text(b"en_US")
        self.sock.sendall(method(CONNECTION_START_OK, login, 0))
        limits = self.expect(CONNECTION_TUNE)[:6]
        no_heartbeats = b"\0\0"
        self.sock.sendall(method(CONNECTION_TUNE_OK, limits + no_heartbeats, 0))
        self.sock.sendall(method(CONNECTION_OPEN, short_text(b"/") + b"\0\0", 0))
        self.expect(CONNECTION_OPEN_OK)
        self.ask(method(CHANNEL_OPEN, b"\0"), CHANNEL_OPEN_OK)

    def ask(self, command: bytes, answer: Method) -> bytes:
        """Send a command; return the arguments of its answer."""
        self.sock.sendall(command)
        return self.expect(answer)

    def expect(self, wanted: Method) -> bytes:
        """Receive a method; return its arguments. Raises PeerError if another one comes."""
        _, _, size = FRAME_HEAD.unpack(self.receive(FRAME_HEAD.size))
        content = self.receive(size + len(FRAME_END))[: -len(FRAME_END)]
        if struct.unpack_from(">HH", content) != wanted:
            raise PeerError(f"RabbitMQ answered {content!r}")
        return content[4:]

    def receive(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            chunk = self.sock.recv(size - len(got))
            if not chunk:
                raise PeerError("RabbitMQ closed the connection")
            got += chunk
        return got


class ConfirmCounter:
    """Turns confirms into a count. They come in any order, each for one message or for all messages up to one."""

    def __init__(self) -> None:
        self.rest = b""
        self.through = 0
        """All messages up to this one are confirmed."""
        self.beyond: set[int] = set()

    def __call__(self, received: memoryview) -> int:
        data = self.rest + received
        at = 0
        before = self.through + len(self.beyond)
        while len(data) - at >= FRAME_HEAD.size:
            end = at + FRAME_HEAD.size + FRAME_HEAD.unpack_from(data, at)[2] + len(FRAME_END)
            if end > len(data):
                break
            if struct.unpack_from(">HH", data, at + FRAME_HEAD.size) != BASIC_ACK:
                raise PeerError(f"RabbitMQ refused: {data[at:end]!r}")
            self.confirm(*ACK_ARGUMENTS.unpack_from(data, at + FRAME_HEAD.size + 4))
            at = end
        self.rest = data[at:]
        return self.through + len(self.beyond) - before

    def confirm(self, tag: int, multiple: int) -> None:
        if multiple:
            self.through = max(self.through, tag)
            self.beyond = {one for one in self.beyond if one > self.through}
        else:
            self.beyond.add(tag)
        while self.through + 1 in self.beyond:
            self.through += 1
            self.beyond.remove(self.through)


class ChannelConsumer(Consumer):
    """A handle is a delivery tag; an acknowledgement covers all messages up to its tag."""

    pattern = deliver_pattern()
    message_end = PAYLOAD_END + FRAME_END  # PAYLOAD_END alone may occur in a delivery tag

    def start(self) -> None:
        consume = b"\0\0" + short_text(QUEUE) + short_text(CONSUMER_TAG) + b"\0" + table({})
        self.outgoing += method(BASIC_CONSUME, consume)

    def acknowledge(self, handles: Sequence[bytes]) -> None:
        self.outgoing += method(BASIC_ACK, handles[-1] + b"\x01")

    def ask_for_confirmation(self) -> None:
        self.outgoing += declare(b"", PASSIVE)

    def is_confirmed(self) -> bool:
        return struct.pack(">HH", *QUEUE_DECLARE_OK) + short_text(QUEUE) in self.rest


class RabbitMqClassic(QueuePeer):
    name = "rabbitmq-classic"
    title = "RabbitMQ, classic queue (default)"
    window = 100  # the queue writes messages to disk that wait too long, so a small backlog is best
    fill_window = 1_000
    pace = 30_000
    queue_type = b"classic"
    start_limit_s = 120.0

    def version(self) -> str:
        if not SERVER.exists() or not shutil.which("epmd"):
            raise PeerError("rabbitmq-server is not installed: apt-get install rabbitmq-server")
        asked = ["dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server"]
        found = subprocess.run(asked, capture_output=True, text=True)
        return f"rabbitmq-server {found.stdout.split('-')[0] or 'unknown'}"

    def command(self) -> list[str]:
        """The command of a process that becomes the server, with the port mapper as its child."""
        config = self.directory / "rabbitmq.conf"
        config.write_text(f"listeners.tcp.1 = 127.0.0.1:{self.port}\nlog.console = true\nlog.file = false\n")
        mapper_port = free_port()
        environment = {
            "HOME": self.directory,
            "ERL_EPMD_PORT": mapper_port,
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": config,
            "RABBITMQ_ENABLED_PLUGINS_FILE": self.directory / "plugins",
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_DIST_PORT": free_port(),
            "RABBITMQ_MNESIA_BASE": self.directory / "mnesia",
            "RABBITMQ_LOG_BASE": self.directory / "log",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes the server, no process waits for it
        }
        assignments = [f"{name}={value}" for name, value in environment.items()]
        script = f"epmd -address 127.0.0.1 -port {mapper_port} & exec {SERVER}"
        return ["env", *assignments, "sh", "-c", script]

    def prepare(self) -> None:
        channel = Channel(self.port)
        channel.ask(declare(self.queue_type), QUEUE_DECLARE_OK)
        channel.sock.close()

    def publish_lanes(self, connections: int, messages: int) -> list[Lane]:
        prefix, suffix = publish_parts(self.payload_bytes)
        lanes = []
        for _ in range(connections):
            channel = Channel(self.port)
            channel.ask(method(CONFIRM_SELECT, b"\0"), CONFIRM_SELECT_OK)
            load = build(prefix, suffix, messages // connections, payload_bytes=self.payload_bytes)
            lanes.append(Lane(channel.sock, load, ConfirmCounter(), self.window // connections))
        return lanes

    def consumers(self, count: int, messages: int) -> Sequence[Consumer]:
        channels = [Channel(self.port) for _ in range(count)]
        for channel in channels:
            channel.ask(method(BASIC_QOS, struct.pack(">IHB", 0, PREFETCH, 0)), BASIC_QOS_OK)
        return [ChannelConsumer(channel.sock) for channel in channels]

    def left(self) -> int:
        channel = Channel(self.port)
        answer = channel.ask(declare(b"", PASSIVE), QUEUE_DECLARE_OK)
        channel.sock.close()
        return int(struct.unpack_from(">I", answer, len(short_text(QUEUE)))[0])


class RabbitMqQuorum(RabbitMqClassic):
    name = "rabbitmq-quorum"
    title = "RabbitMQ, quorum queue (synced)"
    queue_type = b"quorum"
    window = 2_000
    pace = 45_000
