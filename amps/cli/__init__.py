"""The `amps` command: thin programs over `amps.client` and `amps.server`, and the demonstration.

One module per subcommand. Shared modules: `options` (spelling of options, format of help), `connection` (creates a
client from the server options), `records` (reads messages from files), `publishing` (publishes until persisted,
over reconnects). No module here implements the protocol. Two import the server, when their command runs: `serve` runs
it, and `journal` locks the journal directory as a core does and writes `clients.ack` (`amps.server.core.lock`,
`amps.server.core.offline`).

Exit status: 0 success, 1 the server could not be reached or refused a command, 2 wrong usage.
"""
