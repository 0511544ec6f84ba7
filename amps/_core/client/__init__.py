"""The hot path of the client library: received frames become messages, published bodies become frames.

How it works. A `FrameReader` cuts frames from received bytes. A publish for one known subscription becomes a message
without Python code; all other payloads are returned to the engine. A `ReceivedMessage` copies its payload and decodes a
field when it is read. An `Outbox` holds the frames to send: `publish` lays a frame out in its buffer. A `FrameLog`
keeps numbered frames until the server has persisted them; a `SegmentWriter` writes them to the mapped file of a store.
An `AckBatch` collects the bookmarks of acknowledgements. `Arrivals` notes the messages of a bookmark subscription that
are not processed.

What lives here: the work that is done once per message (`traffic`).

What may not live here: rules of the protocol, sockets and threads (`amps/client/`). `amps/client/protocol/traffic.py`
chooses between this module and its equivalent in Python, which has the same interface and the same tests.

Invariants
- `Outbox.publish`, `add_numbered` and `take`, `ack` of a message and the methods of `AckBatch`, `FrameLog` and
  `SegmentWriter` run no Python code, so each is atomic for the client's threads. All others are called under the
  client's lock, or that of a store.
- The process may die between any two instructions: a record of `SegmentWriter` is then whole, or its CRC refuses it.
- Every length is checked before memory is allocated for it.
- A message is independent of the buffer from which it was read.

Imports `shm`, `wire`.
"""
