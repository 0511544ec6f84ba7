"""Planning and reading of journals without a Spark session: the parts that are read or skipped, and damage."""

import gc
import struct
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'amps-server[spark]')")
pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")

from amps._core.columns.columns import COLUMNS  # noqa: E402
from amps._core.journal.reader import LogDamaged  # noqa: E402
from amps._core.values.value import derived_publisher_id, publisher_id  # noqa: E402
from amps.journal.compression import compress_journal  # noqa: E402
from amps.journal.disk import Disk  # noqa: E402
from amps.journal.names import topic_index_path  # noqa: E402
from amps.journal.topic_index import make_topic_index  # noqa: E402
from amps.spark.options import read_options  # noqa: E402
from amps.spark.planning import make_plan  # noqa: E402
from amps.spark.reading import Request, SplitReader  # noqa: E402
from tests.support.journals import START_POSITION, journal, name_payload  # noqa: E402
from tests.support.log_directories import NAME, Directory  # noqa: E402
from tests.support.records import CLIENT, KIND_NAME, RecordParts, element  # noqa: E402
from tests.support.split_reads import Read, positions  # noqa: E402

COUNT = 400
REGIONS = ("damaged_regions", "damaged_bytes")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Directory:
    """Full journals with indexes, and one in use."""
    path = tmp_path_factory.mktemp("log") / "journal"
    path.mkdir()
    return Directory(path).fill(1, COUNT)


@pytest.fixture
def own(tmp_path: Path) -> Directory:
    """A copy of the directory, which the test may change."""
    path = tmp_path / "journal"
    path.mkdir()
    return Directory(path).fill(1, COUNT)


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def bookmark(record: Any) -> str:
    return f"{record.publisher_id}|{record.sequence}|"


NAMES = {publisher_id(f"p{number}"): f"p{number}" for number in range(10)}


@pytest.mark.parametrize("options", [{}, {"topic": "^topic-[0-4]$"}])
def test_every_split_knows_the_names_of_publishers(directory: Directory, options: dict[str, str]) -> None:
    """Also of publishers that were named before the split, whatever way its first place was found."""
    whole = Read(directory.path, **options)
    parts = Read(directory.path, split_bytes="65536", **options)
    assert len(parts.partitions) > len(whole.partitions)
    assert parts.column("publisher") == whole.column("publisher")
    assert set(parts.column("publisher")) <= set(NAMES.values())


def test_rows_are_the_records(directory: Directory) -> None:
    rows = Read(directory.path).rows
    assert len(rows) == COUNT
    for row, record in zip(rows, directory.records, strict=True):
        assert row["position"] == record.position
        assert row["payload"] == record.payload
        assert row["bookmark"] == bookmark(record)
        assert row["publisher"] == NAMES[record.publisher_id]
        assert row["sequence"] == record.sequence
        assert (row["topic"], row["message_type"]) == record.topic
        assert row["kind"] == "publish"
        assert row["expiration"] is None
        assert row["timestamp"].microsecond == record.timestamp_ns // 1000 % 1_000_000


