"""Message queues: bookkeeping over log positions.

How it works. A message stays in the log. A queue keeps 64 bytes for it: its log position, its state, its lease. The
core passes messages, acknowledgements and the time to a `Queue` (`engine`), which assigns messages to subscriptions.
The queue manager holds all queues of the instance and is their interface to the sequencer (`manager`). Transports
read the messages at the log positions that the core chose, evaluate the filters of subscriptions, and send
(`sender`).

The path of an acknowledgement: `wire/acknowledgements.pxi` parses it and puts it in the ring. `sequencer/sequencer.pxi`
orders it. `queues/log_adapter.pxi` applies its record to the queues. `queues/queue.pxi` takes the message out of its
queue. `sequencer/turns.pxi` returns the answer.

What lives here: slots in shared memory, messages in the order of the log, leases, backlogs, fairness, priorities,
barriers, expiry, checkpoints, filters of consumers.

What may not live here: I/O and clocks. The caller passes the time; decisions go to a `QueueOutput`.

Invariants
- The core is the only writer of slots. Other processes read them, and check that a slot did not change during the read.
- Every permanent change of a queue is a record of the log. Rebuilding the queues from the log gives the same queues.
- The cost of a step does not depend on the number of messages in the queue.

Imports `delivery`, `wire`, `expressions`, `journal`, `values` and `shm`.
"""
