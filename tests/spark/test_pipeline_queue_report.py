"""`amps pipeline queue-report`: its figures match the clients' commands, and the log as read without Spark."""

import dataclasses
import json
import math
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'amps-server[spark]')")
pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")

from click.testing import CliRunner

from amps._core.values.value import publisher_id
from amps.cli.main import amps
from amps.journal.entries import Entry, JournalFile
from amps.spark.pipelines import queue_report, queue_report_counting
from amps.spark.pipelines.job import PipelineError, Silent
from amps.spark.pipelines.queue_report import NOTES, QueueReportOptions
from amps.spark.pipelines.queue_report_page import queue_report_page
from amps.spark.pipelines.queue_report_results import QueueFigures, QueueReport
from amps.spark.pipelines.report_intervals import DURATION_EDGES_US, duration
from amps.spark.pipelines.report_source import Journals
from tests.support.log_directories import Directory
from tests.support.peer import RawClient
from tests.support.peers import Peers
from tests.support.queues import acknowledge, bodies, options, queue_xml, result, transact, transaction_body
from tests.support.server import ServerProcess, StartServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # a session takes long to start

SHORTENED = 140
HOSTILE = "Q<script>alert&lt;1</script>&amp;"  # without regex characters: clients subscribe to it by name
HOSTILE_CONSUMER = "<b onclick='x'>&lt;worker"


@pytest.fixture(scope="module")
def served(start_module_server: StartServer) -> ServerProcess:
    """A stopped server with a log of every kind of event of queue messages."""
    server = start_module_server(
        **options(
            queue_xml("Q", "T"),
            queue_xml("Qonce", "T", Semantics="at-most-once"),
            queue_xml("Qtime", "T", Expiration="1s"),
            queue_xml("Qlimits", "T1", MaxDeliveries=1, MaxCancels=1),
            queue_xml("Qfilter", "T", Filter="/id > 30"),
            queue_xml("Qbar", "T2", BarrierExpression="/bar IS NOT NULL"),
            queue_xml("Qregex", "^T[12]$", DefaultPublishTarget="T1"),
            queue_xml(HOSTILE, "T1"),
            queue_xml("Qidle", "Tnothing"),
            queue_xml("Qagain", "T3"),
        )
    )
    with Peers("worker") as peers:
        _work(server, peers)
    server.stop()
    return server


def _work(server: ServerProcess, peers: Peers) -> None:
    publisher = peers.logged_on(server)

    def publish(topic: str, *messages: bytes) -> None:
        publisher.publish_all(topic, messages)
        publisher.flush("persisted")

    def consumer(name: str, queue: str) -> RawClient:
        client = peers.logged_on(server, name=name)
        client.subscribe(queue, "s", o="max_backlog=10")
        return client

    publish("T", *bodies(*range(1, 41)))
    publish("T1", *bodies(*range(1, 9)))
    publish("T2", *bodies(1, 2), b'{"bar":1}', *bodies(4))
    # Q: two workers, of which one cancels and expires; 15 messages stay.
    fast, slow = consumer("fast", "Q"), consumer("slow", "Q")
    held = {client: client.receive_published(10) for client in (fast, slow)}
    acknowledge(fast, *held[fast])
    held[fast] = fast.receive_published(10)
    acknowledge(fast, *held[fast][:4])
    acknowledge(fast, *held[fast][4:5], o="expire")
    time.sleep(0.2)
    acknowledge(slow, *held[slow][:1], o="cancel")
    acknowledge(slow, *held[slow][1:], s=1)  # with a sequence; the others have none
    fast.close()
    slow.close()
    # At most once: ten are delivered, and one more for each of three acknowledgements.
    once = consumer("once", "Qonce")
    acknowledge(once, *once.receive_published(10)[:3])
    once.receive_published(3)
    once.close()
    # Messages that leave by the limits of cancels and of deliveries.
    limits = consumer("limits", "Qlimits")
    given = limits.receive_published(8)
    acknowledge(limits, *given[:2], o="cancel")
    limits.close()
    # Messages that a filter selects.
    chosen = consumer("chosen", "Qfilter")
    acknowledge(chosen, *chosen.receive_published(10)[:6])
    chosen.close()
    # A barrier goes to all consumers when the messages before it are acknowledged.
    barred = consumer("barred", "Qbar")
    acknowledge(barred, *barred.receive_published(2))
    assert barred.receive_published(1)[0].body == b'{"bar":1}'
    barred.receive_published(1)
    barred.close()
    # Delivered three times, twice and once.
    publish("T3", *bodies(1, 2, 3))
    again = consumer("again", "Qagain")
    given = again.receive_published(3)
    for returned in given[:2], given[:1]:
        acknowledge(again, *returned, o="cancel")
        again.receive_published(len(returned))
    acknowledge(again, *given)
    again.close()
    hostile = consumer(HOSTILE_CONSUMER, HOSTILE)
    acknowledge(hostile, *hostile.receive_published(8)[:5], queue=HOSTILE)
    hostile.close()
    # An acknowledgement before its message is applied when the message comes. Time passes for Qtime.
    late = peers.logged_on(server, name="late")
    early = peers.logged_on(server)
    acknowledge(early, f"{publisher_id('late')}|5|", queue="Qregex")
    late.publish("T1", b'{"id":99}', s=5)
    late.flush("persisted")
    time.sleep(1.5)


