"""A stream's reader driven as Spark drives it, without Spark: offsets and partitions travel as bytes.

A `Query` has a checkpoint like that of Spark: the offset of a micro-batch is in it before the micro-batch is read.
`restart` starts a new driver on that checkpoint.
"""

import json
import pickle
from collections.abc import Sequence
from typing import Any

from amps.client import Client, MemoryPublishStore
from amps.spark.source import SCHEMA
from amps.spark.streaming import stream_reader
from amps.spark.streaming_options import stream_options
from amps.spark.streaming_reader import LogStreamReader

COLUMNS = tuple(SCHEMA)


class Query:
    """One streaming query over the format."""

    def __init__(self, columns: tuple[str, ...] = COLUMNS, **options: Any) -> None:
        self._given = {name: str(value) for name, value in options.items()}
        self._columns = columns
        self.offsets: list[str] = []
        """As JSON: the beginning of the first micro-batch, and the end of each one."""
        self.reader = self._make()

    def _make(self) -> LogStreamReader:
        return stream_reader(stream_options(self._given), self._columns)

    def __enter__(self) -> "Query":
        return self

    def __exit__(self, *exception: object) -> None:
        self.reader.stop()

    def restart(self, **options: Any) -> "Query":
        """Start a new driver, with the offsets of this one, and maybe other options."""
        self.reader.stop()
        self._given |= {name: str(value) for name, value in options.items()}
        self.reader = self._make()
        return self

    def begin(self) -> None:
        """Read the initial offset, unless there is one."""
        if not self.offsets:
            self.offsets.append(json.dumps(self.reader.initialOffset()))

    def plan(self, limited: bool = True) -> bool:
        """Plan the next micro-batch. Return False if there is none."""
        self.begin()
        limit = self.reader.getDefaultReadLimit() if limited else None
        end = json.dumps(self.reader.latestOffset(json.loads(self.offsets[-1]), limit))
        if end == self.offsets[-1]:
            return False
        self.offsets.append(end)
        return True

    def tasks(self, number: int = -1) -> list[list[dict[str, Any]]]:
        """The rows of a planned micro-batch, by task."""
        at = number if number >= 0 else len(self.offsets) + number - 1
        start, end = (json.loads(text) for text in self.offsets[at : at + 2])
        return [self._run(partition) for partition in self.reader.partitions(start, end)]

    def _run(self, partition: Any) -> list[dict[str, Any]]:
        reader, partition = pickle.loads(pickle.dumps((self._make(), partition)))
        rows: list[dict[str, Any]] = []
        for batch in reader.read(partition):
            batch.validate(full=True)
            rows += batch.to_pylist()
        return rows

    def batch(self) -> list[list[dict[str, Any]]] | None:
        """Plan and read the next micro-batch. Return None if there is none."""
        if not self.plan():
            return None
        tasks = self.tasks()
        self.reader.commit(json.loads(self.offsets[-1]))
        return tasks

    def all(self) -> list[list[bytes]]:
        """The payloads of each micro-batch, until there is none."""
        found = []
        while (tasks := self.batch()) is not None:
            found.append([row["payload"] for task in tasks for row in task])
        return found


def payloads(tasks: Sequence[Sequence[dict[str, Any]]]) -> list[bytes]:
    """The payloads of all tasks, in order."""
    return [row["payload"] for task in tasks for row in task]


def publish(uri: str, topic: str, bodies: Sequence[bytes], name: str = "publisher") -> None:
    """Publish messages, and wait until they are persisted."""
    store = MemoryPublishStore(max_bytes=1 << 30)
    with Client(name, uri, publish_store=store, timeout=30) as client:
        for body in bodies:
            client.publish(topic, body)
        client.publish_flush()


def numbered(first: int, end: int, size: int = 0) -> list[bytes]:
    """JSON messages `{"n": …}` of at least that number of bytes."""
    return [f'{{"n":{n}}}'.encode().ljust(size) for n in range(first, end)]
