"""The `amps` command: thin programs over `amps.client` and `amps.server`, and the demonstration.

One module, or one sub-package, per subcommand. Shared modules: `options` (spelling of options, format of help),
`settings` (the place that each connection setting comes from), `contexts` (the file of named settings), `connection`
(creates a client from the settings), `receiving` (prints, copies and acknowledges messages), `printers` (output
formats, with `layouts` and `bodies`), `records` (reads messages from files), `publishing` (publishes until persisted,
over reconnects). No module here implements the protocol.

Three import the server, when their command runs: `serve` runs it, `journal` locks the journal directory as a core does
and writes `clients.ack` (`amps.server.core.lock`, `amps.server.core.offline`), and `explain`, which is the command
`ampserr`, reads the catalogue of the event log.

Exit status: 0 success, 1 the server could not be reached or refused a command, 2 wrong usage.
"""