@dataclass
class Told:
    """The log of one queue, read without Spark."""

    entered: dict[int, int] = field(default_factory=dict)
    """Time in µs by position."""
    left: dict[int, tuple[int, str, int, int]] = field(default_factory=dict)
    """Position: time in µs, way, reasons, position of the record."""


ENTERING = {
    "Q": ("T",), "Qonce": ("T",), "Qtime": ("T",), "Qlimits": ("T1",), "Qbar": ("T2",), "Qregex": ("T1", "T2"),
    HOSTILE: ("T1",), "Qidle": ("Tnothing",), "Qagain": ("T3",),
}  # fmt: skip


def read_log(server: ServerProcess) -> dict[str, Told]:
    told: dict[str, Told] = {name: Told() for name in [*ENTERING, "Qfilter"]}
    times: dict[int, int] = {}
    for entry, position in entries(server):
        us = entry.timestamp_ns // 1000
        topic = entry.topic.decode()
        if entry.kind == 1:
            times[position] = us
            for queue, topics in ENTERING.items():
                if topic in topics:
                    told[queue].entered[position] = us
            continue
        action, count = struct.unpack_from("<II", entry.payload)
        for at in range(count):
            _, _, of_message, _, reasons = struct.unpack_from("<QQQII", entry.payload, 32 + 32 * at)
            if not of_message:
                continue
            way = {
                0: "acknowledged",
                2: "expired",
                5: "answered",
                4: "barrier" if reasons & 16 else "delivered",
            }[action]
            told[topic].entered[of_message] = times[of_message]
            told[topic].left[of_message] = us, way, reasons, position
    return told


def entries(server: ServerProcess) -> Iterator[tuple[Entry, int]]:
    for path in server.journals():
        with JournalFile(path) as journal:
            for entry in journal.entries():
                yield entry, journal.start_position + entry.file_offset


def report_of(spark: "SparkSession", directory: Path, **more: Any) -> QueueReport:
    queue, interval_us = more.pop("queue", None), more.pop("interval_us", None)
    return queue_report.run(
        spark, QueueReportOptions(Journals(directory, **more), queue, interval_us), Silent()
    )


@pytest.fixture(scope="module")
def report(spark: "SparkSession", served: ServerProcess) -> QueueReport:
    return report_of(spark, served.journal_directory)


def figures_of(report: QueueReport, queue: str) -> QueueFigures:
    (figures,) = (figures for figures in report.queues if figures.queue == queue)
    return figures


