"""What a task of a replay does: publish the rows of one stream, in the order of the log, at their pace.

Publishing is that of `spark.write` (`amps.spark.writing_publisher`): a publisher and numbers that do not depend on how
often the task runs, so that each row is published once. Rows that the server has from an earlier run are compared with
it, and passed over without waiting for their time.

Pace: the first row that is published sets the clock, and each other one is due as long after it as the log's times say,
divided by the speed. What is late is published at once. Times in a log never go back by much; if they do, there is
nothing to wait for.
"""

import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from amps.spark.pipelines.replay_source import Piece
from amps.spark.pipelines.tasks import Address, Teller
from amps.spark.writing_numbers import Numbering
from amps.spark.writing_options import WriteOptions
from amps.spark.writing_publisher import PartitionPublisher
from amps.spark.writing_rows import MessageRow

DELTA = "delta_publish"
PUBLISHES = frozenset({"publish", DELTA})
"""Kinds of records that are replayed: those that hold a message."""
SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class StreamTask:
    """One stream of a replay."""

    pieces: tuple[Piece, ...]
    stream: int
    streams: int
    """A topic's rows are all in one of so many."""
    write: WriteOptions
    message_type: str
    topic_prefix: str
    """Before the topics; `write.topic` stands in their place."""
    speed: float | None
    """How many times faster than the log was written; None: as fast as it goes."""
    address: Address | None = None
    """Of who counts rows."""


@dataclass(frozen=True, slots=True)
class StreamDone:
    """What a stream has done."""

    numbering: Numbering
    rows: int
    """All of them are persisted now."""
    found: int
    """How many of them an earlier run had published."""
    left_out: dict[str, int] = field(default_factory=dict)
    """How many rows were not to be published, by what they are."""


class Pacer:
    """Waits until rows are due."""

    def __init__(self, speed: float | None) -> None:
        self._speed = speed
        self._begin: tuple[float, int] | None = None
        self.time_us = 0
        """Of the row that comes next."""

    def wait(self) -> None:
        """Return when that row is due."""
        if self._speed is None:
            return
        now = time.monotonic()
        if self._begin is None:
            self._begin = now, self.time_us
        began, first_us = self._begin
        pause_s = began + (self.time_us - first_us) / SECOND_US / self._speed - now
        if pause_s > 0:
            time.sleep(pause_s)


def publish_stream(task: StreamTask) -> StreamDone:
    """Publish the rows of a stream that the server does not have. Raises WriteError, LogDamaged, OSError."""
    pacer = Pacer(task.speed)
    left_out: Counter[str] = Counter()
    numbering = task.write.batch_numbering(task.stream)
    with (
        Teller(task.address) as teller,
        PartitionPublisher(task.write, numbering, pacer.wait) as publisher,
    ):
        written = publisher.publish_all(_rows(task, pacer, teller, left_out))
    return StreamDone(numbering, written.rows, written.found, dict(left_out))


def _rows(task: StreamTask, pacer: Pacer, teller: Teller, left_out: Counter[str]) -> Iterator[MessageRow]:
    """The messages of a stream. Before each of them the pacer knows its time."""
    streams: dict[str | None, int] = {}
    for piece in task.pieces:
        for batch in piece.batches():
            _, times, topics, message_types, kinds, expirations, payloads = batch.columns
            for time_us, topic, message_type, kind, expires_us, payload in zip(
                times.cast("int64").to_pylist(),
                topics.to_pylist(),
                message_types.to_pylist(),
                kinds.to_pylist(),
                expirations.cast("int64").to_pylist(),
                payloads.to_pylist(),
                strict=True,
            ):
                stream = streams.get(topic)
                if stream is None:
                    stream = streams[topic] = stream_of(topic, task.streams)
                if stream != task.stream:
                    continue
                if kind not in PUBLISHES:
                    left_out[kind] += 1
                    continue
                if message_type != task.message_type:
                    left_out[f"{kind} of message type {message_type}"] += 1
                    continue
                pacer.time_us = time_us
                yield MessageRow(
                    task.write.topic if task.write.topic is not None else task.topic_prefix + topic,
                    payload,
                    None if expires_us is None else (expires_us - time_us) // SECOND_US,
                    None,
                    None,
                    delta=kind == DELTA,
                )
                teller.advance()


def stream_of(topic: str | None, streams: int) -> int:
    """In which of the streams the rows of a topic are."""
    return zlib.crc32((topic or "").encode()) % streams
