"""Parts of reports: round intervals, times as texts, plots, and rows from records of queues."""

import struct
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'amps-server[spark]')")
pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")

import pyarrow

from amps.journal.disk import Disk
from amps.journal.names import queues_ack_path
from amps.journal.queues_ack import LogMark, QueueStart, write_queues_ack
from amps.spark.pipelines.job import PipelineError
from amps.spark.pipelines.queue_report_entries import left, published
from amps.spark.pipelines.queue_report_rules import EntryRule, read_rules
from amps.spark.pipelines.report_intervals import (
    check_interval,
    chosen_interval_us,
    duration,
    intervals_covering,
    moment,
)
from amps.spark.pipelines.report_page import page, table
from amps.spark.pipelines.report_plots import HEIGHT, Series, nice_top, stacked_bars, time_plot


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0 µs"),
        (7, "7 µs"),
        (1_234, "1.23 ms"),
        (340_000, "340 ms"),
        (1_000_000, "1 s"),
        (59_990_000, "60 s"),
        (90_000_000, "1.5 m"),
        (36_000_000_000, "10 h"),
        (172_800_000_000, "2 d"),
        (1_234_500_000_000_000, "14288 d"),
    ],
)
def test_durations(us: int, text: str) -> None:
    assert duration(us) == text


def test_moments() -> None:
    assert moment(1_700_000_000_000_000) == "2023-11-14T22:13:20Z"
    assert moment(1_700_000_000_120_000) == "2023-11-14T22:13:20.12Z"


def test_intervals_are_round_and_not_too_many() -> None:
    first = 1_700_000_000_000_123
    for last_s in (0.001, 1, 59, 3600, 86_400, 86_400 * 900, 86_400 * 365 * 400):
        last = first + int(last_s * 1e6)
        interval = chosen_interval_us(first, last, 100)
        assert intervals_covering(first, last, interval) <= 100
        check_interval(first, last, interval, 100)
    assert chosen_interval_us(first, first + 3_600_000_000, 100) == 60_000_000
    assert intervals_covering(999, 1000, 1000) == 2
    with pytest.raises(
        PipelineError, match=r"the interval 1 s cuts this log into 3,601 intervals.*take 1 m or"
    ):
        check_interval(first, first + 3_600_000_000, 1_000_000, 100)


def test_axes_end_at_round_numbers() -> None:
    assert [nice_top(value) for value in (0, 1, 3, 5, 6, 99, 101, 0.3)] == [1, 1, 5, 5, 10, 100, 200, 0.5]


def test_plots_stay_within_their_frame() -> None:
    bars = stacked_bars(["a", "b"], [Series("one", "one", [3, 0]), Series("two", "two", [2, 7])])
    heights = [float(bar.attrib["height"]) for bar in bars.iter("rect") if bar.attrib["height"] != "8"]
    assert len(heights) == 3
    assert heights[2] / heights[0] == pytest.approx(7 / 3, abs=0.01)
    lower, upper = [bar.attrib for bar in bars.iter("rect")][:2]
    assert float(upper["y"]) + float(upper["height"]) == pytest.approx(float(lower["y"]), abs=0.2)
    assert [title.text for title in bars.iter("title")] == ["a: 3 one", "a: 2 two", "b: 7 two"]
    line = time_plot([0, 1000], 1000, [Series("depth", "one", [5, 10])]).find("polyline")
    assert line is not None
    ys = [float(point.split(",")[1]) for point in line.attrib["points"].split()]
    assert ys[0] == ys[1] > ys[2] == ys[3] >= 0
    assert max(ys) <= HEIGHT
    assert time_plot([], 1000, []).find("text") is not None


def test_pages_are_well_formed_for_any_content() -> None:
    nasty = "</td><script>x</script>&\x00\x0b\ufffe\ud800" + '"'
    text = page(nasty, table(("a", nasty), [(nasty, 1234), ("x", "5 s")]))
    root = ElementTree.fromstring(text.partition("\n")[2])
    assert "<script" not in text
    cells = [cell.text for cell in root.iter("td")]
    assert cells == ["</td><script>x</script>&\ufffd\ufffd\ufffd\ufffd" + '"', "1,234", "x", "5 s"]


# --- records of queues -------------------------------------------------------------------------------------------


def payload(action: int, *entries: tuple[int, int]) -> bytes:
    """A record's payload: (position, reasons) of each entry."""
    head = struct.pack("<II24x", action, len(entries))
    return head + b"".join(struct.pack("<QQQII", 9, 9, position, 9, reasons) for position, reasons in entries)


