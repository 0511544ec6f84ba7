"""Jobs that operators run over journals and servers, as ordinary Spark jobs.

A job consists of one or more modules with one entry point: `run(spark, options, progress)`. The session must have the
format "amps" registered (`amps.spark.register`). Options and results are frozen dataclasses. The job reports its
progress to `progress` (`amps.spark.pipelines.job`). It prints nothing and does not depend on a command line, so a
notebook or a scheduler can run it as `amps pipeline` does (`amps.cli.pipelines`).

Rules for all jobs:

- They never change journals: those belong to the server.
- A job that is run again does only the remaining work.
- A job that cannot be done raises `PipelineError` with one sentence that states the problem and the remedy.
"""
