"""The blocking front end: `Client` with its threads, locks, sockets and message streams.

`runtime` describes the threads and locks, `sending` how bytes are sent and how long a call waits. What may not live
here: rules of the protocol, which are in `amps.client.protocol`.
"""
