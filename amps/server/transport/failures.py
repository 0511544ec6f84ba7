"""Failures of commands, by the reason text that the client gets (protocol.md §13, D12)."""

TX_STORE_FAILED = "tx store failed"
"""The transaction log takes no messages now: its disk is full, or takes no new files."""


class CommandFailure(Exception):
    """A command that is refused; `reason` goes into the acknowledgement, `detail` only into the log."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


def not_supported_yet(what: str) -> CommandFailure:
    """A documented feature that this server does not have yet: refused, never ignored."""
    return CommandFailure(f"not supported yet: {what}")
