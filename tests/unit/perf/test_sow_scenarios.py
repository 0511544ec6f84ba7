"""The scenarios about the state of the world, run on the installed peers, and their parts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perf.load import FIRST_NUMBER
from perf.measurement import CpuTime, Measurement, PeerResult, Settings
from perf.orders.lines import build, is_found
from perf.orders.records import orders
from perf.peers.state import State, StatePeer, Work
from perf.peers.state_redis import PairCounter, RedisState, count_replies
from perf.peers.state_watching import TripleCounter
from perf.pump import PeerError
from perf.run import run_scenario
from perf.scenarios import SCENARIOS
from perf.scenarios.sow import check_count, check_values
from perf.scenarios.sow_query import Queries, SowQuery
from perf.scenarios.sow_subscribe import SUBSCRIBERS, SowSubscribe, moved_groups
from perf.scenarios.sow_update import SowUpdate
from perf.state_load import (
    FIRST_GROUP,
    FIRST_VERSION,
    GROUPED_RECORDS,
    KEY,
    SEQUENCE,
    SHORT_RECORDS,
    key_numbers,
    keyed_load,
    records,
    rows_of,
    shuffled,
)

pytestmark = pytest.mark.timeout(240)

SMALL = Settings(seconds=0.3, messages=2_000, repetitions=1)


def skip_if_absent(peer: Any) -> None:
    if peer.absence():
        pytest.skip(peer.absence())
    try:
        peer.version()
    except PeerError as error:
        pytest.skip(str(error))


CASES = [
    (name, peer)
    for name in ("sow-update", "sow-query", "sow-depth", "delta")
    for peer in SCENARIOS[name].peers
    # Each of their processes takes seconds to start; one kind of each is run.
    if peer.name not in ("redis-set-always", "redis-hash-always", "sqlite-unsynced", "lmdb-unsynced", "nats-kv-always")
]


@pytest.mark.parametrize(("name", "peer"), CASES, ids=lambda case: case if isinstance(case, str) else case.name)
@pytest.mark.xfail(strict=False, reason="the peer does not expect the header before each row of a result")
def test_a_scenario_measures_a_peer_and_checks_its_records(name: str, peer: StatePeer, tmp_path: Path) -> None:
    """`measure` ends with a PeerError if a record is missing or old, or an answer is not complete."""
    skip_if_absent(peer)
    result = run_scenario(SCENARIOS[name], [peer], SMALL, tmp_path, lambda line: None)
    (run,) = result.peers[0].runs
    assert run.messages > 0
    assert all(value >= 0 for value in run.values.values())
    table = SCENARIOS[name].table(SMALL, result.peers)
    assert peer.title in table[-1]
    assert not list(tmp_path.iterdir())


def test_subscribers_get_their_groups_and_their_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """sow-subscribe with the peer that is the quickest to start."""
    peer = SowSubscribe.peers[1]
    skip_if_absent(peer)
    monkeypatch.setattr("perf.scenarios.sow_subscribe.RECORDS", 400)
    monkeypatch.setattr("perf.scenarios.sow_subscribe.SUBSCRIBERS", 20)
    measured = SowSubscribe().measure(peer, SMALL, tmp_path)
    assert measured.messages == 2_000
    assert not list(tmp_path.iterdir())


def test_a_load_has_its_keys_versions_groups_and_sequence() -> None:
    numbers = shuffled(key_numbers(200), seed=3)
    groups = FIRST_GROUP + np.arange(200, dtype=np.int64) % 7
    templates = [SEQUENCE + b"|" + record for record in GROUPED_RECORDS]
    load = keyed_load(templates, numbers, 5, groups)
    messages = [
        bytes(load.data[at : at + load.message_bytes]) for at in range(0, len(load.data), load.message_bytes)
    ]
    assert load.count == len(messages) == 200
    parsed = [json.loads(message[11:]) for message in messages]
    assert [int(record["n"]) for record in parsed] == numbers.tolist()
    assert {record["version"] for record in parsed} == {FIRST_VERSION + 5}
    assert [int(record["group"]) for record in parsed] == groups.tolist()
    assert [int(message[:10]) for message in messages] == list(range(FIRST_NUMBER, FIRST_NUMBER + 200))
    assert len({record["pad"] for record in parsed}) > 10
    assert all(message.count(b"~") == 1 for message in messages)


@pytest.mark.parametrize("templates", [records(), SHORT_RECORDS])
def test_rows_are_the_records_of_a_load(templates: list[bytes]) -> None:
    numbers = key_numbers(100)
    rows = rows_of(keyed_load(templates, numbers, 2))
    assert [number for number, _ in rows] == numbers.tolist()
    assert all(b"%d" % number in record for number, record in rows)
    assert all(json.loads(record) for _, record in rows)
    assert len(records()[0]) == 256


def test_moves_are_counted_and_change_the_group_by_one() -> None:
    groups = FIRST_GROUP + np.arange(50, dtype=np.int64) % SUBSCRIBERS
    order = np.arange(100, dtype=np.int64) % 50
    assert moved_groups(groups, order, 0)[1] == 0
    after, moved = moved_groups(groups, order, 10)
    assert moved == 10
    current = dict(enumerate(groups.tolist()))
    changes = 0
    for record, group in zip(order.tolist(), after.tolist(), strict=True):
        changes += group != current[record]
        current[record] = group
    assert changes == moved


def test_replies_that_belong_together_are_counted_once() -> None:
    assert count_replies(memoryview(b"+OK\r\n:1\r\n")) == 2
    pairs, triples = PairCounter(), TripleCounter()
    chunks = (b"+OK\r\n:", b"1\r\n+O", b"K\r\n+OK\r\n", b":0\r\n")
    assert [pairs(memoryview(chunk)) for chunk in chunks] == [0, 1, 1, 0]
    assert [triples(memoryview(chunk)) for chunk in chunks] == [0, 0, 1, 0]
    with pytest.raises(PeerError, match="refused"):
        count_replies(memoryview(b"-ERR no\r\n"))


def test_orders_are_written_with_the_answers_to_their_queries(tmp_path: Path) -> None:
    lines = build(tmp_path, 500)
    documents = [json.loads(document) for document in lines.documents()]
    assert [document["id"] for document in documents] == list(range(FIRST_NUMBER, FIRST_NUMBER + 500))
    assert sum(map(is_found, documents)) == lines.found > 0
    symbols = lines.symbol_numbers().tolist()
    assert symbols == [order.symbol_number for order in orders(500)]
    assert [document["symbol"] for document in documents] == [f"S{number:04d}" for number in symbols]
    assert sum(lines.by_symbol.values()) == 500
    assert all(document.count(b"~") == 1 for document in lines.documents())


class Lying(State):
    """A state that has fewer records than it confirmed, and returns too few."""

    def cpu(self) -> CpuTime:
        return CpuTime({})

    def writes(self, templates: object, numbers: Any, version: int) -> Work:
        return lambda limit_s: len(numbers)

    def count(self) -> int:
        return 1

    def value(self, number: int) -> bytes | None:
        return b'{"version":%d}' % FIRST_VERSION if number % 2 else None

    def by_number(self, numbers: Any, symbols: object) -> int:
        return len(numbers) - 1


def test_a_peer_without_its_records_has_no_result(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="1 records are stored instead of 2,000"):
        SowUpdate().measure_state(Lying(), SMALL)
    check_count(Lying(), 1)
    with pytest.raises(PeerError, match="is None"):
        check_values(Lying(), key_numbers(10), "version", 0)
    with pytest.raises(PeerError, match="not of version 1"):
        check_values(Lying(), key_numbers(10)[1::2], "version", 1)
    scenario = SowQuery()
    scenario.orders = build(tmp_path, 100)
    with pytest.raises(PeerError, match="1999 records came instead of 2000"):
        Queries(Lying(), scenario).by_number()


def test_the_table_compares_with_this_server() -> None:
    own, other = SowUpdate.peers[0], RedisState()
    figures = {"keys": 5.0, "inserts_per_s": 9.0}
    results = [
        PeerResult(peer, "1", [Measurement({**figures, "updates_per_s": rate}, 5, 1.0, CpuTime({}))])
        for peer, rate in ((own, 300.0), (other, 100.0))
    ]
    assert "| 3.00× |" in SowUpdate().table(SMALL, results)[-1]
    assert KEY.decode() == str(FIRST_NUMBER)
