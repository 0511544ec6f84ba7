"""A transport worker: the process that owns client connections.

The process    `worker` puts it together: `turns`, `feeds` (tailers and who they serve), `ack_schedule`. `accepting`
               shares what the listening sockets bring among the workers. What the services process needs as well is
               in `amps.server.shared`: the link to the core, filters, the journal's files.
State          `session`: a client's session and its subscriptions, known to all; `context`: what commands use of the
               worker. Imports point from `worker` to `connection` to the commands to `feeds` and `queues` to `session`.
A client       `connection` is the asyncio side of one; `spilling` passes its large messages; `slow_clients` bounds
               what may wait for it; `publisher_acks` makes acknowledgements out of watermarks; `preflight` is HTTP.
Commands       `commands` dispatches to `logons`, `publishing`, `subscribing`, `queries`, `acknowledging`, `heartbeats`;
               `command` carries out one that waits; `answering`, `options`, `bookmarks` and `failures` are shared.
Subscriptions  `subscriptions` and `patterns` find routes; `shared_feeds` lets in; `start_search` finds bookmarks;
               `replay` paces. `subscription_list` shows what there is.
"""
