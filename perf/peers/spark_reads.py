"""The peers of the scenario about Spark: reads of the same flight records, from journals and from files.

Each runs an aggregate over the rows. The aggregate over eight fields needs every field, and its result differs if any
value of any row differs. The aggregate over payloads needs the payloads.
"""

import importlib.metadata
import json
from abc import abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perf.machine import own_version
from perf.peers.base import Peer
from perf.peers.spark_data import FlightData
from perf.peers.spark_session import Query
from perf.pump import PeerError

FIELD_TYPES = {
    "id": "long",
    "carrier": "string",
    "tailnum": "string",
    "origin": "string",
    "dest": "string",
    "dep_delay": "int",
    "arr_delay": "int",
    "distance": "int",
}
FIELDS = ", ".join(f"{name} {of}" for name, of in FIELD_TYPES.items())
FIELD_AGGREGATES = ("count(*)", "sum(id)", f"bit_xor(xxhash64({', '.join(FIELD_TYPES)}))")
MOMENT = "yyyyMMdd'T'HHmmss.SSSSSS"
"""The form of times in the options of a read."""
PAYLOAD_AGGREGATES = ("count(*)", "sum(length(payload))")


@dataclass(frozen=True)
class Facts:
    """Facts about the data, from reads of everything."""

    rare_topic: str
    rare_rows: int
    moments: tuple[str, str]
    """The times up to which a quarter and half of the messages lie."""
    bookmarks: tuple[str, str]
    moments_rows: int
    """Number of rows after the first moment, up to the second."""
    bookmarks_rows: int
    bytes_read: int
    """Bytes that the read of everything has read."""


def find_facts(session: Any, data: FlightData, report: Path) -> Facts:
    """Read everything and return the facts. Called in a process with a session. report: an empty directory."""
    options = {"schema": "id long", "report": str(report)}
    frame = session.read.format("amps").options(**options).load(str(data.journals()))
    topics = frame.groupBy("topic").count().orderBy("count").first()
    bytes_read = take_bytes_read(report)
    marks = frame.where(f"data.id in ({data.count // 4 - 1}, {data.count // 2 - 1})").orderBy("data.id")
    first, last = marks.selectExpr(
        f"date_format(timestamp, {MOMENT!r}) as moment", "bookmark", "data.id"
    ).collect()
    moments = [f"to_timestamp({mark.moment!r}, {MOMENT!r})" for mark in (first, last)]
    moments_rows = frame.where(f"timestamp > {moments[0]} and timestamp <= {moments[1]}").count()
    take_bytes_read(report)
    return Facts(
        rare_topic=topics["topic"],
        rare_rows=topics["count"],
        moments=(first.moment, last.moment),
        bookmarks=(first.bookmark, last.bookmark),
        moments_rows=moments_rows,
        bookmarks_rows=last.id - first.id,
        bytes_read=bytes_read,
    )


def take_bytes_read(report: Path) -> int:
    """Bytes of the reads that reported there since the last call."""
    total = 0
    for path in report.iterdir():
        total += json.loads(path.read_text())["bytes_read"]
        path.unlink()
    return total


def needed_versions() -> str:
    """Version of PySpark. Raises PeerError if something that reads need is missing."""
    try:
        from amps.cli.demo.flights import data_file
        from amps.spark import check_java

        check_java()
        data_file()
    except (ImportError, RuntimeError) as error:  # the text of each names what to install
        raise PeerError(str(error)) from None
    return f"pyspark {importlib.metadata.version('pyspark')}"


class SparkRead(Peer):
    """A read on a number of cores."""

    divisor = 1
    """The read covers 1/divisor of the messages."""
    question: str
    """Reads of the same question must have the same answer."""

    def __init__(self, name: str, title: str, cores: int = 1) -> None:
        self.name = f"{name}-{cores}"
        self.title = title
        self.cores = cores

    def version(self) -> str:
        return needed_versions()

    @abstractmethod
    def query(self, data: FlightData, facts: Facts | None, report: Path) -> Query:
        """The query to run. report: a directory for the report of the read."""

    def rows(self, data: FlightData, facts: Facts | None) -> int:
        """Number of messages that the read must find."""
        return data.messages(self.divisor)


class JournalFields(SparkRead):
    """Eight fields of the payloads of journals. Only the column `data` is read."""

    question = "fields"
    schema: str | None = f"data struct<{FIELDS}>"
    options: tuple[tuple[str, str], ...] = ()

    def __init__(self, name: str, title: str, cores: int = 1, divisor: int = 1) -> None:
        super().__init__(name, title, cores)
        self.divisor = divisor
        if divisor > 1:
            self.question = f"fields of 1/{divisor}"

    def version(self) -> str:
        needed_versions()
        return own_version()

    def query(self, data: FlightData, facts: Facts | None, report: Path) -> Query:
        return Query(
            "amps", data.journals(self.divisor), self.schema, "data.*", FIELD_AGGREGATES, self.options
        )


class JournalColumns(JournalFields):
    """The same without a list of columns, so that all columns are made."""

    schema = None
    options = (("schema", FIELDS),)


class JournalPart(JournalFields):
    """Eight fields of the messages that options select."""

    def __init__(self, name: str, title: str, kind: str) -> None:
        super().__init__(name, title)
        self.kind = kind
        self.question = kind

    def query(self, data: FlightData, facts: Facts | None, report: Path) -> Query:
        assert facts is not None
        options: dict[str, Any] = {
            "topic": {"topic": facts.rare_topic},
            "time": {"from": facts.moments[0], "to": facts.moments[1]},
            "bookmarks": {"from": facts.bookmarks[0], "to": facts.bookmarks[1]},
        }[self.kind]
        query = super().query(data, facts, report)
        return replace(query, options=(*query.options, *options.items(), ("report", str(report))))

    def rows(self, data: FlightData, facts: Facts | None) -> int:
        assert facts is not None
        return {
            "topic": facts.rare_rows,
            "time": facts.moments_rows,
            "bookmarks": facts.bookmarks_rows,
        }[self.kind]


class JournalPayloads(JournalFields):
    """The unparsed payloads of journals."""

    question = "payloads"

    def query(self, data: FlightData, facts: Facts | None, report: Path) -> Query:
        return Query("amps", data.journals(), "payload binary", "payload", PAYLOAD_AGGREGATES)


class JsonFields(SparkRead):
    """Eight fields by Spark's own reader of JSON."""

    question = "fields"

    def query(self, data: FlightData, facts: Facts | None, report: Path) -> Query:
        return Query("json", data.lines, FIELDS, "*", FIELD_AGGREGATES)


class ParquetPayloads(SparkRead):
    """The payloads by Spark's own reader of Parquet."""

    question = "payloads"

    def query(self, data: FlightData, facts: Facts | None, report: Path) -> Query:
        return Query("parquet", data.parquet, "payload binary", "payload", PAYLOAD_AGGREGATES)
