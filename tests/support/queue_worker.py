"""A transport worker stepped by hand, with a core that the test controls.

The worker is the real one, without event loop and sockets. Its rings lead to a `ScriptedCore`: a real sequencer
writes published messages to a real journal. The core only stores records about queues, and the test sends the
answers.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from amps._core.journal.reader import LogCursor, LogDirectory, Record
from amps.config import (
    LoggedTopic,
    ModuleUse,
    QueueConfig,
    ServerConfig,
    TransactionLogConfig,
    TransportConfig,
)
from amps.server.records import (
    HEADER_BYTES,
    KIND_QUEUE_DELIVERIES,
    KIND_QUEUE_SUBSCRIBE,
    KIND_QUEUE_UNSUBSCRIBE,
    KIND_SPILLED_PUBLISH,
    control_payload,
    control_record,
    raw_control_record,
    record_kind,
)
from amps.server.runtime import RING_BYTES, Runtime
from amps.server.transport.connection import Connection
from amps.server.transport.worker import Worker
from tests.support.feed import Feeder, directory_of, read_all
from tests.support.peer import LENGTH_BYTES, Message, decode_payload, frame

KIND_QUEUE_ACKNOWLEDGEMENT = 4
NO_SUBSCRIPTION = 0xFFFFFFFF
BARRIER = 1
ROUNDS = 8
FILE_BYTES = 1 << 20


def queue(name: str, underlying: str = "T", **settings: Any) -> QueueConfig:
    """A queue's configuration without further elements."""
    settings = {"underlying_is_regex": False, "default_publish_target": underlying, **settings}
    return QueueConfig(
        name=name, message_type="json", kind="LocalQueue", underlying_topic=underlying, **settings
    )


@dataclass(frozen=True)
class Delivery:
    """One decision of the core."""

    position: int
    subscription: int
    slot: int = 0
    queue: int = 0
    lease_until_ns: int = 0
    flags: int = 0


def deliveries_record(durable_needed: int, *deliveries: Delivery) -> bytes:
    """The record that carries deliveries to a transport."""
    payload = struct.pack("<QII", durable_needed, len(deliveries), 0)
    for each in deliveries:
        payload += struct.pack(
            "<QQIIII",
            each.position,
            each.lease_until_ns,
            each.subscription,
            each.slot,
            each.queue,
            each.flags,
        )
    return raw_control_record(payload, KIND_QUEUE_DELIVERIES)


@dataclass(frozen=True)
class Entry:
    """One message that is acknowledged."""

    publisher_id: int
    sequence: int
    position: int
    slot: int


@dataclass(frozen=True)
class Acknowledged:
    """An acknowledgement as the core receives it."""

    slot: int
    serial: int
    topic: int
    publisher_id: int
    sequence: int
    flags: int
    action: int
    extension_ns: int
    searched_until: int
    token: int
    entries: tuple[Entry, ...]

    @staticmethod
    def read(record: bytes) -> "Acknowledged":
        length, _, slot, serial = struct.unpack_from("<IIII", record)
        publisher_id, sequence = struct.unpack_from("<QQ", record, 32)
        (topic,) = struct.unpack_from("<I", record, 56)
        kind, flags = struct.unpack_from("<HH", record, 64)
        origin_bytes, payload_bytes = struct.unpack_from("<HI", record, 74)
        assert kind == KIND_QUEUE_ACKNOWLEDGEMENT
        assert length == len(record) == 80 + origin_bytes + payload_bytes
        payload = record[80 + origin_bytes :]
        action, count, extension_ns, searched_until, token, _ = struct.unpack_from("<IIQQII", payload)
        assert len(payload) == 32 + 32 * count
        entries = tuple(Entry(*row[:4]) for row in struct.iter_unpack("<QQQII", payload[32:]))
        return Acknowledged(
            slot,
            serial,
            topic,
            publisher_id,
            sequence,
            flags,
            action,
            extension_ns,
            searched_until,
            token,
            entries,
        )


