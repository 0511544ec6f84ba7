"""Journals as a data source of Apache Spark.

    import amps.spark  # before there is a session: Spark's Python processes are then of this Python
    amps.spark.check_java()  # before there is a session: says in a sentence what is missing, if anything is
    amps.spark.register(spark)
    spark.read.format("amps").load("/var/lib/amps/journal")

`source` is what Spark talks to; `options` and `selection` say what is wanted, `planning` cuts the journals that may
hold it into splits on the driver, `reading` makes Arrow batches of a split on an executor, in compiled code
(`amps._core.columns.columns`). Only this package knows Spark.
"""

from importlib.util import find_spec

for _needed in ("pyspark", "pyarrow"):
    if find_spec(_needed) is None:
        raise ImportError(
            f"amps.spark needs {_needed}, which is not installed: pip install 'amps-server[spark]'",
            name=_needed,
        )

from amps.spark.java import JavaMissing, check_java  # noqa: E402
from amps.spark.registering import register  # noqa: E402
from amps.spark.worker_python import WrongPython, use_this_python  # noqa: E402

__all__ = ["JavaMissing", "WrongPython", "check_java", "register"]

use_this_python()
