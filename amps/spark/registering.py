"""Making the data source known to a session."""

from pyspark.sql import SparkSession

from amps.spark.source import AmpsDataSource
from amps.spark.task_sizes import tell_parallelism
from amps.spark.worker_python import check_python


def register(spark: SparkSession) -> None:
    """From now on the session knows the format "amps". No setting of the session is changed; its Python processes get
    an environment variable more (`amps.spark.task_sizes`).

    Raises WrongPython if these processes are of a Python that lacks this package.
    """
    try:
        context = spark.sparkContext
    except AttributeError:
        pass  # a client of a server elsewhere, which does not say
    else:
        check_python(context)
        tell_parallelism(context.environment, context.defaultParallelism)
    spark.dataSource.register(AmpsDataSource)
