"""The core's decision: one total order, no duplicates.

How it works. `CoreTurns` runs thousands of turns a second. In each turn the `Sequencer` goes through the rings of the
transports, drops duplicates and records of sessions that lost their client name, gives each message its position,
transaction id and time, writes whole runs of records, and publishes the watermarks.

What lives here: transports, sessions, client names and publishers as the core knows them; order; the turns.

What may not live here: I/O beyond the storage that the sequencer is given, and clocks. The simulation runs this code
with a storage and a clock of its own.

Invariants
- Sequences of a publisher only rise in the log. Transaction ids rise over the journal and the transient log together.
- The bytes come first, then the watermarks, then the ring's tail.

Imports `queues`, `journal`, `values` and `shm`; only `amps/server/core/` and the simulation import it.
"""
