"""Commands and options of other command-line clients for these servers that this command does not have yet.

Their use is an error that says that the feature is not supported yet. An entry is removed when its feature is built.
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
    """Return the error message for such a command or option."""
    return f"{name} is not supported yet: {what}"
