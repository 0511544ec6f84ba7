"""The protocol: from the bytes that a client sends to records in a ring.

How it works. `framing` finds frames and scans headers. `topics` finds the topics of one transport by name. `ingress`
holds the input of one connection. It cuts frames from the received bytes, and lays out plain publishes and plain
acknowledgements of queue messages in the ring, without a Python object. All other frames go to Python as commands.

What lives here: the syntax of headers and the numbers of their fields, receiving, laying out records of publishes and
acknowledgements, the leases of a connection.

What may not live here: the execution of commands (`amps/server/transport/`), and output to clients (`delivery`).

Invariants
- Every length is checked before memory is allocated for it.
- A frame is consumed exactly when its effect is in the ring, or when Python has taken it.

Imports `expressions`, `journal`, `values` and `shm`.
"""
