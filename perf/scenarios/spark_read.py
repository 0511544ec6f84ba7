"""Journals in Spark: the speed of reading them, next to Spark's own formats, and the cost of reading parts.

The messages are real flight records (`perf.peers.spark_data`), the same ones in journals, lines of JSON and Parquet.
There is one Spark session for each number of cores, in a process of its own that is confined to as many processors
(`perf.peers.spark_session`); reads take turns in them. Every read runs once before the measurement. Every answer is
compared with the number of messages, and with the answers of the other reads.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from amps.cli.demo.flights import FlightsMissing
from perf import tables
from perf.measurement import Measurement, PeerResult, Settings
from perf.peers.spark_data import FlightData, make_parquet
from perf.peers.spark_reads import (
    Facts,
    JournalColumns,
    JournalFields,
    JournalPart,
    JournalPayloads,
    JsonFields,
    ParquetPayloads,
    SparkRead,
    find_facts,
    take_bytes_read,
)
from perf.peers.spark_session import SparkProcess, ask
from perf.pump import PeerError
from perf.scenarios.base import Scenario

DEFAULT_MESSAGES = 4_000_000
MESSAGES_MIN = 1000
CORES = (1, 2)
RATES = (
    ("amps-fields", "journals, 8 fields"),
    ("spark-json", "lines of JSON by Spark's reader, 8 fields"),
    ("amps-payloads", "journals, payloads"),
    ("spark-parquet", "Parquet (snappy) by Spark's reader, payloads"),
)
GROWTH = ("amps-quarter-1", "amps-half-1", "amps-fields-1")
COLUMNS = ("amps-columns", "journals, 8 fields and all columns")
PARTS = {
    "topic": "option `topic`: the rarest",
    "time": "options `from` and `to`: times",
    "bookmarks": "options `from` and `to`: bookmarks",
}


def _compared(cores: int) -> tuple[SparkRead, ...]:
    kinds = (JournalFields, JsonFields, JournalPayloads, ParquetPayloads)
    return tuple(kind(name, title, cores) for kind, (name, title) in zip(kinds, RATES, strict=True))


class SparkReadScenario(Scenario[SparkRead]):
    name = "spark-read"
    question = "Messages per second and core from journals into Spark, against JSON and Parquet files"
    peers = (
        *(peer for cores in CORES for peer in _compared(cores)),
        JournalColumns(*COLUMNS),
        JournalFields("amps-quarter", "a quarter of the messages", divisor=4),
        JournalFields("amps-half", "half of the messages", divisor=2),
        *(JournalPart(f"amps-{kind}", title, kind) for kind, title in PARTS.items()),
    )

    data: FlightData
    facts: Facts | None
    payload_bytes: int
    """Bytes of the payloads of all messages."""
    report: Path
    """A directory for the reports of reads."""
    sessions: dict[int, SparkProcess]
    """The sessions by number of cores."""
    answers: dict[str, tuple[object, ...]]
    """The answers by question; all reads of a question must have the same answer."""

    @contextmanager
    def prepared(self, peers: Sequence[SparkRead], settings: Settings, base: Path) -> Iterator[None]:
        """Make the data and start the sessions. Raises PeerError."""
        count = settings.messages or DEFAULT_MESSAGES
        if count < MESSAGES_MIN:
            raise PeerError(f"{self.name} takes at least {MESSAGES_MIN:,} messages")
        with ExitStack() as ends:
            directory = Path(
                ends.enter_context(tempfile.TemporaryDirectory(prefix="amps-perf-spark-", dir=base))
            )
            self.data = FlightData(directory, count)
            self.report = directory / "report"
            self.report.mkdir()
            try:
                self.payload_bytes = self.data.make_journals(1)
                for divisor in {peer.divisor for peer in peers} - {1}:
                    self.data.make_journals(divisor)
                if any(isinstance(peer, JsonFields) for peer in peers):
                    self.data.make_lines()
            except FlightsMissing as error:
                raise PeerError(str(error)) from None
            self.sessions = {}
            for cores in sorted({peer.cores for peer in peers}):
                session = self.sessions[cores] = SparkProcess(cores, directory / f"spark-{cores}")
                ends.callback(session.close)
            session = next(iter(self.sessions.values()))
            if any(isinstance(peer, ParquetPayloads) for peer in peers):
                session.call(make_parquet, self.data)
            self.facts = None
            if any(isinstance(peer, JournalPart) for peer in peers):
                self.facts = session.call(find_facts, self.data, self.report)
            self.answers = {}
            for peer in peers:
                self.measure(peer, settings, base)
            yield

    def measure(self, peer: SparkRead, settings: Settings, base: Path) -> Measurement:
        """Run one read. Raises PeerError if the answer is wrong."""
        query = peer.query(self.data, self.facts, self.report)
        answer = self.sessions[peer.cores].call(ask, query)
        rows = peer.rows(self.data, self.facts)
        if answer.row[0] != rows:
            raise PeerError(f"{peer.name} has found {answer.row[0]} messages instead of {rows}")
        if self.answers.setdefault(peer.question, answer.row) != answer.row:
            raise PeerError(
                f"{peer.name} returns {answer.row}, another read {self.answers[peer.question]}, for the same messages"
            )
        values = {
            "messages_per_s": round(rows / answer.elapsed_s),
            "elapsed_s": round(answer.elapsed_s, 4),
        }
        bytes_read = take_bytes_read(self.report)
        if self.facts is not None and isinstance(peer, JournalPart):
            values["read_share"] = round(bytes_read / self.facts.bytes_read, 6)
        return Measurement(values, rows, answer.elapsed_s, answer.cpu)

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        by_name = {result.peer.name: result for result in results}
        title = (
            f"**{self.name}** ({self.data.count:,} flight records, {self.payload_bytes / self.data.count:,.0f} bytes "
            f"of JSON each, median of {settings.repetitions})"
        )
        parts = [self._rates(title, by_name), self._growth(by_name), self._parts(by_name)]
        lines: list[str] = []
        for part in parts:
            if part:
                lines += ["", *part] if lines else part
        return lines or [title]

    @staticmethod
    def _rates(title: str, by_name: dict[str, PeerResult]) -> list[str]:
        """Messages per second on one core and on two, and the ratios of journals to files."""
        rows = []
        for number, (name, text) in enumerate((*RATES, COLUMNS)):
            row = [text]
            for cores in CORES:
                result = by_name.get(f"{name}-{cores}")
                ours = by_name.get(f"{RATES[number - 1][0]}-{cores}") if name.startswith("spark-") else None
                row.append(f"{result.median('messages_per_s'):,.0f}" if result else "")
                row.append(
                    tables.ratio([ours, result], result, "messages_per_s", True) if ours and result else ""
                )
            if any(row[1:]):
                rows.append(row)
        columns = ["read", "messages/s on 1 core", "ratio", "messages/s on 2 cores", "ratio"]
        return tables.lines(title, columns, rows) if rows else []

    @staticmethod
    def _growth(by_name: dict[str, PeerResult]) -> list[str]:
        found = [by_name[name] for name in GROWTH if name in by_name]
        if len(found) < 2:
            return []
        rows = [
            [
                f"{result.runs[0].messages:,}",
                f"{result.median('elapsed_s'):.2f}",
                f"{result.median('elapsed_s') / result.runs[0].messages * 1e6:.2f}",
            ]
            for result in found
        ]
        return tables.lines(
            "Cost by the size of the log (8 fields, 1 core):", ["messages", "s", "µs/message"], rows
        )

    @staticmethod
    def _parts(by_name: dict[str, PeerResult]) -> list[str]:
        whole = by_name.get("amps-fields-1")
        rows = []
        for kind, text in PARTS.items():
            result = by_name.get(f"amps-{kind}-1")
            if result is None:
                continue
            elapsed_s = result.median("elapsed_s")
            rows.append(
                [
                    text,
                    f"{result.runs[0].messages:,}",
                    f"{result.median('read_share'):.2%}",
                    f"{elapsed_s:.2f}",
                    f"{elapsed_s / whole.median('elapsed_s'):.2%}" if whole else "",
                ]
            )
        columns = ["read", "messages", "bytes read, of all", "s", "time, of a read of all"]
        return tables.lines("Cost by part read (8 fields, 1 core):", columns, rows) if rows else []
