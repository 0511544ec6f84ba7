"""The files of a transaction log, for all code that reads or manages them: server, commands, pipelines.

`names` builds and finds file names, `files` opens any journal, `listing` lists the journals, `verify` checks whole
logs. `entries` reads one journal as entries, `layout` writes them as text, `grep` searches them and event logs.
`compression` and `moving` change the form and the place of a full journal. All changes to files go through `disk`.
`watermark`, `clients_ack` and `topic_index` are the small files beside the journals. `amps._core` reads the bytes of
journals. Nothing here needs a running server, and nothing here imports one.
"""
