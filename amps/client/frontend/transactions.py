"""Transactions of workers: acknowledging queue messages and publishing their results, all or nothing.

The rules are those of queue_guarantees.md §4. A `Transaction` collects publishes; nothing is sent before its block
ends without an exception. Then one command carries all of it, and the block ends when the server has persisted it. A
client that finds new connections by itself (HAClient) sends the command again on the next one, under the same
sequences, until it has the answer. Any other client raises DisconnectedException then: what became of the transaction
is not known, and the message is delivered again if it had no effect.

The server refuses a transaction whose messages are not leased to the connection any more. So a worker that was too
slow, or whose connection was lost, publishes nothing for a message that another worker has got meanwhile.
"""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, Unpack

from amps.client.enums import Data, Timeout
from amps.client.errors import TransactionRefusedException, UsageException
from amps.client.frontend.calls import publish_template, queue_ack
from amps.client.frontend.claims import IN_TRANSACTION, WAS_IN_TRANSACTION, Claimed
from amps.client.protocol.command import TransactionCommand
from amps.client.protocol.message import Message
from amps.client.protocol.options import PublishArgs

PUBLISHES_MAX = 4096
MESSAGES_MAX = 4096
"""The limits of the server for one transaction."""

Send = Callable[[TransactionCommand, Timeout], Awaitable[object] | object]


class Transaction:
    """One transaction, for a `with` block; an `async with` block in coroutines. Not thread-safe.

    A client of asyncio needs `async with`. So do the coroutine handlers of a Worker: `with` would block the event loop.

    `publish` only collects. Leaving the block sends everything and waits, at most `timeout` seconds, until it is
    persisted. It raises TransactionRefusedException if a message was not leased to the connection any more; then
    nothing was acknowledged or published. An exception in the block sends nothing, and the messages stay leased.
    """

    __slots__ = ("_body", "_encode", "_messages", "_publishes", "_send", "_state", "_timeout", "_topic", "_waits")

    def __init__(
        self,
        messages: tuple[Message, ...],
        encode: Callable[[Data | object], bytes],
        send: Send,
        timeout: Timeout,
        *,
        waits: bool,
    ) -> None:
        """encode: encodes a body. send: sends the command, and waits or returns an awaitable. waits: it waits.

        Raises ValueError if the messages are not leased messages of one queue, or too many; UsageException if one is in
        a transaction, or was.
        """
        topics = set()
        for message in messages:
            if isinstance(message._route, Claimed):
                raise UsageException(WAS_IN_TRANSACTION if message._route.settled else IN_TRANSACTION)
            due = queue_ack(message, (), "")
            if due is None:
                raise ValueError("a transaction acknowledges messages that a queue has delivered with a lease")
            topics.add(due[0])
        if len(topics) != 1:
            raise ValueError("a transaction acknowledges messages of one queue, at least one")
        if len(messages) > MESSAGES_MAX:
            raise ValueError(f"a transaction acknowledges at most {MESSAGES_MAX} messages")
        self._topic = topics.pop()
        self._messages = messages
        self._encode = encode
        self._send = send
        self._timeout = timeout
        self._waits = waits
        self._body = bytearray()
        self._publishes = 0
        self._state = "new"

    def publish(
        self,
        topic: str,
        data: Data | object = b"",
        **fields: Unpack[PublishArgs],
    ) -> None:
        """Add a publish. It is sent with the others when the block ends; the topic must be recorded by the server.

        `fields`: see `PublishArgs`; a delay counts from the moment at which the server reads the transaction
        (queue_guarantees.md Q-39). Raises UsageException outside the block, ValueError for the 4,097th publish.
        """
        if self._state != "open":
            raise UsageException("publish of a transaction: call it inside its with block")
        if self._publishes == PUBLISHES_MAX:
            raise ValueError(f"a transaction has at most {PUBLISHES_MAX} publishes")
        header = publish_template("publish", topic, fields, stored=False).header
        body = data if type(data) is bytes else self._encode(data)
        self._body += (len(header) + len(body)).to_bytes(4, "big") + header + body
        self._publishes += 1

    # --- the block --------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if not self._waits:
            raise UsageException("a transaction of a client of asyncio needs 'async with'")
        return self._begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        command = self._end(kind)
        if command is not None:
            try:
                self._send(command, self._timeout)
            except TransactionRefusedException:
                self._settle()
                raise
            except BaseException:
                self._give_back()
                raise
            self._settle()

    async def __aenter__(self) -> Self:
        return self._begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        command = self._end(kind)
        if command is not None:
            try:
                await self._sent(command)
            except TransactionRefusedException:
                self._settle()
                raise
            except BaseException:
                self._give_back()
                raise
            self._settle()

    def _sent(self, command: TransactionCommand) -> Awaitable[object]:
        if self._waits:  # the client of a Worker whose handler is a coroutine function: its event loop must go on
            import asyncio

            return asyncio.to_thread(self._send, command, self._timeout)
        answer: Any = self._send(command, self._timeout)
        waiting: Awaitable[object] = answer
        return waiting

    def _begin(self) -> Self:
        if self._state != "new":
            raise UsageException("a transaction is for one with block")
        if any(isinstance(message._route, Claimed) for message in self._messages):
            raise UsageException(IN_TRANSACTION)
        self._state = "open"
        for message in self._messages:
            route: Any = message._route
            if route is not None:
                message._sub_id = message.sub_id
                message._route = Claimed(route)
        return self

    def _end(self, kind: type[BaseException] | None) -> TransactionCommand | None:
        """Close the transaction. Returns the command to send; None: the block has failed."""
        self._state = "over"
        if kind is not None:
            self._give_back()
            return None
        bookmarks = ",".join(str(message.bookmark) for message in self._messages)
        return TransactionCommand(self._topic, bookmarks, bytes(self._body), self._publishes)

    def _give_back(self) -> None:
        """Leave the messages as they were before: they are not settled."""
        for message in self._messages:
            if isinstance(message._route, Claimed):
                message._route = message._route.route

    def _settle(self) -> None:
        """Make acknowledgements of the messages do nothing from now on: the client does not hold them any more."""
        for message in self._messages:
            if isinstance(message._route, Claimed):
                message._route.settled = True
