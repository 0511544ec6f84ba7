"""Delivery from the log to subscribers: the choice of subscriptions for each message, and the bytes sent to clients.

How it works. A *tailer* reads a log up to a watermark, for one *group*: the set of subscriptions that it serves. The
group has *routes* for each topic. A *member* of the routes is one subscription, with a filter or without. A *receiver*
gets one frame for each message that any of its members matches. It is a connection with all its subscriptions, or one
subscription that gets its own frames. The frame is written to the output buffer of the connection. There is one live
tailer, one durable tailer, and one tailer for each replay.

What lives here: output buffers (`output`); bodies with less than the whole message (`bodies`); tailers, routes, pace,
the bounds of replays, conflation, the focus of SOW topics, and the watch of messages that run actions (`delivery`); the
results of queries of SOW topics (`results`): scans of a snapshot, which put the records that match into frames.

What may not live here: sockets (`amps/server/transport/`), and the deliveries of queues (`queues`), which the core
decides. `queues` uses the output buffers.

Invariants
- A tailer never passes its watermark, and all subscriptions of a group have seen exactly the messages before it.
- The output of a connection is bounded: replays wait until the connection takes output, and the limits for slow clients
  apply to other output.

Imports `wire`, `sow`, `expressions`, `journal`, `values` and `shm`.
"""
