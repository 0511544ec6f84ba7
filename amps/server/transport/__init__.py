"""A transport worker: the process that owns client connections.

The process    `worker` combines `turns`, `feeds` (tailers and their subscribers) and `ack_schedule`. `accepting` shares
               the connections of the listening sockets among the workers. Parts that the services process needs as
               well are in `amps.server.shared`: the link to the core, filters, the journal's files.
State          `session`: a client's session and its subscriptions, which all modules may import. `context`: the
               interface of the worker that commands use. Imports point from `worker` to `connection` to the commands
               to `feeds` and `queues` to `session`.
A client       `connection` is the asyncio side of a connection. `spilling` passes its large messages, `slow_clients`
               limits its unsent output, `publisher_acks` makes acknowledgements out of watermarks, `preflight` is HTTP.
Commands       `commands` dispatches to `logons`, `publishing`, `subscribing`, `queries`, `acknowledging`, `heartbeats`.
               `command` runs a command that waits. `answering`, `options`, `bookmarks` and `failures` are shared.
Subscriptions  `subscriptions` and `patterns` find routes. `shared_feeds` adds subscriptions to the shared tailers,
               `start_search` finds bookmarks, `replay` limits the speed. `subscription_list` lists all subscriptions.
Queues         `queues` announces subscriptions to the core and sends the assigned messages. `queue_filters` evaluates
               filters for the core. `queue_searches`, `queue_queries` and `ordering` find and return waiting messages.

What may not live here: code that another process needs (`amps.server.shared`), changes to the log or to queues, which
only the core makes, and work per message on the way of a plain publish or a delivery (`amps._core.wire`,
`amps._core.delivery`, `amps._core.queues`). Reads that may wait for the disk are done by threads
(`amps.server.shared.read_ahead`), not on the event loop. `core`, `services` and `admin` are not imported, and do not
import this package.
"""
