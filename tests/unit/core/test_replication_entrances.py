"""Flows that begin in the middle of a journal, where its index has an entrance."""

import random
from pathlib import Path

import pytest

from amps._core.journal.reader import LogCursor
from amps._core.journal.writer import BLOCK_BYTES, IndexBuilder, IndexReader, index_bytes, scan_file
from amps._core.replication.stream import Rules, SourceFlow, learn_names_before
from amps._core.wire.topics import TopicTable
from tests.support.streams import GrowingLog, records_in, topic_table
from tests.unit.core.test_replication_source import ALL, PEER, check_names, send_all

FILE_BYTES = 12 * BLOCK_BYTES
LARGE_BYTES = 3 * BLOCK_BYTES
"""Length of a transaction that blocks begin in."""


class IndexedLog(GrowingLog):
    """One file full of single records and transactions, short ones and long ones, with an index of it."""

    def __init__(self, directory: Path, seed: int) -> None:
        super().__init__(directory, FILE_BYTES, first_txid=1000)
        chance = random.Random(seed)
        sequence = 0
        while self.number == 1:
            sequence += 1
            topic, client = f"t{chance.randrange(30)}", f"c{chance.randrange(40)}"
            size = chance.choice([10, 100, 3000])
            if chance.random() < 0.2:
                large = chance.random() < 0.05
                count = LARGE_BYTES // 3000 if large else chance.randrange(1, 8)
                payload = bytes(3000 if large else size)
                self.append_group(
                    [
                        (client, sequence + at, topic, b"", None, "json", b"", {"payload": payload})
                        for at in range(count)
                    ]
                )
                sequence += count
            else:
                self.append(client, sequence, topic, payload=bytes(size))
        image = self.path(1).read_bytes()
        self.memory = bytearray(index_bytes(len(image)))
        self.builder = IndexBuilder(self.memory, 1, 0, len(image))
        scan_file(image, 0, self.builder)
        self.first_file = [one for one in self.records if one.parts.position < FILE_BYTES]

    def cursor_at(self, index: IndexReader, offset: int, topics: TopicTable, names: dict[int, bytes]) -> LogCursor:
        cursor = LogCursor(self.directory(topics), 1, offset, True)
        assert cursor.file.learn_topics_before(index.last_topic_offset, topics.entry, 1 << 20) == 0
        learn_names_before(cursor.file, index.last_name_offset, names)
        return cursor


@pytest.fixture(scope="module", params=range(3))
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> IndexedLog:
    return IndexedLog(tmp_path_factory.mktemp("log"), request.param)


@pytest.fixture(params=["closed", "in use"])
def index(request: pytest.FixtureRequest, log: IndexedLog) -> IndexReader:
    if request.param == "closed":
        return IndexReader(log.builder.to_bytes(), True)
    return IndexReader(log.memory, False)


def test_no_entrance_is_within_a_transaction(log: IndexedLog, index: IndexReader) -> None:
    """It is the last beginning of a block at or before the wanted place at which no transaction is under way."""
    inside = {one.parts.position for one in log.first_file if one.group}
    looked_at = [*range(4096, index.end_offset, BLOCK_BYTES // 4), index.end_offset - 1]
    blocks = sorted({index.block_range(offset)[0] for offset in looked_at})
    possible = [offset for offset in blocks if offset not in inside]
    assert set(blocks) - set(possible), "no block of this log begins within a transaction"
    for offset in range(4096, FILE_BYTES, 5000):
        assert index.entrance_before(offset) == max(one for one in possible if one <= offset)
    assert index.entrance_before(4095) is None


def test_before_the_entrance_of_a_transaction_id_is_nothing_behind_it(log: IndexedLog, index: IndexReader) -> None:
    for one in log.first_file:
        entrance = index.entrance_of_txid(one.parts.txid)
        assert entrance is not None
        assert entrance <= one.parts.position
        assert index.entrance_before(one.parts.position) == entrance or one.group
    assert index.entrance_of_txid(999) is None


def test_an_index_of_an_earlier_release_has_no_entrances(log: IndexedLog) -> None:
    memory = bytearray(log.memory)
    blocks = memory[136 : 136 + 32 * 40]
    for at in range(0, len(blocks), 32):
        blocks[at + 28 : at + 32] = bytes(4)
    memory[136 : 136 + len(blocks)] = blocks
    old = IndexReader(memory, False)
    assert old.entrance_before(FILE_BYTES) is None
    assert old.entrance_of_txid(1 << 60) is None


@pytest.mark.parametrize("place", [0.2, 0.5, 0.8, 0.99])
def test_a_flow_that_begins_at_an_entrance_sends_what_one_from_the_beginning_sends(
    log: IndexedLog, index: IndexReader, place: float
) -> None:
    """replication.md §24.5: the records behind the sink's last transaction id, with all the names that they use."""
    last = log.first_file[int(len(log.first_file) * place)]
    # The sink has whole transactions.
    start = max(one.parts.txid for one in log.first_file if one is last or (one.group and one.group == last.group))
    acked_position = next(
        (one.parts.position for one in log.first_file if one.parts.txid > start and not one.group), log.position
    )
    sent = []
    for scan_at, send_at in ((index.entrance_before(acked_position), index.entrance_of_txid(start)), (4096, 4096)):
        assert scan_at is not None
        assert send_at is not None
        names: dict[int, bytes] = {}
        topics = topic_table()
        rules = Rules(lambda topic, kind: True, None, names, PEER)
        flow = SourceFlow(rules, log.cursor_at(index, scan_at, topics, names), None, acked_position, start)
        flow.begin(log.cursor_at(index, send_at, topics, names), log.position, start, b"", window=ALL)
        frames = send_all(flow, log)
        check_names(frames, log)
        sent.append([one.raw for one in records_in(frames)])
        if place > 0.7 and len(sent) == 1:
            assert min(scan_at, send_at) > 4096
    assert sent[0] == sent[1]
    assert len(sent[0]) >= sum(one.parts.txid > start for one in log.records)
