"""The column `data`: fields of the payloads as a struct, each payload read by the reader of its message type.

`amps._core.columns.columns` reads payloads, and `amps.spark.payload_schema` defines the possible schemas. This
module combines rows of several message types in one batch to one array, in the order of the log.
A payload whose message type has no fields (such as binary) is a row without data.
"""

from typing import Any

import numpy
import pyarrow

from amps._core.columns.columns import MESSAGE_TYPES, FieldColumns, RecordRows, arrow_type_of

ROWS_MAX = 16384
CELL_BYTES_MAX = 32 << 20
"""Limit of a batch, without texts and elements: a row takes room in every column, with or without a value."""
OFFSET_BYTES = 4


def rows_at_once(fields: tuple[Any, ...] | None) -> int:
    """Return the maximum number of rows of a batch with these fields of payloads; it is lower for very many fields."""
    if fields is None:
        return ROWS_MAX
    return min(ROWS_MAX, max(1, CELL_BYTES_MAX // max(1, _cell_bytes(arrow_type_of(("struct", fields))))))


def _cell_bytes(of: pyarrow.DataType) -> int:
    """Return the bytes that one row takes in the columns with a value per row."""
    if pyarrow.types.is_struct(of):
        return sum(_cell_bytes(of.field(number).type) for number in range(of.num_fields))
    if pyarrow.types.is_primitive(of) or pyarrow.types.is_decimal(of):
        return max(int(of.bit_width) // 8, 1)
    return OFFSET_BYTES


class PayloadFields:
    """The readers of one task: they read the fields from `parse_ddl` in the payloads of rows."""

    def __init__(self, rows: RecordRows, fields: tuple[Any, ...]) -> None:
        self._rows = rows
        self._fields = fields
        self._arrow_type = arrow_type_of(("struct", fields))
        self._numbers: dict[bytes, int] = {}
        self._readers: list[FieldColumns] = []

    @property
    def malformed(self) -> int:
        """The number of payloads that could not be read at all; their rows have no data."""
        return sum(reader.malformed for reader in self._readers)

    def number_of(self, message_type: bytes) -> int:
        """Return the number of the reader for payloads of a message type; 0: there is none."""
        number = self._numbers.get(message_type)
        if number is None:
            name = message_type.decode(errors="replace")
            number = 0
            if name in MESSAGE_TYPES:
                reader = FieldColumns(name, self._fields)
                self._readers.append(reader)
                number = self._rows.add_reader(reader)
            self._numbers[message_type] = number
        return number

    def take(self) -> pyarrow.Array:
        """Return the data of the batch; its rows must be taken afterwards."""
        if not self._readers:
            return pyarrow.nulls(self._rows.rows, self._arrow_type)
        memory = self._rows.places()
        arrays = [reader.finish() for reader in self._readers]
        if memory is None:
            return arrays[0]
        places = numpy.frombuffer(memoryview(memory), "<i4")
        return pyarrow.concat_arrays(arrays).take(pyarrow.array(places, mask=places < 0))
