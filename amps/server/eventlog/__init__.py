"""The event log: one process writes it, all others send to it.

`catalogue` knows every message, `sender` is what the server's processes use, `records` is the form between,
`targets` are the places records go to and `writer` is the log process. Nothing here knows what the server
does; whoever has something to tell adds a message to the catalogue.
"""

from amps.server.eventlog.catalogue import CATALOGUE, LEVEL_NUMBERS, LEVELS, NOTHING
from amps.server.eventlog.sender import EventLog, minimum_level, open_log_channel
from amps.server.eventlog.targets import unwritable_targets
from amps.server.eventlog.writer import run_log_process, shared_counters

__all__ = [
    "CATALOGUE",
    "LEVELS",
    "LEVEL_NUMBERS",
    "NOTHING",
    "EventLog",
    "minimum_level",
    "open_log_channel",
    "run_log_process",
    "shared_counters",
    "unwritable_targets",
]
