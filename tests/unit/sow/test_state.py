"""The state of SOW topics in the core: slots, values, snapshots, expiry, deletion, restart, removal of journals."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.sow_core import SowCore

TOPICS = ("kept", "plain")
SECOND_NS = 10**9


@pytest.fixture
def core(tmp_path: Path) -> Iterator[SowCore]:
    made = SowCore(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("topic", TOPICS)
def test_sow_1_a_publish_replaces_the_whole_record(core: SowCore, topic: str) -> None:
    """Behaviour 1."""
    core.publish(topic, {"id": 1, "a": 1, "b": 2})
    core.publish(topic, {"id": 1, "a": 5})
    assert core.state(topic) == {1: {"id": 1, "a": 5}}


@pytest.mark.parametrize("topic", TOPICS)
def test_sow_23_a_delta_is_merged_into_the_stored_message(core: SowCore, topic: str) -> None:
    """Behaviour 23: also into a message of the same run."""
    core.publish(topic, {"id": 1, "b": 7}, delta=True)
    core.publish(topic, {"id": 1, "a": 1}, delta=True)
    assert core.state(topic) == {1: {"id": 1, "a": 1, "b": 7}}


@pytest.mark.parametrize("topic", TOPICS)
def test_a_value_expires_at_its_time(core: SowCore, topic: str) -> None:
    core.publish(topic, {"id": 1}, lifetime_s=2)
    core.publish(topic, {"id": 2}, lifetime_s=0)
    core.publish(topic, {"id": 3}, lifetime_s=5)
    core.now_ns += 2 * SECOND_NS - 1
    core.turn()
    assert set(core.state(topic)) == {1, 2, 3}
    core.now_ns += 1
    core.turn()
    assert set(core.state(topic)) == {2, 3}
    core.publish(topic, {"id": 3}, lifetime_s=9)
    core.now_ns += 5 * SECOND_NS
    core.turn()
    assert set(core.state(topic)) == {2, 3}


@pytest.mark.parametrize("topic", TOPICS)
def test_a_deletion_answers_with_the_keys_that_changed(core: SowCore, topic: str) -> None:
    first = core.publish(topic, {"id": 1})
    second = core.publish(topic, {"id": 2})
    core.publish(topic, {"id": 2, "again": True})
    key = core.topics[topic].keys.key(b'{"id":2}')
    ((name, _, _, token, removed, changed),) = core.delete(topic, 1, 2, 3, seen={1: first, 2: second})
    assert (name, token, removed, changed) == ("sow_deleted", 7, 1, [key])
    assert set(core.state(topic)) == {2}


@pytest.mark.parametrize("topic", TOPICS)
def test_a_snapshot_shows_the_state_before_a_transaction_id(core: SowCore, topic: str) -> None:
    """The previous values are reached over deletions, expiries and merged deltas."""
    begin = core.publish(topic, {"id": 1, "v": 1})
    core.feeder.control.set_transport_alive(3, True)
    core.feeder.control.set_state_floor(3, begin)  # a reader that keeps everything
    states: dict[int, dict[int, Any]] = {}

    def note() -> None:
        states[core.next_txid] = core.state(topic)

    note()
    core.publish(topic, {"id": 2, "v": 1}, lifetime_s=1)
    note()
    core.publish(topic, {"id": 1, "w": 2}, delta=True)
    note()
    core.delete(topic, 1)
    note()
    core.publish(topic, {"id": 1, "v": 3})
    note()
    core.now_ns += SECOND_NS
    core.turn()
    note()
    core.publish(topic, {"id": 2, "v": 4})
    for txid, state in states.items():
        assert core.state(topic, txid) == state
    assert [len(state) for state in states.values()] == [1, 2, 2, 1, 2, 1]


@pytest.mark.parametrize("seed", range(12))
def test_the_state_is_that_of_a_model(tmp_path: Path, seed: int) -> None:
    """Random changes, restarts and removed journals: at every moment that the log holds, the state is the model's."""
    chance = random.Random(seed)
    core = SowCore(tmp_path, file_bytes=16384)
    model: dict[str, dict[int, dict[str, Any]]] = {topic: {} for topic in TOPICS}
    until: dict[tuple[str, int], int] = {}
    past: list[tuple[int, dict[int, Any]]] = []

    def expire() -> None:
        for (topic, id_), when in list(until.items()):
            if when <= core.now_ns:
                del until[topic, id_]
                model[topic].pop(id_, None)

    try:
        for step in range(700):
            topic, id_ = chance.choice(TOPICS), chance.randrange(40)
            what = chance.random()
            if what < 0.55:
                lifetime_s = chance.choice((None, None, 0, 1, 3))
                message = {"id": id_, "v": step, "pad": "x" * chance.randrange(300)}
                core.publish(topic, message, lifetime_s=lifetime_s)
                model[topic][id_] = message
                until.pop((topic, id_), None)
                if lifetime_s:
                    until[topic, id_] = core.now_ns + lifetime_s * SECOND_NS
            elif what < 0.75:
                delta = {"id": id_, f"f{chance.randrange(4)}": step}
                core.publish(topic, delta, delta=True)
                model[topic][id_] = {**model[topic].get(id_, {}), **delta}
                until.pop((topic, id_), None)
            elif what < 0.9:
                ids = {chance.randrange(40) for _ in range(3)}
                core.delete(topic, *ids)
                for gone in ids:
                    model[topic].pop(gone, None)
                    until.pop((topic, gone), None)
            elif what < 0.97:
                core.now_ns += chance.randrange(SECOND_NS)
                core.turn()
                expire()
            elif what < 0.985:
                core.restart()
                core.turn()
            elif core.feeder.journal.number > core.first_number:
                kept_from = core.remove_journals(
                    chance.randrange(core.first_number + 1, core.feeder.journal.number + 1)
                )
                past = [one for one in past if one[0] >= kept_from]
            assert core.topics[topic].sow.state.table.live == len(model[topic])
            if step % 7 == 0:
                for name in TOPICS:
                    assert core.state(name) == model[name], (seed, step, name)
                past.append((core.next_txid, {id_: dict(m) for id_, m in model["kept"].items()}))
                txid, state = chance.choice(past)
                assert core.state("kept", txid) == state, (seed, step, txid)
        for txid, state in past:
            assert core.state("kept", txid) == state, (seed, txid)
    finally:
        core.close()


