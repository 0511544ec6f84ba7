"""Reads of journals by the data source's planning and reading, without a Spark session."""

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from amps._core.columns.columns import COLUMNS
from amps.spark.options import read_options
from amps.spark.source import PushingReader
from tests.support.log_directories import Directory


class Read:
    """The result of a read with some options."""

    def __init__(
        self, path: Path, filters: Iterable[Any] = (), columns: Any = COLUMNS, **options: str
    ) -> None:
        report = path.parent / f"report-{random.randrange(1 << 60)}"
        report.mkdir()
        given = {name.strip("_"): value for name, value in options.items()}
        reader = PushingReader(read_options({"path": str(path), "report": str(report), **given}), columns)
        self.left = list(reader.pushFilters(list(filters)))
        self.partitions = reader.partitions()
        batches = [batch for partition in self.partitions for batch in reader.read(partition)]
        for batch in batches:
            batch.validate(full=True)
        self.rows = [row for batch in batches for row in batch.to_pylist()]
        self.reports = [json.loads(entry.read_text()) for entry in report.iterdir()]

    def total(self, name: str) -> int:
        return sum(report[name] for report in self.reports)

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.rows]


def positions(directory: Directory) -> list[int]:
    return [record.position for record in directory.records]
