"""The topic index against a reading of the journal, and against damage."""

from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from amps._core.journal.reader import LogDamaged
from amps._core.journal.search import TopicIndexReader
from amps._core.journal.writer import IndexDamaged
from amps.journal.entries import JournalFile
from amps.journal.topic_index import make_topic_index, open_topic_index
from tests.support.journals import START_POSITION, TOPIC_HASHES, journal
from tests.support.records import RecordParts

TOPICS = [(b"red", b"json", TOPIC_HASHES[0]), (b"blue", b"fix", TOPIC_HASHES[1])]


def built(path: Path, parts: list[RecordParts], size: int) -> bytes:
    path.write_bytes(journal(parts, size, finished=True))
    return make_topic_index(path)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3000)), max_size=60),
)
def test_every_entry_is_found_and_no_other(
    tmp_path_factory: pytest.TempPathFactory, messages: list[tuple[int, int]]
) -> None:
    path = tmp_path_factory.mktemp("index") / "x.journal"
    size = 1 << 18
    parts = [
        RecordParts(bytes(length), topic_id=topic, txid=n + 1) for n, (topic, length) in enumerate(messages)
    ]
    reader = TopicIndexReader(built(path, parts, size))
    assert (reader.file_number, reader.start_position, reader.file_size) == (3, START_POSITION, size)
    assert reader.topics() == TOPICS
    with JournalFile(path) as file:
        entries = [(entry.file_offset, entry.topic) for entry in file.entries()]
    wanted = [[offset for offset, topic in entries if topic == name] for name, _, _ in TOPICS]
    for topic_id in (0, 1):
        assert reader.offsets(topic_id).tolist() == wanted[topic_id]
        blocks = sorted({offset // 65536 * 65536 for offset in wanted[topic_id]})
        assert reader.blocks(topic_id, 65536).tolist() == blocks


def test_unknown_topics(tmp_path: Path) -> None:
    reader = TopicIndexReader(built(tmp_path / "x", [RecordParts(b"x")], 8192))
    with pytest.raises(IndexError):
        reader.offsets(2)
    assert reader.offsets(1).tolist() == []


def test_only_full_and_intact_journals_get_an_index(tmp_path: Path) -> None:
    path = tmp_path / "x.journal"
    data = journal([RecordParts(b"x")], 8192)
    path.write_bytes(data)
    with pytest.raises(LogDamaged, match="not full"):
        make_topic_index(path)
    path.write_bytes(data.replace(b"red", b"bad"))
    with pytest.raises(LogDamaged, match="checksum"):
        make_topic_index(path)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_all_damage_is_noticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("index") / "x"
    parts = [RecordParts(b"x", topic_id=n % 2, txid=n + 1) for n in range(5)]
    sound = built(path, parts, 8192)
    contents = bytearray(sound)
    at = data.draw(st.integers(0, len(contents) - 1))
    match data.draw(st.sampled_from(("change", "cut", "insert", "word"))):
        case "change":
            contents[at] ^= data.draw(st.integers(1, 255))
        case "cut":
            del contents[at:]
        case "insert":
            contents[at:at] = data.draw(st.binary(min_size=1, max_size=9))
        case _:
            contents[at : at + 8] = data.draw(st.sampled_from((2**64 - 1, 2**61))).to_bytes(8, "little")
    assume(contents != sound)
    path.write_bytes(contents)
    with pytest.raises(IndexDamaged):
        open_topic_index(path)
