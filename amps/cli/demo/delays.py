"""Delays by airline, computed by Spark from the journals of the demo and by pandas from the demo's source.

    amps demo -data-directory flights
    python -m amps.cli.demo.delays flights

This example of journals in Spark checks its result. Exit status 1 if the two differ in any digit.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amps.cli.demo.flights import TOPIC_PREFIX, FlightsMissing, data_file

if TYPE_CHECKING:
    import pandas

FIELDS = "carrier string, dep_delay int, arr_delay int, distance long"
"""The fields of the messages that are needed."""


def delays_by_spark(journals: Path) -> "pandas.DataFrame":
    """Return the delays, computed by Spark from the journals in a directory."""
    import pandas
    from pyspark.sql import SparkSession, functions

    import amps.spark

    os.environ["PYTHONSAFEPATH"] = "1"  # Spark's workers look for packages in the working directory otherwise
    spark = SparkSession.builder.master("local[*]").appName("flight delays").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    amps.spark.register(spark)
    try:
        flights = (
            spark.read.format("amps")
            .option("topic", f"^{TOPIC_PREFIX}")
            .schema(f"data struct<{FIELDS}>")
            .load(str(journals))
            .select("data.*")
        )
        delays = flights.groupBy("carrier").agg(
            functions.count("*").alias("flights"),
            functions.count("arr_delay").alias("arrived"),
            functions.avg("dep_delay").alias("departure_delay_min"),
            functions.avg("arr_delay").alias("arrival_delay_min"),
            functions.sum("distance").alias("miles"),
        )
        rows = [row.asDict() for row in delays.orderBy("carrier").collect()]
        return pandas.DataFrame(rows, columns=delays.columns).set_index("carrier")
    finally:
        spark.stop()


def delays_by_pandas(source: Path) -> "pandas.DataFrame":
    """Return the delays, computed by pandas from the table that the demo publishes."""
    import pandas

    by_airline: Any = pandas.read_csv(source).groupby("carrier")
    return pandas.DataFrame(
        {
            "flights": by_airline.size(),
            "arrived": by_airline["arr_delay"].count(),
            "departure_delay_min": by_airline["dep_delay"].mean(),
            "arrival_delay_min": by_airline["arr_delay"].mean(),
            "miles": by_airline["distance"].sum(),
        }
    )


def difference(found: "pandas.DataFrame", expected: "pandas.DataFrame") -> str:
    """Return a description of the difference, an empty text if there is none."""
    from pandas.testing import assert_frame_equal

    try:
        # The storage types of text columns may differ.
        assert_frame_equal(found, expected, check_exact=True, check_index_type=False)
    except AssertionError as error:
        return str(error)
    return ""


def check_needs() -> Path:
    """Return the source file. Raises ImportError or RuntimeError with a remedy if a requirement is missing."""
    import pandas  # noqa: F401 -- comes with the same extra

    import amps.spark  # raises ImportError with the missing package

    amps.spark.check_java()
    return data_file()


def main(arguments: list[str] | None = None) -> int:
    """Run the program; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m amps.cli.demo.delays", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("directory", type=Path, help="data directory of amps demo")
    directory: Path = parser.parse_args(arguments).directory
    journals = directory / "journal"
    try:
        source = check_needs()
        if not journals.is_dir():
            raise FlightsMissing(f"there is no {journals}: run amps demo -data-directory {directory} before")
    except (ImportError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    found = delays_by_spark(journals)
    print(found.to_string(float_format="%.2f"))
    if different := difference(found, delays_by_pandas(source)):
        print(f"NOT equal to the result of pandas:\n{different}", file=sys.stderr)
        return 1
    print(f"equal: all {found['flights'].sum():,} flights, to the last digit of the result of pandas")
    return 0


if __name__ == "__main__":
    sys.exit(main())
