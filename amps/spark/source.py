"""The data source "amps": the interface to Spark.

All code runs in Python processes that Spark starts: `AmpsDataSource` and the planning beside the driver, the reading
on executors. They share only pickled objects: options, a `Request`, and the `Split`s of each task.

Each of these processes imports this module, several for each query. So the modules that only streams and writing need
are imported where they are used.

Without a schema of its own a read has the columns of `SCHEMA`, and with the option `schema` one more, `data`. A schema
that is given to Spark (`.schema(…)`) selects columns by their names; the others are not built. This saves time:
Spark does not tell a Python data source which columns a query uses, so all columns of a read are built and sent. If
`data` is among them, its type defines the fields to read, and the option `schema` is not needed:

    spark.read.format("amps").schema("timestamp timestamp, data struct<id: long, side: string>").load(directory)
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
)
from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from amps.spark.options import ONLY_OF_STREAMS, ReadOptions, read_options
from amps.spark.payload_schema import ddl_of, fields_of, parse_ddl, spark_type
from amps.spark.planning import Split, make_plan
from amps.spark.pushdown import push
from amps.spark.reading import DATA_COLUMN, Request, SplitReader, skipped_in_planning
from amps.spark.selection import Selection
from amps.spark.sow_options import reads_state, sow_options
from amps.spark.task_sizes import task_bytes

if TYPE_CHECKING:
    from amps.spark.writing import BatchWriter

FORMAT = "amps"
SCHEMA: Mapping[str, DataType] = {
    "position": LongType(),
    "timestamp": TimestampType(),
    "bookmark": StringType(),
    "publisher": StringType(),
    "sequence": LongType(),
    "topic": StringType(),
    "message_type": StringType(),
    "kind": StringType(),
    "expiration": TimestampType(),
    "payload": BinaryType(),
}
SOW_SCHEMA: Mapping[str, DataType] = {
    "sow_key": StringType(),
    "txid": LongType(),
    **{name: SCHEMA[name] for name in ("timestamp", "bookmark", "publisher", "sequence", "topic", "message_type")},
    "expiration": TimestampType(),
    "correlation_id": StringType(),
    "payload": BinaryType(),
}
"""The columns of the state of a SOW topic."""


class AmpsDataSource(DataSource):  # type: ignore[misc, unused-ignore]
    """Format "amps": reading journals (options: `amps.spark.options`) and the state of SOW topics
    (`amps.spark.sow_options`), following a log (`amps.spark.streaming_options`), and publishing
    (`amps.spark.writing_options`).
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of a read, batch or stream: Spark does not tell which. Raises ValueError."""
        ddl: str | None
        if reads_state(self.options):
            ddl = sow_options(self.options).schema
        elif ONLY_OF_STREAMS.isdisjoint(name.lower() for name in self.options):
            ddl = read_options(self.options, may_be_stream=True).schema
        else:
            from amps.spark.streaming_options import stream_options

            ddl = stream_options(self.options).schema
        return StructType([StructField(name, of) for name, of in self._types(ddl).items()])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of these columns. Raises ValueError."""
        if reads_state(self.options):
            from amps.spark.sow_reading import SowReader

            of_state = sow_options(self.options)
            if of_state.schema is None:
                of_state = replace(of_state, schema=_fields_in(schema))
            self._check(schema, of_state.schema)
            return SowReader(of_state, tuple(schema.fieldNames()))
        options = read_options(self.options)
        if options.schema is None:
            options = replace(options, schema=_fields_in(schema))
        self._check(schema, options.schema)
        kind = PushingReader if options.pushdown else JournalReader
        return kind(options, tuple(schema.fieldNames()))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader of these columns that follows a log. Raises ValueError."""
        from amps.spark.streaming import stream_reader
        from amps.spark.streaming_options import stream_options

        options = stream_options(self.options)
        if options.schema is None:
            options = options.with_schema(_fields_in(schema))
        self._check(schema, options.schema)
        return stream_reader(options, tuple(schema.fieldNames()))

    def _check(self, schema: StructType, ddl: str | None) -> None:
        types = self._types(ddl)
        for field in schema.fields:
            if field.name not in types:
                raise ValueError(f"there is no column {field.name!r}: the columns are {', '.join(types)}")
            if field.dataType != types[field.name]:
                raise ValueError(f"the column {field.name!r} is {types[field.name].simpleString()}")

    def _types(self, ddl: str | None) -> dict[str, DataType]:
        """Return the types of the columns; `ddl` is the type of the column `data`, None without this column."""
        types = dict(SOW_SCHEMA if reads_state(self.options) else SCHEMA)
        if ddl is not None:
            types[DATA_COLUMN] = spark_type(parse_ddl(ddl))
        return types

    def writer(self, schema: StructType, overwrite: bool) -> "BatchWriter":
        """Return a writer that publishes the rows of a data frame. Raises WriteError before anything is published."""
        from amps.spark.writing import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return a writer that publishes the rows of a stream, batch by batch. Raises WriteError."""
        from amps.spark.writing import stream_writer

        return stream_writer(self.options, schema, overwrite)


def _fields_in(schema: StructType) -> str | None:
    """Return the fields of the column `data` of a schema given to Spark; None without it. Raises ValueError."""
    for field in schema.fields:
        if field.name == DATA_COLUMN and isinstance(field.dataType, StructType):
            return ddl_of(fields_of(field.dataType))
    return None


class SplitPartition(InputPartition):  # type: ignore[misc, unused-ignore]
    """The splits of one task, as Spark passes them to it, and the selection with the positions that planning found."""

    splits: tuple[Split, ...]
    selection: Selection

    def __init__(self, splits: tuple[Split, ...], selection: Selection) -> None:
        super().__init__(splits[0].number)
        self.splits = splits
        self.selection = selection


class JournalReader(DataSourceReader):  # type: ignore[misc, unused-ignore]
    """Plans and reads. Spark pickles the reader before planning, so the plan is only in the partitions."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._selection = options.selection
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Return a partition per task; none if no record can match. Raises ValueError, LogDamaged, OSError."""
        options = self._options
        plan = make_plan(options, self._selection)
        skipped_in_planning(plan.skipped, options.report)
        size = options.task_bytes or task_bytes(plan.byte_count)
        return [SplitPartition(splits, plan.selection) for splits in plan.tasks(size)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Return the rows of a task. Raises LogDamaged, OSError."""
        if not isinstance(partition, SplitPartition):
            return iter(())  # Spark's argument if there are no partitions
        options = self._options
        fields = None
        if options.schema is not None and DATA_COLUMN in self._columns:
            fields = parse_ddl(options.schema)
        request = Request(
            selection=partition.selection,
            columns=self._columns,
            data_fields=fields,
            skips_damage=options.skips_damage,
            report=options.report,
        )
        return itertools.chain.from_iterable(
            SplitReader(split, request).batches() for split in partition.splits
        )


class PushingReader(JournalReader):
    """A reader that also applies conditions of a query. `amps.spark.pushdown` has the reason why it is optional."""

    def pushFilters(self, filters: list[Any]) -> Iterator[Any]:
        """Narrow the selection; return the filters that Spark must apply itself."""
        self._selection, left = push(self._selection, filters)
        return left
