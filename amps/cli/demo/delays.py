"""Delays by airline: Spark out of the journals that the demo leaves, and pandas out of the demo's source.

    amps demo -data-directory flights
    python -m amps.cli.demo.delays flights

An example of journals in Spark that checks itself. Exit status 1 if the two differ, in whatever digit.
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
"""Of the messages, all that is needed here."""


def delays_by_spark(journals: Path) -> "pandas.DataFrame":
    """Out of the journals in a directory."""
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
    """Out of the table that the demo publishes."""
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
    """What is not the same, in words; nothing if all is."""
    from pandas.testing import assert_frame_equal

    try:
        # How a column of texts is stored may differ.
        assert_frame_equal(found, expected, check_exact=True, check_index_type=False)
    except AssertionError as error:
        return str(error)
    return ""


def check_needs() -> Path:
    """The source. ImportError, RuntimeError: something is missing; the text says what to do."""
    import pandas  # noqa: F401 -- comes with the same extra

    import amps.spark  # says what is missing

    amps.spark.check_java()
    return data_file()


def main(arguments: list[str] | None = None) -> int:
    """The program; its exit status."""
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
        print(f"NOT what pandas makes of the source:\n{different}", file=sys.stderr)
        return 1
    print(f"equal: all {found['flights'].sum():,} flights, to the last digit what pandas makes of the source")
    return 0


if __name__ == "__main__":
    sys.exit(main())
