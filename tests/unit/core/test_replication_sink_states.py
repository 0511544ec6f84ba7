"""Sink flows of replication and SOW topics: keys, and deletions (sow.md §3, §4; replication.md §26, 30 and 32)."""

import struct
from dataclasses import dataclass
from pathlib import Path

import pytest

from amps._core.replication.stream import SinkFlow
from amps._core.shm.memory import Ring
from amps._core.sow.shaping import KeyMaker
from amps._core.values.value import publisher_id
from amps._core.wire.topics import SowRules, TopicTable
from amps.expressions import parse_field
from amps.messages import make_message_types, standard_settings
from tests.support.records import STATE, element
from tests.support.streams import GrowingLog
from tests.unit.core.test_replication_sink import (
    HOP,
    QUEUE_PAYLOAD,
    SERIAL,
    SLOT,
    UPSTREAM,
    Core,
    Pushed,
    feed,
    frames_of,
)

JSON = make_message_types(standard_settings().values())["json"]
PAYLOAD_MAX = 500
PLACE = 1 << 40
"""A place in the log of the source, which means nothing here."""


@dataclass
class SowTable:
    """`tk` is a SOW topic with a key, `tg` one whose publishers provide keys, `tc` one with a key generator."""

    by_field: KeyMaker
    by_text: KeyMaker

    def rules(self, topic: str, _kind: str) -> SowRules | None:
        if topic not in ("tk", "tg", "tc"):
            return None
        keys = self.by_field if topic == "tk" else self.by_text
        return SowRules(keys, None, topic == "tg", PAYLOAD_MAX, 0, 0, None, topic == "tc")


@pytest.fixture
def table() -> SowTable:
    return SowTable(
        KeyMaker(b"tk", [parse_field("/id")], JSON.extractor()), KeyMaker(b"tg", [], None)
    )


def sink_of(core: Core, table: SowTable) -> SinkFlow:
    topics = TopicTable(lambda topic, kind: (True, False, None, None), None, table.rules)
    return SinkFlow(
        core.ring, SLOT, SERIAL, topics, publisher_id(UPSTREAM), HOP, core.declare_topic, core.declare_name,
        core.spill, lambda topic, kind: True, set(),
    )  # fmt: skip


def taken(log: GrowingLog, table: SowTable, core: Core | None = None) -> list[Pushed]:
    core = core or Core()
    return [one for group in feed(sink_of(core, table), frames_of(log), core) for one in group]


def state(key: int, definition: int, previous: int = PLACE) -> bytes:
    return element(STATE, key, previous, definition)


def test_a_key_of_the_same_definition_is_kept_without_its_place(tmp_path: Path, table: SowTable) -> None:
    """Also where the topic is no SOW topic: instances behind this one may need the key."""
    log = GrowingLog(tmp_path)
    for sequence, topic in enumerate(("tk", "tk", "t"), 1):
        log.append(
            "p", sequence, topic, extension=state(77, table.by_field.definition), payload=b"not even JSON"
        )
    assert [one.extension[STATE] for one in taken(log, table)] == [(77, 0, table.by_field.definition)] * 3


@pytest.mark.parametrize("extension", [b"", state(77, 1)], ids=["no key", "of another definition"])
def test_a_key_is_made_where_it_is_missing(tmp_path: Path, table: SowTable, extension: bytes) -> None:
    """The first record of a topic goes the long way, the second one the short way."""
    log = GrowingLog(tmp_path)
    for sequence in (1, 2):
        log.append("p", sequence, "tk", extension=extension, payload=b'{"id":5}')
    for sequence in (3, 4):
        log.append("p", sequence, "tg", extension=extension, payload=b"x", sow_key=b"mine")
    made = [one.extension[STATE] for one in taken(log, table)]
    assert made[:2] == [(table.by_field.key(b'{"id":5}'), 0, table.by_field.definition)] * 2
    assert made[2:] == [(table.by_text.text_key(b"mine"), 0, table.by_text.definition)] * 2


def test_a_message_without_a_key_comes_without_one(tmp_path: Path, table: SowTable) -> None:
    """It is recorded, and no value of the topic."""
    log = GrowingLog(tmp_path)
    for sequence, topic in enumerate(("tk", "tk", "tg", "tg", "t"), 1):
        log.append("p", sequence, topic, extension=state(77, 1) if topic != "t" else b"", payload=b"{")
    found = taken(log, table)
    assert [one.rest for one in found] == [b"{"] * 5
    assert not any(STATE in one.extension for one in found)


def test_the_core_makes_the_keys_of_chains(tmp_path: Path, table: SowTable) -> None:
    """sow.md §3.1: the element has room for the key."""
    log = GrowingLog(tmp_path)
    log.append("p", 1, "tc", payload=b"{}")
    assert taken(log, table)[0].extension[STATE] == (0, 0, table.by_text.definition)


def test_the_messages_of_a_transaction_get_keys(tmp_path: Path, table: SowTable) -> None:
    log = GrowingLog(tmp_path)
    bodies = [b'{"id":5}', b"{", b'{"id":6}']
    acknowledgement = ("p", 1, "tk", b"", None, "json", b"", {"payload": QUEUE_PAYLOAD, "kind": 4})
    publishes = [
        ("p", number, "tk", b"", None, "json", b"", {"payload": body}) for number, body in enumerate(bodies, 2)
    ]
    log.append_group([acknowledgement, *publishes])
    for core in (Core(), Core(Ring(4096))):
        first, *rest = taken(log, table, core)
        assert first.kind == 4
        assert STATE not in first.extension
        assert [one.rest for one in rest] == bodies
        assert [one.extension.get(STATE, (0,))[0] for one in rest] == [
            table.by_field.key(bodies[0]), 0, table.by_field.key(bodies[2]),
        ]  # fmt: skip


def test_a_deletion_keeps_its_keys_and_loses_its_places(tmp_path: Path, table: SowTable) -> None:
    """Behaviour 32 of replication.md."""
    log = GrowingLog(tmp_path)
    for sequence, topic in enumerate(("tk", "tk", "t"), 1):
        log.append("p", sequence, topic, kind=3, payload=struct.pack("<QQQQ", 4, PLACE, 9, PLACE + 8))
    assert [(one.kind, one.rest) for one in taken(log, table)] == [(3, struct.pack("<QQQQ", 4, 0, 9, 0))] * 3


def test_a_message_that_is_too_large_for_the_topic_is_refused_to_the_source(
    tmp_path: Path, table: SowTable
) -> None:
    """sow.md D25: no value of that size can be kept, so it is not recorded either; other topics take it."""
    log = GrowingLog(tmp_path)
    large = b'{"id":1,"x":"' + b"z" * PAYLOAD_MAX + b'"}'
    log.append("p", 1, "tk", payload=b'{"id":1}')
    log.append("p", 2, "tk", payload=large)
    log.append("p", 3, "t", payload=large)
    core = Core()
    sink = sink_of(core, table)
    assert [one.sequence for (one,) in feed(sink, frames_of(log), core)] == [1, 3]
    ((txid, reason),) = sink.take_rejections()
    assert (txid, reason) == (
        log.records[1].parts.txid,
        "the SOW topic 'tk' takes no message of this size: raise its SlabSize",
    )
    assert sink.taken_txid == log.records[2].parts.txid
