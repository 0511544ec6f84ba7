"""The orders of `perf.orders.records` as JSON documents in a file, one per line, for queries of a million records.

Every document has its number as `id`, in ten digits, and ends with the byte that `perf.load.MarkerCounter` counts. So a
reader knows how many documents it got without parsing them. The answers to the queries of the scenarios are known.
"""

import mmap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from perf.load import FIRST_NUMBER, MARKER
from perf.orders.records import CURRENCY, QUANTITY_LEAST, QUANTITY_MOST, REGION, STATUSES, as_dict, orders

SCAN_PRICE_LIMIT = 10.5
"""About one order in two hundred matches the filter of the scans: the answer must not cost more than finding it."""

Document = dict[str, Any]


def is_found(document: Document) -> bool:
    """The filter of five predicates, on a parsed document."""
    return bool(
        document["status"] in STATUSES
        and document["price"] < SCAN_PRICE_LIMIT
        and QUANTITY_LEAST <= document["quantity"] <= QUANTITY_MOST
        and document["account"]["region"] != REGION
        and document["currency"] != CURRENCY
    )


@dataclass(frozen=True)
class OrderLines:
    """The result of `build`; measuring processes get it."""

    path: Path
    count: int
    found: int
    """Documents that match the filter of the scans."""
    by_symbol: dict[int, int]
    """Documents by the number of their symbol."""
    symbols: Path
    """The numbers of the symbols of all documents, in order, in NumPy's format."""

    def documents(self) -> Iterator[bytes]:
        """All documents, in the order of their numbers."""
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as lines:
            for line in iter(lines.readline, b""):
                yield line[:-1]

    def symbol_numbers(self) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
        return np.load(self.symbols)


def build(directory: Path, count: int) -> OrderLines:
    """Write `count` documents below `directory`."""
    path, symbols_path = directory / "orders.jsonl", directory / "symbols.npy"
    symbols = np.empty(count, dtype=np.int16)
    found = 0
    with path.open("wb", buffering=1 << 20) as file:
        for number, order in enumerate(orders(count)):
            document = as_dict(order.fields)
            document["id"] = FIRST_NUMBER + number
            document["end"] = chr(MARKER)
            found += is_found(document)
            symbols[number] = order.symbol_number
            file.write(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
    np.save(symbols_path, symbols)
    return OrderLines(path, count, found, dict(Counter(symbols.tolist())), symbols_path)
