"""Scans of snapshots, and the frames of their rows: sow.md §8, D35."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from amps._core.delivery.output import OutputBuffer
from amps._core.delivery.results import SCAN_DONE, SCAN_FULL, SCAN_WAITS, ResultFrames, StateScan
from amps._core.expressions.machine import EvaluationContext, FilterSet
from amps._core.sow.table import JournalPlaces
from amps._core.values.fields import FieldValues, MessageContext
from amps._core.wire.topics import TopicEntry, TopicTable
from amps.expressions.functions import SHIPPED
from amps.server.shared.filters import FilterCompiler
from tests.support.sow_core import JSON, SowCore

TOPICS = ("kept", "plain")
FAR = (1 << 63) - 1
BEGINNING = b'{"c":"sow","t":"t"'


@pytest.fixture
def core(tmp_path: Path) -> Iterator[SowCore]:
    made = SowCore(tmp_path, 1 << 20)
    yield made
    made.close()


def entry(name: str = "t") -> TopicEntry:
    return TopicTable(lambda topic, message_type: (True, False, None, None)).entry(name, "json")


def filters(text: str) -> FilterSet:
    context = EvaluationContext(JSON.extractor(), FieldValues(1 << 20), MessageContext(b"i", b"g"))
    alone = FilterSet(context)
    alone.add(FilterCompiler(SHIPPED).compile(text), None)
    return alone


def scan(core: SowCore, topic: str, filter_text: str = "", **options: Any) -> StateScan:
    places = JournalPlaces(core._directory(), lambda: (core.first_number, core.feeder.journal.number))
    return StateScan(
        core.topics[topic].reader(places),
        entry(),
        filters(filter_text) if filter_text else None,
        options.pop("txid", core.next_txid),
        **options,
    )


def found(one: StateScan, written: int = FAR) -> dict[int, Any]:
    """The messages of a scan, which makes steps as short as possible."""
    rows = []
    while (state := one.run(written, 0)) != SCAN_DONE:
        rows += one.take_rows()
        assert state != SCAN_WAITS
    messages = [json.loads(row[-1]) for row in rows + one.take_rows()]
    assert len({message["id"] for message in messages}) == len(messages)
    return {message["id"]: message for message in messages}


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("seed", range(6))
def test_a_scan_is_of_its_moment(core: SowCore, topic: str, seed: int) -> None:
    """sow.md §8, §25, 46: whatever changes between its steps. Scans that began at many moments, and a model."""
    dice = random.Random(seed)
    model: dict[int, Any] = {}
    running: list[tuple[StateScan, dict[int, Any], list[Any]]] = []
    control = core.feeder.control
    control.set_transport_alive(0, True)
    control.set_state_floor(0, core.next_txid)
    for step in range(1200):
        id_ = dice.randrange(400)
        if dice.random() < 0.15:
            core.delete(topic, id_)
            model.pop(id_, None)
        else:
            core.publish(topic, {"id": id_, "n": step})
            model[id_] = {"id": id_, "n": step}
        if step % 60 == 0:
            running.append((scan(core, topic), dict(model), []))
        for one, _, rows in running:
            if dice.random() < 0.2:
                one.run(FAR, 0)
                rows += one.take_rows()
    for one, expected, rows in running:
        while one.run(FAR, 0) != SCAN_DONE:
            pass
        rows += one.take_rows()
        messages = [json.loads(row[-1]) for row in rows]
        assert sorted(map(str, messages)) == sorted(map(str, expected.values()))
        assert one.compared == one.matched == len(expected)


def test_a_scan_waits_for_the_log(core: SowCore) -> None:
    """sow.md §8: a record that is not written yet leads to the value before it, or shows that there was none."""
    for id_ in range(100):
        core.publish("kept", {"id": id_, "n": 0})
    written = core.feeder.journal.position
    txid = core.next_txid
    for id_ in range(50, 150):
        core.publish("kept", {"id": id_, "n": 1})
    one = scan(core, "kept", txid=txid)
    state = one.run(written, FAR)
    while state != SCAN_WAITS:
        state = one.run(written, FAR)
    assert len(one.take_rows()) == 50
    assert one.run(written, FAR) == SCAN_WAITS
    while one.run(core.feeder.journal.position, FAR) != SCAN_DONE:
        pass
    assert [json.loads(row[-1])["n"] for row in one.take_rows()] == [0] * 50


@pytest.mark.parametrize("topic", TOPICS)
def test_filters_and_keys(core: SowCore, topic: str) -> None:
    """sow.md §8: they combine; `excluded` takes away what was known."""
    for id_ in range(100):
        core.publish(topic, {"id": id_, "a": id_ % 10})
    keys = [core.topics[topic].keys.key(b'{"id":%d}' % id_) for id_ in (3, 4, 13, 777)]
    assert set(found(scan(core, topic, "/a < 2"))) == {id_ for id_ in range(100) if id_ % 10 < 2}
    assert set(found(scan(core, topic, keys=keys))) == {3, 4, 13}
    one = scan(core, topic, "/a = 3", keys=keys)
    assert set(found(one)) == {3, 13}
    assert (one.compared, one.matched) == (3, 2)
    one = scan(core, topic, "/a < 5", excluded=filters("/a < 4"))
    assert {message["a"] for message in found(one).values()} == {4}
    assert one.matched == 50


@pytest.mark.parametrize("topic", TOPICS)
def test_keys_for_a_deletion(core: SowCore, topic: str) -> None:
    """sow.md §6: with the transaction ids of the records that matched."""
    txids = {id_: core.publish(topic, {"id": id_}) for id_ in range(5)}
    one = scan(core, topic, "/id > 2", collects_keys=True)
    assert one.run(FAR, FAR) == SCAN_DONE
    (data,) = one.take_keys().values()
    pairs = {
        (int.from_bytes(data[at : at + 8], "little"), int.from_bytes(data[at + 8 : at + 16], "little"))
        for at in range(0, len(data), 16)
    }
    assert pairs == {(core.topics[topic].keys.key(b'{"id":%d}' % id_), txids[id_]) for id_ in (3, 4)}


def frames_of(output: OutputBuffer) -> list[tuple[dict[str, Any], list[tuple[dict[str, Any], bytes]]]]:
    """Header, and rows with their headers, of each frame."""
    data = b"".join(bytes(chunk) for chunk in output.take())
    frames = []
    while data:
        length = int.from_bytes(data[:4], "big")
        frame, data = data[4 : 4 + length], data[4 + length :]
        header, at = json.JSONDecoder().raw_decode(frame.decode())
        rows, rest = [], frame[at:]
        while rest:
            about, end = json.JSONDecoder().raw_decode(rest.decode())
            rows.append((about, rest[end : end + about["l"]]))
            rest = rest[end + about["l"] :]
        assert header["bs"] == len(rows)
        frames.append((header, rows))
    return frames


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
def test_frames(core: SowCore, batch_size: int) -> None:
    """sow.md D35: the number of rows of each frame, skipped rows, and the most rows."""
    for id_ in range(50):
        core.publish("kept", {"id": id_})
    output = OutputBuffer(lambda: None)
    frames = ResultFrames(output, batch_size, skip_count=5, row_limit=40)
    frames.begin_topic(BEGINNING)
    one = scan(core, "kept", frames=frames)
    while one.run(FAR, FAR) != SCAN_DONE:
        pass
    frames.flush()
    came = frames_of(output)
    rows = [row for _, of_frame in came for row in of_frame]
    assert [len(of_frame) for _, of_frame in came][:-1] == [batch_size] * (len(came) - 1)
    assert [header["gseq"] for header, _ in came] == list(range(1, len(came) + 1))
    assert (len(rows), frames.returned, one.matched, frames.is_full) == (40, 40, 50, True)
    assert all(about["k"] == str(core.topics["kept"].keys.key(body)) for about, body in rows)
    few = scan(core, "kept", frames=ResultFrames(output, 10, row_limit=0), counts_all=False)
    assert few.run(FAR, FAR) == SCAN_DONE
    assert few.compared == 0


def test_output_is_bounded(core: SowCore) -> None:
    """sow.md §8: a scan stops when its client has to take output, and a frame of large records ends early."""
    for id_ in range(40):
        core.publish("kept", {"id": id_, "p": "x" * 20_000})
    for batch_size in (1, 10_000):
        output = OutputBuffer(lambda: None)
        frames = ResultFrames(output, batch_size)
        frames.begin_topic(BEGINNING)
        one = scan(core, "kept", frames=frames)
        took = 0
        while (state := one.run(FAR, FAR)) != SCAN_DONE:
            assert state == SCAN_FULL
            assert output.pending_bytes < 3 << 20
            took += sum(len(rows) for _, rows in frames_of(output))
        frames.flush()
        assert took + sum(len(rows) for _, rows in frames_of(output)) == 40
