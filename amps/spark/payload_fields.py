"""The column `data`: fields of the payloads as a struct, each payload read by the reader of its message type.

How a payload is read, and what a schema may hold, is the business of `amps._core.columns.columns` and
`amps.spark.payload_schema`. Here rows of several message types in one batch become one array, in the order of the log.
A payload whose message type has no fields (binary, for one) is a row without data.
"""

from typing import Any

import numpy
import pyarrow

from amps._core.columns.columns import MESSAGE_TYPES, FieldColumns, RecordRows, arrow_type_of

ROWS_MAX = 16384
CELL_BYTES_MAX = 32 << 20
"""Of a batch, besides texts and elements: a row takes room in every column, be there a value or not."""
OFFSET_BYTES = 4


def rows_at_once(fields: tuple[Any, ...] | None) -> int:
    """How many rows a batch has at most, with these fields of the payloads: fewer where they are very many."""
    if fields is None:
        return ROWS_MAX
    return min(ROWS_MAX, max(1, CELL_BYTES_MAX // max(1, _cell_bytes(arrow_type_of(("struct", fields))))))


def _cell_bytes(of: pyarrow.DataType) -> int:
    """Of one row, in the columns that have a value for each."""
    if pyarrow.types.is_struct(of):
        return sum(_cell_bytes(of.field(number).type) for number in range(of.num_fields))
    if pyarrow.types.is_primitive(of) or pyarrow.types.is_decimal(of):
        return max(int(of.bit_width) // 8, 1)
    return OFFSET_BYTES


class PayloadFields:
    """The readers that one task uses: of the payloads of some rows, the fields that `parse_ddl` has read."""

    def __init__(self, rows: RecordRows, fields: tuple[Any, ...]) -> None:
        self._rows = rows
        self._fields = fields
        self._arrow_type = arrow_type_of(("struct", fields))
        self._numbers: dict[bytes, int] = {}
        self._readers: list[FieldColumns] = []

    @property
    def malformed(self) -> int:
        """Payloads that could not be read at all; their rows have no data."""
        return sum(reader.malformed for reader in self._readers)

    def number_of(self, message_type: bytes) -> int:
        """Which reader takes payloads of a message type; 0: none does."""
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
        """The data of the batch, whose rows are to be taken afterwards."""
        if not self._readers:
            return pyarrow.nulls(self._rows.rows, self._arrow_type)
        memory = self._rows.places()
        arrays = [reader.finish() for reader in self._readers]
        if memory is None:
            return arrays[0]
        places = numpy.frombuffer(memoryview(memory), "<i4")
        return pyarrow.concat_arrays(arrays).take(pyarrow.array(places, mask=places < 0))
