"""Message queues: bookkeeping over log positions.

How it works. A message stays in the log. A queue keeps 64 bytes for it: its log position, its state, its lease. The
core enters messages, acknowledgements and time into a `Queue` (`engine`), which decides who gets what. The manager
holds all queues of the instance and is where the sequencer meets them (`manager`). Transports read the messages at
the positions that the core decided on, evaluate the filters of subscriptions, and send (`sender`).

The way of an acknowledgement: `wire/acknowledgements.pxi` (parsed, put in the ring), `sequencer/sequencer.pxi`
(ordered), `queues/log_adapter.pxi` (from the record to the queues), `queues/queue.pxi` (the message leaves its
queue), and back in `sequencer/turns.pxi` as the answer.

What lives here: slots in shared memory, messages in the order of the log, leases, backlogs, fairness, priorities,
barriers, expiry, checkpoints, filters of consumers.

What may not live here: I/O and clocks. Time is told; what is decided goes to a `QueueOutput`.

Invariants
- The core is the only writer of slots. Other processes read them, and check that a slot did not change meanwhile.
- Everything that changes a queue for good is a record of the log. Making the queues again from the log gives the same.
- No step costs more with more messages in the queue.

Imports `delivery`, `wire`, `expressions`, `journal`, `values` and `shm`.
"""
