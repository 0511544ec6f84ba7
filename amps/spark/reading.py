"""Reading one split on an executor: conversion of records to Arrow batches, and handling of damage.

Compiled code reads the records (`amps._core.columns.columns`); it stops at bytes that are not an intact record. This
module decides whether they are the end of the log, which may be torn in the newest file, or damage. Damage is an error
with file and offset, or it is skipped up to the next intact record, and counted.
"""

import functools
import gc
import json
import os
import uuid
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow

from amps._core.columns.columns import (
    COLUMNS,
    STOPPED_AT_DAMAGE,
    STOPPED_AT_END,
    STOPPED_FINISHED,
    RecordColumns,
    RecordRows,
)
from amps._core.journal.reader import RECORD_HEADER_SIZE, LogDamaged, LogUnreadable
from amps.spark.payload_fields import PayloadFields, rows_at_once
from amps.spark.planning import Split, open_wherever
from amps.spark.selection import Selection

DATA_COLUMN = "data"
JOURNAL_TYPES: Mapping[str, pyarrow.DataType] = {
    "position": pyarrow.int64(),
    "timestamp": pyarrow.timestamp("us", tz="UTC"),
    "bookmark": pyarrow.string(),
    "publisher": pyarrow.string(),
    "sequence": pyarrow.int64(),
    "topic": pyarrow.string(),
    "message_type": pyarrow.string(),
    "kind": pyarrow.string(),
    "expiration": pyarrow.timestamp("us", tz="UTC"),
    "payload": pyarrow.binary(),
}
"""The columns of the records of journals."""
ARROW_TYPES: Mapping[str, pyarrow.DataType] = {
    **JOURNAL_TYPES,
    "sow_key": pyarrow.string(),
    "txid": pyarrow.int64(),
    "correlation_id": pyarrow.string(),
}
BATCH_BYTES_MAX = 2 << 20
"""Limit of a batch that is sent to Spark: more than a few MiB is slower, because it exceeds the caches."""
PAYLOAD_BYTES_MAX = 8 << 20
"""Limit of the payloads of a batch of which only fields are sent."""


@dataclass(slots=True)
class Statistics:
    """Statistics of reading a split: what was read and what was skipped."""

    bytes_read: int = 0
    """The size of the records that were read."""
    records_read: int = 0
    rows: int = 0
    damaged_regions: int = 0
    damaged_bytes: int = 0
    unnamed_records: int = 0
    """The number of records whose topic is unknown because its topic record is damaged."""
    malformed_payloads: int = 0
    """The number of payloads of which no field could be read."""


@dataclass(frozen=True, slots=True)
class Request:
    """The parameters of a read, common to all splits."""

    selection: Selection
    columns: tuple[str, ...]
    """The columns, in their order in the rows; `data` is among them if fields of the payloads are read."""
    data_fields: tuple[Any, ...] | None
    """The fields of the column `data`, as `payload_schema.parse_ddl` returns them."""
    skips_damage: bool
    report: Path | None = None


def _number_of_reader(
    selection: Selection, fields: PayloadFields | None, topic: bytes, message_type: bytes
) -> int | None:
    """Return the number of the reader for a topic's payloads, None if its records are not selected.

    `RecordColumns` calls this function for each topic.
    """
    if not selection.wants_topic(topic, message_type):
        return None
    return 0 if fields is None else fields.number_of(message_type)