@pytest.mark.parametrize("indexed", [True, False])
def test_splits_cover_each_record_once(
    own: Directory, indexed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not indexed:
        for path in own.path.glob("*.index"):
            path.unlink()
    monkeypatch.setattr("amps.spark.options.SPLIT_BYTES_MIN", 1)
    read = Read(own.path, split_bytes="3000")
    assert read.column("position") == positions(own)
    assert len(read.partitions) >= len(own.numbers)
    assert len(Read(own.path).partitions) == 1


def test_an_index_of_a_large_file_gives_several_splits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.support.log_directories.FILE_BYTES", 1 << 20)
    path = tmp_path / "journal"
    path.mkdir()
    large = Directory(path).fill(3, 4000)
    read = Read(path, split_bytes="131072")
    assert read.column("position") == positions(large)
    assert len(read.partitions) > len(large.numbers) + 4
    assert read.total("records_read") == 4000
    middle = large.records[2000]
    after = Read(path, from_=bookmark(middle), split_bytes="131072")
    assert after.column("position") == positions(large)[2001:]
    assert after.total("bytes_read") < read.total("bytes_read") * 0.6


@pytest.mark.parametrize("wanted", [{}, {"topic": "topic-3"}])
@pytest.mark.parametrize("indexed", [True, False])
def test_pieces_of_a_journal_that_a_task_reads_are_read_as_one(
    tmp_path: Path, indexed: bool, wanted: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.support.log_directories.FILE_BYTES", 1 << 20)
    monkeypatch.setattr("amps.spark.options.SPLIT_BYTES", 1 << 16)
    monkeypatch.setattr("amps.spark.planning.GAP_BYTES", 1024)
    path = tmp_path / "journal"
    path.mkdir()
    large = Directory(path).fill(3, 4000)
    if not indexed:
        for index in path.glob("*.index"):
            index.unlink()
    expected = Read(path, split_bytes=str(1 << 30), **wanted)
    assert expected.rows
    for size in (1 << 16, 1 << 18, 1 << 21):
        monkeypatch.setattr("amps.spark.source.task_bytes", lambda total, size=size: size)
        read = Read(path, **wanted)
        assert read.rows == expected.rows
        assert read.total("bytes_read") == expected.total("bytes_read")
        # A journal is opened once for each task.
        numbers = [[split.number for split in partition.splits] for partition in read.partitions]
        assert all(len(set(task)) == len(task) for task in numbers)
        assert len(read.reports) == sum(len(task) for task in numbers)
        ends = {split.number: split.to_end for partition in read.partitions for split in partition.splits}
        assert wanted or all(ends.values())
    assert 1 <= len(read.partitions) <= 2
    if not wanted:
        assert expected.column("position") == positions(large)


def test_memory_of_a_journal_is_released_without_the_collector(directory: Directory) -> None:
    """A task reads many journals, one after the other."""
    options = read_options({"path": str(directory.path)})
    plan = make_plan(options, options.selection)
    request = Request(plan.selection, (*COLUMNS, "data"), (("n", "long"),), False)
    gc.disable()
    try:
        reader = SplitReader(plan.splits[0], request)
        assert sum(batch.num_rows for batch in reader.batches())
        gone = weakref.ref(reader)
        del reader
        assert gone() is None
    finally:
        gc.enable()


def test_a_topic_index_leaves_out_other_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.log_directories.FILE_BYTES", 1 << 20)
    monkeypatch.setattr("amps.spark.planning.GAP_BYTES", 1024)
    path = tmp_path / "journal"
    path.mkdir()
    large = Directory(path).fill(3, 4000)
    wanted = [record.position for record in large.records if record.topic[0] == "topic-4"]
    before = Read(path, topic="topic-4")
    assert before.column("position") == wanted
    for number in large.numbers[:-1]:
        topic_index_path(path, NAME, number).write_bytes(make_topic_index(large.journal(number)))
    after = Read(path, topic="topic-4")
    assert after.column("position") == wanted
    assert after.column("publisher") == before.column("publisher")
    assert set(after.column("publisher")) <= set(NAMES.values())
    assert after.total("bytes_read") < before.total("bytes_read") * 0.7
    assert Read(path, topic="^none").rows == []
    for index in path.glob("*[0-9].index"):
        index.unlink()
    assert Read(path, topic="topic-4").column("publisher") == before.column("publisher")


@pytest.mark.parametrize(
    ("topic", "names"),
    [
        ("topic-3", {"topic-3"}),
        ("topic-[12]$", {"topic-1", "topic-2"}),
        ("opic", set()),
        ("o.ic-8", {"topic-8"}),
    ],
)
def test_a_topic_is_literal_or_an_expression(directory: Directory, topic: str, names: set[str]) -> None:
    """protocol.md §8: a topic with regex characters is an expression, unanchored."""
    read = Read(directory.path, topic=topic)
    assert set(read.column("topic")) == names
    assert read.column("position") == [r.position for r in directory.records if r.topic[0] in names]


def test_from_is_not_read_and_to_is(directory: Directory) -> None:
    """transaction_log.md §5.3: brackets change that."""
    first, last = bookmark(directory.records[100]), bookmark(directory.records[300])
    all_of = positions(directory)
    whole = Read(directory.path)
    inner = Read(directory.path, from_=first, to=last)
    assert inner.column("position") == all_of[101:301]
    assert inner.total("bytes_read") < whole.total("bytes_read") * 0.8
    assert Read(directory.path, from_=f"[{first}", to=f"{last})").column("position") == all_of[100:300]
    assert Read(directory.path, from_="0", to=first).column("position") == all_of[:101]
    assert Read(directory.path, from_=last, to=first).rows == []


def test_a_bookmark_that_is_not_there_is_an_error(directory: Directory) -> None:
    with pytest.raises(ValueError, match=r"'from' names, 7\|7\|, is not in the journals"):
        Read(directory.path, from_="7|7|")


def test_times_leave_out_files(tmp_path: Path) -> None:
    """transaction_log.md §20, 9 and 10: compared in microseconds."""
    path = tmp_path / "journal"
    path.mkdir()
    second = 10**9
    for number in range(3):
        parts = [
            RecordParts(b"%d" % at, publisher_id=9, sequence=at + 1, timestamp_ns=at * second)
            for at in range(number * 10, number * 10 + 10)
        ]
        write_journal(path, number, parts)
    times = {"from_": "19700101T000012", "to": "19700101T000014"}
    assert Read(path, **times).column("payload") == [b"13", b"14"]
    assert Read(path, from_="[19700101T000012", to="19700101T000014)").column("payload") == [b"12", b"13"]
    assert Read(path, to="19700101T000000)").rows == []
    assert Read(path, from_="19700101T000028.999999").column("payload") == [b"29"]


def write_journal(
    directory: Path, number: int, parts: list[RecordParts], size: int = 16384, **of: Any
) -> Path:
    """Write the `number`th journal of a log whose files have one size; the newest one is not `finished`."""
    data = bytearray(journal(parts, size, finished=of.get("finished", True)))
    # The helper makes a journal number 3 with another start position; here the journals are consecutive.
    shift = number * size - START_POSITION
    return moved(directory, data, number, shift)


def moved(directory: Path, data: bytearray, number: int, shift: int) -> Path:
    from amps._core.journal.reader import build_file_header
    from tests.support.records import crc32c

    size = len(data)
    data[:4096] = build_file_header(number, size, START_POSITION + shift, 1, 1, 2, "inst", True)
    offset = 4096
    while offset + 80 <= size and (length := struct.unpack_from("<I", data, offset)[0]):
        position = struct.unpack_from("<Q", data, offset + 8)[0] + shift
        struct.pack_into("<Q", data, offset + 8, position)
        struct.pack_into("<I", data, offset + 4, crc32c(bytes(data[offset + 8 : offset + length])))
        offset += (length + 7) // 8 * 8
    path = directory / f"inst.{number:010d}.journal"
    path.write_bytes(data)
    return path


def test_every_kind_and_every_value(tmp_path: Path) -> None:
    """docs/files.md; transaction_log.md §4.3: the publisher of messages that the server numbered."""
    path = tmp_path / "journal"
    path.mkdir()
    derived = derived_publisher_id("anna", "inst")
    client = element(CLIENT, publisher_id("anna"))
    common = RecordParts(publisher_id=publisher_id("anna"), timestamp_ns=1_500_000_000_000_001_999)
    parts = [RecordParts(name_payload(publisher_id("anna"), b"anna"), kind=KIND_NAME)]
    parts += [replace(common, kind=kind, sequence=kind, topic_id=kind % 2) for kind in range(1, 9)]
    parts += [
        replace(common, sequence=20, flags=2),
        replace(common, sequence=21, publisher_id=derived, extension=client, flags=1),
        replace(common, sequence=22, publisher_id=0),
        replace(common, sequence=1 << 63, publisher_id=5, expiration_s=0),
        replace(common, sequence=23, expiration_s=7, sow_key=b"k", user_id=b"u", payload=b"p" * 1000),
        replace(common, sequence=24, kind=15),
    ]
    write_journal(path, 0, parts, finished=False)
    rows = {row["sequence"]: row for row in Read(path).rows}
    assert [rows[kind]["kind"] for kind in range(1, 9)] == [
        "publish",
        "delta_publish",
        "sow_delete",
        "queue_acknowledgement",
        "queue_expiry",
        "ownership_transfer",
        "checkpoint",
        "noop",
    ]
    assert rows[24]["kind"] == "unknown (15)"
    assert rows[20]["kind"] == "delta_publish"
    assert {row["message_type"] for row in rows.values()} == {"json", "fix"}
    assert rows[1]["publisher"] == rows[21]["publisher"] == "anna"
    assert rows[21]["bookmark"] == f"{derived}|21|"
    assert rows[22]["publisher"] is None
    assert rows[22]["bookmark"] is None
    assert rows[None]["bookmark"] == f"5|{1 << 63}|"
    assert rows[None]["publisher"] == "5"
    assert rows[None]["expiration"] is None
    assert (rows[23]["expiration"] - rows[23]["timestamp"]).total_seconds() == 7
    assert rows[23]["payload"] == b"p" * 1000
    assert rows[23]["timestamp"].isoformat() == "2017-07-14T02:40:00.000001+00:00"
    some = Read(path, kind="queue_expiry, delta_publish")
    assert some.column("sequence") == [2, 5, 20]


def test_some_columns_in_another_order(directory: Directory) -> None:
    rows = Read(directory.path, columns=("payload", "topic")).rows
    assert [list(row) for row in rows[:1]] == [["payload", "topic"]]
    assert [row["payload"] for row in rows] == [record.payload for record in directory.records]


def test_an_empty_directory_has_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.mkdir()
    assert Read(path).partitions == []


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Read(tmp_path / "nowhere")


def test_two_instances_have_to_be_told_apart(own: Directory) -> None:
    write_journal(own.path, 0, [RecordParts(b"x", publisher_id=1, sequence=1)], finished=False)
    with pytest.raises(ValueError, match="choose one by the option 'instance', of inst, journal"):
        Read(own.path)
    assert len(Read(own.path, instance="inst").rows) == 1
    assert len(Read(own.path, instance=NAME).rows) == COUNT
    assert Read(own.path, instance="other").rows == []


@pytest.mark.parametrize("spare", ["spare", "zeros", "empty"])
def test_spares_are_no_part_of_the_log(own: Directory, spare: str) -> None:
    path = own.add_spare()
    if spare == "zeros":
        path.write_bytes(bytes(16384))
    elif spare == "empty":
        path.write_bytes(b"")
    assert Read(own.path).column("position") == positions(own)


def test_the_log_ends_where_it_is_durable(own: Directory) -> None:
    """Records behind the watermark were not acknowledged yet."""
    own.promise(own.records[-3].position)
    assert Read(own.path).column("position") == positions(own)[:-3]


@pytest.mark.parametrize("from_end", [0, 1])
def test_a_file_of_which_nothing_is_durable_yet_is_no_part_of_the_log(own: Directory, from_end: int) -> None:
    """It has come into use, and the watermark has not reached it."""
    begin = own_start(own.journal(own.numbers[-1]))
    own.promise(begin - from_end)
    before = [position for position in positions(own) if position < begin]
    assert 0 < len(before) < COUNT
    assert Read(own.path).column("position") == before


@pytest.mark.parametrize("tail", ["garbage", "half"])
def test_a_torn_end_is_the_end(own: Directory, tail: str) -> None:
    """transaction_log.md §20, 33: a torn record was never acknowledged."""
    last = own.records[-1]
    path = own.journal(own.numbers[-1])
    offset = last.position - own_start(path)
    overwrite(path, offset + (80 if tail == "half" else 0), b"\xa5" * 40)
    assert Read(own.path).column("position") == positions(own)[:-1]


def own_start(path: Path) -> int:
    return int(struct.unpack_from("<Q", path.read_bytes(), 40)[0])


def test_a_torn_end_of_durable_records_is_damage(own: Directory) -> None:
    own.promise(own.end)
    path = own.journal(own.numbers[-1])
    offset = own.records[-1].position - own_start(path)
    overwrite(path, offset + 80, b"\xa5" * 8)
    with pytest.raises(LogDamaged, match=f"damaged at offset {offset}"):
        Read(own.path)


def test_damage_is_an_error_or_skipped(own: Directory) -> None:
    """Up to the next intact record; everything else is there."""
    number = own.numbers[1]
    path = own.journal(number)
    inside = [r for r in own.records if own_start(path) <= r.position < own_start(path) + 16384]
    hurt, after = inside[3], inside[4]
    offset = hurt.position - own_start(path)
    overwrite(path, offset + 30, b"\xff")
    with pytest.raises(LogDamaged, match=f"{path.name}: damaged at offset {offset}"):
        Read(own.path)
    with pytest.warns(RuntimeWarning, match=f"damaged at offset {offset}"):
        read = Read(own.path, on_damage="skip")
    assert read.column("position") == [p for p in positions(own) if p != hurt.position]
    assert read.total("damaged_regions") == 1
    assert 0 < read.total("damaged_bytes") <= after.position - hurt.position


def test_a_full_journal_without_its_end_is_damaged(own: Directory) -> None:
    path = own.journal(own.numbers[0])
    end = max(r.position for r in own.records if r.position < own_start(path) + 16384)
    offset = end - own_start(path)
    overwrite(path, offset, bytes(16384 - offset))
    for index in own.path.glob("*.index"):
        index.unlink()
    with pytest.raises(LogDamaged):
        Read(own.path)
    with pytest.warns(RuntimeWarning, match="damaged at offset"):
        read = Read(own.path, on_damage="skip")
    assert read.column("position") == [p for p in positions(own) if p != end]


@pytest.mark.parametrize("how", ["missing", "empty", "short"])
def test_a_journal_that_is_not_whole(own: Directory, how: str) -> None:
    path = own.journal(own.numbers[1])
    start = own_start(path)
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: 0 if how == "empty" else 9000])
    with pytest.raises(LogDamaged, match=path.name if how != "missing" else "later ones are"):
        Read(own.path)
    if how == "missing":
        read = Read(own.path, on_damage="skip")
    else:
        with pytest.warns(RuntimeWarning, match=path.name):
            read = Read(own.path, on_damage="skip")
        assert read.total("damaged_regions") == 1
    assert read.column("position") == [p for p in positions(own) if not start <= p < start + 16384]


