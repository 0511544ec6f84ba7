"""SQLite and DuckDB as keepers of states: a table of documents with a primary key.

SQLite writes ahead (WAL); with `synchronous=FULL` each commit waits for the disk, with NORMAL only checkpoints do.
DuckDB syncs each commit. Documents are queried by JSON functions; in `duckdb-columns` the fields of the filter are
columns of their own, known before. Upserts are `INSERT … ON CONFLICT`, in batches.
"""

import contextlib
import importlib.util
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from perf.orders.lines import SCAN_PRICE_LIMIT
from perf.orders.records import CURRENCY, QUANTITY_LEAST, QUANTITY_MOST, REGION, STATUSES, symbol
from perf.peers.state import State
from perf.peers.state_embedded import EmbeddedPeer, EmbeddedState, Row
from perf.pump import PeerError
from perf.state_load import Numbers

CACHE_KIB = 1 << 18
COLUMNS = ("symbol", "status", "price", "quantity", "region", "currency")


def filter_sql(field: Callable[[str], str]) -> str:
    """The filter of the scans; `field` gives the expression of a field."""
    statuses = ", ".join(f"'{status}'" for status in STATUSES)
    return (
        f"{field('status')} IN ({statuses}) AND {field('price')} < {SCAN_PRICE_LIMIT} "
        f"AND {field('quantity')} BETWEEN {QUANTITY_LEAST} AND {QUANTITY_MOST} "
        f"AND {field('account.region')} != '{REGION}' AND {field('currency')} != '{CURRENCY}'"
    )


class SqliteState(EmbeddedState):
    def __init__(self, path: Path, synced: bool) -> None:
        self._path, self._synced = path, synced
        self._connection = sqlite3.connect(path, isolation_level=None, cached_statements=64, timeout=30)
        self._execute = self._connection.execute
        self._execute("PRAGMA journal_mode=WAL")
        self._execute(f"PRAGMA synchronous={'FULL' if synced else 'NORMAL'}")
        self._execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        self._execute("CREATE TABLE IF NOT EXISTS state (id INTEGER PRIMARY KEY, document TEXT) STRICT")

    def close(self) -> None:
        self._connection.close()

    def other_connection(self) -> State:
        return SqliteThreadState(self._path, self._synced)

    def prepared(self, rows: Sequence[Row]) -> Any:
        return [(number, record.decode()) for number, record in rows]

    def store(self, batch: Any) -> None:
        self._in_transaction(
            "INSERT INTO state VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET document = excluded.document", batch
        )

    def change(self, batch: Any) -> None:
        changes = [(record, number) for number, record in batch]
        self._in_transaction("UPDATE state SET document = json_patch(document, ?) WHERE id = ?", changes)

    def _in_transaction(self, statement: str, rows: Any) -> None:
        self._execute("BEGIN IMMEDIATE")
        self._connection.executemany(statement, rows)
        self._execute("COMMIT")

    def value(self, number: int) -> bytes | None:
        row = self._execute("SELECT document FROM state WHERE id = ?", (number,)).fetchone()
        return row and row[0].encode()

    def count(self) -> int:
        return int(self._execute("SELECT count(*) FROM state").fetchone()[0])

    def store_orders(self, rows: Sequence[tuple[int, int, bytes]]) -> None:
        self._execute("CREATE INDEX IF NOT EXISTS symbols ON state (document ->> '$.symbol')")
        self.store([(number, document.decode()) for number, _, document in rows])

    def by_number(self, numbers: Numbers, symbols: Sequence[int]) -> int:
        execute = self._execute
        query = "SELECT document FROM state WHERE id = ?"
        return sum(execute(query, (number,)).fetchone() is not None for number in numbers.tolist())

    def by_symbol(self, symbols: Sequence[int], expected: int) -> int:
        query = "SELECT document FROM state WHERE document ->> '$.symbol' = ?"
        return sum(len(self._execute(query, (symbol(number),)).fetchall()) for number in symbols)

    def scan(self, expected: int) -> int:
        condition = filter_sql(lambda name: f"document ->> '$.{name}'")
        return len(self._execute(f"SELECT document FROM state WHERE {condition}").fetchall())


class SqliteThreadState(SqliteState):
    """Opened by the thread that uses it."""

    def __init__(self, path: Path, synced: bool) -> None:
        self._path, self._synced = path, synced

    def __getattr__(self, name: str) -> Any:
        if name in ("_connection", "_execute"):
            SqliteState.__init__(self, self._path, self._synced)
            return self.__dict__[name]
        raise AttributeError(name)


