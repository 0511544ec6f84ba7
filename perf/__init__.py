"""The benchmark suite: what this server does per second, next to what others do in the same run.

A *peer* (`perf.peers`) is a server under measurement, this project's own included: how to start it in a fresh
directory, and the bytes its protocol wants. A *scenario* (`perf.scenarios`) is one question. Between them
stand `perf.load` (every payload is built before the clock starts) and `perf.pump` (one epoll loop that pushes
those bytes and counts answers, the same code for every peer, so that the generator costs every peer the
same). `perf.run` interleaves repetitions, `perf.report` writes the result.

No client library is used, neither ours nor theirs: a client's speed is not what is measured here.
"""
