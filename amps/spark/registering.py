"""Making the data source known to a session."""

from pyspark.sql import SparkSession

from amps.spark.source import AmpsDataSource


def register(spark: SparkSession) -> None:
    """From now on the session knows the format "amps". No setting of the session is changed."""
    spark.dataSource.register(AmpsDataSource)
