"""The core process: the only writer of the journal, of publisher state and of the transient log.

`process` runs the loop around `amps._core.sequencer.sequencer`. `recovery` restores the state from a journal directory.
`journal_files` and `transient_files` are the storages that the sequencer writes to. `flusher` owns the thread that
syncs. `queues` makes the queue manager and restores its queues.

Decisions about messages, order and queues are made in `amps._core.sequencer` and `amps._core.queues`. Decisions about
files are made here: when spare journals are made (`spare_journals`), which journals are archived, compressed and
removed (`journal_retention`), when a lost file is replaced (`storage_monitor`), when copies of the queues are written
(`queue_checkpoints`).

What may not live here: the bytes of records (`amps._core.journal`), names and formats of files that tools read too
(`amps.journal`), and clients. `transport`, `services`, `admin` and `shared` are not imported.
"""
