"""The `amps` command: thin programs over `amps.client` and `amps.server`, and the demonstration.

One module per subcommand. Shared modules: `options` (spelling of options, format of help), `connection` (creates a
client from the server options), `records` (reads messages from files), `publishing` (publishes until persisted,
over reconnects). No module here implements the protocol; only `serve` imports the server.

Exit status: 0 success, 1 the server could not be reached or refused a command, 2 wrong usage.
"""
