"""Modules that transports and the services process share; neither imports the other's modules.

Publishing     `core_link` (ring, answers, watermarks), `spill_files` (messages too large for the ring).
Topics         `topic_classes` (recorded, discarded, refused), `filters` (compiling), `queue_names`.
Reading        `journal_view` with `journal_floor` (which journals may be read), `read_ahead` (threads for the disk).
Sockets        `listeners`: listening sockets and TLS.

Nothing here imports `transport`, `services`, `admin` or `core`, and nothing here depends on a client's connection.
"""
