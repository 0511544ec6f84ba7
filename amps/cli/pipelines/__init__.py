"""`amps pipeline`: thin programs over `amps.spark.pipelines`, one module per command.

`group` is the command they hang from and where their failures end, `common` what they share: options, the Spark
session, and showing progress. Nothing here loads PySpark before a command runs, so that `amps --help` is quick, and
works where it is not installed.

Exit status: 0 done, 1 the job failed, 2 wrong usage or, where a command's help says so, what a job was to find out is
not well; 130 interrupted.
"""
