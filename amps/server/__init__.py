"""The server: supervisor, core, transports, event log.

`supervisor` forks and monitors the others. `core` orders messages and owns the journal. `transport` owns client
sockets. They share the control page and rings of `amps._core.shm.memory` and pass messages by log position only.
"""
