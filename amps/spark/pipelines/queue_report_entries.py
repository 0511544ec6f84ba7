"""Conversion of queue records to rows, in Spark's Python workers: one row per message that has left a queue.

The payload of an acknowledgement or expiry record is a header and entries, all of 32 bytes (docs/queues.md). So the
payloads of a whole Arrow batch form an array of 32-byte items, some of which are headers. They are processed together,
not record by record.
"""

from collections.abc import Iterator
from typing import Any

import numpy
import pyarrow

from amps.spark.pipelines.queue_report_rules import EntryRule

ITEM_BYTES = 32
DELAYED_RETURN = 6
"""The action of a record of messages that were cancelled with a delay: they stay in their queue."""
HEADER = numpy.dtype([("action", "<u4"), ("count", "<u4"), ("unused", "V24")])
ENTRY = numpy.dtype(
    [
        ("publisher_id", "<u8"),
        ("sequence", "<u8"),
        ("position", "<u8"),
        ("deliveries", "<u4"),
        ("reasons", "<u4"),
    ]
)
RECORD_COLUMNS = ("position", "timestamp", "publisher", "topic", "message_type", "payload")
"""The columns that `left` needs; `timestamp` is in microseconds and has the name `us`."""
LEFT_SCHEMA = (
    "queue string, message_type string, position long, left_position long, left_us long, action int, reasons int, "
    "deliveries int, consumer string"
)
PUBLISHED_SCHEMA = "position long, entered_us long, queues array<int>"


def left(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Yield the entries of records (LEFT_SCHEMA). `position` is the one of the message, 0 if it was not recorded yet.

    Raises ValueError for a record whose entries do not add up to its length.
    """
    for batch in batches:
        if batch.num_rows:
            yield _entries(batch)


def _entries(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    payloads = batch.column("payload").cast(pyarrow.binary())
    offsets = numpy.frombuffer(payloads.buffers()[1], "<i4")[
        payloads.offset : payloads.offset + len(payloads) + 1
    ].astype(numpy.int64)
    lengths = numpy.diff(offsets)
    positions = batch.column("position").to_numpy()
    whole = (lengths >= ITEM_BYTES) & (lengths % ITEM_BYTES == 0)
    if not whole.all():
        raise _malformed(positions[~whole][0])
    items = payloads.buffers()[2][int(offsets[0]) : int(offsets[-1])]
    starts = (offsets[:-1] - offsets[0]) // ITEM_BYTES
    headers = numpy.frombuffer(items, HEADER)[starts]
    counts = lengths // ITEM_BYTES - 1
    if (headers["count"] != counts).any():
        raise _malformed(positions[headers["count"] != counts][0])
    is_entry = numpy.ones(len(items) // ITEM_BYTES, bool)
    is_entry[starts] = False
    entries = numpy.frombuffer(items, ENTRY)[is_entry]
    record = numpy.repeat(numpy.arange(len(payloads)), counts)
    leaves = headers["action"][record] != DELAYED_RETURN
    entries, record = entries[leaves], record[leaves]

    def of_record(name: str) -> Any:
        return batch.column(name).take(pyarrow.array(record))

    columns = {
        "queue": of_record("topic"),
        "message_type": of_record("message_type"),
        "position": pyarrow.array(entries["position"].astype(numpy.int64)),
        "left_position": of_record("position"),
        "left_us": of_record("us"),
        "action": pyarrow.array(headers["action"].astype(numpy.int32)[record]),
        "reasons": pyarrow.array(entries["reasons"].astype(numpy.int32)),
        "deliveries": pyarrow.array(entries["deliveries"].astype(numpy.int32)),
        "consumer": of_record("publisher"),
    }
    return pyarrow.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _malformed(position: int) -> ValueError:
    return ValueError(
        f"the queue record at log position {position} is malformed: its entries do not add up to its length; "
        "run 'amps journal verify'"
    )


def published(
    rules: tuple[EntryRule, ...], batches: Iterator[pyarrow.RecordBatch]
) -> Iterator[pyarrow.RecordBatch]:
    """Yield messages (PUBLISHED_SCHEMA), each with the numbers of the entry rules that it matches."""
    known: dict[tuple[str, str], list[int]] = {}

    def queues(topic: str, message_type: str) -> list[int]:
        found = known.get((topic, message_type))
        if found is None:
            found = [number for number, rule in enumerate(rules) if rule.takes(topic, message_type)]
            known[topic, message_type] = found
        return found

    for batch in batches:
        if not batch.num_rows:
            continue
        topics, types = (
            batch.column(name).fill_null("").dictionary_encode() for name in ("topic", "message_type")
        )
        # There are few different pairs; the rules are applied once to each.
        pairs, places = numpy.unique(
            topics.indices.to_numpy().astype(numpy.int64) * len(types.dictionary) + types.indices.to_numpy(),
            return_inverse=True,
        )
        lists = [
            queues(topics.dictionary[topic].as_py(), types.dictionary[of_type].as_py())
            for topic, of_type in (divmod(int(pair), len(types.dictionary)) for pair in pairs)
        ]
        columns = {
            "position": batch.column("position"),
            "entered_us": batch.column("us"),
            "queues": pyarrow.array(lists, pyarrow.list_(pyarrow.int32())).take(pyarrow.array(places)),
        }
        yield pyarrow.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
