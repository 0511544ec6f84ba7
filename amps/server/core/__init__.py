"""The core process: the only writer of the journal, of publisher state and of the transient log.

`process` runs the loop around `amps._core.sequencer.sequencer`. `recovery` restores the state from a journal directory.
`journal_files` and `transient_files` are the storages that the sequencer writes to. Policy is implemented here, work on
bytes in `amps._core`.
"""
