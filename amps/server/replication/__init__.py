"""Replication between instances: one process with all links of the instance (docs/replication.md).

A *link* is a connection to another instance. It carries one or two *flows*: stream 0 from the instance that dialled to
the one that accepted, stream 1 in the other direction. A flow has a source, which reads its log, and a sink, which
passes records to its core.

    frames          the frames of a link: types, limits, encoding, compression
    hello           what the two sides tell each other about themselves
    link            one connection: reading, writing, silence, its end
    logons          credentials of a flow, and what the sink decides about them
    outgoing        the source's side of a flow, until it ends
    incoming        the sink's side of a flow, until it ends
    dialling        how a destination gets a link: incoming ones, addresses, pauses
    destinations    the state of each destination: watermarks, mode, statistics
    write_times     how old records are, by a clock that nobody sets
    state_file      what a restart knows about the destinations
    core_sessions   sessions with the core for the sinks
    completeness    word that all of a log was sent, for transactions that are undecided
    reachability    which instances can be reached over links
    transfers       requests for queue messages on their way to the owner
    replication     all of it together, without a process: the simulation drives it, too
    process         the replication process

Invariants
- A record leaves this instance only below its durable watermark.
- The core is the only writer of the log. A sink that ends begins again from what the log has.
- What other instances send is hostile: lengths are checked before memory is allocated, states before frames are used.
- Only `process` knows processes, signals and event descriptors. All else gets clock, randomness and connections from
  outside, and there is no state of a module.
"""
