"""The protocol: from bytes that a client sent to records in a ring.

How it works. `framing` finds frames and scans headers. `topics` knows the topics of one transport by name. `ingress`
holds one connection: it cuts frames from what was received, and lays plain publishes and plain acknowledgements of
queue messages out in the ring, without a Python object. Everything else goes to Python as a command.

What lives here: the syntax of headers and the numbers of their fields, receiving, laying out records of publishes and
acknowledgements, the leases that a connection was given.

What may not live here: what a command does (`amps/server/transport/`), and the bytes that go out (`delivery`).

Invariants
- Every length is checked before anything is allocated for it.
- A frame is consumed exactly when its effect is in the ring, or when Python has taken it.

Imports `expressions`, `journal`, `values` and `shm`.
"""
