"""The log: records, files, indexes, and the code that reads and writes them.

How it works. A log is a sequence of numbered files of records. The core appends whole runs of records and builds the
index of the file in use in shared memory (`writer`). The flusher syncs the written bytes and raises the durable
watermark (`group_commit`). Readers map the files and follow the watermarks (`reader`). Tools, replays of few topics,
and parallel readers use the topic index and walk through files whose content is not trusted (`search`). The journal
on the disk and the transient log in shared memory have one format.

What lives here: the layout of records (`record.pxd`), of acknowledgements and deliveries of queues
(`queue_records.pxd`), of files and of indexes, each defined once.

What may not live here: the matching of messages to subscriptions, and the meaning of commands.

Invariants
- The core is the only writer of records; the flusher is the only writer of the durable watermark.
- A reader stops at the watermark that it was given. Bytes behind it may be half written.
- An index is a cache and can be rebuilt from its file. A reader accepts a record only if its checksum is right.

Imports `shm`.
"""
