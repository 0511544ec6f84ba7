"""From the log to subscribers: who wants a message, and the bytes that go out.

How it works. A tailer reads a log up to a watermark. It asks the routes of a message's topic which receivers want it,
and each receiver lays one frame out in the output buffer of its connection. There is one live tailer, one durable
tailer, and one tailer for each replay.

What lives here: output buffers (`output`); tailers, routes, pace, the bounds of replays and conflation (`delivery`).

What may not live here: sockets (`amps/server/transport/`), and queues, whose deliveries the core decides on.

Invariants
- A tailer never passes its watermark, and all subscriptions of a group have seen exactly what lies before its position.
- Output of a connection is bounded by what its connection takes.

Imports `wire`, `expressions`, `journal`, `values` and `shm`.
"""
