"""Facts about publishers that workers share with each other."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from amps.server.transport import publishers
from amps.server.transport.publishers import Publishers


@pytest.fixture
def runtime(tmp_path: Path) -> Any:
    return SimpleNamespace(workers=2, publishers_path=lambda index: tmp_path / f"publishers.{index}")


def facts(name: str) -> dict[str, str]:
    return {"client_name": name}


def test_publishers_are_known_in_every_worker(runtime: Any) -> None:
    one, other = Publishers(runtime, 0), Publishers(runtime, 1)
    assert other.find(1) is None
    one.tell(0, 1, facts("a"))
    assert other.find(1) == one.find(1) == facts("a")
    other.tell(0, 2, facts("b \udc80"))
    assert one.find(2) == facts("b \udc80")


def test_publishers_the_newest_connection_of_a_name_counts(runtime: Any) -> None:
    one, other = Publishers(runtime, 0), Publishers(runtime, 1)
    one.tell(0, 1, facts("first"))
    assert other.find(1) == facts("first")
    one.tell(1, 1, facts("second"))
    assert other.find(1) == facts("second")


def test_publishers_files_stay_small(runtime: Any) -> None:
    """A publisher that stays is known all the time, however many others come and go."""
    one, other = Publishers(runtime, 0), Publishers(runtime, 1)
    one.tell(0, 7, facts("stays"))
    most = 0
    for number in range(10_000):
        one.tell(1, 1000 + number, facts(f"comes and goes {number}"))
        if number % 100 == 0:
            assert other.find(7) == facts("stays")
            assert other.find(1000 + number) == facts(f"comes and goes {number}")
        most = max(most, runtime.publishers_path(0).stat().st_size)
    assert most < 2 * publishers.OUTDATED_BYTES_MIN
    fresh = Publishers(runtime, 1)
    assert fresh.find(7) == facts("stays")


def test_publishers_memory_is_bounded(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishers, "KNOWN_MAX", 50)
    one, other = Publishers(runtime, 0), Publishers(runtime, 1)
    one.tell(0, 7, facts("stays"))
    for number in range(3000):
        one.tell(1, 1000 + number, facts("x" * 100))
        if number % 10 == 0:
            assert other.find(7) == facts("stays")
    assert len(other._known) < 1500


def test_publishers_a_new_worker_starts_a_new_file(runtime: Any) -> None:
    """After a crash the file of the old worker is replaced. Its publishers stay known to other workers."""
    other = Publishers(runtime, 1)
    Publishers(runtime, 0).tell(0, 1, facts("before"))
    assert other.find(1) == facts("before")
    again = Publishers(runtime, 0)
    again.tell(0, 2, facts("after"))
    assert (other.find(1), other.find(2)) == (facts("before"), facts("after"))
