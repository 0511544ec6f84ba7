"""Queries of a million records of 1 KB: by key, by an indexed field, by a filter that reads every record; also while
other records of the topic are updated.

All answers are whole records, and their numbers are checked. A scan's figure is the number of records searched per
second and per second of processor time, of the peer and of the client together: some peers leave the work to the
client, and a library's process is both.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence

from perf import tables
from perf.measurement import Measurement, PeerResult, Settings
from perf.orders.records import SYMBOLS
from perf.peers.state import State
from perf.peers.state_amps import AmpsState
from perf.peers.state_embedded import Lmdb
from perf.peers.state_nats import NatsKeyValue
from perf.peers.state_redis import RedisSearch, RedisState
from perf.peers.state_sql import DuckDb, DuckDbColumns, Sqlite
from perf.pump import PeerError
from perf.scenarios.sow import OrdersScenario
from perf.state_load import OTHER_ORDERS, key_numbers, shuffled

DEFAULT_LENGTH_S = 5.0
KEYS_TOGETHER = 2_000
SYMBOLS_TOGETHER = 5
UPDATE_RATE = 10_000
UPDATES_TOGETHER = 1_000
UPDATED_KEYS = 50_000
OTHER_KEYS = 500_000_000
"""Added to a key: an order that no query asks for."""


class SowQuery(OrdersScenario):
    name = "sow-query"
    question = "Queries of a million records of 1 KB by key, by an indexed field, by a filter, and while updating"
    peers = (
        AmpsState(),
        RedisState(),
        RedisSearch(),
        NatsKeyValue(),
        Sqlite(),
        DuckDb(),
        DuckDbColumns(),
        Lmdb(),
    )

    def measure_state(self, state: State, settings: Settings) -> Measurement:
        limit_s = settings.seconds or DEFAULT_LENGTH_S
        state.load_orders(self.orders)
        queries = Queries(state, self)
        values: dict[str, float] = {}
        cpu_before, load_before = state.cpu(), time.process_time()
        began_s = time.perf_counter()
        keys, keys_s, _ = repeated(queries.by_number, limit_s, state)
        values["by_key_per_s"] = round(keys / keys_s)
        rows, rows_s, _ = repeated(queries.by_symbol, limit_s, state)
        values["by_field_records_per_s"] = round(rows / rows_s)
        scanned, scan_s, scan_cpu_s = repeated(queries.scan, limit_s, state)
        values["scanned_per_s"] = round(scanned / scan_s)
        values["scanned_per_cpu_s"] = round(scanned / scan_cpu_s)
        done = keys + rows + scanned
        if state.answers_while_updating:
            with Updating(state) as updating:
                busy, busy_s, _ = repeated(queries.by_number, limit_s, state)
                values["by_key_while_updating_per_s"] = round(busy / busy_s)
                scans, scans_s, _ = repeated(queries.scan, limit_s, state)
                values["scanned_while_updating_per_s"] = round(scans / scans_s)
            values["updated_meanwhile_per_s"] = round(updating.rate)
            done += busy + scans
        return Measurement(
            values,
            done,
            time.perf_counter() - began_s,
            state.cpu().since(cpu_before),
            time.process_time() - load_before,
        )

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        columns = {
            "by_key_per_s": "by key/s",
            "by_field_records_per_s": "by field, records/s",
            "scanned_per_s": "scanned/s",
            "scanned_per_cpu_s": "scanned/s and core",
            "by_key_while_updating_per_s": "by key/s, updating",
            "scanned_while_updating_per_s": "scanned/s, updating",
            "updated_meanwhile_per_s": "updates/s meanwhile",
        }
        return tables.lines(
            f"**{self.name}** ({self.orders.count:,} orders of about 1 KB, {SYMBOLS:,} symbols, filter of five "
            f"predicates that {self.orders.found:,} match, {UPDATE_RATE:,} updates/s wanted, "
            f"{settings.seconds or DEFAULT_LENGTH_S:g} s each, median of {settings.repetitions})",
            ["peer", *columns.values()],
            [
                [result.peer.title, *(tables.figure(result, value) for value in columns)]
                for result in results
            ],
        )


class Queries:
    """Random queries, whose answers are checked. Each returns the number by which its rate is measured."""

    def __init__(self, state: State, scenario: SowQuery) -> None:
        self._state = state
        self._orders = scenario.orders
        self._symbols = scenario.orders.symbol_numbers()
        self._random = random.Random(1)

    def by_number(self) -> int:
        wanted = self._random.choices(range(self._orders.count), k=KEYS_TOGETHER)
        numbers = key_numbers(self._orders.count)[wanted]
        came = self._state.by_number(numbers, self._symbols[wanted].tolist())
        return self._checked(came, len(wanted), len(wanted))

    def by_symbol(self) -> int:
        wanted = self._random.sample(sorted(self._orders.by_symbol), SYMBOLS_TOGETHER)
        expected = sum(self._orders.by_symbol[number] for number in wanted)
        return self._checked(self._state.by_symbol(wanted, expected), expected, expected)

    def scan(self) -> int:
        return self._checked(self._state.scan(self._orders.found), self._orders.found, self._orders.count)

    def _checked(self, came: int, expected: int, counted: int) -> int:
        if came != expected:
            raise PeerError(f"{came} records came instead of {expected}")
        return counted


def repeated(query: Callable[[], int], limit_s: float, state: State) -> tuple[int, float, float]:
    """Ask for at least `limit_s`: the sum of the results, seconds, and processor seconds of peer and client."""
    cpu_before, load_before = state.cpu().total_s, time.process_time()
    began_s = time.perf_counter()
    done = 0
    while (elapsed_s := time.perf_counter() - began_s) < limit_s:
        done += query()
    used_s = state.cpu().total_s - cpu_before
    return done, elapsed_s, used_s if state.is_in_this_process else used_s + time.process_time() - load_before


class Updating:
    """Updates other records of the topic at UPDATE_RATE, as far as the peer takes them, in a thread."""

    def __init__(self, state: State) -> None:
        self._state = state.other_connection()
        self._stopping = threading.Event()
        self._failure: Exception | None = None
        self._done = 0
        self._thread = threading.Thread(target=self._run)
        self.rate = 0.0

    def __enter__(self) -> "Updating":
        self._began_s = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping.set()
        self._thread.join()
        self.rate = self._done / (time.perf_counter() - self._began_s)
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        keys = key_numbers(UPDATED_KEYS) + OTHER_KEYS
        version = 0
        try:
            while not self._stopping.is_set():
                version += 1
                part = shuffled(keys, version)[:UPDATES_TOGETHER]
                self._done += self._state.writes(OTHER_ORDERS, part, version)(30.0)
                ahead_s = self._done / UPDATE_RATE - (time.perf_counter() - self._began_s)
                self._stopping.wait(max(0.0, ahead_s))
        except Exception as failure:
            self._failure = failure
