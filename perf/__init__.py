"""The benchmark suite: what this server does per second, next to what others do in the same run.

A *scenario* (`perf.scenarios`) is one question. A *peer* (`perf.peers`) is who takes part in one, this project's own
server included, always on the same messages. `perf.run` interleaves repetitions, `perf.report` writes the result.

Servers get their load from `perf.load` (every payload is built before the clock starts) and `perf.pump` (one epoll loop
that pushes those bytes and counts answers, the same code for every peer, so that the generator costs every peer the
same); consumers of queues (`perf.consuming`) are in a loop of the same kind. No client library is used, neither ours
nor theirs: a client's speed is not what is measured here.
"""
