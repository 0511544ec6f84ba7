"""The compiled part of the package: the code that runs for every message, in Cython and C.

The sub-packages, each of which imports only those above it (`tests/unit/core/test_layout.py`):

    shm          memory that processes share: control page, rings, atomics, checksums
    values       values of expressions, fields and facts of messages, publisher ids
    expressions  programs of expressions, the stack machine, filter sets, aggregates
    messages     message types: an extractor and a builder for each
    journal      records and files of the log: writing, reading, indexes, group commit
    wire         frames and headers, the input of a connection, the topics of a transport
    delivery     tailers, routes, replays, output buffers
    queues       message queues: engine and manager (core), sender (transports)
    sequencer    the order of all messages, the turns of the core
    columns      columns in Arrow's layout, for Spark

A module is one `.pyx` file, which includes its code from `.pxi` files. Its `.pxd` file declares what other modules
`cimport`, its `.pyi` file is the stub for Python, and `.h` files are C. The `__init__.py` of a sub-package describes
how the sub-package works, what may not live there, and its invariants.

Nothing here imports another package of `amps`. Objects of those packages are passed in by the caller.
"""
