"""Registering the data source in a session."""

from pyspark.sql import SparkSession

from amps.spark.source import AmpsDataSource
from amps.spark.task_sizes import tell_parallelism
from amps.spark.worker_python import check_python


def register(spark: SparkSession) -> None:
    """Register the format "amps" in the session. No setting of the session is changed; its Python processes get
    an additional environment variable (`amps.spark.task_sizes`).

    Raises WrongPython if these processes run a Python that lacks this package.
    """
    try:
        context = spark.sparkContext
    except AttributeError:
        pass  # a client of a remote server, which does not tell it
    else:
        check_python(context)
        tell_parallelism(context.environment, context.defaultParallelism)
    spark.dataSource.register(AmpsDataSource)
