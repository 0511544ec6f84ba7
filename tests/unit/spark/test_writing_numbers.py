"""Publishers' names and sequence numbers of writes."""

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from amps.spark.writing_errors import WriteError
from amps.spark.writing_numbers import (
    MAX_RUN,
    ROWS_PER_RUN,
    Numbering,
    driver_client,
    numbered_publisher,
    run_publisher,
    stream_publisher,
)


def test_the_numbers_of_a_run_are_consecutive() -> None:
    """transaction_log.md §4.2: numbers above 0."""
    numbering = Numbering("a", 0)
    assert [numbering.number(row) for row in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("run", [0, 1, 77, MAX_RUN - 1])
def test_a_later_run_has_higher_numbers(run: int) -> None:
    """transaction_log.md §4.2: a number that is not higher is a duplicate."""
    earlier, later = Numbering("a", run), Numbering("a", run + 1)
    assert earlier.number(ROWS_PER_RUN - 1) < later.number(0)
    assert earlier.number(ROWS_PER_RUN - 1) <= later.floor < later.number(0)


def test_all_numbers_fit_the_header() -> None:
    assert Numbering("a", MAX_RUN).number(ROWS_PER_RUN - 1) <= 2**63 - 1


@pytest.mark.parametrize("run", [0, 5])
def test_the_last_number_gives_the_count_of_rows_logged(run: int) -> None:
    numbering = Numbering("a", run)
    assert numbering.rows_present(0) == 0
    assert numbering.rows_present(numbering.floor) == 0
    assert numbering.rows_present(numbering.number(0)) == 1
    assert numbering.rows_present(numbering.number(41)) == 42
    assert numbering.rows_present(numbering.number(ROWS_PER_RUN - 1)) == ROWS_PER_RUN


def test_rows_of_an_earlier_run_do_not_count() -> None:
    assert Numbering("a", 5).rows_present(Numbering("a", 4).number(1000)) == 0


def test_rows_of_a_later_run_end_the_attempt() -> None:
    with pytest.raises(WriteError, match=r"run 5 of publisher 'a' cannot be written.* has run 6"):
        Numbering("a", 5).rows_present(Numbering("a", 6).number(0))


@pytest.mark.parametrize("run", [-1, MAX_RUN + 1])
def test_runs_are_bounded(run: int) -> None:
    with pytest.raises(WriteError, match="numbered from 0"):
        Numbering("a", run)


@pytest.mark.parametrize("row", [-1, ROWS_PER_RUN])
def test_rows_are_bounded(row: int) -> None:
    with pytest.raises(WriteError, match="at most 4294967295 rows"):
        Numbering("a", 0).number(row)


def test_no_two_kinds_of_writes_share_a_publisher() -> None:
    """A publisher is known by its name, transaction_log.md §4.1."""
    names = {
        stream_publisher("a", "1", 2),
        run_publisher("a", "1", 2),
        numbered_publisher("a", 2),
        driver_client("a"),
        stream_publisher("a", "1", 3),
        run_publisher("a", "2", 2),
        numbered_publisher("b", 2),
    }
    assert len(names) == 7
