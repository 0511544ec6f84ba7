"""Message queues: bookkeeping over log positions.

How it works. A message stays in the log. A queue keeps 64 bytes for it: its log position, its state, its lease. The
core passes messages, acknowledgements and the time to a `Queue`, which assigns messages to subscriptions. The queue
manager holds all queues of the instance, and the log adapter connects it to the sequencer. Transports read the messages
at the log positions that the core chose, evaluate the filters of subscriptions, and send.

What lives here, by process:

- `engine`, core: the slots in shared memory, and one queue (`queue.pxi`): messages in the order of the log, leases,
  backlogs, fairness, priorities, barriers, expiry. `Queue` decides, `QueueOutput` collects the decisions.
- `manager`, core: the queue manager, the log adapter, the expressions of queues (`rules.pxi`), checkpoints, rebuilding
  from the log, details for the administration interface. The module also has `walk.pxi`, which transports and the
  services process use: it reads the slots of a queue while the core changes them.
- `sender`, transports: `messages.pxi` reads single messages, `filtering.pxi` evaluates filters for the core,
  `search.pxi` finds messages that match a filter, `sender.pxi` sends deliveries. The services process uses
  `messages.pxi` and `search.pxi`, to acknowledge messages by filter.

The path of a plain acknowledgement (`sow_delete` with bookmarks of messages that the connection holds):

1. Connection: `Connection.buffer_updated` receives bytes, `process_input` calls the ingress
   (`amps/server/transport/connection.py`).
2. Ingress: `parse` calls `put_acknowledgement` (`wire/publishes.pxi`). `read_plain` checks the header, `AckList.parse`
   reads the bookmarks and finds each message's log position in the lease table, `lay_out` writes the record to the ring
   (`wire/acknowledgements.pxi`).
3. Sequencer: `turn` reads the ring. `take` checks the session and the sequence, and calls `_acknowledge`
   (`sequencer/sequencer.pxi`, called by `sequencer/turns.pxi`).
4. Queues: `LogAdapter.acknowledge` (`log_adapter.pxi`) calls `QueueManager.acknowledge_entries` (`queue_manager.pxi`),
   and this calls `Queue.acknowledge_slot` (`queue.pxi`) for each message. `let_go` ends the lease, `leave` removes the
   message. The adapter reduces the record to the entries that the journal must record; with none, the path ends here.
5. Journal: `take` gives the record its position in the current run. `flush_run` calls `LogWriter.write`
   (`journal/append.pxi`), and this calls `JournalFiles.write` (`amps/server/core/journal_files.py`). The flusher syncs
   (`journal/group_commit.pxi`). A persisted acknowledgement, if requested, follows from the durable watermark
   (`amps/server/transport/publisher_acks.py`); the core sends no answer.

Any other acknowledgement (a filter, `lease_extension`, bookmarks without a lease, other requested acknowledgements) is
a command in station 2. `Commands.execute` calls `Acknowledging.do` (`commands.py` and `acknowledging.py` in
`amps/server/transport/`). It finds the log positions, makes the records (`Ingress.acknowledgement_records`) and pushes
them with `CoreLink.push_control` (`amps/server/shared/core_link.py`). From station 3 on the path is the same. If the
record has a token, the core answers with the counts: `_acknowledge` appends to `replies`, `CoreTurns` pushes them into
the egress ring, and `Acknowledging.counted` receives them.

A transaction of a worker takes the same way (`wire/transactions.pxi`, `sequencer/transactions.pxi`). The queues only
tell whether all its messages are leased to the connection (`LogAdapter.holds`), and then acknowledge them.

What may not live here: sockets, and in each module:

- `engine` and `manager`: I/O and clocks. The caller passes the time, maps the memory of the slots, and carries out the
  decisions in `QueueOutput`. The exception is `walk.pxi`, which maps a file of the runtime directory for reading.
- `sender`: waiting for the disk. `messages.pxi` and `sender.pxi` read mapped journals. A message that is not in memory
  is not read: the reader names the missing part, and a thread of its process reads it. The clock serves only to measure
  how long filters take.

Invariants
- The core is the only writer of slots. Other processes read them, and check that a slot did not change during the read.
- Every permanent change of a queue is a record of the log. Rebuilding the queues from the log gives the same queues.
- The cost of a step grows with the logarithm of the number of messages in the queue, or not at all.

Imports `delivery`, `wire`, `expressions`, `journal`, `values` and `shm`.
"""
