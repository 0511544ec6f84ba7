"""The distributions of the journal's writes, compared with the values themselves."""

import os

from hypothesis import given
from hypothesis import strategies as st

from amps._core.journal.group_commit import note_write
from amps.server.write_statistics import WriteStatistics


@given(st.lists(st.integers(0, 1 << 63), min_size=1))
def test_write_statistics_count_every_value_once(values: list[int]) -> None:
    statistics = WriteStatistics()
    for value in values:
        note_write(statistics.words, value, 0)
    found = statistics.latency()
    assert (found.minimum, found.maximum) == (min(values), max(values))
    for bucket in range(63):
        expected = sum(1 for value in values if value < 1 << bucket and value >= (1 << bucket >> 1))
        assert found.counts[bucket] == expected
    assert sum(found.counts) == len(values)
    assert statistics.size().counts[0] == len(values)
    assert statistics.size().histogram().split()[:4] == ["0", "..", "0", str(len(values))]


def test_write_statistics_the_longest_bar_is_the_most_frequent() -> None:
    statistics = WriteStatistics()
    for value, times in ((3, 1), (5, 40), (17, 2)):
        for _ in range(times):
            note_write(statistics.words, 1, value)
    lines = statistics.size().histogram().splitlines()
    assert [line.split()[:4] for line in lines] == [
        ["2", "..", "3", "1"],
        ["4", "..", "7", "40"],
        ["8", "..", "15", "0"],
        ["16", "..", "31", "2"],
    ]
    assert [line.count("#") for line in lines] == [1, 40, 0, 2]


def test_write_statistics_are_seen_by_other_processes_and_reset() -> None:
    statistics = WriteStatistics()
    child = os.fork()
    if child == 0:
        note_write(statistics.words, 7, 9)
        os._exit(0)
    os.waitpid(child, 0)
    assert statistics.latency().maximum == 7
    assert statistics.size().maximum == 9
    statistics.reset()
    assert statistics.latency().histogram() == ""
    assert statistics.size().maximum == 0
