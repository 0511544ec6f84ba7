"""Warnings about little free space for the log: their text, time and frequency."""

from pathlib import Path

import pytest

from amps.config import FreeSpaceThreshold
from amps.journal.free_space import FreeSpace, free_space
from amps.server.core.free_space import AGAIN_S, LOOK_S, REMIND_S, FreeSpaceWatch

LOW, OVER = "1D-0023", "1D-0024"
SIZE_BYTES = 1000 << 20


class Disk:
    """A file system with a settable amount of free space, a clock, and the logged records."""

    def __init__(self, directory: Path, threshold: FreeSpaceThreshold) -> None:
        self.directory = directory
        self.now_s = 1000.0
        self.free_mib = 1000
        self.said: list[tuple[str, dict[str, object]]] = []
        self.looks = 0
        self.watch = FreeSpaceWatch(
            [directory, directory], threshold, self.log, self.measure, lambda: self.now_s
        )

    def measure(self, directory: Path) -> FreeSpace:
        self.looks += 1
        return FreeSpace(self.free_mib << 20, SIZE_BYTES)

    def log(self, record_id: str, **values: object) -> None:
        self.said.append((record_id, values))

    def at(self, free_mib: int, later_s: float = LOOK_S) -> list[str]:
        """The ids of the records logged when that much space is free."""
        self.now_s += later_s
        self.free_mib = free_mib
        self.said = []
        assert self.watch.due()
        assert not self.watch.step()
        assert not self.watch.due()
        return [record_id for record_id, _ in self.said]


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path, FreeSpaceThreshold(share=0.1))


def test_a_shortage_and_its_end_are_logged_once(disk: Disk) -> None:
    assert disk.at(100) == []
    assert disk.at(99) == [LOW]
    ((_, values),) = disk.said
    assert values["free"] == "99 MiB (9.9 %)"
    assert str(values["threshold"]) == "10 %"
    assert values["directory"] == disk.directory
    assert [disk.at(free) for free in (98, 90, 60)] == [[], [], []]
    assert disk.at(109) == [], "there has to be a tenth more"
    assert disk.at(110) == [OVER]
    assert disk.looks == 7, "one file system is looked at once, however many directories it has"


def test_it_is_logged_again_when_half_of_the_rest_is_used(disk: Disk) -> None:
    assert disk.at(99) == [LOW]
    assert [disk.at(free) for free in (50, 49, 25, 24, 12, 3, 1, 0, 0)] == [
        [],
        [LOW],
        [],
        [LOW],
        [LOW],
        [LOW],
        [LOW],
        [LOW],
        [],
    ]


def test_a_log_that_is_cleaned_up_as_fast_as_it_grows_does_not_fill_the_event_log(disk: Disk) -> None:
    assert disk.at(99) == [LOW]
    assert disk.at(110) == [OVER]
    said = [record_id for _ in range(100) for free in (99, 110) for record_id in disk.at(free)]
    assert said == []
    assert disk.at(99, AGAIN_S) == [LOW]


def test_a_lasting_shortage_is_logged_at_intervals(disk: Disk) -> None:
    assert disk.at(99) == [LOW]
    assert disk.at(99, AGAIN_S) == []
    assert disk.at(99, REMIND_S) == [LOW]


def test_the_threshold_may_be_a_size(tmp_path: Path) -> None:
    disk = Disk(tmp_path, FreeSpaceThreshold(size_bytes=200 << 20))
    assert disk.at(200) == []
    assert disk.at(199) == [LOW]
    assert str(disk.said[0][1]["threshold"]) == "200 MiB"


def test_a_missing_directory_is_not_reported_here(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "none", FreeSpaceThreshold(share=0.1))
    assert disk.at(0) == []


def test_free_space_is_counted_as_df_does(tmp_path: Path) -> None:
    space = free_space(tmp_path)
    assert 0 <= space.free_bytes <= space.size_bytes
    assert 0 <= space.percent <= 100
    assert FreeSpace(0, 0).percent == 0