class ScriptedCore:
    """Sequences published messages, and stores records about queues."""

    def __init__(self, runtime: Runtime, directory: Path) -> None:
        self._runtime = runtime
        self._feeder = Feeder(directory, FILE_BYTES, publishers=0, ring_bytes=RING_BYTES)
        self._feeder.control = runtime.control
        self._now_ns = 1_700_000_000_000_000_000
        self.subscribed: list[tuple[int, list[Any]]] = []
        """Connection's serial number and payload of each announcement."""
        self.unsubscribed: list[int] = []
        self.acknowledged: list[Acknowledged] = []
        self.holds_durability = False
        self.step()

    @property
    def log(self) -> LogDirectory:
        return directory_of(self._feeder.journal_storage)

    @property
    def transient_prefix(self) -> str:
        return self._feeder.transient_storage.prefix

    @property
    def end(self) -> int:
        """The log position behind all records."""
        position: int = self._feeder.journal.position
        return position

    def records(self) -> list[Record]:
        """The records of the journal."""
        return read_all(LogCursor(self.log, 0, 0, True), self.end)

    def positions(self) -> list[int]:
        return [record.position for record in self.records()]

    def step(self) -> None:
        """Process the records that the worker has pushed."""
        for record in self._runtime.ingress[0].pop_all():
            kind = record_kind(record)
            _, _, slot, serial = struct.unpack_from("<IIII", record)
            if kind == KIND_QUEUE_SUBSCRIBE:
                payload: Any = control_payload(record)
                self.subscribed.append((serial, payload))
                eff = min(payload[2], 5)
                self.answer("queue_entered", slot, serial, payload[0], eff)
            elif kind == KIND_QUEUE_UNSUBSCRIBE:
                payload = control_payload(record)
                self.unsubscribed.append(payload[0])
                self.answer("queue_ended", slot, serial, payload[0])
            elif kind == KIND_QUEUE_ACKNOWLEDGEMENT:
                self.acknowledged.append(Acknowledged.read(record))
            else:
                if kind == KIND_SPILLED_PUBLISH:
                    token = record[HEADER_BYTES:]
                    self._feeder._spills[token] = self._runtime.spill_path(token.decode()).read_bytes()
                while not self._feeder.ring.push(record):
                    self._turn()
        self._turn()
        for index, reply in self._feeder.sequencer.take_replies():
            assert index == 0
            assert self._runtime.egress[0].push(control_record(reply))
        if not self.holds_durability:
            self._runtime.control.durable = self.end

    def refuse(self) -> None:
        """From now on the journal has no further file: messages without room are refused."""
        storage: Any = self._feeder.journal_storage
        storage.prepare_file = lambda number, minimum_bytes: 0

    def answer(self, *reply: Any) -> None:
        assert self._runtime.egress[0].push(control_record(reply))

    def _turn(self) -> None:
        self._now_ns += 1000
        self._feeder.turn(self._now_ns, 0)

    def deliver(self, *deliveries: Delivery, durable_needed: int | None = None) -> None:
        record = deliveries_record(self.end if durable_needed is None else durable_needed, *deliveries)
        assert self._runtime.egress[0].push(record)


class FakeLoop:
    """Runs the callbacks that are due when the test calls it."""

    def __init__(self) -> None:
        self._ready: list[Callable[[], object]] = []

    def call_soon(self, function: Callable[..., object], *arguments: Any) -> None:
        self._ready.append(lambda: function(*arguments))

    call_soon_threadsafe = call_soon

    def call_later(self, delay_s: float, function: Callable[..., object], *arguments: Any) -> Any:
        return SimpleNamespace(cancel=lambda: None)

    def run(self) -> None:
        ready, self._ready = self._ready, []
        for function in ready:
            function()


