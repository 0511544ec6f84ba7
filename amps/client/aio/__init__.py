"""The asyncio front end: `AsyncClient` and its message streams. `amps.aio` has the public names.

How it works. A `Connection` is the asyncio protocol of one socket. It passes received bytes to the engine and writes
the engine's output. The client handles the engine's events in their order: a plain handler runs at once, a coroutine
handler and a stream get messages through a bounded `MessageQueue`. If one is full, the client stops reading, unless a
task waits for an answer. No task is made per message.

Cancellation: a message leaves a queue only in the step in which its consumer gets it, so a cancelled consumer loses
none. A cancelled command is abandoned: the subscription that it would have entered is ended.

Everything runs on the event loop on which the client was opened. What may not live here: rules of the protocol, which
are in `amps.client.protocol`, threads (but for the lookup of names and a store's sync) and locks.
"""

from amps.client.aio.client import AsyncClient
from amps.client.aio.ha import AsyncHAClient
from amps.client.aio.streams import AsyncMessageStream, StreamRequest

__all__ = ["AsyncClient", "AsyncHAClient", "AsyncMessageStream", "StreamRequest"]
