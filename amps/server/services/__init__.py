"""The services process: what an instance does besides taking and delivering messages.

It is forked only if actions or the administration interface are configured. It runs an event loop of its own, owns
the actions (`actions`) and the HTTP server (`amps.server.admin`), asks the core for what concerns journals and queues
(`core_requests`) and the transports for their subscriptions (`transport_requests`), and publishes to the core as a
transport does (`publisher`). What leaves queues it reads in the log (`queue_events`). No message passes through it:
while it stands still, or dies, messages flow. The supervisor starts it again.

Talk with the supervisor (one msgpack list per datagram): in `["startup actions"]`, `["signal", name]`,
`["shutdown actions"]`, `["switch", "authentication" or "entitlement", enabled]`, `["drain"]`; out `["ready"]`,
`["startup actions done"]`, `["shutdown actions done"]`, `["shutdown", cause]`, `["switch", what, enabled]`.
"""
