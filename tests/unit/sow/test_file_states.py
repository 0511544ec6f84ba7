"""The state of SOW topics from files alone (amps.journal.sow_state): it is that of the core, now and in the past."""

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from amps._core.sow.files import PLACE_IN_FILE, StateFold, ValueReader
from amps._core.sow.table import VALUE_FILE_HEADER_BYTES
from amps.journal.sow_state import Moment, StateUnknown, ValueRecords, each_value, read_state
from amps.journal.value_file import (
    NEVER,
    LogPlace,
    ValueFileHeader,
    ValueFileUnusable,
    check_identity,
    name_record,
    read_begin,
    read_identity,
    read_log_place,
    read_names,
    write_begin,
    write_log_place,
)
from tests.support.feed import UNLOGGED_PREFIX
from tests.support.sow_core import SLAB_SIZE, SowCore, begin_file

TOPICS = ("kept", UNLOGGED_PREFIX)
STEP_US = 1000


@pytest.fixture
def core(tmp_path: Path) -> Iterator[SowCore]:
    made = SowCore(tmp_path, file_bytes=16384)
    for topic in made.topics.values():
        begin_file(topic)
    yield made
    made.close()


def value_file(core: SowCore, topic: str) -> Path:
    return core.directory / f"{topic}.sow"


def from_files(core: SowCore, topic: str, moment: Moment | None = None) -> dict[int, object]:
    """{id: message}, read from the files."""
    state = read_state(topic, None, value_file(core, topic), moment)
    messages = [json.loads(parts[8]) for _, parts in each_value(state)]
    found = {message["id"]: message for message in messages}
    assert len(found) == len(messages)
    return found