def test_ways_in_which_messages_left(report: QueueReport) -> None:
    """queues.md §6, §10, §11, §12: computed from the clients' commands."""
    wanted: list[tuple[str, int, dict[str, int], dict[str, int], int]] = [
        ("Q", 40, {"acknowledged": 23, "expired": 1}, {"forced_expire": 1}, 16),
        ("Qonce", 40, {"delivered": 13}, {}, 27),
        ("Qtime", 40, {"expired": 40}, {"time_limit": 40}, 0),
        ("Qlimits", 9, {"expired": 8}, {"max_cancels": 2, "max_deliveries": 8}, 1),
        ("Qfilter", 6, {"acknowledged": 6}, {}, 0),
        ("Qbar", 4, {"acknowledged": 2, "barrier": 1}, {}, 1),
        ("Qregex", 13, {"answered": 1}, {}, 12),
        (HOSTILE, 9, {"acknowledged": 5}, {}, 4),
        ("Qidle", 0, {}, {}, 0),
        ("Qagain", 3, {"acknowledged": 3}, {}, 0),
    ]
    for queue, entered, left, expired, depth in wanted:
        figures = figures_of(report, queue)
        assert (figures.entered, figures.left, figures.expired) == (entered, left, expired), queue
        assert (figures.depth_before, figures.depth) == (0, depth), queue


def test_redeliveries_are_counted_by_messages_that_left(report: QueueReport) -> None:
    """queues.md §10, §15: one message was delivered three times, one twice; in other queues none that left was
    redelivered.
    """
    counted = {figures.queue: figures.redeliveries for figures in report.queues}
    assert counted == {**dict.fromkeys(counted, 0), "Qagain": 3}


def test_consumers_have_their_shares_and_names(report: QueueReport) -> None:
    consumers = figures_of(report, "Q").consumers
    assert [(one.consumer, one.acknowledged) for one in consumers] == [("fast", 14), ("slow", 9)]
    assert [one.share for one in consumers] == pytest.approx([14 / 23, 9 / 23])
    # The slow consumer waited before it acknowledged.
    assert (consumers[1].p50_us or 0) > (consumers[0].p50_us or 0) + 150_000
    assert figures_of(report, HOSTILE).consumers[0].consumer == HOSTILE_CONSUMER


def test_times_are_those_of_the_log(report: QueueReport, served: ServerProcess) -> None:
    for queue, told in read_log(served).items():
        check_times(figures_of(report, queue), told)


def check_times(figures: QueueFigures, told: Told) -> None:
    by_way: dict[str, list[int]] = defaultdict(list)
    for position, (us, way, _, _) in told.left.items():
        by_way[way].append(us - told.entered[position])
    assert set(figures.durations) == set(by_way)
    for way, lasted in by_way.items():
        lasted.sort()
        times = figures.durations[way]
        assert times.count == len(lasted)
        assert times.mean_us == pytest.approx(sum(lasted) / len(lasted))
        ranks = [lasted[math.ceil(len(lasted) * share) - 1] for share in (0.5, 0.9, 0.99)]
        assert [times.p50_us, times.p90_us, times.p99_us, times.max_us] == [*ranks, lasted[-1]]
        bars = Counter(sum(us >= edge for edge in DURATION_EDGES_US) for us in lasted)
        assert times.histogram == tuple(bars[bar] for bar in range(len(DURATION_EDGES_US) + 1))
    waiting = [us for position, us in told.entered.items() if position not in told.left]
    assert figures.oldest_us == min(waiting, default=None)


