"""A server of one's own inside a program: `with amps.Server() as server:` (queue_guarantees.md §5).

    server         `Server`: the class that programs use, as `amps.Server`
    configuration  the configuration that it makes from its arguments
    launching      the program's side of starting: one starter process for each program
    starter        that process: it has imported the server, forks servers, and cleans up when the program ends
    manual_clock   asking a server to advance its time
    ports          free ports

The server runs in processes of its own. This package imports nothing of it, nor does the program; only the starter
does. `amps.testing` has fixtures of pytest over it.
"""

from amps.embedded.server import Server, ServerConfigurationError, ServerError

__all__ = ["Server", "ServerConfigurationError", "ServerError"]
