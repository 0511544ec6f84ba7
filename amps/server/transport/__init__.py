"""A transport worker: the process that owns client connections.

The process    `worker` puts it together: `turns`, `core_link` (ring, answers, barriers), `feeds` (tailers and who they
               serve), `ack_schedule`. Listening sockets (`listeners`) come from the supervisor; `accepting` shares
               what they bring among the workers.
A client       `connection` is the asyncio side of one; `spilling` passes its large messages; `slow_clients` bounds
               what may wait for it; `publisher_acks` makes acknowledgements out of watermarks; `preflight` is HTTP.
Commands       `commands` dispatches to `logons`, `publishing`, `subscribing`, `queries`, `heartbeats`; `answering`,
               `options`, `bookmarks` and `failures` are what these share.
Subscriptions  `subscriptions` and `patterns` find routes; `shared_feeds` lets in; `journal_view` finds bookmarks;
               `replay` paces. `subscription_list` shows what there is.
"""
