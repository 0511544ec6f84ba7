"""Counters of queues as another process reads them, also while they change."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from amps._core.queues.engine import COUNTER_NAMES, COUNTERS_BYTES
from amps.server.admin.queue_counters import NEVER, QueueCounters, count_priorities, named
from tests.support.queue_files import QueueFiles
from tests.support.queue_subject import QueueSettings
from tests.support.server import package_path

# Reads in a loop until all messages have left the queue. Every row it reads must be a possible state.
READER = """
import sys
from pathlib import Path
from amps.server.admin.queue_counters import NEVER, QueueCounters, count_priorities, named

counters = QueueCounters(Path(sys.argv[1]), 2)
slots, total = Path(sys.argv[2]), int(sys.argv[3])
seen, last, most = 0, (0, 0), 0
print("ready", flush=True)
while True:
    row = counters.read(1)
    everything = named(counters.read_all()[1])
    now = (row["insert_count"], row["delete_count"])
    assert last[0] <= now[0] <= total and last[1] <= now[1] <= total, (last, now)
    assert row["depth"] <= total and everything["insert_count"] >= now[0]
    position = row["oldest_position"]
    assert position == NEVER or (position % 8 == 0 and 8 <= position <= 8 * total), position
    most = max(most, count_priorities(slots, 1, row["first_block_plus_one"]))
    assert most <= 7
    seen += last != now
    last = now
    if now == (total, total):
        break
print(seen, most)
"""


def test_another_process_reads_the_counters(tmp_path: Path) -> None:
    files = QueueFiles(tmp_path, QueueSettings("A"), QueueSettings("B", max_per_subscription=5))
    files.enter(1, 8, 16, 24, now_ns=5)
    files.manager.subscribe(0, 1, 1, {1: None}, 2)
    files.manager.serve(77)
    files.acknowledge(1, 8, now_ns=78)
    program = (
        "import sys; from pathlib import Path; from amps.server.admin.queue_counters import QueueCounters;"
        "print([QueueCounters(Path(sys.argv[1]), 2).read(n) for n in range(2)])"
    )
    environment = {**os.environ, "PYTHONPATH": package_path()}
    read = subprocess.run(
        [sys.executable, "-P", "-c", program, str(files.queue_counters_path)],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    empty, filled = eval(read.stdout)
    assert tuple(empty) == COUNTER_NAMES
    assert {name: value for name, value in empty.items() if value} == {
        "oldest_position": NEVER,
        "oldest_lease_ns": NEVER,
    }
    assert {name: value for name, value in filled.items() if value} == {
        "depth": 2,
        "leased": 1,
        "insert_count": 3,
        "delete_count": 1,
        "oldest_position": 16,
        "last_queued_position": 24,
        "last_acked_position": 8,
        "first_block_plus_one": 1,
        "members": 1,
        "oldest_lease_ns": 77,
    }


def test_another_process_reads_while_everything_changes(tmp_path: Path) -> None:
    total = 60_000
    files = QueueFiles(tmp_path, QueueSettings("A"), QueueSettings("B", has_priority=True))
    paths = [str(files.queue_counters_path), str(files.queue_slots_path)]
    reader = subprocess.Popen(
        [sys.executable, "-P", "-c", READER, *paths, str(total)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": package_path()},
    )  # fmt: skip
    assert reader.stdout is not None
    try:
        assert reader.stdout.readline() == "ready\n"
        for number in range(1, total + 1):
            files.manager.enqueue(1, 8 * number, (1, number), 1, None, 1, number % 6 if number % 7 else None)
            files.enter(0, 8 * number)
            if number > 5000:
                files.acknowledge(1, 8 * (number - 5000))
                files.acknowledge(0, 8 * (number - 5000))
        files.acknowledge(1, *range(8 * (total - 4999), 8 * total + 8, 8))
        seen, most = map(int, reader.communicate(timeout=60)[0].split())
    finally:
        reader.kill()
        reader.wait()
    assert reader.returncode == 0
    assert seen > 1, "nothing changed while it was read"
    assert 1 <= most <= 7


def test_priorities_are_counted_over_blocks(tmp_path: Path) -> None:
    """queues.md §18, `priority_count`: the priorities of messages in the queue, plus one if some have none."""
    files = QueueFiles(tmp_path, QueueSettings("A"), QueueSettings("B", has_priority=True))

    def count() -> int:
        first = QueueCounters(files.queue_counters_path, 2).read(1)["first_block_plus_one"]
        return count_priorities(files.queue_slots_path, 1, first)

    assert count() == 0
    for number in range(1, 3001):
        files.manager.enqueue(1, 8 * number, (1, number), 1, None, 1, number // 1000)
        files.enter(0, 8 * number)  # takes blocks between those of the other queue
    assert count() == 4
    files.acknowledge(1, *range(8, 8000, 8))
    assert count() == 3, "those that have left do not count"
    files.manager.enqueue(1, 24008, (1, 3001), 1, None, 1, None)
    assert count() == 4
    first = QueueCounters(files.queue_counters_path, 2).read(1)["first_block_plus_one"]
    assert count_priorities(files.queue_slots_path, 0, first) == 0, (
        "a block of somebody else's is not counted"
    )


def test_without_files_there_are_no_counters(tmp_path: Path) -> None:
    counters = QueueCounters(tmp_path / "queue.counters", 3)
    with pytest.raises(FileNotFoundError):
        counters.read(0)
    with pytest.raises(FileNotFoundError):
        counters.read_all()


def test_a_file_that_is_being_made_has_no_counters_yet(tmp_path: Path) -> None:
    path = tmp_path / "queue.counters"
    path.touch()
    counters = QueueCounters(path, 3)
    with pytest.raises(OSError, match="No data"):
        counters.read(0)
    path.write_bytes(bytes(3 * COUNTERS_BYTES))
    assert counters.read(2)["depth"] == 0


def test_a_copy_does_not_change(tmp_path: Path) -> None:
    files = QueueFiles(tmp_path, QueueSettings("A"))
    counters = QueueCounters(files.queue_counters_path, 1)
    copied = counters.read_all()
    files.enter(0, 8)
    assert named(copied[0])["depth"] == 0
    assert counters.read(0)["depth"] == 1