@dataclass
class FakeSocket:
    """The event loop's end of a connection."""

    sent: bytearray = field(default_factory=bytearray)
    closed: bool = False

    def set_write_buffer_limits(self, high: int, low: int) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    def get_extra_info(self, name: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return 0

    def writelines(self, chunks: list[bytes]) -> None:
        for chunk in chunks:
            self.sent += chunk

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


class Client:
    """One client of the worker."""

    def __init__(self, stage: "Stage", name: str, user: str) -> None:
        self._stage = stage
        self.socket = FakeSocket()
        stage.worker._acceptor._count(1)
        self.connection = Connection(stage.worker, stage.worker._listeners["tcp"])
        transport: Any = self.socket
        self.connection.connection_made(transport)
        self._commands = 0
        answer = self.ask({"c": "logon", "client_name": name, "user_id": user, "a": "processed"})
        assert answer["status"] == "success", answer

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """Send one command without waiting."""
        data = frame(header, body)
        while data:
            buffer = self.connection.get_buffer(-1)
            count = min(len(data), len(buffer))
            buffer[:count] = data[:count]
            self.connection.buffer_updated(count)
            data = data[count:]

    def ask(self, header: Mapping[str, Any], body: bytes = b"") -> Message:
        """Send a command with one ack request and return that ack; it must be the next message."""
        self._commands += 1
        self.send({"c": header["c"], "cid": f"c{self._commands}", **header}, body)
        self._stage.settle()
        (answer,) = self.received()
        assert answer.is_ack(cid=f"c{self._commands}")
        return answer

    def received(self) -> list[Message]:
        """Return the messages received since the last call."""
        found = []
        data = bytes(self.socket.sent)
        self.socket.sent.clear()
        while data:
            length = int.from_bytes(data[:LENGTH_BYTES], "big")
            found.append(decode_payload(data[LENGTH_BYTES : LENGTH_BYTES + length]))
            data = data[LENGTH_BYTES + length :]
        return found

    def leave(self) -> None:
        self.connection.connection_lost(None)


class Stage:
    """A worker, its core and its clients."""

    def __init__(
        self,
        directory: Path,
        *queues: QueueConfig,
        topics: tuple[str, ...] = ("^T",),
        entitlement: ModuleUse | None = None,
    ) -> None:
        config = ServerConfig(
            "journal",
            "journal",
            transports=(TransportConfig("tcp", "tcp", message_type="json"),),
            transaction_log=TransactionLogConfig(
                directory, topics=tuple(LoggedTopic(topic, "json") for topic in topics)
            ),
            authentication=ModuleUse("amps-default-authentication-module", {"AllowSpoofing": "true"}),
            entitlement=entitlement,
            queues=queues,
        )
        self.logged: list[tuple[str, dict[str, Any]]] = []
        log: Any = SimpleNamespace(
            log=lambda record_id, **values: self.logged.append((record_id, values)),
            enabled=lambda level: False,
        )
        self._runtime = Runtime(1, queues=len(queues))
        self.core = ScriptedCore(self._runtime, directory)
        supervisor: Any = None
        self.worker = Worker(config, self._runtime, 0, log, supervisor, {})
        self.worker.queues._next_number = 0  # of the first subscription
        loop: Any = FakeLoop()
        self._loop = loop
        self.worker.loop = self.worker.turns._loop = loop
        self.worker.feeds._transient = LogDirectory(
            self.core.transient_prefix, ".journal", self.worker.topics.unrecorded_entry
        )
        self.settle()

    def close(self) -> None:
        """Close and remove everything."""
        self._runtime.directory.remove()

    def client(self, name: str, user: str = "") -> Client:
        """A client that is logged on."""
        return Client(self, name, user)

    def settle(self) -> None:
        """Let worker and core run until neither has work left."""
        rounds = ROUNDS
        while rounds:
            rounds = ROUNDS if self.worker.feeds._searches else rounds - 1
            self.worker.core.publish_pushed()
            self.core.step()
            self.worker.turns._turn()
            self._loop.run()

    def failures(self) -> list[str]:
        """The unexpected errors that the worker logged."""
        return [values["data"] for record_id, values in self.logged if record_id == "01-0005"]