@pytest.mark.parametrize("seed", range(12))
def test_the_state_from_files_is_that_of_the_core(core: SowCore, seed: int) -> None:
    """At every moment: with deltas, deletions, expiries, restarts, compaction, and the removal of journals."""
    chance = random.Random(seed)
    past: list[tuple[int, dict[int, object]]] = []
    known_from = 0
    for step in range(400):
        core.now_ns += STEP_US * 1000
        topic = chance.choice(TOPICS)
        what = chance.random()
        id_ = chance.randrange(25)
        if what < 0.6:
            message = {"id": id_, "n": step, "text": "x" * chance.randrange(400)}
            core.publish(topic, message, lifetime_s=chance.choice([None, 0, 1]))
        elif what < 0.8:
            core.publish(topic, {"id": id_, "d": step}, delta=True)
        elif what < 0.93:
            core.delete(topic, *chance.sample(range(25), 3))
        elif what < 0.96:
            core.now_ns += 300_000_000
            core.turn()
        elif what < 0.98:
            core.restart()
        elif core.feeder.journal.number > core.first_number:
            begin = chance.randint(core.first_number + 1, core.feeder.journal.number)
            write_begin(core.topics["kept"].descriptor, core.remove_journals(begin))
            known_from = len(past)
        past.append((core.now_ns // 1000, core.state("kept")))
        if step % 10 == 0:
            for name in TOPICS:
                assert from_files(core, name) == core.state(name)
    for time_us, expected in chance.sample(past[known_from:], min(20, len(past) - known_from)):
        assert from_files(core, "kept", Moment("then", time_us=time_us)) == expected


def test_a_moment_before_the_log_is_refused(core: SowCore) -> None:
    while core.feeder.journal.number < 2:
        core.now_ns += STEP_US * 1000
        core.publish("kept", {"id": 1, "text": "x" * 3000})
    write_begin(core.topics["kept"].descriptor, core.remove_journals(1))
    with pytest.raises(StateUnknown, match=r"too far back.*journal 1"):
        from_files(core, "kept", Moment("19700101T000001", time_us=1_000_000 + STEP_US))
    assert from_files(core, "kept", Moment("now", time_us=core.now_ns // 1000)) == core.state("kept")


def test_the_past_is_refused_as_soon_as_values_will_be_carried_over(core: SowCore) -> None:
    """The server notes it first: from then on, the value file may lack values before the journals that remain."""
    core.publish("kept", {"id": 1})
    core.now_ns += 10 * STEP_US * 1000
    core.publish("kept", {"id": 2})
    moment = Moment("then", time_us=1_000_000)
    assert from_files(core, "kept", moment) == {1: {"id": 1}}
    write_begin(core.topics["kept"].descriptor, core.next_txid)
    with pytest.raises(StateUnknown, match="too far back"):
        from_files(core, "kept", moment)
    assert set(from_files(core, "kept")) == {1, 2}


def test_a_topic_that_is_not_recorded_has_no_past(core: SowCore) -> None:
    core.publish(UNLOGGED_PREFIX, {"id": 1})
    with pytest.raises(StateUnknown, match="not in a transaction log"):
        from_files(core, UNLOGGED_PREFIX, Moment("then", time_us=1))


def test_journals_without_the_value_file_suffice_until_some_are_removed(core: SowCore) -> None:
    log = LogPlace("journal", core.directory, None)
    with pytest.raises(StateUnknown, match="no record of topic 'kept'"):
        read_state("kept", log, None)
    while core.feeder.journal.number < 1:
        core.publish("kept", {"id": core.next_txid % 7, "text": "x" * 3000})
    state = read_state("kept", log, None)
    found = [json.loads(parts[8]) for _, parts in each_value(state)]
    assert {message["id"]: message for message in found} == core.state("kept")
    assert state.message_type == "json"
    core.remove_journals(1)
    with pytest.raises(StateUnknown, match=r"begin with number 1.*FileName"):
        read_state("kept", log, None)


def test_records_of_another_definition_are_an_error(core: SowCore) -> None:
    core.publish("kept", {"id": 1})
    header = ValueFileHeader("kept", "json", SLAB_SIZE, core.topics["kept"].keys.definition ^ 1)
    os.pwrite(core.topics["kept"].descriptor, header.to_bytes(), 0)
    with pytest.raises(StateUnknown, match="another Key or"):
        from_files(core, "kept")


def test_sow_4_records_before_the_recovery_point_do_not_belong_to_the_topic(core: SowCore) -> None:
    """sow.md §4: RecoveryPoint `now`, decided when the value file was made."""
    core.publish("kept", {"id": 1})
    core.now_ns += 5
    core.publish("kept", {"id": 2})
    header = ValueFileHeader("kept", "json", SLAB_SIZE, core.topics["kept"].keys.definition, core.now_ns)
    os.pwrite(core.topics["kept"].descriptor, header.to_bytes(), 0)
    assert from_files(core, "kept") == {2: {"id": 2}}


def test_the_message_that_ends_the_state_must_be_there(core: SowCore) -> None:
    core.publish("kept", {"id": 1})
    with pytest.raises(StateUnknown, match=r"7\|8\| is not in the journals"):
        from_files(core, "kept", Moment("7|8|", message=(7, 8)))


def test_a_value_that_moves_while_it_is_read_is_found(core: SowCore) -> None:
    """Compaction moves records, and slabs come into another use."""
    for id_ in range(19):
        core.publish(UNLOGGED_PREFIX, {"id": id_, "text": "x" * 900})
    state = read_state(None, None, value_file(core, UNLOGGED_PREFIX))
    records = ValueRecords(value_file(core, UNLOGGED_PREFIX))
    for n in range(3000):
        core.publish(UNLOGGED_PREFIX, {"id": n % 19, "text": "y" * 3400})
    core.delete(UNLOGGED_PREFIX, 18)
    found = [
        records.record(int(key), int(txid), int(place))
        for key, txid, place in zip(state.keys, state.txids, state.places, strict=True)
    ]
    assert sum(record is not None for record in found) >= 18
    path = value_file(core, UNLOGGED_PREFIX)
    moved = ValueReader(core.topics[UNLOGGED_PREFIX].descriptor, SLAB_SIZE, lambda: path.stat().st_size)
    moved.look()
    assert any(
        moved.record(int(place), int(txid)) is None
        for txid, place in zip(state.txids, state.places, strict=True)
    )


class Meanwhile:
    """The number of a topic; every use of it lets something happen."""

    def __init__(self, happen: Callable[[], None]) -> None:
        self._happen = happen

    def __int__(self) -> int:
        self._happen()
        return 0


@pytest.mark.parametrize("seed", range(6))
def test_no_key_is_missed_while_the_value_file_changes(core: SowCore, seed: int) -> None:
    """Values are replaced, moved and removed at every moment of the reading."""
    chance = random.Random(seed)
    topic = core.topics[UNLOGGED_PREFIX]
    number = 0

    def publish(id_: int, length: int) -> None:
        nonlocal number
        number += 1
        core.publish(UNLOGGED_PREFIX, {"id": id_, "n": number, "text": "x" * length})

    def happen() -> None:
        # The writer must be slower than the reader in the end.
        for _ in range(chance.randrange(8) if number < 1500 else 0):
            publish(chance.randrange(50), 3000)
        if chance.random() < 0.1:
            core.delete(UNLOGGED_PREFIX, chance.randrange(100, 150))

    for id_ in range(150):
        publish(id_, 1000)
    for _ in range(300):
        publish(chance.randrange(50), 3000)
    path = value_file(core, UNLOGGED_PREFIX)
    values = ValueReader(topic.descriptor, SLAB_SIZE, lambda: path.stat().st_size)
    fold = StateFold(topic.keys.definition)
    first = core.next_txid
    fold.read_values(values, [Meanwhile(happen)], 1 << 63)  # type: ignore[list-item]
    keys, txids, _, _ = fold.live()
    found = set(keys.tolist())
    assert {topic.keys.key(b'{"id":%d}' % id_) for id_ in range(100)} <= found
    assert any(txid >= first for txid in txids.tolist())


@pytest.mark.parametrize("seed", range(8))
def test_damaged_value_files_never_crash_a_reader(core: SowCore, seed: int) -> None:
    chance = random.Random(seed)
    for n in range(200):
        core.publish(UNLOGGED_PREFIX, {"id": n % 40, "text": "x" * chance.randrange(500)})
    path = value_file(core, UNLOGGED_PREFIX)
    data = bytearray(path.read_bytes())
    for _ in range(30):
        data[chance.randrange(VALUE_FILE_HEADER_BYTES, len(data))] = chance.randrange(256)
    damaged = core.directory / "damaged.sow"
    damaged.write_bytes(data[: chance.randrange(VALUE_FILE_HEADER_BYTES, len(data) + 1)])
    list(each_value(read_state(None, None, damaged)))


def test_the_header_page() -> None:
    header = ValueFileHeader("orders", "json", 5000, 7, 99)
    page = header.to_bytes().ljust(VALUE_FILE_HEADER_BYTES, b"\0")
    assert read_identity(page) == header
    assert read_begin(page) == 0
    assert read_log_place(page) is None
    assert check_identity(page, ValueFileHeader("orders", "json", 5000, 7, 100)) == 99
    for other, text in (
        (ValueFileHeader("others", "json", 5000, 7), "belongs to topic 'orders'"),
        (ValueFileHeader("orders", "fix", 5000, 7), "belongs to topic 'orders'"),
        (ValueFileHeader("orders", "json", 6000, 7), "SlabSize of 5000"),
        (ValueFileHeader("orders", "json", 5000, 8), "another Key"),
    ):
        with pytest.raises(ValueFileUnusable, match=text):
            check_identity(page, other)
    for offset in range(16 + 16 + 13):
        torn = bytearray(page)
        torn[offset] ^= 1
        with pytest.raises(ValueFileUnusable):
            read_identity(bytes(torn))


def test_the_beginning_and_the_place_in_the_header_page(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(VALUE_FILE_HEADER_BYTES))
    place = LogPlace("one", tmp_path, tmp_path / "archive")
    with path.open("r+b") as file:
        write_begin(file.fileno(), 77)
        write_log_place(file.fileno(), place)
    page = path.read_bytes()
    assert read_begin(page) == 77
    assert read_log_place(page) == place
    torn = bytearray(page)
    torn[2048] ^= 1
    torn[2570] ^= 1
    assert read_begin(bytes(torn)) == NEVER
    assert read_log_place(bytes(torn)) is None


def test_the_file_of_names() -> None:
    whole = name_record("one") + name_record("täglich")
    assert read_names(whole) == (["one", "täglich"], len(whole))
    for cut in range(len(whole)):
        names, taken = read_names(whole[:cut])
        assert names == ["one", "täglich"][: len(names)]
        assert taken == len(b"".join(map(name_record, names)))


def test_a_fold_takes_the_newest_record_of_a_key_in_any_order(core: SowCore) -> None:
    core.publish("kept", {"id": 1})
    state = read_state("kept", None, value_file(core, "kept"))
    assert not state.places[0] & PLACE_IN_FILE
    assert [len(array) for array in StateFold().live()] == [0, 0, 0, 0]