@pytest.mark.parametrize("seed", range(3))
def test_slabs_are_compacted_and_used_again(tmp_path: Path, seed: int) -> None:
    """Many large updates: the file stays small, and snapshots of readers stay whole, over restarts too."""
    chance = random.Random(seed)
    core = SowCore(tmp_path)
    core.feeder.control.set_transport_alive(3, True)
    values = core.topics["plain"].sow.state.values
    model: dict[int, dict[str, Any]] = {}
    held: tuple[int, dict[int, dict[str, Any]]] | None = None
    slabs = 0
    try:
        for step in range(4000):
            id_ = chance.randrange(30) if chance.random() < 0.9 else chance.randrange(2000, 2100)
            if chance.random() < 0.05:
                core.delete("plain", id_)
                model.pop(id_, None)
            else:
                message = {"id": id_, "v": step, "pad": "x" * chance.randrange(3500)}
                core.publish("plain", message)
                model[id_] = message
            slabs = max(slabs, values.slab_count)
            if step % 400 == 150:
                held = core.next_txid, dict(model)
                core.feeder.control.set_state_floor(3, held[0])
            if step % 400 == 300 and held is not None:
                assert core.state("plain", held[0]) == held[1]
                core.feeder.control.set_state_floor(3, 0)
            if step % 1300 == 1299:
                core.restart()
                held = None  # no reader outlives the core
                core.feeder.control.set_transport_alive(3, True)
                values = core.topics["plain"].sow.state.values
                assert core.state("plain") == model
        assert core.state("plain") == model
        assert values.live_bytes >= sum(len(str(message["pad"])) for message in model.values())
        assert 3 < slabs < 16
    finally:
        core.close()
