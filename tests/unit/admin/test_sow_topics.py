"""SOW topics in the administration interface, from a key table, without a core (sow.md §22)."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from amps._core.sow.table import VALUE_FILE_HEADER_BYTES, slab_bytes
from amps.server.admin.sow_topics import SowView, device_of
from amps.server.runtime import Runtime
from amps.server.sow_statistics import SowStatistics
from tests.support.services import loaded
from tests.support.sow import topic_xml

TOPICS = f"<SOW>{topic_xml('a', '/id', Durability='transient', SlabSize='1MB')}{topic_xml('b', '/id')}</SOW>"


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    monkeypatch.setenv("AMPS_RUNTIME_DIRECTORY", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    made = Runtime(2, sow_topics=2)
    yield made
    made.directory.remove()


def write_counters(runtime: Runtime, live: int, value_bytes: int, inserts: int, updates: int, deletes: int) -> None:
    """The header of the key table of topic `a`: see amps/_core/sow/slots.pxd."""
    words = (0, 1024, 9, live, 1, value_bytes, inserts, updates, deletes, 77)
    runtime.sow_keys_path(0).write_bytes(struct.pack("<10Q", *words).ljust(4096, b"\0"))


def test_rates_are_averages_over_an_interval(runtime: Runtime) -> None:
    """sow.md §22: also when the core has made the table after this process began, and when it starts again."""
    now_s = [100.0]
    view = SowView(loaded(instance_xml=TOPICS).config, runtime, lambda: now_s[0])
    with pytest.raises(FileNotFoundError):
        view.metrics(0)
    write_counters(runtime, 3, 500, 40, 100, 20)
    runtime.sow_values_path(0).write_bytes(bytes(VALUE_FILE_HEADER_BYTES + 2 * slab_bytes(1 << 20)))
    for worker in (0, 1, 1):
        runtime.sow_statistics.count_query(worker, 0)
    now_s[0] += 10.0
    view.sample()
    metrics = view.metrics(0)
    wanted = {
        "insert_count": "40", "update_count": "100", "delete_count": "20", "query_count": "3", "valid_keys": "3",
        "stored_bytes": "500", "inserts_per_sec": "4.00", "updates_per_sec": "10.00", "deletes_per_sec": "2.00",
        "queries_per_sec": "0.30", "slab_count": "2", "slab_size": "1048576", "historical_window": "0",
    }  # fmt: skip
    assert {name: metrics[name] for name in wanted} == wanted
    assert list(metrics) == sorted(metrics)
    write_counters(runtime, 3, 500, 0, 5, 0)
    now_s[0] += 5.0
    view.sample()
    rates = view.metrics(0)
    assert [rates[name] for name in ("inserts_per_sec", "updates_per_sec")] == ["0.00", "0.00"], "a new start"
    view.sample()
    assert view.metrics(0) == rates, "no time has passed"


def test_queries_of_all_workers_are_added_up() -> None:
    statistics = SowStatistics(3, 2)
    for worker, topic in ((0, 0), (1, 0), (2, 1), (1, 0)):
        statistics.count_query(worker, topic)
    assert [statistics.queries(topic) for topic in range(2)] == [3, 1]
    statistics.reset()
    assert [statistics.queries(topic) for topic in range(2)] == [0, 0]
    SowStatistics(2, 0).reset()


def test_the_name_of_a_device() -> None:
    assert device_of(0) == ""
    found = device_of(os.stat("/").st_dev)
    assert "/" not in found
