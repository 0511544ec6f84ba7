"""The commands and routes behind the calls of a client, for all front ends.

These functions turn the arguments of a call into a command, and decide which route its messages take. They wait for
nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from amps.client.enums import MOST_RECENT, AckType, Bookmark
from amps.client.errors import (
    AMPSException,
    ConnectionException,
    DisconnectedException,
    InvalidSubIdException,
    TimedOutException,
)
from amps.client.frontend.claims import Claimed
from amps.client.frontend.handlers import EventHandlers
from amps.client.protocol.command import (
    QUERIES,
    SUBSCRIPTIONS,
    Command,
    PublishTemplate,
    check_base64,
    check_delay,
    check_expiration,
    check_number,
    check_text,
)
from amps.client.protocol.delays import delay_ms, moment_after, moment_ms
from amps.client.protocol.engine import Engine
from amps.client.protocol.engine_types import Route
from amps.client.protocol.message import Handler, Message
from amps.client.protocol.options import (
    CallSettings,
    PublishArgs,
    check_publish_keywords,
    option_names,
    split_keywords,
)
from amps.client.protocol.store_interfaces import BookmarkStore, PublishStore

SUBSCRIBING = SUBSCRIPTIONS | QUERIES
"""The commands whose messages belong to the caller."""


def publish_template(command: str, topic: str, fields: PublishArgs, *, stored: bool) -> PublishTemplate:
    """Return the header of a publish. `stored`: a publish store keeps it. Raises ValueError and TypeError."""
    _check_publish(fields)
    delay, not_before = fields.get("delay"), fields.get("not_before")
    if stored and delay is not None:
        not_before, delay = moment_after(delay), None
    return PublishTemplate(
        command,
        topic,
        expiration=fields.get("expiration"),
        correlation_id=fields.get("correlation_id"),
        sow_key=fields.get("sow_key"),
        delay=None if delay is None else delay_ms(delay),
        not_before=None if not_before is None else moment_ms(not_before),
    )


def persisted_publish(topic: str, body: bytes, fields: PublishArgs, *, stored: bool) -> Command:
    """Return the command of a publish whose caller waits until it is persisted. Raises ValueError and TypeError.

    Without a publish store, a refusal is reported in the `processed` acknowledgement.
    """
    _check_publish(fields)
    return Command(
        "publish", topic, data=body, ack_type=AckType.NONE if stored else AckType.PROCESSED, **fields
    )


def _check_publish(fields: PublishArgs) -> None:
    check_publish_keywords(fields)
    if (expiration := fields.get("expiration")) is not None:
        check_expiration(expiration)
    if (correlation_id := fields.get("correlation_id")) is not None:
        check_base64("correlation_id", correlation_id)
    if (sow_key := fields.get("sow_key")) is not None:
        check_base64("sow_key", sow_key)
    check_delay(fields.get("delay"), fields.get("not_before"))


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


def bookmark_subscription(
    topic: str,
    bookmark: Bookmark,
    filter: str | None,
    keywords: Mapping[str, Any],
    store: BookmarkStore | None,
    handlers: EventHandlers,
) -> tuple[Command, CallSettings]:
    """Return what `subscription` does for a bookmark subscription; warn of one that the next run cannot continue."""
    recent = isinstance(bookmark, str) and bookmark.lower() == MOST_RECENT
    if recent and store is not None and "sub_id" not in keywords:
        handlers.logger.warning(
            "client %s: MOST_RECENT without sub_id: the next run cannot find where this one stopped",
            handlers.name,
        )
    return subscription(
        "subscribe", topic, filter, keywords,
        call="bookmark_subscribe", forbidden=("bookmark",), bookmark=bookmark,
    )  # fmt: skip


def consumption(
    queue: str,
    handler: Handler,
    filter: str | None,
    max_backlog: int,
    concurrency: int,
    options: str,
    sub_id: str | None,
) -> Command:
    """Return the command of `consume`. Raises ValueError and TypeError."""
    if handler is None:
        raise TypeError("consume needs a handler")
    check_handler(handler)
    check_number("concurrency", concurrency, least=1)
    check_number("max_backlog", max_backlog)
    keywords = {"max_backlog": max_backlog, "options": options, "sub_id": sub_id}
    return subscription("subscribe", queue, filter, keywords, call="consume")[0]


def check_handler(handler: object) -> None:
    """Raise TypeError for a handler that cannot be called."""
    if handler is not None and not callable(handler):
        raise TypeError(f"a handler must be callable, not {type(handler).__name__}")


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


def discard(store: BookmarkStore | None, target: Message | str, store_seq: int) -> None:
    """Mark a message, or a subscription id and a number, as processed in the bookmark store, if there is one."""
    if store is None:
        return
    if not isinstance(target, Message):
        store.discard(target, store_seq)
    elif target.store_seq and target.sub_id is not None:
        store.discard(target.sub_id, target.store_seq)


def cut_off(engine: Engine, what: str) -> DisconnectedException:
    """Return the exception for a lost connection, with the error that ended the last one."""
    cause = engine.lost_by
    if cause is None:
        return DisconnectedException(what)
    return DisconnectedException(f"{what}: {cause}", reason=cause.reason, message=cause.message)


def lost_by(error: AMPSException | None) -> AMPSException | None:
    """Return the exception for the end of a connection; one of another kind is its cause."""
    if error is None or isinstance(error, ConnectionException):
        return error
    failure = DisconnectedException(str(error))
    failure.__cause__ = error
    return failure


def no_room(command: str, store: PublishStore | None) -> TimedOutException:
    """Return the exception for a publish store that had no room in time."""
    count = store.unpersisted_count() if store is not None else 0
    return TimedOutException(
        f"{command}: the publish store had no room in time, {count} messages in it are not persisted"
    )


def before_logon(engine: Engine) -> DisconnectedException:
    """Return the exception for a logon without a connection."""
    cause = engine.lost_by
    if cause is None:
        return DisconnectedException("logon: not connected; call connect() first")
    # The error that ended the connection is more specific: a TLS server refuses a certificate this way.
    return DisconnectedException(str(cause), reason=cause.reason, message=cause.message)


def queue_ack(
    target: Message | str, bookmarks: str | Iterable[str], options: str
) -> tuple[str, str, str | None] | None:
    """Return topic, bookmarks and subscription id of an acknowledgement; None if the message needs none.

    Raises ValueError; UsageException for a message in a transaction.
    """
    check_text("options", options)
    if isinstance(target, Message):
        route = target._route
        if isinstance(route, Claimed):
            route.ack(target)
            return None
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
