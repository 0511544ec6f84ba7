"""The task of a replay: it publishes the rows of one stream, in the order of the log, at their pace.

Rows are published as by `spark.write` (`amps.spark.writing_publisher`): publisher and sequence numbers do not depend on
how often the task runs, so each row is published once. Rows that the server has from an earlier run are compared with
its log and skipped without waiting for their time.

Pace: the first row that is published sets the clock. Each other row is due after the difference of their times in the
log, divided by the speed. A late row is published at once. Times in a log never go back by much; a row with an earlier
time is published at once.
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
"""Kinds of records that are replayed: the records of messages."""
SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class StreamTask:
    """One stream of a replay."""

    pieces: tuple[Piece, ...]
    stream: int
    streams: int
    """The number of streams; all rows of a topic are in one of them."""
    write: WriteOptions
    message_type: str
    topic_prefix: str
    """Prefix for the topics; `write.topic`, if set, replaces them."""
    speed: float | None
    """Pace as a multiple of the log's; None: no pace."""
    address: Address | None = None
    """Address of the counter for rows."""


@dataclass(frozen=True, slots=True)
class StreamDone:
    """The result of a stream."""

    numbering: Numbering
    rows: int
    """The number of rows, all persisted now."""
    found: int
    """The number of them that an earlier run had published."""
    left_out: dict[str, int] = field(default_factory=dict)
    """The number of rows that are not replayed, by a description of their kind."""


class Pacer:
    """Waits until rows are due."""

    def __init__(self, speed: float | None) -> None:
        self._speed = speed
        self._begin: tuple[float, int] | None = None
        self.time_us = 0
        """The time of the next row in the log, in microseconds."""

    def wait(self) -> None:
        """Wait until the next row is due."""
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
    """Yield the messages of a stream; set the pacer's time before each."""
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
    """Return the number of the stream with the rows of a topic."""
    return zlib.crc32((topic or "").encode()) % streams
