"""`amps pipeline`: thin programs over `amps.spark.pipelines`, one module per command.

`group` is the command group and reports failures. `common` has the shared parts: options, the Spark
session, and the display of progress. No module here imports PySpark before a command runs, so `amps --help` is fast
and works without PySpark.

Exit status: 0 success; 1 the job failed; 2 wrong usage or, where a command's help says so, the job found a difference;
130 interrupted.
"""
