"""The column `data`: fields of the payloads as a struct, each payload read by the reader of its message type.

How a payload is read, and what a schema may hold, is the business of `amps._core.field_columns` and
`amps.spark.payload_schema`. Here rows of several message types in one batch become one array, in the order of the log.
A payload whose message type has no fields (binary, for one) is a row without data.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy
import pyarrow

from amps._core.record_rows import RecordRows

READERS_MAX = 255


class PayloadReader(Protocol):
    """Reads the payloads of one message type."""

    def add_payload(self, payload: bytes, /) -> object:
        """A row more."""

    def finish(self) -> Any:
        """The rows as a struct array; then there are none."""


@dataclass(frozen=True)
class FieldReaders:
    """What makes readers of the fields that are wanted."""

    arrow_type: pyarrow.DataType
    message_types: frozenset[str]
    make: Callable[[str], PayloadReader]


def field_readers(fields: tuple[Any, ...]) -> FieldReaders:
    """The readers of fields that `payload_schema.parse_ddl` has read. Raises ImportError if they were not built."""
    module = importlib.import_module("amps._core.field_columns")
    return FieldReaders(
        module.arrow_type_of(("struct", fields)),
        frozenset(module.MESSAGE_TYPES),
        lambda message_type: module.FieldColumns(message_type, fields),
    )


class PayloadFields:
    """The readers that one task uses, by number."""

    def __init__(self, readers: FieldReaders) -> None:
        self._maker = readers
        self._numbers: dict[bytes, int] = {}
        self._readers: list[PayloadReader] = []

    @property
    def malformed(self) -> int:
        """Payloads that could not be read at all; their rows have no data."""
        return sum(getattr(reader, "malformed", 0) for reader in self._readers)

    def number_of(self, message_type: bytes) -> int:
        """Which reader takes payloads of a message type; 0: none does."""
        number = self._numbers.get(message_type)
        if number is None:
            name = message_type.decode(errors="replace")
            number = 0
            if name in self._maker.message_types and len(self._readers) < READERS_MAX:
                self._readers.append(self._maker.make(name))
                number = len(self._readers)
            self._numbers[message_type] = number
        return number

    def take(self, rows: RecordRows) -> pyarrow.Array:
        """The data of a batch, of which the rows are to be taken afterwards."""
        if not self._readers:
            return pyarrow.nulls(rows.rows, self._maker.arrow_type)
        memory = rows.add_fields(self._readers)
        arrays = [reader.finish() for reader in self._readers]
        if memory is None:
            return arrays[0]
        places = numpy.frombuffer(memoryview(memory), "<i4")
        return pyarrow.concat_arrays(arrays).take(pyarrow.array(places, mask=places < 0))
