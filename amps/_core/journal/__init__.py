"""The log: records, files, indexes, and the code that reads and writes them.

How it works. A log is a sequence of numbered files of records. The journal on the disk and the transient log in shared
memory have one format. The modules, by their users:

- `writer` (core): appends whole runs of records, ends a full file and begins the next, and builds the index of the file
  in use in shared memory. Its index reader, and its scan of files whose content is not trusted, serve recovery,
  transports and tools too.
- `group_commit` (flusher, a thread of the core): decides when a sync is due, syncs the written bytes, and raises the
  durable watermark (`group_commit.pxi`). Then it releases pages of the journal from the page cache that no process is
  about to read (`page_release.pxi`).
- `reader` (all processes): maps files, plain or compressed, and moves cursors through them up to a watermark.
- `search` (all processes, tools, Spark): walks through the records of one file, makes and uses topic indexes, finds
  split points, finds the messages that left queues, and brings pages into memory ahead of a reader (`read_ahead.pxi`).

What lives here: the layout of records (`record.pxd`), of acknowledgements and deliveries of queues
(`queue_records.pxd`), of files and of indexes (`index.pxd`), each defined once; the code that writes, reads and checks
the contents of these files.

What may not live here: the matching of messages to subscriptions, and the meaning of commands. Names, places, listing,
compression and moving of files are in `amps/journal/`. `amps/server/core/` has the files of a running core: it makes
spare journals, starts syncs and decides about archiving and removal.

Invariants
- The core is the only writer of records; the flusher is the only writer of the durable watermark.
- A reader stops at the watermark that it was given. Bytes behind it may be half written.
- An index is a cache and can be rebuilt from its file. A reader accepts a record only if its checksum is right.

Imports `shm`.
"""