def depth_of(told: Told, first_us: int, interval_us: int, count: int) -> list[tuple[int, int, int, int, int]]:
    """(entered, left, expired, depth, deepest) of each interval, event by event."""
    events = [(position, 0, us, 1, "") for position, us in told.entered.items()]
    events += [(record, 1, us, -1, way) for us, way, _, record in told.left.values()]
    depth, begin = 0, first_us // interval_us
    rows = []
    numbered = defaultdict(list)
    for event in sorted(events):
        numbered[event[2] // interval_us - begin].append(event)
    for number in range(count):
        deepest = depth
        for event in numbered[number]:
            depth += event[3]
            deepest = max(deepest, depth)
        changes = Counter(event[3] for event in numbered[number])
        expired = sum(event[4] == "expired" for event in numbered[number])
        rows.append((changes[1], changes[-1], expired, depth, deepest))
    return rows


@pytest.mark.parametrize("interval_us", [None, 10_000, 1_000_000])
def test_depth_over_time(
    spark: "SparkSession", served: ServerProcess, report: QueueReport, interval_us: int | None
) -> None:
    if interval_us is not None:
        report = report_of(spark, served.journal_directory, interval_us=interval_us)
    assert report.first_us is not None
    assert report.interval_us is not None
    told = read_log(served)
    for figures in report.queues:
        assert len(figures.intervals) == len(report.queues[0].intervals) <= queue_report.INTERVALS_MAX
        found = [(one.entered, one.left, one.expired, one.depth, one.depth_max) for one in figures.intervals]
        wanted = depth_of(told[figures.queue], report.first_us, report.interval_us, len(found))
        assert found == wanted, figures.queue
        assert figures.depth_max == max(row[4] for row in wanted)
        begins = [one.begin_us for one in figures.intervals]
        assert begins[0] <= report.first_us < begins[0] + report.interval_us
        assert all(after - before == report.interval_us for before, after in pairwise(begins))


def test_a_range_includes_the_state_before_it(spark: "SparkSession", served: ServerProcess) -> None:
    """From the middle of the acknowledgements on: messages that entered before are already in the queue."""
    told = read_log(served)["Q"]
    records = sorted({record for *_, record in told.left.values()})
    middle = records[len(records) // 2]
    (bookmark, us) = next(
        (f"{entry.publisher_id}|{entry.sequence}|", entry.timestamp_ns // 1000)
        for entry, position in entries(served)
        if position == middle
    )
    report = report_of(spark, served.journal_directory, first=f"[{bookmark}", queue="Q")
    (figures,) = report.queues
    gone = sum(record < middle for *_, record in told.left.values())
    assert (figures.entered, figures.depth_before) == (0, 40 - gone)
    assert sum(figures.left.values()) == len(told.left) - gone
    assert figures.depth == 40 - len(told.left)
    assert report.first_us == us
    early = report_of(spark, served.journal_directory, last=f"{bookmark})", queue="Q")
    assert sum(early.queues[0].left.values()) == gone
    assert early.queues[0].depth == 40 - gone


def test_unknown_figures_are_reported(
    spark: "SparkSession", served: ServerProcess, report: QueueReport, tmp_path: Path
) -> None:
    assert report.notes == NOTES
    assert [
        figures.queue for figures in report.queues if any("has a filter" in note for note in figures.notes)
    ] == ["Qfilter"]
    assert any("recorded before their messages: 1;" in note for note in figures_of(report, "Qregex").notes)
    for path in served.journal_directory.glob("*.journal"):
        (tmp_path / path.name).symlink_to(path)
    alone = report_of(spark, tmp_path)
    assert "Test.queues.ack does not exist" in alone.notes[-1]
    figures = figures_of(alone, "Q")
    assert (figures.entered, figures.depth) == (24, 0)
    assert "is not known" in figures.notes[0]
    assert "Qidle" not in {figures.queue for figures in alone.queues}


def test_too_many_intervals_are_refused(
    spark: "SparkSession", served: ServerProcess, monkeypatch: Any
) -> None:
    monkeypatch.setattr(queue_report, "INTERVALS_MAX", 10)
    with pytest.raises(PipelineError, match=r"the interval 1 ms cuts this log .* take \S+ m?s or longer"):
        report_of(spark, served.journal_directory, interval_us=1000)


def test_of_many_queues_those_with_most_messages_are_listed(
    spark: "SparkSession", served: ServerProcess, monkeypatch: Any
) -> None:
    monkeypatch.setattr(queue_report_counting, "QUEUES_MAX", 2)
    report = report_of(spark, served.journal_directory)
    assert [figures.queue for figures in report.queues] == ["Q", "Qonce"]
    assert report.notes[-1].startswith("Only the 2 queues with most messages are shown")


def test_delayed_returns_and_transactions(spark: "SparkSession", start_module_server: StartServer) -> None:
    """queue_guarantees.md §2, §4: a message cancelled with a delay stays; one of a transaction is acknowledged, once;
    a refused transaction changes nothing; delayed messages count in the depth of the report.
    """
    server = start_module_server(**options(queue_xml("Q", "T")))
    with Peers("worker") as peers:
        publisher = peers.logged_on(server)
        publisher.publish_all("T", bodies(1, 2, 3, 4))
        publisher.publish("T", b"later", delay=3_600_000)
        publisher.flush("persisted")
        worker = peers.logged_on(server, name="mover")
        worker.subscribe("Q", "s", o="max_backlog=10")
        first, second, third, _ = worker.receive_published(4)
        acknowledge(worker, first, o="cancel,delay=1h")
        acknowledge(worker, second, o="cancel,delay=50ms")
        (again,) = worker.receive_published(1)
        assert transact(worker, [again], 1, transaction_body(result(b"r"), result(b"s", "T"))).succeeded
        assert transact(worker, [first], 4, b"").reason == "lease lost"
        assert transact(worker, [again], 1, transaction_body(result(b"r"), result(b"s", "T"))).succeeded
        acknowledge(worker, third, o="cancel,delay=1h")
        acknowledge(worker, third)
    server.stop()
    figures = figures_of(report_of(spark, server.journal_directory), "Q")
    assert (figures.entered, figures.left, figures.expired) == (6, {"acknowledged": 2}, {})
    assert (figures.depth, figures.redeliveries) == (4, 1)
    assert [(one.consumer, one.acknowledged) for one in figures.consumers] == [("mover", 2)]
    assert sum(one.left for one in figures.intervals) == 2
    assert figures.durations.keys() == {"acknowledged"}
    assert not any("no longer in the log" in note for note in figures.notes)


@pytest.fixture(scope="module")
def shortened(start_module_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log without its first journal: `first` acknowledged only messages of that journal, `second` others, too."""
    server = start_module_server(**options(queue_xml("Q", "T")))
    with Peers("worker") as peers:
        publisher = peers.logged_on(server)
        pad = "x" * 200_000
        publisher.publish_all("T", [b'{"id":%d,"pad":"%s"}' % (n, pad.encode()) for n in range(SHORTENED)])
        publisher.flush("persisted")
        for name, count in (("first", 20), ("second", SHORTENED - 20)):
            client = peers.logged_on(server, name=name)
            client.subscribe("Q", "s", o="max_backlog=5")
            for _ in range(count // 5):
                acknowledge(client, *client.receive_published(5))
            client.close()
    server.stop()
    directory = tmp_path_factory.mktemp("shortened")
    for path in server.journal_directory.iterdir():
        if ".0000000000." not in path.name:
            (directory / path.name).symlink_to(path)
    return directory


def test_messages_of_removed_journals_are_in_no_percentile(spark: "SparkSession", shortened: Path) -> None:
    figures = figures_of(report_of(spark, shortened), "Q")
    assert figures.left == {"acknowledged": SHORTENED}
    timed = figures.durations["acknowledged"].count
    assert (timed > 0, figures.untimed) == (True, SHORTENED - timed)
    second, first = figures.consumers
    assert (first.consumer, first.acknowledged, first.untimed) == ("first", 20, 20)
    assert (first.p50_us, first.p99_us) == (None, None)
    assert (second.consumer, second.acknowledged, second.untimed) == (
        "second",
        SHORTENED - 20,
        figures.untimed - 20,
    )
    # All messages with known times are its own.
    times = figures.durations["acknowledged"]
    assert (second.p50_us, second.p99_us) == (times.p50_us, times.p99_us)
    assert any(f"no longer in the log: {figures.untimed};" in note for note in figures.notes)


def test_the_page_counts_them_apart(spark: "SparkSession", shortened: Path, tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    ran = CliRunner().invoke(amps, ["pipeline", "queue-report", str(shortened), "-output", str(output)])
    assert ran.exit_code == 0, ran.output
    rows = [[cell.text for cell in row] for row in parsed(output).iter("tr")]
    assert ["first", "20", "14.3%", "20", "-", "-"] in rows
    (apart,) = [row[1] for row in rows if row[0] is not None and row[0].endswith("time not known")]
    assert int(apart or 0) > 20


def test_journals_without_queues(spark: "SparkSession", tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    directory = tmp_path / "journal"
    directory.mkdir()
    Directory(directory).fill(1, 3)
    ran = CliRunner().invoke(amps, ["pipeline", "queue-report", str(directory), "-output", str(output)])
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.splitlines()[0] == "there are no records of queues in this part of the log"
    assert "There are no records of queues" in "".join(parsed(output).itertext())


# --- the page and the command --------------------------------------------------------------------------------------


def parsed(path: Path) -> ElementTree.Element:
    """Parse the page, which must be well-formed and must not load anything."""
    text = path.read_text(encoding="utf-8")
    doctype, _, rest = text.partition("\n")
    assert doctype == "<!DOCTYPE html>"
    root = ElementTree.fromstring(rest)
    allowed = {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "ul", "li", "table", "thead", "tbody",
        "tr", "th", "td", "svg", "polyline", "line", "rect", "text",
    }  # fmt: skip
    assert {element.tag for element in root.iter()} <= allowed
    for element in root.iter():
        for name in element.attrib:
            assert name not in ("src", "href", "xlink:href", "style")
            assert not name.startswith("on")
    for reference in ("url(", "@import", "http"):
        assert reference not in text
    return root


def test_the_page_shows_the_figures(
    spark: "SparkSession", served: ServerProcess, report: QueueReport, tmp_path: Path
) -> None:
    output = tmp_path / "report.html"
    ran = CliRunner().invoke(
        amps,
        [
            "pipeline",
            "queue-report",
            str(served.journal_directory),
            "--output",
            str(output),
            "-interval",
            "20ms",
        ],
    )
    assert ran.exit_code == 0, ran.output
    root = parsed(output)
    rows = [[cell.text for cell in row] for row in root.iter("tr")]
    times = figures_of(report, "Q").durations["acknowledged"]
    shown = [duration(us) for us in (times.p50_us, times.p90_us, times.p99_us, times.max_us)]
    assert ["Q (json)", "40", "24", "1", "0", "16", "40", *shown] in rows
    assert next(row[:3] for row in rows if row[0] == "fast") == ["fast", "14", "60.9%"]
    assert ["expired: max_deliveries", "8"] in rows
    assert ["redeliveries before they left", "3"] in rows
    titles = [element.text for element in root.iter("h2")]
    assert f"{HOSTILE} (json)" in titles
    assert [row[0] for row in rows].count(HOSTILE_CONSUMER) == 1
    assert "<script" not in output.read_text()
    (line,) = [line.split() for line in ran.stdout.splitlines() if line.startswith("Q (json)")]
    assert line[2:8] == ["40", "24", "1", "0", "16", "40"]
    assert any(NOTES[0] in line for line in ran.stdout.splitlines())
    plots = list(root.iter("svg"))
    assert len(plots) > 2 * len(report.queues)
    assert all(float(y) <= 220 for line in root.iter("polyline") for y in _ys(line))


def _ys(line: ElementTree.Element) -> list[str]:
    return [point.split(",")[1] for point in line.attrib["points"].split()]


def test_names_that_xml_cannot_hold(report: QueueReport, tmp_path: Path) -> None:
    """The page stays well-formed, whatever the name of a queue is."""
    name = "Q\x00\x1b[2J\ud800]]></title><!--" + '"'
    hostile = dataclasses.replace(figures_of(report, "Q"), queue=name, notes=(name,))
    path = tmp_path / "page.html"
    path.write_text(
        queue_report_page(dataclasses.replace(report, instance=name, queues=(hostile,))), encoding="utf-8"
    )
    shown = "Q\ufffd\ufffd[2J\ufffd]]></title><!--" + '"'
    assert next(element.text for element in parsed(path).iter("h2")) == f"{shown} (json)"


def test_the_command_prints_json_of_one_queue(spark: "SparkSession", served: ServerProcess) -> None:
    ran = CliRunner().invoke(
        amps, ["pipeline", "queue-report", str(served.journal_directory), "-queue", HOSTILE, "-json"]
    )
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.stdout)
    (figures,) = told["queues"]
    assert (figures["queue"], figures["left"]) == (HOSTILE, {"acknowledged": 5})
    assert figures["consumers"][0]["share"] == 1


def test_a_dry_run_reports_the_size_of_the_read(served: ServerProcess, tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    ran = CliRunner().invoke(
        amps, ["pipeline", "queue-report", str(served.journal_directory), "-dry-run", "-output", str(output)]
    )
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.startswith(f"{served.journal_directory}: would read 1 journal of Test, ")
    assert not output.exists()
