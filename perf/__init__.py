"""The benchmark suite: throughput and latency of this server, next to other programs in the same run.

A *scenario* (`perf.scenarios`) is one question. A *peer* (`perf.peers`) is a program that takes part in scenarios, this
project's own server included; all peers get the same messages. `perf.run` interleaves repetitions, `perf.report` writes
the result.

Servers get their load from `perf.load` (every payload is built before the clock starts) and `perf.pump` (one epoll loop
that pushes those bytes and counts answers, the same code for every peer, so that the generator costs every peer the
same); consumers of queues (`perf.consuming`) run in a loop of the same kind. No client library takes part in
the measurement of servers. Client libraries are measured by scenarios of their own (`perf.clients`).
"""
