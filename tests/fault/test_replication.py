"""Failures of links: an instance that stands still, and one whose disk is full of what it has not passed on."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.instances import Instances, To
from tests.support.server import numbered_bodies, wait_until

LOOSE = "replicate,cascade"
WINDOW_BYTES = 16 << 20


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Instances]:
    with Instances(tmp_path) as instances:
        yield instances


def _replication(group: Instances, name: str) -> int:
    [pid] = group[name].pids("amps: replication")
    return pid


def _anonymous_bytes(pid: int) -> int:
    """Memory of its own, without mapped journals."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    [line] = [line for line in rollup.splitlines() if line.startswith("Anonymous:")]
    return int(line.split()[1]) << 10


def test_a_destination_that_stands_still_costs_no_memory(group: Instances, unique: str) -> None:
    """Decision 25.11: paced by the journal, never offlined. The link ends after its silence, and resumes."""
    group.add("A", [To("B", sync=False, exclude=LOOSE)], journal_size="128MB")
    group.add("B", journal_size="128MB")
    group.start()
    stopped, sending = _replication(group, "B"), _replication(group, "A")
    before = _anonymous_bytes(sending)
    os.kill(stopped, signal.SIGSTOP)
    try:
        with group.client("A", unique) as client:
            client.publish_persisted("t", numbered_bodies(60_000, padding_bytes=1000), 1)
        group["A"].log.wait_for("1E-0002", "silent", timeout_s=40)
        after = _anonymous_bytes(sending)
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert after - before < 2 * WINDOW_BYTES
    assert len(group.log_of("B", 60_000, timeout_s=60)) == 60_000


def test_both_replication_processes_die_again_and_again(group: Instances, unique: str) -> None:
    """Each flow begins from what the log has: every message once, in order."""
    for name, other in ("AB", "BA"):
        group.add(name, [To(other)])
    group.start()
    bodies = numbered_bodies(4000)
    with group.client("A", unique) as client:
        for round_ in range(4):
            begin = 1000 * round_
            client.publish_all("t", bodies[begin : begin + 1000], first_sequence=begin + 1, a="persisted")
            group.kill_replication("AB"[round_ % 2])
            client.wait_for_persisted(begin + 1000, 60)
    for name in "AB":
        assert [message.body for message in group.log_of(name, 4000)] == bodies


def test_the_core_dies_in_the_middle_of_a_flow(group: Instances, unique: str) -> None:
    group.add("A", [To("B", exclude=LOOSE)])
    group.add("B")
    group.start()
    bodies = numbered_bodies(5000, padding_bytes=300)
    with group.client("A", unique) as client:
        for begin in range(0, 5000, 1000):
            client.publish_all("t", bodies[begin : begin + 1000], first_sequence=begin + 1, a="persisted")
            if begin in (1000, 3000):
                wait_until(lambda: bool(group["B"].pids("amps: core")), 60, "the core of B is not started again")
                group["B"].kill_core()
                client.wait_for_persisted(begin, 60)
        client.wait_for_persisted(5000, 60)
    assert [message.body for message in group.log_of("B", 5000, timeout_s=60)] == bodies