def batch(*payloads: bytes) -> pyarrow.RecordBatch:
    count = len(payloads)
    return pyarrow.RecordBatch.from_pydict(
        {
            "position": pyarrow.array([1000 + at for at in range(count)], pyarrow.int64()),
            "us": pyarrow.array([5000 + at for at in range(count)], pyarrow.int64()),
            "publisher": [None if at == 1 else f"c{at}" for at in range(count)],
            "topic": [f"Q{at}" for at in range(count)],
            "message_type": ["json"] * count,
            "payload": pyarrow.array(payloads, pyarrow.binary()),
        }
    )


def test_records_become_a_row_per_entry() -> None:
    whole = batch(payload(0, (8, 0), (16, 0)), payload(0), payload(2, (24, 3)), payload(4, (32, 16)))
    (found,) = left(iter([whole.slice(0, 0), whole]))
    columns = found.to_pydict()
    assert columns["position"] == [8, 16, 24, 32]
    assert columns["queue"] == ["Q0", "Q0", "Q2", "Q3"]
    assert columns["left_position"] == [1000, 1000, 1002, 1003]
    assert columns["left_us"] == [5000, 5000, 5002, 5003]
    assert columns["action"] == [0, 0, 2, 4]
    assert columns["reasons"] == [0, 0, 3, 16]
    assert columns["consumer"] == ["c0", "c0", "c2", "c3"]
    (part,) = left(iter([whole.slice(2)]))
    assert part.to_pydict()["position"] == [24, 32]


def test_a_delayed_return_is_no_removal() -> None:
    """queue_guarantees.md §2, 3: a message that was cancelled with a delay has not left; its removal comes later."""
    (found,) = left(iter([batch(payload(6, (8, 0), (16, 0)), payload(0, (8, 0)), payload(6, (24, 0)))]))
    columns = found.to_pydict()
    assert (columns["position"], columns["action"], columns["consumer"]) == ([8], [0], [None])
    assert (columns["left_position"], columns["queue"]) == ([1001], ["Q1"])


@pytest.mark.parametrize("broken", [b"", payload(0, (8, 0))[:-1], payload(0, (8, 0))[:-32]])
def test_malformed_records_are_named(broken: bytes) -> None:
    with pytest.raises(ValueError, match="the queue record at log position 1001 is malformed"):
        list(left(iter([batch(payload(0, (8, 0)), broken)])))


def test_messages_have_the_queues_that_take_them() -> None:
    rules = (
        EntryRule("Q", "json", "T", False, None, 0),
        EntryRule("R", "json", "^T[12]$", True, None, 0),
        EntryRule("X", "xml", "T", False, None, 0),
        EntryRule("dots", "json", "T.", False, None, 0),
    )
    topics = ["T", "T1", "T", None, "TT", "T."]
    rows = pyarrow.RecordBatch.from_pydict(
        {
            "position": list(range(6)),
            "us": list(range(6)),
            "topic": topics,
            "message_type": ["json", "json", "xml", "json", None, "json"],
        }
    )
    (found,) = published(rules, iter([rows.slice(0, 0), rows]))
    assert found.column("queues").to_pylist() == [[0], [1], [2], [], [], [3]]
    (alone,) = published((), iter([rows]))
    assert alone.column("queues").to_pylist() == [[]] * 6


def test_rules_are_read_in_the_server_s_form(tmp_path: Path) -> None:
    """Malformed rules are left out."""
    rules, problem = read_rules(tmp_path, "here")
    assert (rules, problem) == (
        (),
        "here.queues.ack does not exist, so the entry rules of queues are not known",
    )
    starts = [
        QueueStart("Q", "json", ("epoch",), 77, (), ("T", False, "/x > 1", None, None, None, "default")),
        QueueStart("old", "json", ("epoch",), 5),
        QueueStart("bad", "json", ("epoch",), 5, (), ("(", True, None, None, None, None, "default")),
    ]
    path = queues_ack_path(tmp_path, "here")
    write_queues_ack(Disk(), path, LogMark(0, 0, 0, 0), starts)
    assert read_rules(tmp_path, "here") == ((EntryRule("Q", "json", "T", False, "/x > 1", 77),), None)
    path.write_bytes(b"nonsense")
    rules, problem = read_rules(tmp_path, "here")
    assert rules == ()
    assert problem is not None
    assert "the entry rules of queues are not known" in problem
