"""Streams from a journal directory, without Spark: the contents of micro-batches while the directory changes."""

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from amps._core.journal.reader import LogMissing
from amps._core.values.value import publisher_id
from amps.journal.compression import compress_journal
from amps.journal.disk import Disk
from amps.spark.streaming_errors import StreamReadError
from tests.support.log_directories import NAME, Directory
from tests.support.micro_batches import Query, numbered, payloads, publish
from tests.support.server import StartServer

pytestmark = pytest.mark.timeout(120)

COUNT = 400


@pytest.fixture
def log(tmp_path: Path) -> Directory:
    """Several full journals with indexes, and one in use; all of it is durable."""
    path = tmp_path / "journal"
    path.mkdir()
    directory = Directory(path).fill(7, COUNT)
    directory.promise(directory.end)
    return directory


def bodies(log: Directory, first: int = 0, end: int | None = None) -> list[bytes]:
    return [record.payload for record in log.records[first:end]]


def bookmark(record: Any) -> str:
    return f"{record.publisher_id}|{record.sequence}|"


def promise_before(log: Directory, number: int) -> None:
    """Set the watermark to a record: the records behind it are not durable yet."""
    log.promise(log.records[number].position)


def flat(batches: list[list[bytes]]) -> list[bytes]:
    return [body for batch in batches for body in batch]


def test_rows_are_those_of_a_batch_read(log: Directory) -> None:
    with Query(path=log.path) as query:
        tasks = query.batch()
        assert tasks is not None
        rows = [row for task in tasks for row in task]
    assert len(rows) == COUNT
    for row, record in zip(rows, log.records, strict=True):
        assert (row["position"], row["bookmark"]) == (record.position, bookmark(record))
        assert (row["topic"], row["message_type"], row["kind"]) == (*record.topic, "publish")
        assert (row["payload"], publisher_id(row["publisher"])) == (record.payload, record.publisher_id)


def test_records_that_are_not_durable_come_later(log: Directory) -> None:
    with Query(path=log.path) as query:
        for first, end in ((0, 40), (40, 41), (41, 300)):
            promise_before(log, end)
            assert query.all() == [bodies(log, first, end)]
            query.restart()
        log.promise(log.end)
        assert query.all() == [bodies(log, 300)]


def test_without_a_watermark_the_log_ends_with_its_records(log: Directory) -> None:
    for path in log.path.glob("*.durable"):
        path.unlink()
    with Query(path=log.path) as query:
        assert query.all() == [bodies(log)]
        assert json.loads(query.offsets[-1])["bookmark"] == bookmark(log.records[-1])


def test_limits_and_parts(log: Directory) -> None:
    with Query(path=log.path, max_messages_per_batch=150, partitions=4) as query:
        found = [query.batch() for _ in range(3)]
        assert query.batch() is None
        assert [len(tasks or []) for tasks in found] == [4, 4, 4]
        assert [payloads(tasks or []) for tasks in found] == [
            bodies(log, 0, 150), bodies(log, 150, 300), bodies(log, 300),
        ]  # fmt: skip
        assert all(task for tasks in found for task in tasks or [])
        ends = [json.loads(text)["bookmark"] for text in query.offsets]
        assert ends == [None, *(bookmark(log.records[number]) for number in (149, 299, 399))]


def test_a_limit_of_bytes(log: Directory) -> None:
    with Query(path=log.path, max_bytes_per_batch=20_000) as query:
        found = query.all()
        cuts = [json.loads(text)["cuts"] for text in query.offsets[1:]]
    assert flat(found) == bodies(log)
    assert len(found) > 4
    assert all(end - first <= 20_000 for first, end in cuts)


def test_the_same_batch_has_the_same_rows(log: Directory, tmp_path: Path) -> None:
    """While the log grows, and its journals lose their indexes, are compressed and archived."""
    archive = tmp_path / "archive"
    archive.mkdir()
    promise_before(log, 310)
    options = {"path": log.path, "archive": archive, "topic": "topic-[1-6]", "partitions": 3}
    with Query(**options, max_messages_per_batch=70) as query:
        first = [query.batch() for _ in range(3)]
        log.promise(log.end)
        query.restart(max_messages_per_batch=33, partitions=7)
        assert [query.tasks(number) for number in range(3)] == first
        for number in log.numbers[:3]:
            plain = log.journal(number)
            for _ in compress_journal(Disk(), plain, plain.with_suffix(".journal.gz")):
                pass
        for path in log.path.glob("*.index"):
            path.unlink()
        for path in list(log.path.glob(f"{NAME}.000000000[01].journal.gz")):
            shutil.move(path, archive)
        assert [query.tasks(number) for number in range(3)] == first
        rest = flat(query.all())
    wanted = [record.payload for record in log.records if "1" <= record.topic[0][-1] <= "6"]
    assert [body for tasks in first for body in payloads(tasks or [])] + rest == wanted