class Sqlite(EmbeddedPeer):
    name = "sqlite"
    title = "SQLite, embedded (WAL, synchronous=FULL, 10,000 per transaction)"
    distribution = "sqlite"

    def version(self) -> str:
        return f"SQLite {sqlite3.sqlite_version}"

    @contextlib.contextmanager
    def opened(self, directory: Path) -> Iterator[State]:
        state = SqliteState(directory / "state.sqlite", self.synced)
        try:
            yield state
        finally:
            state.close()


class SqliteUnsynced(Sqlite):
    name = "sqlite-unsynced"
    title = "SQLite, embedded (WAL, synchronous=NORMAL, 10,000 per transaction)"
    synced = False


class DuckDbState(EmbeddedState):
    batch = 100_000
    columns = ""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._execute("SET enable_progress_bar = false")
        self._execute(f"CREATE TABLE IF NOT EXISTS state (id BIGINT PRIMARY KEY, document JSON{self.columns})")

    def close(self) -> None:
        self._connection.close()

    def other_connection(self) -> State:
        return type(self)(self._connection.cursor())

    def prepared(self, rows: Sequence[Row]) -> Any:
        arrow = importlib.import_module("pyarrow")
        numbers, documents = zip(*rows, strict=True)
        return arrow.table({"id": numbers, "document": [document.decode() for document in documents]})

    def store(self, batch: Any) -> None:
        self._connection.register("batch", batch)
        self._execute("INSERT OR REPLACE INTO state (id, document) SELECT id, document FROM batch")

    def change(self, batch: Any) -> None:
        self._connection.register("batch", batch)
        self._execute(
            "UPDATE state SET document = json_merge_patch(state.document, batch.document) FROM batch "
            "WHERE state.id = batch.id"
        )

    def value(self, number: int) -> bytes | None:
        rows = self._execute("SELECT document FROM state WHERE id = ?", [number]).fetchall()
        return rows[0][0].encode() if rows else None

    def count(self) -> int:
        return int(self._execute("SELECT count(*) FROM state").fetchall()[0][0])

    def store_orders(self, rows: Sequence[tuple[int, int, bytes]]) -> None:
        self.store(self.prepared([(number, document) for number, _, document in rows]))

    def by_number(self, numbers: Numbers, symbols: Sequence[int]) -> int:
        query = "SELECT document FROM state WHERE id = ?"
        return sum(len(self._execute(query, [number]).fetchall()) for number in numbers.tolist())

    def by_symbol(self, symbols: Sequence[int], expected: int) -> int:
        query = f"SELECT document FROM state WHERE {self.field('symbol')} = ?"
        return sum(len(self._execute(query, [symbol(number)]).fetchall()) for number in symbols)

    def scan(self, expected: int) -> int:
        return len(self._execute(f"SELECT document FROM state WHERE {filter_sql(self.field)}").fetchall())

    def field(self, name: str) -> str:
        text = f"(document ->> '$.{name}')"
        return f"CAST({text} AS DOUBLE)" if name in ("price", "quantity") else text


class DuckDbColumnsState(DuckDbState):
    """The fields of the filter are columns, and the symbol has an index."""

    columns = ", symbol TEXT, status TEXT, price DOUBLE, quantity BIGINT, region TEXT, currency TEXT"

    def store_orders(self, rows: Sequence[tuple[int, int, bytes]]) -> None:
        arrow = importlib.import_module("pyarrow")
        self._execute("CREATE INDEX IF NOT EXISTS symbols ON state (symbol)")
        documents = [orjson.loads(document) for _, _, document in rows]
        columns = {name: [document.get(name) for document in documents] for name in COLUMNS}
        columns["region"] = [document["account"]["region"] for document in documents]
        texts = [document.decode() for _, _, document in rows]
        self._connection.register(
            "batch", arrow.table({"id": [row[0] for row in rows], "document": texts, **columns})
        )
        names = ", ".join(("id", "document", *COLUMNS))
        self._execute(f"INSERT OR REPLACE INTO state ({names}) SELECT {names} FROM batch")

    def field(self, name: str) -> str:
        return name.rpartition(".")[2]


class DuckDb(EmbeddedPeer):
    name = "duckdb"
    title = "DuckDB, embedded (synced, 100,000 per transaction)"
    distribution = "duckdb"
    state: type[DuckDbState] = DuckDbState

    def version(self) -> str:
        if importlib.util.find_spec("pyarrow") is None:
            raise PeerError("DuckDB takes its rows from pyarrow, which is not installed: pip install '.[perf]'")
        return super().version()

    @contextlib.contextmanager
    def opened(self, directory: Path) -> Iterator[State]:
        connection = importlib.import_module("duckdb").connect(str(directory / "state.duckdb"))
        state = self.state(connection)
        try:
            yield state
        finally:
            state.close()


class DuckDbColumns(DuckDb):
    name = "duckdb-columns"
    title = "DuckDB, embedded, fields of the filter are columns"
    state = DuckDbColumnsState
