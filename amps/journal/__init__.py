"""The files of a transaction log, for whoever reads or manages them: server, commands, pipelines.

`names` builds and finds file names, `files` opens any journal, `listing` tells what there is, `verify` checks whole
logs. `entries` reads one journal as entries, `layout` writes them as text, `grep` searches them and event logs.
`compression` and `moving` change where and how a full journal is kept; `disk` is the way to the device for all
changes. `watermark`, `clients_ack` and `topic_index` are the small files beside the journals. The bytes themselves are
read in `amps._core`. Nothing here needs a running server, and nothing here imports one.
"""
