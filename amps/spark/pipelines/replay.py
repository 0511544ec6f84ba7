"""Publishing the messages of an archive or of journals again: in the order of the log, at its pace or faster.

    replay.run(spark, ReplayOptions(Path("parquet"), "tcp://localhost:9007/amps/json", speed=60), Silent())

- **Messages**: records of the kinds `publish` and `delta_publish`, each with its kind, of one message type, the one
  of the connection. Deletes, records of queues, and messages of other types are counted and left out, because they are
  the history of another server. An expiration keeps its length. Correlation ids and SOW keys are not among the
  columns of a read, and so are not replayed.
- **Order**: with one stream, the default, it is the order of the log, over all topics: one task publishes all messages
  under one publisher. With more streams, the messages of each topic are in one stream and keep their order; the order
  between topics is lost. Paced replays have one stream, because tasks do not start at the same time.
- **Pace**: `speed` 1 follows the times of the log, 60 replays a minute each second, None is limited by acknowledgements
  only.
- **Once**: publishers and sequence numbers depend on `client_name` and `run_id`, and the server drops messages that it
  has. A replay that is repeated with the same two, the same source and the same options adds the missing messages. It
  compares the others with the server's log, so another source under the same `run_id` is refused. Journals may have
  grown meanwhile.
"""

import contextlib
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from amps._core.journal.reader import LogDamaged
from amps.client.uri import parse_uri
from amps.spark.options import SPLIT_BYTES
from amps.spark.pipelines.job import PipelineError, Progress
from amps.spark.pipelines.replay_source import Source, open_source
from amps.spark.pipelines.replay_tasks import StreamTask, publish_stream
from amps.spark.pipelines.tasks import TaskCounts, run_tasks
from amps.spark.writing_errors import WriteError
from amps.spark.writing_options import WriteOptions, parse_options
from amps.spark.writing_tasks import WrittenPartition, check_partitions, check_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_CLIENT_NAME = "replay"


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The options of a replay: source, destination and pace."""

    source: Path
    """An archive that `archive` has written, or a JournalDirectory."""
    uri: str
    """Connection string with the message type of the messages, `tcp://host:port/amps/json`."""
    topic: str | None = None
    """Only this topic; an expression if it has regex characters."""
    first: str | None = None
    """A bookmark or a time; with `[` before it, its message is replayed, too; see `amps.spark.options`."""
    last: str | None = None
    to_topic: str | None = None
    """Topic for all messages; None: each message keeps its topic."""
    to_prefix: str = ""
    """Prefix for the topic of each message."""
    speed: float | None = 1.0
    """Pace as a multiple of the log's; None: limited by acknowledgements only."""
    streams: int = 1
    client_name: str = DEFAULT_CLIENT_NAME
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    archive: Path | None = None
    """The JournalArchiveDirectory of journals, if there is one."""
    instance: str | None = None
    """The instance, if a directory contains journals of several instances."""
    allow_unrecorded: bool = False
    """Allow topics that no transaction log records; messages may then be lost or published twice."""
    timeout_s: float = 60.0
    """Seconds without any progress after which the replay fails."""
    split_bytes: int = SPLIT_BYTES
    """Approximate number of bytes of the journals that a task holds in memory."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay."""

    run_id: str
    rows: int
    """The number of messages that are persisted now."""
    found: int
    """The number of them that an earlier run had published."""
    left_out: dict[str, int]
    """The number of rows that are not replayed, by a description of their kind."""


def plan(options: ReplayOptions) -> Source:
    """Return the source of a run. Changes nothing; needs neither Spark nor a server. Raises PipelineError."""
    with _told():
        _write_options(options)
        return _source(options)


def run(spark: "SparkSession", options: ReplayOptions, progress: Progress) -> ReplayResult:
    """Run the replay. Raises PipelineError."""
    with _told():
        write, message_type = _write_options(options)
        source = _source(options)
        check_server(write)
        progress.say(f"run id: {write.run_id}")
        progress.stage("replaying", source.rows_max)
        with TaskCounts(spark, progress) as counts:
            tasks = [
                StreamTask(
                    pieces=source.pieces,
                    stream=stream,
                    streams=options.streams,
                    write=write,
                    message_type=message_type,
                    topic_prefix=options.to_prefix,
                    speed=options.speed,
                    address=counts.address,
                )
                for stream in range(options.streams)
            ]
            done = run_tasks(spark, publish_stream, tasks)
        check_partitions(
            write, [WrittenPartition(stream.numbering, stream.rows, stream.found) for stream in done]
        )
    left_out: Counter[str] = Counter()
    for stream in done:
        left_out.update(stream.left_out)
    return ReplayResult(
        run_id=write.run_id,
        rows=sum(stream.rows for stream in done),
        found=sum(stream.found for stream in done),
        left_out=dict(sorted(left_out.items())),
    )


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Convert the exceptions of reading and writing to PipelineError."""
    try:
        yield
    except LogDamaged as damage:
        raise PipelineError(f"{damage}; run 'amps journal verify'") from damage
    except (OSError, ValueError, WriteError) as error:
        raise PipelineError(str(error)) from error


def _source(options: ReplayOptions) -> Source:
    return open_source(
        options.source,
        topic=options.topic,
        first=options.first,
        last=options.last,
        archive=options.archive,
        instance=options.instance,
        split_bytes=options.split_bytes,
    )


def _write_options(options: ReplayOptions) -> tuple[WriteOptions, str]:
    """Check the options; return those of the write and the message type. Raises PipelineError, WriteOptionError."""
    if options.streams < 1:
        raise PipelineError("there must be at least one stream")
    if options.streams > 1 and options.speed is not None:
        raise PipelineError(
            "a paced replay has one stream: leave out the number of streams, or replay without a pace (pace max)"
        )
    if options.to_topic is not None and options.to_prefix:
        raise PipelineError("give one topic for everything or a prefix for all topics, not both")
    given = {
        "uri": options.uri,
        "client_name": options.client_name,
        "run_id": options.run_id,
        "timeout_s": str(options.timeout_s),
        "unrecorded": "allow" if options.allow_unrecorded else "refuse",
    }
    if options.to_topic is not None:
        given["topic"] = options.to_topic
    write = parse_options(given, streaming=False)
    message_type = parse_uri(write.uri).message_type
    if message_type is None:
        raise PipelineError(
            f"the URI {parse_uri(write.uri).safe_text} names no message type: put it at its end, as in "
            "tcp://host:port/amps/json"
        )
    return write, message_type
