"""The files of a transaction log, for all code that reads or manages them: server, commands, pipelines.

`names` builds and finds file names, `files` opens any journal, `listing` lists the journals, `verify` checks whole
logs. `entries` reads one journal as entries, `layout` writes them as text, `grep` searches them and event logs.
`compression` and `moving` change the form and the place of a full journal. All changes to files go through `disk`.
`watermark`, `clients_ack`, `queues_ack`, `queue_cache`, `action_positions`, `removals` and `topic_index` are the small
files beside the journals.

What may not live here: the layout and the bytes of records, which `amps._core.journal` reads and writes, and the files
of a running core (`amps.server.core`): the file in use, spare journals, syncs, and the decision which full journal is
archived or removed. Nothing here needs a running server, and nothing here imports one.
"""