def test_compressed_and_archived_journals(own: Directory, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    for number in own.numbers[:4]:
        source = own.journal(number)
        for _ in compress_journal(Disk(), source, source.with_suffix(".journal.gz")):
            pass
    for path in sorted(own.path.glob("*.gz"))[:2]:
        path.rename(archive / path.name)
    assert Read(own.path, archive=f"file://{archive}").column("position") == positions(own)


def test_a_damaged_frame_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.log_directories.FILE_BYTES", 1 << 20)
    path = tmp_path / "journal"
    path.mkdir()
    large = Directory(path).fill(3, 4000)
    source = large.journal(0)
    compressed = source.with_suffix(".journal.gz")
    for _ in compress_journal(Disk(), source, compressed):
        pass
    size = compressed.stat().st_size
    overwrite(compressed, size // 2, b"\x5a" * 64)
    with pytest.raises(LogDamaged, match=r"cannot be decompressed|does not hold"):
        Read(path)
    with pytest.warns(RuntimeWarning, match="skipped"):
        read = Read(path, on_damage="skip")
    got = read.column("position")
    assert got == sorted(set(got) & set(positions(large)))
    lost = [record.position for record in large.records if record.position not in set(got)]
    assert 0 < lost[-1] - lost[0] < (1 << 18) + 65536


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "the option 'path' is missing"),
        ({"path": "hdfs://a/b"}, "must be a directory of the file system"),
        ({"path": "file://host/b"}, "names another machine"),
        ({"path": "/a", "kind": ","}, "names nothing"),
        ({"path": "/a", "from": "abc"}, "the option 'from' is 'abc'"),
        ({"path": "/a", "from": "0|1|"}, "the option 'from'"),
        ({"path": "/a", "to": "2015-01-02"}, "the option 'to' is '2015-01-02'"),
        ({"path": "/a", "topic": "("}, "no valid expression"),
        ({"path": "/a", "on_damage": "maybe"}, "must be 'error' or 'skip'"),
        ({"path": "/a", "split_bytes": "-1"}, "must be a number of at least"),
        ({"path": "/a", "pushdown": "yes"}, "must be 'true' or 'false'"),
    ],
)
def test_bad_options_are_reported(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_options(options)


@pytest.mark.parametrize("promised", [True, False])
def test_without_a_watermark_the_records_give_the_durable_end(tmp_path: Path, promised: bool) -> None:
    """docs/files.md: a record carries the watermark of its time."""
    path = tmp_path / "journal"
    path.mkdir()
    parts = [
        RecordParts(
            b"x" * 100, publisher_id=9, sequence=n + 1, durable_position=5500 if promised and n > 5 else 0
        )
        for n in range(9)
    ]
    whole = write_journal(path, 0, parts, finished=False)
    offset = Read(path).column("position")[3]
    overwrite(whole, offset + 100, b"!!")
    if promised:
        with pytest.raises(LogDamaged, match=f"damaged at offset {offset}"):
            Read(path)
    else:
        assert Read(path).column("sequence") == [1, 2, 3]
