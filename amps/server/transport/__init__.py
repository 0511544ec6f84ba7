"""A transport worker: the process that owns client connections.

`worker` runs the turns (rings, tailers, acknowledgements), `connection` is the asyncio side of one client,
`commands` says what each command does, `replay` finds bookmarks and paces replays, `publisher_acks` makes
acknowledgements out of watermarks, `options` and `bookmarks` parse. Listening sockets come from the supervisor.
"""
