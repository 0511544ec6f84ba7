"""Completion of commands before they are sent: ids, defaults, acknowledgement types, resolved
bookmarks."""

from amps.client.enums import EPOCH, MOST_RECENT, AckType, Bookmark
from amps.client.protocol.command import QUERIES, SUBSCRIPTIONS, Command
from amps.client.protocol.engine_types import Route, RouteKind
from amps.client.protocol.store_interfaces import BookmarkStore
from amps.journal.written_points import points_text

_AWAITED = {
    "unsubscribe": AckType.PROCESSED,
    "sow": AckType.PROCESSED,
    "sow_delete": AckType.PROCESSED,
    "flush": AckType.COMPLETED,
    "transaction": AckType.PERSISTED,
    **dict.fromkeys(SUBSCRIPTIONS, AckType.PROCESSED),
}


def awaited_by(command: Command) -> AckType:
    """Return the acknowledgement that a caller of this command waits for by default."""
    if command.command == "sow_delete" and command.bookmark is not None:
        return AckType.NONE  # a queue acknowledgement
    return _AWAITED.get(command.command, AckType.NONE)


def prepare(
    command: Command,
    route: Route | None,
    *,
    batch_size: int,
    bookmarks: BookmarkStore | None,
    awaited: AckType | None,
) -> AckType:
    """Complete a command that has a command id, and its route; return the ack types to wait for."""
    name = command.command
    asked = command.ack_type
    waits_for = awaited_by(command)
    added = waits_for
    if awaited is not None:
        waits_for = awaited
        # Except for flush, a failure is reported in `processed`, so that type stays requested.
        added = awaited if name == "flush" or not awaited else added | awaited
    if name in QUERIES:
        command.query_id = command.query_id or command.command_id
        if command.batch_size is None:
            command.batch_size = batch_size
    if name in SUBSCRIPTIONS and route is not None:
        command.sub_id = command.sub_id or command.command_id
    bookmarked = name in SUBSCRIPTIONS and command.bookmark is not None
    if command.bookmark is not None and name not in ("sow_delete", "transaction"):
        command.bookmark = _resolve(command.bookmark, command.sub_id, bookmarks)
    if bookmarked and route is not None:
        if bookmarks is not None:
            added |= AckType.PERSISTED
        if name == "subscribe" and (command.top_n is not None or str(command.bookmark)[:1] in ("[", "(")):
            added |= AckType.COMPLETED
            route.ends_after_replay = True
            route.remaining = command.top_n
    if route is not None:
        route.asked = route.outstanding = asked
        route.topic = command.topic
        route.bookmarked = bookmarked and bookmarks is not None
        if name in SUBSCRIPTIONS:
            route.kind = RouteKind.SUBSCRIPTION
            route.sub_id = command.sub_id
        if name in QUERIES:
            route.query_id = command.query_id
            route.group_ended = False
            route.ends_after_group = name == "sow"
        route.command_id = route.command_id or command.command_id
    command.ack_type = asked | added
    return waits_for


def _resolve(bookmark: Bookmark, sub_id: str | None, bookmarks: BookmarkStore | None) -> str:
    if isinstance(bookmark, str) and bookmark.lower() == MOST_RECENT:
        known = bookmarks.get_most_recent(sub_id) if bookmarks is not None and sub_id is not None else None
        return known or EPOCH
    return points_text(bookmark)
