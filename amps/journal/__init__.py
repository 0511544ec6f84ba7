"""The files of a transaction log, for whoever reads or manages them: server, commands, pipelines.

`names` builds and finds file names, `watermark` reads the watermark file, `disk` is the way to the device, `verify`
checks whole logs. `entries` reads one journal as entries, `layout` writes them as text, `grep` searches them and event
logs. The bytes themselves are read in `amps._core`. Nothing here needs a running server, and nothing here imports one.
"""
