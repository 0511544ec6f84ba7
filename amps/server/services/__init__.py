"""The services process: the work of an instance besides receiving and delivering messages.

It is forked only if actions or the administration interface are configured. It runs an event loop of its own, and owns
the actions (`actions`) and the HTTP server (`amps.server.admin`). It sends requests about journals and queues to the
core (`core_requests`), and requests for subscriptions to the transports (`transport_requests`). It publishes to the
core as a transport does (`publisher`), and reads in the log which messages leave queues (`queue_events`) and which are
published (`message_events`). No message passes through it: if it stands still, or dies, messages still flow. The
supervisor starts it again.

Messages of the supervisor (one msgpack list per datagram): in `["startup actions"]`, `["signal", name]`,
`["shutdown actions"]`, `["switch", "authentication" or "entitlement", enabled]`, `["drain"]`; out `["ready"]`,
`["startup actions done"]`, `["shutdown actions done"]`, `["shutdown", cause]`, `["switch", what, enabled]`.
"""
