"""Delivery from the log to subscribers: the choice of subscriptions for each message, and the bytes sent to clients.

How it works. A tailer reads a log up to a watermark. The routes of a message's topic give the receivers of the message,
and one frame for each receiver is written to the output buffer of its connection. There is one live tailer, one durable
tailer, and one tailer for each replay.

What lives here: output buffers (`output`); tailers, routes, pace, the bounds of replays and conflation (`delivery`).

What may not live here: sockets (`amps/server/transport/`), and queues, whose deliveries are decided by the core.

Invariants
- A tailer never passes its watermark, and all subscriptions of a group have seen exactly the messages before it.
- The output of a connection is bounded: replays wait until the connection takes output, and the limits for slow clients
  apply to other output.

Imports `wire`, `expressions`, `journal`, `values` and `shm`.
"""
