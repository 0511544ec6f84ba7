"""Conversion of a live server's messages to Arrow batches with the columns of a batch read.

Values that the protocol does not carry are null: position, publisher, expiration (`amps.spark.streaming_options`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import pyarrow

from amps._core.columns.columns import MESSAGE_TYPES, FieldColumns, arrow_type_of
from amps.client import Message
from amps.spark.payload_fields import rows_at_once
from amps.spark.reading import ARROW_TYPES, BATCH_BYTES_MAX, DATA_COLUMN

_SEQUENCE_MAX = 2**63 - 1
"""Maximum value of the column; larger sequences are null, as in a batch read."""


def _sequence(message: Message) -> int | None:
    number = int((message.bookmark or "").split("|")[1])
    return number if number <= _SEQUENCE_MAX else None


def _timestamp(message: Message) -> datetime | None:
    return None if message.timestamp is None else datetime.fromisoformat(message.timestamp)


_VALUES: Mapping[str, Callable[[Message], Any]] = {
    "timestamp": _timestamp,
    "bookmark": lambda message: message.bookmark,
    "sequence": _sequence,
    "topic": lambda message: message.topic,
    "payload": lambda message: message.data,
}


class MessageRows:
    """Builds batches of these columns, in this order. `fields`: the fields of `data`, as `parse_ddl` returns them."""

    def __init__(
        self, columns: tuple[str, ...], message_type: str | None, fields: tuple[Any, ...] | None
    ) -> None:
        self._columns = columns
        self._rows_max = rows_at_once(fields)
        self._constants = {"kind": "publish", "message_type": message_type}
        self._reader: FieldColumns | None = None
        self._data_type: pyarrow.DataType | None = None
        if fields is not None:
            self._data_type = arrow_type_of(("struct", fields))
            if message_type in MESSAGE_TYPES:
                self._reader = FieldColumns(message_type, fields)

    def batches(self, chunks: Iterable[list[Message]]) -> Iterator[pyarrow.RecordBatch]:
        """Yield batches of all messages, in order; rows and, except for the last message, bytes of each are bounded."""
        held: list[Message] = []
        size = 0
        for chunk in chunks:
            for message in chunk:
                held.append(message)
                size += len(message.view)
                if len(held) >= self._rows_max or size >= BATCH_BYTES_MAX:
                    yield self._batch(held)
                    held, size = [], 0
        if held:
            yield self._batch(held)

    def _batch(self, messages: list[Message]) -> pyarrow.RecordBatch:
        return pyarrow.RecordBatch.from_arrays(
            [self._column(name, messages) for name in self._columns], names=list(self._columns)
        )

    def _column(self, name: str, messages: list[Message]) -> pyarrow.Array:
        if name == DATA_COLUMN:
            return self._data(messages)
        kind = ARROW_TYPES[name]
        value_of = _VALUES.get(name)
        if value_of is not None:
            return pyarrow.array(map(value_of, messages), kind, size=len(messages))
        constant = self._constants.get(name)
        if constant is None:
            return pyarrow.nulls(len(messages), kind)
        return pyarrow.repeat(pyarrow.scalar(constant, kind), len(messages))

    def _data(self, messages: list[Message]) -> pyarrow.Array:
        if self._reader is None:
            return pyarrow.nulls(len(messages), self._data_type)
        for message in messages:
            self._reader.add_payload(message.data)
        return self._reader.finish()
