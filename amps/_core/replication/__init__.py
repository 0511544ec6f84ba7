"""The streams of a link between instances: what a source sends, what a sink takes, and which records are acknowledged.

How it works. A destination has one *source flow* (`source.pxi`). It scans the log up to the durable watermark, decides
by the destination's *rules* (`rules.pxi`) which records go there, and notes their publishers in the pending table.
While there is a connection, it sends these records as the journal stores them. The other instance has a *sink flow*
(`sink.pxi`) for each upstream. It checks each record, gives it the topic numbers and names of this instance, and
passes it to the core through the ring. An *onward tracker* (`onward.pxi`) follows the log of the sink. It determines
which records of the upstream are durable and acknowledged by the sync destinations to which they go on. The sink
acknowledges these, and the source moves the destination's watermarks (`acknowledged.pxi`).

What lives here: one module, `stream`: these parts, the sets of transaction ids (`txids.pxi`), the maps of numbers
(`number_map.pxi`), and the payloads of the frames DATA, NAMES and ACK (`payloads.pxi`).

What may not live here: sockets, timers, the other frames of a link, compression, configuration. They are in
`amps/server/replication/`.

Invariants
- A record leaves this instance only from below the durable watermark, and as the journal stores it.
- Nothing is allocated by the value of a length that came from another instance before the length is checked.
- A set of records that are not acknowledged may be too large for a while, never too small.

Imports `wire`, `sow`, `expressions`, `journal`, `values` and `shm`.
"""
