"""The form in which a subscription is entered again after a lost connection (client.md §19.5).

It is the last form that the server accepted: `replace` is removed, a pause stays as it stands now. A bookmark
subscription continues from the bookmark store, whatever bookmark it was entered with; a range keeps its end. One that
was entered at NOW and has received nothing continues from where it began. A replay of a limited number of messages asks
only for the rest.
"""

from amps.client.enums import MOST_RECENT
from amps.client.protocol.command import QUERIES, Command
from amps.client.protocol.engine_types import Route
from amps.client.protocol.options import join_options, option_names, without_options
from amps.client.protocol.store_interfaces import BookmarkStore


def as_entered(command: Command) -> Command:
    """Return the form of an accepted command that its subscription has from now on."""
    kept = command.copy()
    kept.options = without_options(command.options, "replace", "resume")
    return kept


def resumed(command: Command, route: Route, bookmarks: BookmarkStore | None) -> Command:
    """Return the command that enters the subscription of this route again."""
    again = command.copy()
    again.options = without_options(command.options, "pause")
    if route.paused:
        again.options = join_options(again.options, "pause")
    if command.command not in QUERIES:
        again.ack_type = route.outstanding  # acknowledgements that were delivered are not requested again
    if command.bookmark is not None and bookmarks is not None and command.sub_id is not None:
        again.bookmark = _next_bookmark(
            str(command.bookmark), bookmarks.get_most_recent(command.sub_id) or route.began_at
        )
        if route.remaining is not None:
            again.top_n = route.remaining
    return again


def _next_bookmark(entered: str, recent: str | None) -> str:
    """Return where to continue a subscription that was entered with one bookmark, and has got to another."""
    if recent is None:
        return entered
    if entered[:1] not in ("[", "("):
        return recent
    end = entered[entered.index(":") :]
    if recent[:1] in ("[", "("):  # the message at this bookmark itself is needed again
        return recent[: recent.index(":")] + end
    return f"({recent}{end}"


def is_recent(command: Command) -> bool:
    """Whether the bookmark store determines where the command's subscription begins."""
    return isinstance(command.bookmark, str) and command.bookmark.lower() == MOST_RECENT


def pauses(command: Command) -> bool | None:
    """Whether a command pauses (True) or resumes (False) subscriptions; None if it does neither."""
    names = option_names(command.options)
    if command.command != "subscribe" or not names & {"pause", "resume"}:
        return None
    return "pause" in names


def starts_paused(command: Command) -> bool:
    """Whether an accepted subscription is paused."""
    return "pause" in option_names(command.options)
