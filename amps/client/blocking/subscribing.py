"""Calls for subscriptions, queries and deletes: they convert keyword arguments to a command with a stream or
handler."""

from collections.abc import Iterable, Mapping
from typing import Any, Unpack, overload

from amps.client.blocking.commanding import Commanding
from amps.client.blocking.streams import MessageStream
from amps.client.enums import DEFAULT, MOST_RECENT, AckType, Bookmark, Data, Timeout
from amps.client.frontend.calls import delete_command, is_most_recent, subscription
from amps.client.protocol.command import Command
from amps.client.protocol.engine_types import Route, RouteKind
from amps.client.protocol.message import Handler, Message
from amps.client.protocol.options import BookmarkSubscribeArgs, QueryArgs, SubscribeArgs


class Subscribing(Commanding):
    """The subscribing calls. Each returns a MessageStream, or with a handler the subscription (or query) id."""

    def _subscribe(
        self,
        name: str,
        topic: str,
        filter: str | None,
        handler: Handler | None,
        keywords: Mapping[str, Any],
        *,
        query: bool = False,
        call: str | None = None,
        forbidden: Iterable[str] = (),
        bookmark: Bookmark | None = None,
    ) -> MessageStream | str:
        command, settings = subscription(
            name, topic, filter, keywords, query=query, call=call, forbidden=forbidden, bookmark=bookmark
        )
        if handler is not None:
            return self._handle(command, handler, settings.timeout, resubscribe=settings.resubscribe)
        return self._stream(
            command,
            settings.timeout,
            control=settings.control,
            resubscribe=settings.resubscribe,
            max_depth=settings.max_depth,
            on_full=settings.on_full,
            conflate=settings.conflate,
        )

    @overload
    def subscribe(
        self, topic: str, filter: str | None = None, *, handler: None = None, **kw: Unpack[SubscribeArgs]
    ) -> MessageStream: ...
    @overload
    def subscribe(
        self, topic: str, filter: str | None = None, *, handler: Handler, **kw: Unpack[SubscribeArgs]
    ) -> str: ...
    def subscribe(
        self,
        topic: str,
        filter: str | None = None,
        *,
        handler: Handler | None = None,
        **kw: Unpack[SubscribeArgs],
    ) -> MessageStream | str:
        """Subscribe to a topic or topic expression; return a stream, or with a handler the subscription id.

        Returns when the server has accepted the subscription. `kw`: see `SubscribeArgs`. Raises BadFilterException,
        BadRegexTopicException, InvalidOptionsException, NotEntitledException, SubscriptionAlreadyExistsException.
        """
        return self._subscribe("subscribe", topic, filter, handler, kw)

    @overload
    def bookmark_subscribe(
        self,
        topic: str,
        bookmark: Bookmark = MOST_RECENT,
        filter: str | None = None,
        *,
        handler: None = None,
        **kw: Unpack[BookmarkSubscribeArgs],
    ) -> MessageStream: ...
    @overload
    def bookmark_subscribe(
        self,
        topic: str,
        bookmark: Bookmark = MOST_RECENT,
        filter: str | None = None,
        *,
        handler: Handler,
        **kw: Unpack[BookmarkSubscribeArgs],
    ) -> str: ...
    def bookmark_subscribe(
        self,
        topic: str,
        bookmark: Bookmark = MOST_RECENT,
        filter: str | None = None,
        *,
        handler: Handler | None = None,
        **kw: Unpack[BookmarkSubscribeArgs],
    ) -> MessageStream | str:
        """Replay a recorded topic from a bookmark, then continue live. Pass a stable sub_id with MOST_RECENT.

        `bookmark`: also a datetime, an ISO time, `now`, or `-5m` for five minutes ago; see `amps.client.Bookmark`.
        `kw`: see `SubscribeArgs`. Raises as `subscribe` does, and InvalidBookmarkException, or InvalidTopicException
        for a topic that is not recorded.
        """
        if is_most_recent(bookmark) and self.bookmark_store is not None and "sub_id" not in kw:
            self._logger.warning(
                "client %s: MOST_RECENT without sub_id: the next run cannot find where this one stopped",
                self.name,
            )
        return self._subscribe(
            "subscribe", topic, filter, handler, kw,
            call="bookmark_subscribe", forbidden=("bookmark",), bookmark=bookmark,
        )  # fmt: skip

    @overload
    def delta_subscribe(
        self, topic: str, filter: str | None = None, *, handler: None = None, **kw: Unpack[SubscribeArgs]
    ) -> MessageStream: ...
    @overload
    def delta_subscribe(
        self, topic: str, filter: str | None = None, *, handler: Handler, **kw: Unpack[SubscribeArgs]
    ) -> str: ...
    def delta_subscribe(
        self,
        topic: str,
        filter: str | None = None,
        *,
        handler: Handler | None = None,
        **kw: Unpack[SubscribeArgs],
    ) -> MessageStream | str:
        """Subscribe to the changed fields of records."""
        return self._subscribe("delta_subscribe", topic, filter, handler, kw, forbidden=("bookmark",))

    @overload
    def sow(
        self, topic: str, filter: str | None = None, *, handler: None = None, **kw: Unpack[QueryArgs]
    ) -> MessageStream: ...
    @overload
    def sow(
        self, topic: str, filter: str | None = None, *, handler: Handler, **kw: Unpack[QueryArgs]
    ) -> str: ...
    def sow(
        self,
        topic: str,
        filter: str | None = None,
        *,
        handler: Handler | None = None,
        **kw: Unpack[QueryArgs],
    ) -> MessageStream | str:
        """Query the current records; return a stream that ends after them, or with a handler the query id."""
        return self._subscribe("sow", topic, filter, handler, kw, query=True)

    @overload
    def sow_and_subscribe(
        self, topic: str, filter: str | None = None, *, handler: None = None, **kw: Unpack[QueryArgs]
    ) -> MessageStream: ...
    @overload
    def sow_and_subscribe(
        self, topic: str, filter: str | None = None, *, handler: Handler, **kw: Unpack[QueryArgs]
    ) -> str: ...
    def sow_and_subscribe(
        self,
        topic: str,
        filter: str | None = None,
        *,
        handler: Handler | None = None,
        **kw: Unpack[QueryArgs],
    ) -> MessageStream | str:
        """Query the current records and continue with every change, without a gap."""
        return self._subscribe("sow_and_subscribe", topic, filter, handler, kw, query=True)

    @overload
    def sow_and_delta_subscribe(
        self, topic: str, filter: str | None = None, *, handler: None = None, **kw: Unpack[QueryArgs]
    ) -> MessageStream: ...
    @overload
    def sow_and_delta_subscribe(
        self, topic: str, filter: str | None = None, *, handler: Handler, **kw: Unpack[QueryArgs]
    ) -> str: ...
    def sow_and_delta_subscribe(
        self,
        topic: str,
        filter: str | None = None,
        *,
        handler: Handler | None = None,
        **kw: Unpack[QueryArgs],
    ) -> MessageStream | str:
        """Query the current records and continue with the changed fields."""
        return self._subscribe("sow_and_delta_subscribe", topic, filter, handler, kw, query=True)

    def sow_count(self, topic: str, filter: str | None = None, *, timeout: Timeout = DEFAULT) -> int:
        """Return the number of records that match, without fetching them."""
        command = Command("sow", topic, filter=filter, options="top_n=0")
        _, ack = self._start(command, Route(RouteKind.QUERY, owner=self), timeout, awaited=AckType.STATS)
        return (ack.matches if ack is not None else None) or 0

    def sow_delete(
        self,
        topic: str,
        *,
        filter: str | None = None,
        keys: Iterable[str] | None = None,
        data: Data | object | None = None,
        options: str = "",
        stats: bool = True,
        timeout: Timeout = DEFAULT,
    ) -> Message:
        """Delete records by exactly one of filter, keys and data; return the `stats` (or `processed`) ack."""
        command = delete_command(topic, filter, keys, None if data is None else self._encode(data), options)
        _, ack = self._start(command, None, timeout, awaited=AckType.STATS if stats else AckType.PROCESSED)
        assert ack is not None
        return ack
