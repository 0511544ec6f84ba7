"""Names in an archive: a directory for any topic."""

from urllib.parse import unquote

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'amps-server[spark]')")
pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")

from amps.spark.pipelines.archive_layout import (
    NAME_BYTES_MAX,
    NO_TOPIC,
    day_of,
    days_of,
    file_path,
    topic_directory,
)


def test_plain_names_stay() -> None:
    assert topic_directory("orders-2_x.y") == "topic_key=orders-2_x.y"


@pytest.mark.parametrize(
    "topic",
    ["a/b", "..", "../../etc", "a=b%2F", "^a.*$", " ", "\n\x00", "größe/€", "~", "a:b?c#d", "x\\y", "'\""],
)
def test_any_name_is_one_directory_and_can_be_decoded(topic: str) -> None:
    name = topic_directory(topic)
    assert name.startswith("topic_key=")
    assert not set(name) & set("/\\\0\n ~'\"#?:*")
    assert unquote(name.removeprefix("topic_key=")) == topic


def test_no_topic_is_null_and_a_topic_of_that_name_is_not() -> None:
    assert topic_directory(None) == f"topic_key={NO_TOPIC}"
    assert topic_directory(NO_TOPIC) != topic_directory(None)
    assert unquote(topic_directory(NO_TOPIC)) == f"topic_key={NO_TOPIC}"


def test_names_that_are_not_utf_8_are_encoded_too() -> None:
    topic = b"a\xff/b".decode(errors="surrogateescape")
    assert topic_directory(topic) == b"topic_key=a\xff%2Fb".decode(errors="surrogateescape")


@pytest.mark.parametrize("character", ["a", "/", "ü", "€"])
def test_long_names_are_cut_and_stay_different(character: str) -> None:
    names = set()
    for length in range(60, 400):
        name = topic_directory(character * length)
        assert len(name.encode()) <= NAME_BYTES_MAX
        names.add(name)
        if "~" in name:
            assert set(unquote(name.removeprefix("topic_key=").rpartition("~")[0])) == {character}
    assert len(names) == 340


def test_days_are_converted_both_ways() -> None:
    for day in (0, 59, 20_779):
        assert days_of(day_of(day)) == day
    assert day_of(20_779) == "2026-11-22"


def test_a_file_is_named_after_journal_and_part() -> None:
    assert file_path("desk-7", 4, 1, "a/b", "2026-11-22") == (
        "topic_key=a%2Fb/date=2026-11-22/journal-desk-7-0000000004-0001.parquet"
    )
