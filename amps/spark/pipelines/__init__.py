"""Jobs that operators run over journals and servers, as ordinary Spark jobs.

A job is a module, or a few, with one entry: `run(spark, options, progress)`. It takes a session that knows the format
"amps" (`amps.spark.register`), options and results are frozen dataclasses, and `progress` is where it says how far it
is (`amps.spark.pipelines.job`). A job prints nothing and knows nothing of command lines, so that a notebook or a
scheduler runs it as `amps pipeline` does (`amps.cli.pipelines`).

What all of them keep to:

- They never change journals: those belong to the server.
- A job that is run again does what is left to do, and nothing twice.
- What cannot be done is a `PipelineError`: one sentence that says what is wrong and what to do.
"""
