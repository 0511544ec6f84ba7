"""Failures of commands, by the reason text that the client gets (protocol.md §13, D12)."""

TX_STORE_FAILED = "tx store failed"
"""The transaction log takes no messages now: its disk is full, or takes no new files."""


class CommandFailure(Exception):
    """A command that is refused. `reason`, one text per cause, goes into the acknowledgement; `detail`, which says what
    exactly is wrong, only into the log. `sub_id`: the ids of the subscriptions that it is about, if not all that the
    command names.
    """

    def __init__(self, reason: str, detail: str = "", *, sub_id: str | None = None) -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail
        self.sub_id = sub_id


def not_supported_yet(what: str) -> CommandFailure:
    """A documented feature that this server does not have yet: refused, never ignored."""
    return CommandFailure(f"not supported yet: {what}")
