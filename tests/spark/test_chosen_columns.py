"""`.schema(…)` of a read: only the columns in it are made, and the type of `data` selects the fields."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'amps-server[spark]')")
pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")

from amps.spark.payload_schema import fields_of, parse_ddl, spark_type
from tests.support.journals import journal
from tests.support.records import RecordParts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)
DDL = (
    "a boolean, b byte, c short, d int, e long, f float, g double, h decimal(12, 3), i string, j binary, k date, "
    "l timestamp, m array<struct<`odd name`: int>>, n struct<o: decimal, p: array<string>>"
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    parts = [RecordParts(b'{"id":%d,"side":"buy"}' % n, publisher_id=1, sequence=n + 1) for n in range(5)]
    path = tmp_path / "inst.0000000003.journal"
    path.write_bytes(journal(parts, 16384, finished=True))
    return tmp_path


def read(spark: "SparkSession", directory: Path, columns: str, **options: str) -> Any:
    return spark.read.format("amps").options(**options).schema(columns).load(str(directory))


def test_the_type_of_data_selects_the_fields(spark: "SparkSession", directory: Path) -> None:
    frame = read(spark, directory, "sequence long, data struct<id: long, missing: array<int>>")
    assert frame.columns == ["sequence", "data"]
    assert [(row.sequence, row.data.id, row.data.missing) for row in frame.collect()] == [
        (n + 1, n, None) for n in range(5)
    ]


def test_with_the_option_it_must_be_the_same(spark: "SparkSession", directory: Path) -> None:
    columns = "data struct<id: long>"
    assert read(spark, directory, columns, schema="id long").count() == 5
    with pytest.raises(Exception, match=r"the column 'data' is struct<id:int>"):
        read(spark, directory, columns, schema="id int").count()


def test_unsupported_field_types_are_reported(spark: "SparkSession", directory: Path) -> None:
    with pytest.raises(Exception, match=r"map<string,int> is no type that fields of payloads can have"):
        read(spark, directory, "data struct<id: map<string, int>>").count()
    with pytest.raises(Exception, match="there is no column 'data'"):
        read(spark, directory, "data string").count()


def test_types_of_spark_become_fields_and_back() -> None:
    fields = parse_ddl(DDL)
    assert fields_of(spark_type(fields)) == fields
