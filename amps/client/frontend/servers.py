"""The choice of servers as all highly available clients take it."""

from collections.abc import Callable, Iterable

from amps.client.errors import AMPSException
from amps.client.frontend.settings import check_part
from amps.client.protocol.command import Command
from amps.client.servers.choosers import DefaultServerChooser, ServerChooser

RefusedSubscription = Callable[[Command, AMPSException], bool]
"""Called with a subscription that the new server refuses, and the error. True: go on without it."""


def chooser_of(servers: str | Iterable[str] | ServerChooser | None) -> ServerChooser:
    """Return the chooser for the argument `servers`: a connection string, several of them, or a chooser."""
    if servers is None:
        return DefaultServerChooser()
    if isinstance(servers, str):
        return DefaultServerChooser(servers)
    if isinstance(servers, Iterable):
        return DefaultServerChooser(*servers)
    check_part("servers", servers, "get_current_uri", "report_failure", "report_success")
    return servers
