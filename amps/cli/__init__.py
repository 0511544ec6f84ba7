"""The `amps` command: thin programs over `amps.client` and `amps.server`, and the demonstration.

One module per subcommand. What they share: `options` (how an option is written and how help looks),
`connection` (server options → a client), `records` (files → messages), `publishing` (publish until persisted,
over reconnects). Nothing here knows the protocol; the server is imported only by `serve`.

Exit status: 0 done, 1 the server could not be reached or refused a command, 2 wrong usage.
"""
