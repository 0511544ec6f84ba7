"""The subscriptions that a client enters again after a lost connection (client.md §9.5, §19.8).

The engine tells the manager each subscription that the server has accepted, in its last form, and asks it for all of
them when it recovers. An application may pass its own manager, which may leave out, reorder or change commands. The
routes, and so the handlers, are the engine's.
"""

from collections.abc import Iterable
from typing import Protocol

from amps.client.protocol.command import Command


class SubscriptionManager(Protocol):
    """Keeps the command of each subscription. Called with the engine lock held, so no call may wait."""

    def subscribe(self, sub_id: str, command: Command) -> None:
        """Keep the command of an accepted subscription. It replaces an earlier command with this id."""

    def unsubscribe(self, sub_id: str) -> None:
        """Forget a subscription that has ended; an unknown id has no effect."""

    def commands(self) -> Iterable[Command]:
        """Return the commands to enter again, in this order; each has its subscription id."""

    def clear(self) -> None:
        """Forget all subscriptions."""


class MemorySubscriptionManager:
    """Keeps the commands in memory, in the order in which the subscriptions were first entered."""

    def __init__(self) -> None:
        self._commands: dict[str, Command] = {}

    def subscribe(self, sub_id: str, command: Command) -> None:
        """Keep the command; a replaced subscription keeps its place."""
        self._commands[sub_id] = command

    def unsubscribe(self, sub_id: str) -> None:
        """Forget a subscription."""
        self._commands.pop(sub_id, None)

    def commands(self) -> list[Command]:
        """Return the commands in the order of entry."""
        return list(self._commands.values())

    def clear(self) -> None:
        """Forget all subscriptions."""
        self._commands.clear()
