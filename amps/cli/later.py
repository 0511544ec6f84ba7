"""What users of command-line clients for these servers know and this command does not have yet.

Whoever writes one of these is told that it is on its way, not that there is no such thing. An entry goes when
its feature comes.
"""

from collections.abc import Mapping

LATER_COMMANDS: Mapping[str, str] = {
    "sow": "queries of the state of the world",
    "sow_and_subscribe": "queries of the state of the world",
    "sow_delete": "deleting records of the state of the world",
}
LATER_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "publish": {"delta": "publishing changes to records"},
    "subscribe": {"delta": "subscriptions to changes of records"},
}


def not_supported_yet(name: str, what: str) -> str:
    """The message for one of them."""
    return f"{name} is not supported yet: {what}"
