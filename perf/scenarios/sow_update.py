"""Updates per second of a million keys, until confirmed as stored, and changes of a few fields of large records.

First every key is inserted, in order. Then every key is updated once, in random order. A peer that takes longer than
the limit of a run does not get to all keys; its figures are those of the keys that it got to.
"""

import time
from collections.abc import Sequence
from functools import partial

from perf import tables
from perf.measurement import Measurement, PeerResult, Settings
from perf.peers.state import State, Work
from perf.peers.state_amps import AmpsState
from perf.peers.state_embedded import Lmdb, LmdbUnsynced
from perf.peers.state_nats import NatsKeyValue, NatsKeyValueSynced
from perf.peers.state_redis import RedisHash, RedisHashAlways, RedisState, RedisStateAlways
from perf.peers.state_sql import DuckDb, Sqlite, SqliteUnsynced
from perf.scenarios.sow import OrdersScenario, SowScenario, check_count, check_values
from perf.state_load import ORDER_CHANGES, RECORD_BYTES, key_numbers, records, shuffled

DEFAULT_KEYS = 1_000_000
DEFAULT_LIMIT_S = 30.0
DELTA_ORDERS = 100_000
WARM_UP_KEYS = 1_000


def timed(work: Work, limit_s: float) -> tuple[int, float]:
    began_s = time.perf_counter()
    done = work(limit_s)
    return done, time.perf_counter() - began_s


class SowUpdate(SowScenario):
    name = "sow-update"
    question = "Updates per second of a million keys, until confirmed as stored"
    peers = (
        AmpsState(),
        RedisState(),
        RedisStateAlways(),
        RedisHash(),
        NatsKeyValue(),
        NatsKeyValueSynced(),
        Sqlite(),
        SqliteUnsynced(),
        DuckDb(),
        Lmdb(),
        LmdbUnsynced(),
    )

    def measure_state(self, state: State, settings: Settings) -> Measurement:
        limit_s = settings.seconds or DEFAULT_LIMIT_S
        templates = records()
        state.writes(templates, key_numbers(WARM_UP_KEYS), 0)(limit_s)
        numbers = key_numbers(settings.messages or DEFAULT_KEYS)
        inserted, insert_s = timed(state.writes(templates, numbers, 1), limit_s)
        check_count(state, max(inserted, WARM_UP_KEYS))
        numbers = shuffled(numbers[:inserted], seed=1)
        updates = state.writes(templates, numbers, 2)
        cpu_before, load_before = state.cpu(), time.process_time()
        updated, update_s = timed(updates, limit_s)
        cpu, load_cpu_s = state.cpu().since(cpu_before), time.process_time() - load_before
        if updated == len(numbers):
            check_values(state, numbers, "version", 2)
        return Measurement(
            {
                "keys": inserted,
                "inserts_per_s": round(inserted / insert_s),
                "updates_per_s": round(updated / update_s),
            },
            updated,
            update_s,
            cpu,
            load_cpu_s,
        )

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        limit_s = settings.seconds or DEFAULT_LIMIT_S
        return rate_table(
            f"**{self.name}** ({RECORD_BYTES}-byte records, at most {limit_s:g} s, median of {settings.repetitions})",
            results,
            {"keys": "keys", "inserts_per_s": "inserts/s"},
        )


class Delta(OrdersScenario):
    name = "delta"
    question = "Changes per second of two fields of orders with 54 fields, until the whole record is stored"
    default_messages = DELTA_ORDERS
    peers = (AmpsState(), RedisHash(), RedisHashAlways(), Sqlite(), SqliteUnsynced(), DuckDb(), Lmdb(), LmdbUnsynced())

    def measure_state(self, state: State, settings: Settings) -> Measurement:
        limit_s = settings.seconds or DEFAULT_LIMIT_S
        state.load_orders(self.orders)
        numbers = key_numbers(self.orders.count)
        state.deltas(ORDER_CHANGES, numbers[:WARM_UP_KEYS], 0)(limit_s)
        changes = [state.deltas(ORDER_CHANGES, shuffled(numbers, seed), seed) for seed in (1, 2, 3)]
        cpu_before, load_before = state.cpu(), time.process_time()
        began_s = time.perf_counter()
        done = 0
        for version, change in enumerate(changes, start=1):
            done += change(max(0.1, limit_s - (time.perf_counter() - began_s)))
            if done < version * len(numbers):
                break
        elapsed_s = time.perf_counter() - began_s
        cpu, load_cpu_s = state.cpu().since(cpu_before), time.process_time() - load_before
        if done == len(changes) * len(numbers):
            check_values(state, numbers, "quantity", len(changes))
        return Measurement({"updates_per_s": round(done / elapsed_s)}, done, elapsed_s, cpu, load_cpu_s)

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        title = f"**{self.name}** ({self.orders.count:,} orders of about 1 KB, median of {settings.repetitions})"
        return rate_table(title, results, {})


def rate_table(title: str, results: Sequence[PeerResult], further: dict[str, str]) -> list[str]:
    """Updates per second; `further`: other figures with their titles."""
    ratio = partial(tables.ratio, results, value="updates_per_s", higher_is_better=True)
    return tables.lines(
        title,
        ["peer", *further.values(), "updates/s", "ratio", "peer's CPU µs/update", "slowest … fastest run"],
        [
            [
                result.peer.title,
                *(f"{result.median(value):,.0f}" for value in further),
                f"{result.median('updates_per_s'):,.0f}",
                ratio(result),
                f"{result.cpu_per_message_us:.2f}",
                tables.extremes(result, "updates_per_s"),
            ]
            for result in results
        ],
    )
