"""Records are read as the sequencer wrote them: every part, over rotations, for any size, for many topics."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amps._core.journal.reader import FILE_HEADER_SIZE, LogCursor, LogDamaged
from amps._core.journal.writer import scan_file
from amps._core.values.value import publisher_id
from tests.support.feed import Feed, Feeder, directory_of, read_all
from tests.support.records import (
    CLIENT,
    EXPIRY,
    FLAG_DERIVED_PUBLISHER,
    PATH,
    SOURCE,
    STATE,
    RecordParts,
    element,
)

FILE_BYTES = 16384

sizes = st.one_of(
    st.integers(0, 200), st.integers(0, 5000), st.sampled_from([0, 7, 8, 9, FILE_BYTES, 50_000, 200_000])
)
topics = st.one_of(
    st.sampled_from(["a", "b", "plain/1", "plain/2"]),
    st.integers(0, 300).map("topic-{}".format),
    st.text(max_size=20),
)


WORD = st.integers(0, (1 << 64) - 1)
PARTS_OF_THE_AREA = {CLIENT: 1, EXPIRY: 1, SOURCE: 2, PATH: 1, STATE: 3}


@st.composite
def extensions(draw: st.DrawFn) -> bytes:
    """An extension area with any known elements in any order, and unknown ones between them."""
    tags = draw(st.lists(st.sampled_from(sorted(PARTS_OF_THE_AREA)), unique=True, max_size=5))
    known = [element(tag, *(draw(WORD) for _ in range(PARTS_OF_THE_AREA[tag]))) for tag in tags]
    unknown = draw(st.lists(st.integers(8, 65535).map(lambda tag: element(tag)), max_size=2))
    return b"".join(draw(st.permutations([*known, *unknown])))


@st.composite
def feeds(draw: st.DrawFn) -> list[Feed]:
    """Messages of several publishers, whose numbers rise with gaps."""
    last = [0, 0, 0, 0]
    made: list[Feed] = []
    for _ in range(draw(st.integers(0, 60))):
        slot = draw(st.integers(0, 3))
        last[slot] += draw(st.integers(1, 3))
        size = draw(sizes)
        made.append(
            Feed(
                slot,
                last[slot],
                draw(topics),
                RecordParts(
                    payload=(b"%d." % len(made) * size)[:size],
                    publisher_id=publisher_id(f"p{slot}"),
                    expiration_s=draw(st.sampled_from([0, 5, 0xFFFFFFFF])),
                    correlation_id=draw(st.binary(max_size=9)),
                    user_id=draw(st.binary(max_size=9)),
                    sow_key=draw(st.binary(max_size=9)),
                    extension=draw(extensions()),
                ),
            )
        )
    return made


def content(feed: Feed) -> tuple[object, ...]:
    parts = feed.parts
    expiration = None if parts.expiration_s == 0xFFFFFFFF else parts.expiration_s
    return (
        parts.publisher_id, feed.sequence, (feed.topic, "json"), parts.payload, parts.correlation_id, parts.user_id,
        parts.sow_key, expiration,
    )  # fmt: skip


def content_of(record: object) -> tuple[object, ...]:
    names = (
        "publisher_id", "sequence", "topic", "payload", "correlation_id", "user_id", "sow_key", "expiration_s",
    )  # fmt: skip
    return tuple(getattr(record, name) for name in names)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(feeds(), st.lists(st.integers(1, 15), max_size=20))
def test_journal_is_read_as_it_was_written(made: list[Feed], batches: list[int]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        feeder = Feeder(Path(directory), FILE_BYTES)
        rest = list(made)
        now = 2000
        for batch in [*batches, len(made)]:
            for feed in rest[:batch]:
                feeder.push(feed)
            del rest[:batch]
            now += 10
            feeder.turn(now, feeder.journal.position if now % 20 else 0)
        check_log(feeder, made)


def check_log(feeder: Feeder, made: list[Feed]) -> None:
    logged = [feed for feed in made if not feed.topic.startswith("plain")]
    passing = [feed for feed in made if feed.topic.startswith("plain")]
    txids: list[int] = []
    for storage, writer, expected in (
        (feeder.journal_storage, feeder.journal, logged),
        (feeder.transient_storage, feeder.transient, passing),
    ):
        log = directory_of(storage)
        records = read_all(LogCursor(log, 0, 0, True), writer.position)
        assert [content_of(record) for record in records] == [content(feed) for feed in expected]
        assert [record.position for record in records] == sorted({record.position for record in records})
        assert [record.timestamp_ns for record in records] == sorted(
            record.timestamp_ns for record in records
        )
        assert writer is feeder.transient or all(r.durable_position <= r.position for r in records)
        own = [record.txid for record in records]
        assert own == sorted(set(own))
        txids += own
        # A reader that starts at any record, with the topics before it known, reads the same rest.
        for record in records[:: max(1, len(records) // 5)]:
            number = log.number_at(record.position, 0, writer.number)
            cursor = LogCursor(directory_of(storage), number, 0, True)
            cursor.skip_to(record.position)
            rest = read_all(cursor, writer.position)
            assert [r.position for r in rest] == [
                r.position for r in records if r.position >= record.position
            ]
        # Each file can be read alone.
        for number in storage.numbers:
            image = storage.path(number).read_bytes()
            file = log.file(number)
            found = scan_file(image, file.start_position)
            assert not found.damaged
            assert found.finished == (number != writer.number)
            inside = [
                r for r in records if file.start_position <= r.position < file.start_position + file.size
            ]
            assert {r.topic for r in inside} <= set(found.topics)
            assert len(found.topics) == len(set(found.topics))
    # One order over both logs.
    assert sorted(txids) == sorted(set(txids))
    assert len(txids) == len(made)


def test_journal_position_of_a_log_is_dense(tmp_path: Path) -> None:
    """A file starts where its predecessor ends, also when that one is larger for a large message."""
    feeder = Feeder(tmp_path, FILE_BYTES)
    for number, size in enumerate([10, FILE_BYTES, 10, 3 * FILE_BYTES, 4000, 4000, 4000, 4000, 10], start=1):
        feeder.push(Feed(0, number, "a", RecordParts(payload=b"x" * size, publisher_id=publisher_id("p0"))))
        feeder.turn(5000, 0)
    log = directory_of(feeder.journal_storage)
    end = 0
    for number in feeder.journal_storage.numbers:
        file = log.file(number)
        assert file.start_position == end
        assert file.size == feeder.journal_storage.path(number).stat().st_size
        end += file.size
    assert feeder.journal.number >= 3


def test_journal_a_duplicate_is_dropped_and_a_derived_number_is_the_txid(tmp_path: Path) -> None:
    """transaction_log.md §4.2, §4.3."""
    feeder = Feeder(tmp_path, FILE_BYTES)
    known = RecordParts(payload=b"x", publisher_id=publisher_id("p0"))
    derived = RecordParts(payload=b"y", publisher_id=99, flags=FLAG_DERIVED_PUBLISHER)
    for sequence in (1, 5, 5, 3, 6):
        feeder.push(Feed(0, sequence, "a", known))
        feeder.push(Feed(0, 0, "a", derived))
    feeder.turn(5000, 0)
    records = read_all(LogCursor(directory_of(feeder.journal_storage), 0, 0, True), feeder.journal.position)
    assert [r.sequence for r in records if r.publisher_id == publisher_id("p0")] == [1, 5, 6]
    unnumbered = [r for r in records if r.publisher_id == 99]
    assert len(unnumbered) == 5
    assert all(r.sequence == r.txid for r in unnumbered)
    assert feeder.sequencer.duplicates == 2


@pytest.mark.parametrize("where", ["payload", "header", "length", "position"])
def test_journal_a_verifying_reader_stops_at_damage(tmp_path: Path, where: str) -> None:
    """The reader raises an error with file and offset, and returns no record beyond it."""
    feeder = Feeder(tmp_path, FILE_BYTES)
    for number in range(1, 21):
        feeder.push(Feed(0, number, "a", RecordParts(payload=b"x" * 100, publisher_id=publisher_id("p0"))))
    feeder.turn(5000, 0)
    storage = feeder.journal_storage
    records = read_all(LogCursor(directory_of(storage), 0, 0, True), feeder.journal.position)
    victim = records[10].position
    image = bytearray(storage.path(0).read_bytes())
    image[victim + {"payload": 100, "header": 50, "length": 3, "position": 9}[where]] ^= 0x40
    storage.path(0).write_bytes(image)
    cursor = LogCursor(directory_of(storage), 0, 0, True)
    for _ in range(10):
        assert cursor.step(feeder.journal.position) is not None
    with pytest.raises(LogDamaged) as caught:
        cursor.step(feeder.journal.position)
    assert caught.value.offset == victim
    assert storage.path(0).name in str(caught.value)


def test_journal_a_reader_never_passes_its_limit(tmp_path: Path) -> None:
    feeder = Feeder(tmp_path, FILE_BYTES)
    for number in range(1, 11):
        feeder.push(Feed(0, number, "a", RecordParts(payload=b"x" * 100, publisher_id=publisher_id("p0"))))
    feeder.turn(5000, 0)
    log = directory_of(feeder.journal_storage)
    positions = [r.position for r in read_all(LogCursor(log, 0, 0, True), feeder.journal.position)]
    for index, position in enumerate(positions):
        assert [r.position for r in read_all(LogCursor(log, 0, 0, True), position)] == positions[:index]
    assert read_all(LogCursor(log, 0, 0, True), FILE_HEADER_SIZE) == []


def test_views_of_a_file_outlive_it_and_stay_within_it(tmp_path: Path) -> None:
    """A large view releases its pages when it is freed; other views of the same place must stay valid."""
    feeder = Feeder(tmp_path, FILE_BYTES)
    payload = bytes(range(256)) * (3 << 12)
    feeder.push(Feed(0, 1, "a", RecordParts(payload=payload, publisher_id=publisher_id("p0"))))
    feeder.turn(2000, 0)
    log = directory_of(feeder.journal_storage)
    (record,) = read_all(LogCursor(log, 0, 0, True), feeder.journal.position)
    file = log.file(log.number_at(record.position, 0, feeder.journal.number))
    whole = (tmp_path / Path(file.path).name).read_bytes()
    start = whole.index(payload)
    views = [file.memory_view(start, len(payload)) for _ in range(3)]
    for offset, length in ((file.size, 1), (file.size + 1, 0), (start, file.size), (1, 2**64 - 1)):
        with pytest.raises(ValueError, match="are not in"):
            file.memory_view(offset, length)
    assert file.memory_view(file.size, 0) == b""
    del file, log
    while views:
        view = views.pop()
        assert view.readonly
        assert view == payload
        part = view[100:]
        view.release()
        assert part == payload[100:]
