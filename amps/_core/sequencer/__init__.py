"""The ordering of messages in the core: one total order, without duplicates.

How it works. `CoreTurns` runs thousands of turns a second. In each turn the `Sequencer` reads the rings of the
transports and drops duplicates and records of sessions that lost their client name. It gives each message its position,
transaction id and time, writes whole runs of records, and publishes the watermarks. A transaction of a worker is one
record of a ring, and one unit of a run (`transactions.pxi`).

What lives here: the core's state of transports, sessions, client names and publishers; the order; the turns.

What may not live here: I/O and clocks. The caller passes the storage and the time to the `Sequencer`, so the simulation
runs it with its own. The exception is `CoreTurns` (`turns.pxi`): it waits for file descriptors, sends wake-ups, and
reads the monotonic clock while it busy-polls. It makes no decisions.

Invariants
- Sequences of a publisher only rise in the log. Transaction ids rise over the journal and the transient log together.
- No run ends inside a transaction's group, so no watermark is inside one.
- The bytes are written first, then the watermarks, then the ring's tail.

Imports `queues`, `sow`, `journal`, `values` and `shm`; only `amps/server/core/` and the simulation import it.
"""
