"""The state of a SOW topic as a DataFrame: a row for each key, from files alone (options: `amps.spark.sow_options`).

Planning reads the log once, in compiled code, and finds the place of each key's newest record. The places are divided
among the tasks, each of which reads its records only. So the log is not read once per task, and the order of the places
is that in which the disk is read. A task of values in the value file finds them also if they have moved meanwhile.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pyarrow
from numpy.typing import NDArray
from pyspark.sql.datasource import DataSourceReader, InputPartition

from amps._core.columns.columns import COLUMNS, STATE_COLUMNS, PlacedRecords, RecordRows
from amps.journal.names import instance_names
from amps.journal.sow_state import FileState, ValueRecords, read_state
from amps.journal.value_file import LogPlace
from amps.spark.payload_fields import PayloadFields, rows_at_once
from amps.spark.payload_schema import parse_ddl
from amps.spark.planning import open_wherever
from amps.spark.reading import BATCH_BYTES_MAX, DATA_COLUMN, PAYLOAD_BYTES_MAX, batch_of, spare_the_collector
from amps.spark.sow_options import SowOptions
from amps.spark.task_sizes import TASKS_PER_CORE, parallelism

VALUES_OF_TASK_MIN = 50_000
"""A task has an overhead of 10 to 30 ms: as much as reading about this many values."""


@dataclass(frozen=True, slots=True)
class Values:
    """Values of one task in one file, by ascending places. `number`: of the journal; None: the value file."""

    number: int | None
    keys: NDArray[numpy.uint64]
    txids: NDArray[numpy.uint64]
    places: NDArray[numpy.uint64]
    """Log positions, or places in the value file."""
    topics: NDArray[numpy.uint32]


class SowPartition(InputPartition):  # type: ignore[misc, unused-ignore]
    """The values of one task, and what is needed to read them."""

    def __init__(
        self, number: int, values: list[Values], state: FileState, publishers: Mapping[int, bytes]
    ) -> None:
        super().__init__(number)
        self.values = values
        self.names = state.names
        self.message_type = state.message_type
        self.publishers = publishers
        self.log = state.log
        self.value_file = state.value_file


def log_of(options: SowOptions) -> LogPlace | None:
    """Return the log that the options name; None: that of the value file. Raises ValueError, OSError."""
    if options.path is None:
        return None
    names = instance_names(options.path, options.archive)
    if options.instance is not None:
        if options.instance not in names:
            raise ValueError(f"there are no journals of the instance {options.instance!r} in {options.path}")
        return LogPlace(options.instance, options.path, options.archive)
    if len(names) > 1:
        raise ValueError(
            f"there are journals of several instances in {options.path}: choose one by the option 'instance', of "
            + ", ".join(names)
        )
    if not names:
        raise ValueError(f"there are no journals in {options.path}")
    return LogPlace(names[0], options.path, options.archive)


def values_of_tasks(state: FileState, tasks: int) -> list[list[Values]]:
    """Divide the values among so many tasks, in the order of their places."""
    count = len(state.keys)
    files = [(header.number, first, end) for header, first, end in state.journal_ranges()]
    parts: list[tuple[int | None, int, int]] = [*files, (None, state.in_journals, count)]
    found = []
    for task in range(tasks):
        first, end = task * count // tasks, (task + 1) * count // tasks
        values = []
        for number, begin, behind in parts:
            cut = slice(max(first, begin), min(end, behind))
            if cut.start < cut.stop:
                values.append(
                    Values(number, state.keys[cut], state.txids[cut], state.places[cut], state.topics[cut])
                )
        if values:
            found.append(values)
    return found


class SowReader(DataSourceReader):  # type: ignore[misc, unused-ignore]
    """Plans and reads. Spark pickles it before planning, so the plan is only in the partitions."""

    def __init__(self, options: SowOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Read the log, and return a partition per task. Raises ValueError, LogDamaged, OSError."""
        options = self._options
        state = read_state(
            options.topic, log_of(options), options.sow_file, options.moment, options.message_type
        )
        tasks = options.partitions
        if tasks is None:
            most = -(-len(state.keys) // VALUES_OF_TASK_MIN)
            tasks = max(1, min(most, TASKS_PER_CORE * parallelism(os.environ)))
        publishers = state.publishers if "publisher" in self._columns else {}
        return [
            SowPartition(number, values, state, publishers)
            for number, values in enumerate(values_of_tasks(state, tasks))
        ]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Return the rows of a task. Raises LogDamaged, StateUnknown, OSError."""
        if not isinstance(partition, SowPartition):
            return iter(())  # Spark's argument if there are no partitions
        spare_the_collector()
        fields = None
        if self._options.schema is not None and DATA_COLUMN in self._columns:
            fields = parse_ddl(self._options.schema)
        return _TaskReader(partition, self._columns, fields).batches()


class _TaskReader:
    def __init__(
        self, partition: SowPartition, columns: tuple[str, ...], fields: tuple[Any, ...] | None
    ) -> None:
        self._partition = partition
        self._columns = columns
        wanted = {name for name in columns if name in (*COLUMNS, *STATE_COLUMNS)}
        self._rows = RecordRows(
            wanted, rows_at_once(fields), BATCH_BYTES_MAX if "payload" in wanted else PAYLOAD_BYTES_MAX
        )
        self._fields = None if fields is None else PayloadFields(self._rows, fields)
        message_type = partition.message_type.encode("utf-8", "surrogatepass")
        number = 0 if self._fields is None else self._fields.number_of(message_type)
        topics = [
            (name.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode(), message_type, number)
            for name in partition.names
        ]
        self._records = PlacedRecords(self._rows, topics, partition.publishers)

    def batches(self) -> Iterator[pyarrow.RecordBatch]:
        for values in self._partition.values:
            yield from self._in_value_file(values) if values.number is None else self._in_journal(values)
        if self._rows.rows:
            yield self._batch()

    def _in_journal(self, values: Values) -> Iterator[pyarrow.RecordBatch]:
        log = self._partition.log
        assert log is not None
        assert values.number is not None
        file = open_wherever(log.directory, log.archive, log.instance, values.number)
        offsets = values.places - numpy.uint64(file.start_position)
        at = 0
        while at < len(offsets):
            at = self._records.add_from_file(file, offsets, values.topics, values.txids, at)
            if at < len(offsets):
                yield self._batch()

    def _in_value_file(self, values: Values) -> Iterator[pyarrow.RecordBatch]:
        path: Path | None = self._partition.value_file
        assert path is not None
        records = ValueRecords(path)
        for key, txid, place, topic in zip(
            values.keys.tolist(),
            values.txids.tolist(),
            values.places.tolist(),
            values.topics.tolist(),
            strict=True,
        ):
            record = records.record(key, txid, place)
            if record is not None and not self._records.add_record(record, topic):
                yield self._batch()
                self._records.add_record(record, topic)

    def _batch(self) -> pyarrow.RecordBatch:
        return batch_of(self._columns, self._rows, self._fields)
