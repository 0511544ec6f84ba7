"""The log: records, files, indexes, and everything that reads or writes them.

How it works. A log is a row of numbered files of records. The core appends (`writer`) whole runs of records and
builds the index of the file in use in shared memory. The flusher syncs what was written and raises the durable
watermark (`group_commit`). Readers map the files and follow the watermarks (`reader`). Tools, replays of few topics,
and parallel readers use the topic index and walk files without trusting them (`search`). The journal on the disk and
the transient log in shared memory have one format.

What lives here: the layout of records (`record.pxd`), of acknowledgements and deliveries of queues
(`queue_records.pxd`), of files and of indexes, each defined once.

What may not live here: who wants a message, or what a command means.

Invariants
- The core is the only writer of records; the flusher is the only writer of the durable watermark.
- A reader stops at the watermark that it was given. Bytes behind it may be half written.
- An index is a cache and can be made again from its file. A record is believed only if its checksum is right.

Imports `shm`.
"""
