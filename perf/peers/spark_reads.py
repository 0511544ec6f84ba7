"""Who takes part in the scenario about Spark: reads of the same flight records, out of journals and out of files.

All of them run one aggregate over what they read. That over eight fields needs each of them, and its result is another
one if any value of any row is; that over payloads needs the payloads.
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
"""As the options of a read have it."""
PAYLOAD_AGGREGATES = ("count(*)", "sum(length(payload))")


@dataclass(frozen=True)
class Facts:
    """What is to be found where, as reads of everything have told."""

    rare_topic: str
    rare_rows: int
    moments: tuple[str, str]
    """A quarter and half of the messages lie up to them."""
    bookmarks: tuple[str, str]
    moments_rows: int
    """Behind the first moment, up to the second."""
    bookmarks_rows: int
    bytes_read: int
    """By the read of everything."""


def find_facts(session: Any, data: FlightData, report: Path) -> Facts:
    """In a process with a session. report: an empty directory."""
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
    """Of the reads that reported there since the last time."""
    total = 0
    for path in report.iterdir():
        total += json.loads(path.read_text())["bytes_read"]
        path.unlink()
    return total


def needed_versions() -> str:
    """Of PySpark. PeerError: something is missing that reads take."""
    try:
        from amps.cli.demo.flights import data_file
        from amps.spark import check_java

        check_java()
        data_file()
    except (ImportError, RuntimeError) as error:  # of which each says in a sentence what to install
        raise PeerError(str(error)) from None
    return f"pyspark {importlib.metadata.version('pyspark')}"


class SparkRead(Peer):
    """A read on some cores."""

    divisor = 1
    """Of the messages, that many-th part is read."""
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
        """What is asked. report: a directory for what the read tells of itself."""

    def rows(self, data: FlightData, facts: Facts | None) -> int:
        """How many messages must be found."""
        return data.messages(self.divisor)


class JournalFields(SparkRead):
    """Eight fields of the payloads of journals. Only the column `data` is asked for."""

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
    """The same, without saying which columns are wanted: all of them are made."""

    schema = None
    options = (("schema", FIELDS),)


class JournalPart(JournalFields):
    """Eight fields of some of the messages, which options choose."""

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
    """The payloads of journals as they stand."""

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