def test_removed_journals_are_an_error(log: Directory) -> None:
    with Query(path=log.path, max_messages_per_batch=100) as query:
        query.batch()
        behind = query.reader
        start, end = (json.loads(text) for text in query.offsets)
        planned = behind.partitions(start, end)
        while query.batch() is not None:
            pass
        log.journal(0).unlink()
        with pytest.raises(StreamReadError, match=r"were removed .they begin at"):
            query.tasks(0)
        with pytest.raises(LogMissing, match="not there any more"):
            [query._run(partition) for partition in planned]
        # Behind the query's current place all journals are there.
        assert payloads(query.tasks(3)) == bodies(log, 300)
        query.restart()
        assert query.plan() is False


def test_a_query_whose_place_was_removed(log: Directory) -> None:
    with Query(path=log.path, max_messages_per_batch=3) as query:
        query.batch()
        log.journal(0).unlink()
        with pytest.raises(StreamReadError, match="Nothing is skipped silently"):
            query.restart().plan()


def test_journals_that_are_all_gone(log: Directory) -> None:
    with Query(path=log.path) as query:
        query.batch()
        for path in log.path.iterdir():
            path.unlink()
        with pytest.raises(StreamReadError, match="there are no journals in"):
            query.plan()


def test_another_log_in_the_place(log: Directory) -> None:
    with Query(path=log.path, max_messages_per_batch=50) as query:
        query.batch()
        for path in log.path.iterdir():
            path.unlink()
        other = Directory(log.path).fill(8, COUNT)
        other.promise(other.end)
        with pytest.raises(StreamReadError, match="it is another log"):
            query.restart().plan()


def test_where_a_query_begins(log: Directory) -> None:
    record = log.records[123]
    at_us = record.timestamp_ns // 1000
    later = [other.payload for other in log.records if other.timestamp_ns // 1000 > at_us]
    text = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)).strftime("%Y%m%dT%H%M%S.%fZ")
    for start, wanted in (
        ("epoch", bodies(log)),
        (bookmark(record), bodies(log, 124)),
        (text, later),
        ("now", []),
    ):
        with Query(path=log.path, start=start) as query:
            assert flat(query.all()) == wanted, start


def test_now_is_when_the_query_began(log: Directory) -> None:
    promise_before(log, 200)
    with Query(path=log.path, start="now") as query:
        query.begin()
        log.promise(log.end)
        assert query.restart().all() == [bodies(log, 200)]


def test_from_a_bookmark_that_is_not_there(log: Directory) -> None:
    with (
        Query(path=log.path, start="5|5|") as query,
        pytest.raises(ValueError, match=r"option 'start' names, 5.5., is"),
    ):
        query.begin()


def test_a_directory_that_fills(tmp_path: Path) -> None:
    for start in ("now", "epoch"):
        path = tmp_path / start
        path.mkdir()
        with Query(path=path, start=start) as query:
            assert query.plan() is False
            directory = Directory(path).fill(1, 20)
            directory.promise(directory.end)
            assert query.all() == [bodies(directory)]


def test_unmatched_messages_make_no_micro_batch(log: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    promise_before(log, 100)
    with Query(path=log.path, topic="nothing") as query:
        assert query.plan() is False
        promise_before(log, 200)
        assert query.plan() is False
        monkeypatch.setattr("amps.spark.streaming_reader.IDLE_ADVANCE_S", 0.0)
        assert query.batch() == []
        end = json.loads(query.offsets[-1])
        assert (end["position"], end["bookmark"]) == (log.records[200].position, bookmark(log.records[199]))
        assert query.plan() is False
        assert query.restart().plan() is False


def test_a_query_that_ends_with_the_present_messages(log: Directory) -> None:
    """Trigger.AvailableNow."""
    promise_before(log, 250)
    with Query(path=log.path, max_messages_per_batch=100) as query:
        query.reader.prepareForTriggerAvailableNow()
        log.promise(log.end)
        assert flat(query.all()) == bodies(log, 0, 250)
        query.restart().reader.prepareForTriggerAvailableNow()
        assert flat(query.all()) == bodies(log, 250)


def test_without_admission_control(log: Directory) -> None:
    """PySpark 4.0: the source is not called with the beginning of a micro-batch."""
    with Query(path=log.path, max_messages_per_batch=250) as query:
        offsets = [query.reader.initialOffset(), *(query.reader.latestOffset() for _ in range(3))]
        assert offsets[2] == offsets[3]
        parts = query.reader.partitions(offsets[1], offsets[2])
        assert payloads([query._run(part) for part in parts]) == bodies(log, 250)
        end = query.restart().reader.latestOffset()
        parts = query.reader.partitions(offsets[1], end)
        assert payloads([query._run(part) for part in parts]) == bodies(log, 250)


def test_beside_a_running_server(start_server: StartServer) -> None:
    """Across the end of a journal, which is moved meanwhile."""
    server = start_server(log_topics=("^L/",))
    uri = f"tcp://127.0.0.1:{server.port()}/amps/json"
    sent, found = 0, []
    with Query(path=server.journal_directory, topic="L/t", partitions=2) as query:
        for round_number in range(6):
            publish(uri, "L/t", numbered(sent, sent + 40, 100_000), f"p{round_number}")
            sent += 40
            found += flat(query.all())
            assert found == numbered(0, sent, 100_000)
            if round_number == 3:
                server.kill_all()
                server.start()
                query.restart()
    assert len([path for path in server.journals() if os.path.getsize(path)]) > 2
