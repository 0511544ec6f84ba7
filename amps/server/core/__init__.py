"""The core process: the only writer of the journal, of publisher state and of the transient log.

`process` runs the loop around `amps._core.sequencer.sequencer`; `recovery` brings a journal directory back;
`journal_files` and `transient_files` are the storages that the sequencer writes to. Policy lives here, bytes in
`amps._core`.
"""
