"""Libraries that keep states, embedded in a process that does nothing else: what all of them share, and LMDB.

There is no server between them and the application, so no socket and no other process takes part. Records are written
in transactions of `batch` records, as their documents advise. `synced` tells whether a commit waits for the disk.
"""

import contextlib
import importlib
import importlib.metadata
import os
import struct
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from perf.load import FIRST_NUMBER
from perf.measurement import CpuTime
from perf.memory import held_bytes
from perf.orders.lines import OrderLines, is_found
from perf.peers.state import State, StatePeer, Work
from perf.pump import PeerError
from perf.state_load import Numbers, keyed_load, rows_of

Row = tuple[int, bytes]
MAP_BYTES = 32 << 30
LOADED_TOGETHER = 10_000


class EmbeddedState(State):
    """A library with an open database."""

    is_in_this_process = True
    batch = 10_000

    def cpu(self) -> CpuTime:
        return CpuTime({"library and application": time.process_time()})

    def memory_bytes(self) -> int:
        return held_bytes([os.getpid()])

    def writes(self, templates: Sequence[bytes], numbers: Numbers, version: int) -> Work:
        return self._batched(self.store, templates, numbers, version)

    def deltas(self, templates: Sequence[bytes], numbers: Numbers, version: int) -> Work:
        return self._batched(self.change, templates, numbers, version)

    def _batched(
        self, do: Callable[[Any], None], templates: Sequence[bytes], numbers: Numbers, version: int
    ) -> Work:
        rows = rows_of(keyed_load(templates, numbers, version))
        batches = [self.prepared(rows[at : at + self.batch]) for at in range(0, len(rows), self.batch)]

        def work(limit_s: float) -> int:
            began_s = time.perf_counter()
            done = 0
            for batch in batches:
                do(batch)
                done += self.batch
                if time.perf_counter() - began_s > limit_s:
                    break
            return min(done, len(rows))

        return work

    def prepared(self, rows: Sequence[Row]) -> Any:
        """A batch in the form that the library takes. Not timed."""
        return rows

    @abstractmethod
    def store(self, batch: Any) -> None:
        """Insert or replace a batch in one transaction."""

    def change(self, batch: Any) -> None:
        """Merge a batch of changes into the stored documents, in one transaction."""
        raise NotImplementedError

    @abstractmethod
    def store_orders(self, rows: Sequence[tuple[int, int, bytes]]) -> None:
        """Store orders: numbers, numbers of symbols, and documents."""

    def load_orders(self, orders: OrderLines) -> None:
        documents = enumerate(orders.documents(), start=FIRST_NUMBER)
        rows = (
            (number, symbol_number, document)
            for (number, document), symbol_number in zip(documents, orders.symbol_numbers().tolist(), strict=True)
        )
        while part := list(islice(rows, LOADED_TOGETHER)):
            self.store_orders(part)


class EmbeddedPeer(StatePeer):
    """A library."""

    is_embedded = True
    distribution: str
    """Its name on PyPI."""
    synced = True

    def version(self) -> str:
        try:
            return f"{self.distribution} {importlib.metadata.version(self.distribution)}"
        except importlib.metadata.PackageNotFoundError:
            raise PeerError(f"{self.distribution} is not installed: pip install '.[perf]'") from None


ID = struct.Struct(">Q")
SYMBOL = struct.Struct(">H")


class LmdbState(EmbeddedState):
    """Documents by their number, and the numbers of each symbol in a database with duplicates."""

    def __init__(self, directory: Path, synced: bool) -> None:
        lmdb = importlib.import_module("lmdb")
        self._environment = lmdb.open(str(directory / "lmdb"), map_size=MAP_BYTES, max_dbs=2, sync=synced)
        self._symbols = self._environment.open_db(b"symbols", dupsort=True, integerkey=False)

    def close(self) -> None:
        self._environment.close()

    def prepared(self, rows: Sequence[Row]) -> Any:
        return [(ID.pack(number), record) for number, record in rows]

    def store(self, batch: Any) -> None:
        with self._environment.begin(write=True) as transaction, transaction.cursor() as cursor:
            cursor.putmulti(batch, overwrite=True)

    def change(self, batch: Any) -> None:
        with self._environment.begin(write=True) as transaction:
            for key, change in batch:
                document = orjson.loads(transaction.get(key))
                document |= orjson.loads(change)
                transaction.put(key, orjson.dumps(document))

    def value(self, number: int) -> bytes | None:
        with self._environment.begin() as transaction:
            value: bytes | None = transaction.get(ID.pack(number))
            return value

    def count(self) -> int:
        with self._environment.begin() as transaction:
            return int(transaction.stat()["entries"]) - 1  # one is the other database

    def store_orders(self, rows: Sequence[tuple[int, int, bytes]]) -> None:
        with self._environment.begin(write=True) as transaction:
            with transaction.cursor() as cursor:
                cursor.putmulti([(ID.pack(number), document) for number, _, document in rows])
            with transaction.cursor(self._symbols) as cursor:
                cursor.putmulti([(SYMBOL.pack(of), ID.pack(number)) for number, of, _ in rows])

    def by_number(self, numbers: Numbers, symbols: Sequence[int]) -> int:
        with self._environment.begin() as transaction:
            get = transaction.get
            return sum(get(ID.pack(number)) is not None for number in numbers.tolist())

    def by_symbol(self, symbols: Sequence[int], expected: int) -> int:
        came = 0
        with self._environment.begin() as transaction, transaction.cursor(self._symbols) as cursor:
            for number in symbols:
                if cursor.set_key(SYMBOL.pack(number)):
                    came += sum(transaction.get(key) is not None for key in list(cursor.iternext_dup()))
        return came

    def scan(self, expected: int) -> int:
        loads = orjson.loads
        with self._environment.begin(buffers=True) as transaction, transaction.cursor() as cursor:
            last = ID.size
            return sum(is_found(loads(value)) for key, value in cursor if len(key) == last)


class Lmdb(EmbeddedPeer):
    name = "lmdb"
    title = "LMDB, embedded (synced, 10,000 per transaction)"
    distribution = "lmdb"

    @contextlib.contextmanager
    def opened(self, directory: Path) -> Iterator[State]:
        state = LmdbState(directory, self.synced)
        try:
            yield state
        finally:
            state.close()


class LmdbUnsynced(Lmdb):
    name = "lmdb-unsynced"
    title = "LMDB, embedded (sync=False, 10,000 per transaction)"
    synced = False
