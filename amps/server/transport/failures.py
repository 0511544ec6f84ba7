"""Failures of commands, with the reason text that the client gets (protocol.md §13, D12)."""

from amps.expressions import ExpressionError

TX_STORE_FAILED = "tx store failed"
"""The transaction log accepts no messages now: its disk is full, or new files cannot be made."""
STORE_FAILED_DETAIL = "the transaction log accepts no messages now: send unacknowledged messages again"
BAD_DELAY = "bad delay"
"""The delay of a publish or of a cancel is not valid (docs/spec/queue_guarantees.md §1, §2)."""
BAD_TRANSACTION = "bad transaction"
"""A transaction that is malformed, or beyond its limits."""
LEASE_LOST = "lease lost"
"""A message of a transaction is not leased to the connection."""
UNDECIDED = "transaction undecided"
TOO_MANY_DEFERRED = "too many deferred acknowledgements"
"""Too many acknowledgements wait for messages that are not in their queues."""
TOO_MANY_DEFERRED_DETAIL = (
    "some of these messages are in no queue, and too many acknowledgements wait for such messages already; the "
    "messages are delivered when they arrive: send the acknowledgement again after that, or lower DeferredAckExpiration"
)


DETAIL_CHARACTERS_MAX = 500


class CommandFailure(Exception):
    """A refused command. Log and acknowledgement contain the reason, the detail and the position.

    `reason` is one of the stable texts. `detail` explains it, `position` is the character of the command's filter, from
    0, at which the error is. `sub_id`: the ids of the subscriptions concerned, if not all that the command names.
    """

    def __init__(
        self, reason: str, detail: str = "", position: int | None = None, *, sub_id: str | None = None
    ) -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail
        self.position = position
        self.sub_id = sub_id

    @property
    def fields(self) -> dict[str, str | int]:
        """The fields of an acknowledgement besides the reason (docs/messages.md): of bounded length and UTF-8."""
        fields: dict[str, str | int] = {}
        if self.detail:
            detail = self.detail.encode("utf-8", "backslashreplace").decode()
            cut = len(detail) > DETAIL_CHARACTERS_MAX
            fields["detail"] = detail[:DETAIL_CHARACTERS_MAX] + "..." if cut else detail
        if self.position is not None:
            fields["position"] = self.position
        return fields


def bad_filter(error: ExpressionError) -> CommandFailure:
    """The failure of a filter that does not parse."""
    return CommandFailure("bad filter", str(error), error.position)


def not_supported_yet(what: str, detail: str = "") -> CommandFailure:
    """The failure of a documented feature that this server does not have yet: refused, never ignored."""
    return CommandFailure(f"not supported yet: {what}", detail)


def undecided_detail(awaited: list[str]) -> str:
    """What the client of an undecided transaction is told. `awaited`: names of instances, as the core answers."""
    names = [name or "an instance that is not connected" for name in awaited]
    return (
        "another instance may have recorded the transaction: connect again, and repeat it; it is decided when the log "
        f"of these is here: {', '.join(names)}"
    )
