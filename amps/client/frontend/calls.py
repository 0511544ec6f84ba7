"""The commands and routes behind the calls of a client, for all front ends.

These functions turn the arguments of a call into a command, and decide which route its messages take. They wait for
nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from amps.client.enums import MOST_RECENT, Bookmark
from amps.client.errors import InvalidSubIdException
from amps.client.protocol.command import (
    QUERIES,
    SUBSCRIPTIONS,
    Command,
    PublishTemplate,
    check_base64,
    check_expiration,
    check_text,
)
from amps.client.protocol.engine import Engine
from amps.client.protocol.engine_types import Route
from amps.client.protocol.message import Message
from amps.client.protocol.options import CallSettings, option_names, split_keywords

SUBSCRIBING = SUBSCRIPTIONS | QUERIES
"""The commands whose messages belong to the caller."""


def publish_template(
    command: str, topic: str, expiration: int | None, correlation_id: str | None, sow_key: str | None
) -> PublishTemplate:
    """Return the header of a publish. Raises ValueError and TypeError."""
    if expiration is not None:
        check_expiration(expiration)
    if correlation_id is not None:
        check_base64("correlation_id", correlation_id)
    if sow_key is not None:
        check_base64("sow_key", sow_key)
    return PublishTemplate(
        command, topic, expiration=expiration, correlation_id=correlation_id, sow_key=sow_key
    )


def subscription(
    name: str,
    topic: str,
    filter: str | None,
    keywords: Mapping[str, Any],
    *,
    query: bool = False,
    call: str | None = None,
    forbidden: Iterable[str] = (),
    bookmark: Bookmark | None = None,
) -> tuple[Command, CallSettings]:
    """Return the command of a subscribing call, and the rest of its keywords. Raises TypeError for an unknown one."""
    settings = split_keywords(keywords, query=query, call=call or name, forbidden=forbidden)
    if bookmark is not None:
        settings.headers["bookmark"] = bookmark
    return Command(name, topic, filter=filter, options=settings.options, **settings.headers), settings


def is_most_recent(bookmark: Bookmark) -> bool:
    """Whether the bookmark store has to say where a subscription begins."""
    return isinstance(bookmark, str) and bookmark.lower() == MOST_RECENT


def replaced_route(engine: Engine, command: Command) -> Route | None:
    """Return the route that a command with `replace` keeps using."""
    if command.sub_id is not None and "replace" in option_names(command.options):
        return engine.route_of(command.sub_id)
    return None


def needs_route(engine: Engine, command: Command) -> bool:
    """Whether messages or acknowledgements of a command come to the caller."""
    if command.command not in SUBSCRIBING:
        return bool(command.ack_type)
    names = option_names(command.options)
    known = command.sub_id is not None and engine.route_of(command.sub_id) is not None
    return not ("resume" in names or ("pause" in names and known))


def pause_command(engine: Engine, option: str, sub_ids: tuple[str, ...]) -> Command:
    """Return the command for `pause` or `resume`. Raises ValueError and InvalidSubIdException."""
    if not sub_ids:
        raise ValueError(f"{option} needs at least one subscription id")
    for sub_id in sub_ids:
        if engine.route_of(sub_id) is None:
            raise InvalidSubIdException(f"{option}: this client has no subscription {sub_id!r}")
    return Command("subscribe", sub_id=",".join(sub_ids), options=option)


def delete_command(
    topic: str,
    filter: str | None,
    keys: Iterable[str] | None,
    data: bytes | None,
    options: str,
) -> Command:
    """Return the command for `sow_delete`. Raises ValueError unless there is exactly one selector."""
    if sum(selector is not None for selector in (filter, keys, data)) != 1:
        raise ValueError("sow_delete takes exactly one of filter, keys and data")
    if data is not None and not data:
        raise ValueError("sow_delete by data needs a body")
    return Command("sow_delete", topic, filter=filter, sow_keys=keys, data=data or b"", options=options)


def queue_ack(
    target: Message | str, bookmarks: str | Iterable[str], options: str
) -> tuple[str, str, str | None] | None:
    """Return topic, bookmarks and subscription id of an acknowledgement; None if the message needs none.

    Raises ValueError.
    """
    check_text("options", options)
    if isinstance(target, Message):
        route = target._route
        leased = target.lease_period is not None or (route is not None and route.max_backlog is not None)
        if target.command != "publish" or not leased or target.topic is None or target.bookmark is None:
            return None
        return target.topic, target.bookmark, target.sub_id
    bookmark = bookmarks if isinstance(bookmarks, str) else ",".join(bookmarks)
    if not target or not bookmark:
        raise ValueError("ack needs a message, or a topic and bookmarks")
    check_text("topic", target)
    check_text("bookmarks", bookmark)
    return target, bookmark, None
