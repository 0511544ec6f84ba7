"""The state of a SOW topic as a DataFrame, from files alone: `spark.read.format("amps").option("sow", …)`."""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from amps.journal.value_file import write_begin
from tests.support.feed import UNLOGGED_PREFIX
from tests.support.sow_core import SowCore, begin_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS = 200
SECOND_NS = 10**9
# The first test waits until Java has started.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SowCore]:
    """Journals, of which the first ones were removed, and value files."""
    made = SowCore(tmp_path_factory.mktemp("core"), file_bytes=16384)
    for topic in made.topics.values():
        begin_file(topic)
    for name in made.topics:
        for step in range(3 * KEYS):
            made.now_ns += SECOND_NS
            made.publish(name, {"id": step % KEYS, "step": step, "text": "x" * (step % 50)})
        made.publish(name, {"id": 5, "changed": True}, delta=True)
        made.delete(name, 1, 3)
    write_begin(made.topics["kept"].descriptor, made.remove_journals(made.feeder.journal.number // 2 + 1))
    for id_ in range(20):
        made.publish("kept", {"id": id_, "last": 1}, lifetime_s=1000)
    yield made
    made.close()


def state(spark: "SparkSession", core: SowCore, topic: str, **options: str) -> "DataFrame":
    given = {"sow": topic, "sow_file": f"{core.directory}/{topic}.sow", "instance": "journal", **options}
    return spark.read.format("amps").options(**given).load(str(core.directory))


def messages(frame: "DataFrame") -> dict[int, Any]:
    found = [json.loads(row.payload) for row in frame.collect()]
    by_id = {message["id"]: message for message in found}
    assert len(by_id) == len(found)
    return by_id


@pytest.mark.parametrize("topic", ["kept", UNLOGGED_PREFIX])
@pytest.mark.parametrize("partitions", ["1", "7"])
def test_a_state_is_a_data_frame(spark: "SparkSession", core: SowCore, topic: str, partitions: str) -> None:
    """Values in journals, values that were carried over from removed ones, and values of a topic without a log."""
    frame = state(spark, core, topic, partitions=partitions)
    assert messages(frame) == core.state(topic)
    assert frame.rdd.getNumPartitions() == int(partitions)
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("sow_key", "string"),
        ("txid", "bigint"),
        ("timestamp", "timestamp"),
        ("bookmark", "string"),
        ("publisher", "string"),
        ("sequence", "bigint"),
        ("topic", "string"),
        ("message_type", "string"),
        ("expiration", "timestamp"),
        ("correlation_id", "string"),
        ("payload", "binary"),
    ]


def test_columns_and_fields_of_payloads(spark: "SparkSession", core: SowCore) -> None:
    frame = state(spark, core, "kept", schema="id long, last long")
    rows = {row.data.id: row for row in frame.collect()}
    one = rows[7]
    assert one.sow_key == str(core.topics["kept"].keys.key(b'{"id":7}'))
    assert (one.topic, one.message_type, one.data.last) == ("kept", "json", 1)
    assert (one.expiration - one.timestamp).total_seconds() == 1000
    assert rows[190].expiration is None
    assert rows[190].txid < one.txid
    reader = spark.read.format("amps").schema("data struct<id: long>, sow_key string")
    chosen = reader.option("sow", "kept").option("sow_file", f"{core.directory}/kept.sow").load()
    assert {row.data.id for row in chosen.collect()} == set(core.state("kept"))


def test_the_state_as_of_a_time(spark: "SparkSession", core: SowCore) -> None:
    """Only the values before the last twenty, at the time of the deletion."""
    core.now_ns += SECOND_NS
    before = core.state("kept")
    moment = datetime.fromtimestamp(core.now_ns / 1e9, UTC).strftime("%Y%m%dT%H%M%S")
    core.now_ns += 2 * SECOND_NS
    core.publish("kept", {"id": 7, "later": 1})
    assert messages(state(spark, core, "kept", asOf=moment)) == before
    assert messages(state(spark, core, "kept"))[7] == {"id": 7, "later": 1}
    with pytest.raises(Exception, match="too far back"):
        state(spark, core, "kept", asOf="19700101T000002").collect()
    with pytest.raises(Exception, match=r"7\|8\| is not in the journals"):
        state(spark, core, "kept", bookmark="7|8|").collect()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"bookmark": "x"}, "the option 'bookmark' is 'x': it must be"),
        ({"bookmark": "1|2|", "asOf": "20260101T000000"}, "give one of them"),
        ({"partitions": "0"}, "must be a positive number"),
        ({"instance": "other"}, "no journals of the instance 'other'"),
        ({"from": "0"}, "unknown option 'from'"),
        ({"sow_file": os.devnull}, "it is no value file"),
    ],
)
def test_wrong_options(spark: "SparkSession", core: SowCore, options: dict[str, str], text: str) -> None:
    with pytest.raises(Exception, match=text):
        state(spark, core, "kept", **options).collect()


def test_removed_journals_need_the_value_file(spark: "SparkSession", core: SowCore) -> None:
    with pytest.raises(Exception, match="value file, which must be given"):
        state(spark, core, "kept", sow_file="").collect()