class SplitReader:
    """Reads one split, once. It is in no reference cycle: its file and buffers are released when the next reader
    replaces it, not when the garbage collector runs.
    """

    def __init__(self, split: Split, request: Request) -> None:
        self._split = split
        self._request = request
        wanted = {name for name in request.columns if name in COLUMNS}
        self._names_publishers = "publisher" in wanted
        self._rows = RecordRows(
            wanted,
            rows_at_once(request.data_fields),
            BATCH_BYTES_MAX if "payload" in wanted else PAYLOAD_BYTES_MAX,
        )
        self._fields = None if request.data_fields is None else PayloadFields(self._rows, request.data_fields)
        selection = request.selection
        self._records = RecordColumns(
            self._rows,
            functools.partial(_number_of_reader, selection, self._fields),
            selection.kinds,
            selection.first_position,
            selection.end_position,
            selection.first_time_us,
            selection.last_time_us,
            request.skips_damage and not selection.names_topics,
        )
        self.statistics = Statistics()

    def batches(self) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows, in the order of the log. Raises LogDamaged, OSError."""
        spare_the_collector()
        try:
            self._open()
        except LogUnreadable:
            raise
        except LogDamaged as damage:
            # If earlier topic records cannot be read, the file is read with those in the range. Without a header
            # it cannot be read.
            self._damaged(damage, 0)
            if self._records.file is None:
                self._tell()
                return
        for first, end in self._split.ranges:
            self._records.seek(first, end)
            while self._advance():
                yield self._batch()
        if self._rows.rows:
            yield self._batch()
        self._tell()

    def _open(self) -> None:
        split = self._split
        file = open_wherever(split.directory, split.archive, split.instance, split.number)
        last_name_offset = split.last_name_offset if self._names_publishers else 0
        self._records.open(file, split.topics, split.last_topic_offset, last_name_offset)

    def _advance(self) -> bool:
        """Read on; return True if a batch is full, False at the end of the range. Raises LogDamaged."""
        records = self._records
        while True:
            found: LogDamaged | None = None
            try:
                stop = records.advance()
            except LogUnreadable:
                raise
            except LogDamaged as damage:
                found, stop = damage, STOPPED_AT_DAMAGE
            if stop == STOPPED_FINISHED:
                return False
            if stop == STOPPED_AT_END:
                if not self._lacks_end():
                    return False
                found = self._damage("the end-of-file record is missing")
            elif stop != STOPPED_AT_DAMAGE:
                return True
            elif self._is_torn_end():
                return False
            self._skip(found or self._damage("no intact record where one must be"))

    def _lacks_end(self) -> bool:
        """Whether the records ended without an end-of-file record although there must be one."""
        records = self._records
        return self._split.to_end and not self._split.is_newest and records.offset < records.file.size

    def _damage(self, detail: str) -> LogDamaged:
        return LogDamaged(str(self._records.file.path), self._records.offset, detail)

    def _is_torn_end(self) -> bool:
        """Whether the bytes that are not an intact record are the end of the log: later bytes were never acknowledged.

        Without a watermark file, the records determine the end: each contains the watermark of its time.
        """
        split, records = self._split, self._records
        if not split.is_newest or split.durable_offset or not split.to_end:
            return False
        offset, file = records.offset, records.file
        end = file.start_position + offset
        if any(file.read(offset, min(RECORD_HEADER_SIZE, file.size - offset))):
            while records.durable_position <= end and records.search():
                pass
        torn = records.durable_position <= end
        records.seek(offset, records.end)
        return torn

    def _skip(self, damage: LogDamaged) -> None:
        """Continue at the next intact record. Raises LogDamaged unless damage is skipped."""
        records = self._records
        offset = records.offset
        records.search()
        self._damaged(damage, min(records.offset, records.end) - offset)

    def _damaged(self, damage: LogDamaged, size: int) -> None:
        if not self._request.skips_damage:
            raise damage
        self.statistics.damaged_regions += 1
        self.statistics.damaged_bytes += size
        warnings.warn(f"{damage}; {size} bytes are skipped", RuntimeWarning, stacklevel=2)

    def _batch(self) -> pyarrow.RecordBatch:
        self.statistics.rows += self._rows.rows
        return batch_of(self._request.columns, self._rows, self._fields)

    def _tell(self) -> None:
        """Complete the statistics, and write a report if one is requested. Raises OSError."""
        statistics, records = self.statistics, self._records
        statistics.bytes_read = records.bytes_read
        statistics.records_read = records.records_read
        if not self._split.topics:  # else records of other topics are unnamed on purpose
            statistics.unnamed_records = records.unnamed_records
        if self._fields is not None:
            statistics.malformed_payloads = self._fields.malformed
        if self._request.report is not None:
            write_report(self._request.report, f"{self._split.number:010d}", statistics)


def batch_of(
    columns: tuple[str, ...], records: RecordRows, fields: PayloadFields | None
) -> pyarrow.RecordBatch:
    """Take the rows that were read, as a batch of these columns."""
    data = fields.take() if fields is not None else None
    rows, buffers = records.take()
    arrays: list[Any] = []
    for name in columns:
        if name == DATA_COLUMN:
            arrays.append(data)
            continue
        validity, offsets, values = buffers[name]
        parts = [validity, values] if offsets is None else [validity, offsets, values]
        arrays.append(
            pyarrow.Array.from_buffers(
                ARROW_TYPES[name],
                rows,
                [None if part is None else pyarrow.py_buffer(part) for part in parts],
            )
        )
    return pyarrow.RecordBatch.from_arrays(arrays, names=list(columns))


@functools.cache
def spare_the_collector() -> None:
    """Exclude the existing objects of the process from garbage collection; called before its first read.

    Spark's workers collect garbage after every task. With all imported modules this takes up to 100 ms, as long
    as reading 100,000 messages.
    """
    gc.freeze()


def skipped_in_planning(damages: list[LogDamaged], report: Path | None) -> None:
    """Count and warn about the damage that a plan skipped. Raises OSError."""
    for damage in damages:
        warnings.warn(f"{damage}; it is skipped", RuntimeWarning, stacklevel=2)
    if report is not None and damages:
        write_report(report, "plan", Statistics(damaged_regions=len(damages)))


def write_report(directory: Path, name: str, statistics: Statistics) -> None:
    """Write a file with the statistics. It is renamed to its final name last, so readers see only complete files."""
    path = directory / f"{name}.{uuid.uuid4().hex}.json"
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps(asdict(statistics)))
    os.replace(unfinished, path)
