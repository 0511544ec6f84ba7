"""The utilities of the server: separate commands that need no running server.

Most modules are one command each, with its options, texts and exit status, that reads files of a server by
`amps.journal`. `bio_perf_test` is a command that reads no files of a server: it measures a device. Three modules are no
commands: `common` has the shared parts of all, `storage_run` those of `amps_bio_perf_test` and `amps storage-test`, and
`latency_plot` draws a plot for the latter.

Exit status: 0 success, 1 a file cannot be read or is damaged, or nothing was found, 2 wrong usage (`amps-grep`: like
grep).
"""
