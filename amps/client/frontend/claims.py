"""Messages that a transaction has claimed: nothing else may acknowledge them (queue_guarantees.md Q-38).

The route of such a message is a `Claimed`. While the block of the transaction runs, an acknowledgement is an error: it
would come first, and the transaction would find no lease. Afterwards it does nothing.
"""

from typing import Any, NoReturn, Self

from amps.client.enums import Timeout
from amps.client.errors import UsageException
from amps.client.protocol.message import Message

IN_TRANSACTION = "this message is in a transaction, which acknowledges it when its block ends"
WAS_IN_TRANSACTION = "this message was in a transaction already"


class Claimed:
    """The route of a message in a transaction, and its owner."""

    __slots__ = ("route", "settled", "sub_id")

    ack_batch = None
    max_backlog = None

    def __init__(self, route: Any) -> None:
        self.route = route
        self.sub_id = route.sub_id
        self.settled = False
        """Whether the message is acknowledged, or leased to another connection."""

    @property
    def owner(self) -> Self:
        """What the message uses of its client."""
        return self

    @property
    def codec(self) -> Any:
        """The codec of the client."""
        return self.route.owner.codec

    def ack(self, target: Message, options: str = "") -> None:
        """Do nothing once the message is settled. Raises UsageException before."""
        if not self.settled:
            raise UsageException(IN_TRANSACTION)

    def discard(self, target: Message) -> None:
        """Pass on to the client."""
        self.route.owner.discard(target)

    def transaction(self, *messages: Message, timeout: Timeout) -> NoReturn:
        """Refuse: raises UsageException."""
        raise UsageException(WAS_IN_TRANSACTION if self.settled else IN_TRANSACTION)


def is_settled(message: Message) -> bool:
    """Whether a transaction has acknowledged a message, or has found that it is leased to another connection."""
    return isinstance(message._route, Claimed) and message._route.settled
