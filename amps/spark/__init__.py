"""Journals as a data source of Apache Spark.

    import amps.spark  # before a session is created: Spark's Python processes then use this Python
    amps.spark.check_java()  # before a session is created: raises an error that names a missing Java
    amps.spark.register(spark)
    spark.read.format("amps").load("/var/lib/amps/journal")

`source` implements Spark's interface. `options` and `selection` define which records are read. `planning` cuts the
journals that may contain them into splits, on the driver. `reading` converts a split to Arrow batches on an executor,
in compiled code (`amps._core.columns.columns`). `pipelines` has the jobs of `amps pipeline`.

Outside this package only `amps.cli` uses Spark: `cli/pipelines/common.py` makes sessions and reports Spark's errors,
and `cli/demo/delays.py` computes with Spark. What may not live here: the server and its configuration, which are never
imported, and options of commands (`amps.cli.pipelines`).
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
