"""The protocol: from the bytes that a client sends to records in a ring.

How it works. `framing` scans and builds headers and frames. `topics` finds the topics of one transport by name.
`ingress` holds the input of one connection. It cuts frames from the received bytes, and lays out plain publishes,
acknowledgements of queue messages and transactions in the ring, without a Python object. All other frames go to Python
as commands.

What lives here: the syntax of headers, for reading and for building, and the numbers of their fields (`framing`); the
topic table, and the facts about a message that its record holds (`topics`); receiving, laying out records of publishes
and acknowledgements, the leases of a connection (`ingress`).

What may not live here: the execution of commands (`amps/server/transport/`), and the frames of delivered messages,
which are written from records (`delivery`).

Invariants
- Every length is checked before memory is allocated for it.
- A frame is consumed exactly when its effect is in the ring, or when Python has taken it.

Imports `sow`, `expressions`, `journal`, `values` and `shm`.
"""
