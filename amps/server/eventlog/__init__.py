"""The event log: one process writes it, all others send to it.

`catalogue` has every message, `sender` is the interface for the server's processes, `records` is the form between,
`targets` are the destinations of records, and `writer` is the log process. Nothing here depends on the rest of the
server; code that has a new event to log adds a message to the catalogue.
"""

from amps.server.eventlog.catalogue import CATALOGUE, LEVEL_NUMBERS, LEVELS, NOTHING
from amps.server.eventlog.sender import EventLog, Report, minimum_level, open_log_channel
from amps.server.eventlog.targets import unwritable_targets
from amps.server.eventlog.writer import run_log_process, shared_counters

__all__ = [
    "CATALOGUE",
    "LEVELS",
    "LEVEL_NUMBERS",
    "NOTHING",
    "EventLog",
    "Report",
    "minimum_level",
    "open_log_channel",
    "run_log_process",
    "shared_counters",
    "unwritable_targets",
]
