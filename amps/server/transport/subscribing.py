"""Subscribe and unsubscribe (protocol.md §8): from a header to a subscription that is entered in the feeds.

A subscribe is a barrier, carried out by a coroutine (command.py). First its filter is compiled. It takes effect when
the core has read everything published before it, when the tailer has reached that place, and, for a list of bookmarks,
when the starting place was found. The connection's input is held meanwhile. Pausing and resuming name existing
subscriptions, and take effect at once.

What `replace` keeps and what it changes (protocol.md §8.2, transaction_log.md §7.4):
- Topic, filter and all options are those of the replacing command, from the subscription's current place on. A number
  of messages (`top_n`) is counted from there. A paused subscription stays paused, unless the command has `resume`;
  messages that conflation holds are sent, because they would be lost otherwise.
- The place stays: no message is delivered again and none is skipped. Only a bookmark further on (not NOW) moves the
  subscription there. Without a bookmark the end stays; with a bookmark, the end is that of the bookmark.
- A bookmark subscription stays one, even without a bookmark, and then also allows what an ordinary subscription does
  not. An ordinary subscription becomes a bookmark subscription by a bookmark, as if it were made at that moment; with
  NOW it continues at its place.
- `completed` and `persisted` acknowledgements requested before are still sent, besides those of the replacing command.
  A `completed` that was due at an end that no longer exists is due at the end of the log at that time.

A topic that stands for queues makes the subscription one to these queues, unless it has a bookmark (queues.md §5,
§14.4). It is then entered in the feeds only if it is an expression, which may match ordinary topics too. After that it
is announced to the core, whose answer contains how many messages may be unacknowledged. With a bookmark, the
subscription is to the underlying topics of the queues. A query that comes with the subscription is answered first, and
returns the messages waiting before the subscription is given any; then the subscription begins as any other (§22,
D-18). Pages (`top_n`, `skip_n`) of queues apply to the query only; those of a SOW topic are in page_queries.py.

Any other query that comes with a subscription is answered for the transaction id at which the subscription is entered
in the live feed, so that each change is either in the result or delivered after it (sow_queries.py). The subscription's
messages are held until the result is complete. A replacement asks again: it returns the records that the subscription
did not cover before.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from amps.config.model_sow import SowTopicConfig
from amps.expressions import parse_field
from amps.journal.bookmark_text import format_bookmark
from amps.server.topics import (
    DISCARDED_TOPIC,
    RESERVED_PREFIX,
    BadTopicExpression,
    may_be_a_name,
    means_reserved_topics,
    topic_predicate,
)
from amps.server.transport.answering import (
    NOTHING_QUERIED,
    Header,
    check_batch_size,
    tell_counts,
    text_of,
    wanted_acks,
)
from amps.server.transport.bookmarks import BookmarkRange, parse_bookmark
from amps.server.transport.command import Command
from amps.server.transport.context import WorkerContext
from amps.server.transport.failures import CommandFailure, not_supported_yet
from amps.server.transport.options import (
    Options,
    check_queue_options,
    lasting_options,
    option_text,
    parse_options,
    tokenize,
)
from amps.server.transport.page_queries import (
    PageQuery,
    carry_out_page,
    check_page,
    check_replacement,
    terms_given,
)
from amps.server.transport.queue_queries import QueueQuery, make_query
from amps.server.transport.replay import Replay
from amps.server.transport.session import Place, Session, Subscription
from amps.server.transport.sow_queries import SowQuery, check_select, listed_keys, terms_of
from amps.server.transport.sow_state import Snapshot
from amps.server.transport.start_search import StartSearch

AT_THE_END = (1 << 64) - 1
"""A log position that is never reached: its `completed` is sent at the end of the range."""
MESSAGES_MAX = 1 << 62
"""More than a log can hold: a larger `top_n` has the same effect."""


def ids_of(header: Header) -> list[str]:
    """The ids in the field `sub_id` of a command; without it, the command's own id."""
    text = text_of(header, "sub_id") or text_of(header, "cmd_id")
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


class Subscribing:
    """The subscribe commands of one connection."""

    def __init__(self, connection: Session, worker: WorkerContext) -> None:
        self._connection = connection
        self._worker = worker
        self._generated_ids = 0

    def subscribe(self, header: Header) -> None:
        """Carry out a subscribe command of any kind. Raises CommandFailure."""
        connection, worker = self._connection, self._worker
        command = text_of(header, "cmd")
        named = [connection.subscriptions.get(sub_id) for sub_id in ids_of(header)]
        recorded = header.get("bookmark") is not None or any(s is not None and s.bookmark for s in named)
        text = option_text(header)
        pages = not recorded and self._check_queue_options(header, command, text)
        options = parse_options(text, command, recorded, pages=pages or command.startswith("sow_and"))
        if options.replace and (options.pause or options.resume) and not recorded:
            raise CommandFailure("invalid options", "pause and resume are for bookmark subscriptions")
        if self._is_about_existing(header, options):
            self._pause_or_resume(header, options)
            return
        wanted = wanted_acks(header)
        subscription, start = self._checked_subscription(header, command, options, text, wanted)
        subscription.result_terms = terms_given(header, text)
        check_replacement(connection.subscriptions.get(subscription.sub_id), subscription)
        query: QueueQuery | SowQuery | None = None
        if command.startswith("sow_and"):
            subscription.queried = True
            topics = self._states_of(subscription)
            if subscription.queues and not topics:
                query = make_query(connection, worker, header, subscription.queues, options)
            else:
                terms = terms_of(connection, worker, header, topics, subscription.queues, options)
                check_page(subscription, terms, header)
                make = PageQuery if subscription.is_paginated else SowQuery
                query = make(connection, worker, header, terms)
        if "received" in wanted:
            connection.acknowledge("received", header.get("cmd_id"))
        carried_out = Command(connection, worker, header)
        if isinstance(query, PageQuery):
            carried_out.run(self._carry_out_page(carried_out, subscription, query))
        elif isinstance(query, SowQuery):
            carried_out.run(self._carry_out_with_state(carried_out, subscription, start, query))
        else:
            carried_out.run(self._carry_out(carried_out, wanted, subscription, start, query))

    async def _carry_out(
        self,
        command: Command,
        wanted: set[str],
        subscription: Subscription,
        start: BookmarkRange | None,
        query: QueueQuery | None,
    ) -> None:
        """Make the subscription. `start`: its beginning; None: now. `query`: answered before the subscription begins.
        """
        connection, worker, header = self._connection, self._worker, command.header
        await self._compile_filter(command, subscription)
        await command.consumed()
        if query is not None:
            query.start(subscription.filter, worker.core.written())
        search: StartSearch | None = None
        if start is not None and worker.has_journal:
            search = await command.wait(partial(worker.feeds.search, subscription, start))
        elif query is not None:
            await command.looked_up(lambda _: query)
            query.check()
        existing = connection.subscriptions.get(subscription.sub_id)
        if existing is not None and existing.place is Place.DURABLE:
            # Messages published before are delivered under the old topic and options, once they are durable.
            await command.durable(worker.core.written())
        completes = "completed" in wanted and query is None
        replay = await self._enter(command, subscription, start, search, completes, None)
        if query is not None:
            # The query is answered before any message is leased. Ordinary topics that match have no records.
            granted = None
            if subscription.queues:
                granted = f"max_backlog={worker.queues.backlog_of(subscription)}"
            query.show(subscription.sub_id, granted)
            await command.looked_up(lambda _: query)
            query.end()
        # After a replacement the existing object continues, with the topic and options of the replacement.
        current = connection.subscriptions[subscription.sub_id]
        backlog: int | None = None
        if current.queues or current.queue_number is not None:
            backlog = await command.wait(partial(worker.queues.enter, current))
        if query is None:
            self._answer(header, subscription, replay, wanted, backlog)
        if replay is not None:
            worker.feeds.start_replay(replay)
        self._log(header, subscription)

    async def _compile_filter(
        self, command: Command, subscription: Subscription, keys: Sequence[str] = ()
    ) -> None:
        """Compile the filter of a command. `keys`: the subscription is to the records with these keys only."""
        text = text_of(command.header, "filter")
        if keys:
            # Keys have no quotes in them, or are no keys.
            listed = ", ".join(f"'{key}'" for key in keys if "'" not in key)
            of_keys = f"SOW_KEY() IN ({listed})" if listed else "1 = 0"
            text = f"({text}) AND {of_keys}" if text else of_keys
        if not text:
            return
        subscription.filter = await command.filter(text)
        if subscription.options.oof and not subscription.filter.deterministic:
            raise CommandFailure("bad filter", "with oof, it may not depend on the time of its evaluation")

    async def _carry_out_page(self, command: Command, subscription: Subscription, query: PageQuery) -> None:
        await self._compile_filter(command, subscription)
        await carry_out_page(command, self._worker, self._connection, subscription, query)
        self._log(command.header, subscription)

    async def _carry_out_with_state(
        self, command: Command, subscription: Subscription, start: BookmarkRange | None, query: SowQuery
    ) -> None:
        """Make the subscription, and answer the query for the moment at which it begins. Its messages follow."""
        connection, worker = self._connection, self._worker
        feeds = worker.feeds
        await self._compile_filter(command, subscription, listed_keys(command.header))
        await command.consumed()
        await command.until(connection.when_no_result)
        search: StartSearch | None = None
        if start is not None and worker.has_journal:
            search = await command.wait(partial(feeds.search, subscription, start))
        existing = connection.subscriptions.get(subscription.sub_id)
        if existing is not None:
            if existing.place is Place.DURABLE:
                await command.durable(worker.core.written())
            query.replaces(existing)
        with feeds.states.snapshot() as snapshot:
            replay = await self._enter(command, subscription, start, search, False, snapshot)
            connection.begin_result()
            try:
                await query.run(command, subscription.filter, snapshot.txid, subscription.sub_id)
            except CommandFailure:
                if existing is None:
                    feeds.remove(subscription)
                raise
            finally:
                connection.end_result()
        # It may have ended while the result was sent, or have been replaced.
        current = connection.subscriptions.get(subscription.sub_id)
        if current is not None and (current.queues or current.queue_number is not None):
            await command.wait(partial(worker.queues.enter, current))
        if replay is not None and replay.members:
            feeds.start_replay(replay)
        self._log(command.header, subscription)

    def _states_of(self, subscription: Subscription) -> tuple[SowTopicConfig, ...]:
        """The SOW topics that a subscription begins with."""
        if not subscription.permitted:
            return ()
        return self._worker.feeds.states.names.matching(
            subscription.topic,
            self._connection.message_type,
            regex_allowed=not subscription.options.non_regex_topic,
        )

    def _is_about_existing(self, header: Header, options: Options) -> bool:
        """Whether a command only pauses or resumes existing subscriptions."""
        if options.replace:
            return False
        if options.resume or not options.pause:
            return options.resume
        known = any(sub_id in self._connection.subscriptions for sub_id in ids_of(header))
        return known or header.get("bookmark") is None

    def _pause_or_resume(self, header: Header, options: Options) -> None:
        """Pause or resume all named subscriptions, or none. A failure's `sub_id` has the ids that are unknown
        (transaction_log.md §20, 23 and 24). Raises CommandFailure.
        """
        connection, feeds = self._connection, self._worker.feeds
        sub_ids = ids_of(header)
        if not sub_ids:
            raise CommandFailure("invalid options", "pause and resume need a sub_id")
        found = [connection.subscriptions[sub_id] for sub_id in sub_ids if sub_id in connection.subscriptions]
        if len(found) < len(sub_ids):
            unknown = ",".join(sub_id for sub_id in sub_ids if sub_id not in connection.subscriptions)
            raise CommandFailure("invalid sub id", f"there is no subscription {unknown!r}", sub_id=unknown)
        for subscription in found:
            if not subscription.may_pause:
                raise CommandFailure("invalid options", "pause and resume are for bookmark subscriptions")
            if not subscription.options.on_same_terms(options):
                raise CommandFailure("invalid options", "pause and resume change no other options: use replace")
        wanted = wanted_acks(header)
        if "received" in wanted:
            connection.acknowledge("received", header.get("cmd_id"))
        if options.resume:
            feeds.resume(found)
        else:
            for subscription in found:
                feeds.pause(subscription)
        if "processed" in wanted:
            connection.acknowledge("processed", header.get("cmd_id"), sub_id=header.get("sub_id"))

    def _check_queue_options(self, header: Header, command: str, text: str) -> bool:
        """Whether a subscription without a bookmark is to queues. If it is, check that it has no options that queues do
        not support. Raises CommandFailure.
        """
        found = tokenize(text, command)
        try:
            queues = self._worker.queues.names.matching(
                text_of(header, "topic"), self._connection.message_type, "non_regex_topic" in found
            )
        except BadTopicExpression:
            return False  # refused later, with the reason
        if queues:
            check_queue_options(found)
        return bool(queues)

    def _queues_of(self, topic: str, options: Options) -> tuple[int, ...]:
        """The queues that a topic stands for. Raises CommandFailure."""
        try:
            return self._worker.queues.names.matching(
                topic, self._connection.message_type, options.non_regex_topic
            )
        except BadTopicExpression as error:
            raise CommandFailure("bad regex topic", str(error)) from error

    def _checked_subscription(
        self, header: Header, command: str, options: Options, text: str, wanted: set[str]
    ) -> tuple[Subscription, BookmarkRange | None]:
        """Check everything about a subscription that does not depend on the log. `text`: its options. Raises
        CommandFailure.
        """
        connection, worker = self._connection, self._worker
        topic = text_of(header, "topic")
        bookmark = header.get("bookmark")
        if not topic:
            raise CommandFailure("no topic")
        if bookmark is not None and command in ("delta_subscribe", "sow_and_delta_subscribe"):
            raise CommandFailure("invalid options", "a delta subscription takes no bookmark")
        start = parse_bookmark(str(bookmark)) if bookmark is not None else None
        sub_id = text_of(header, "sub_id") or text_of(header, "cmd_id")
        existing = connection.subscriptions.get(sub_id)
        if bookmark is None and existing is not None and options.replace:
            bookmark = existing.bookmark
        check_batch_size(header)
        messages_max = None
        if header.get("top_n") is not None and command == "subscribe":
            if bookmark is None or (start is not None and start.is_now):
                raise CommandFailure("invalid options", "top_n is for replays")
            messages_max = header["top_n"]
            if not isinstance(messages_max, int) or isinstance(messages_max, bool) or messages_max < 1:
                raise CommandFailure("invalid options", f"top_n is {messages_max!r}")
            messages_max = min(messages_max, MESSAGES_MAX)
        names = worker.queues.names
        queues = self._queues_of(topic, options)
        if command == "sow_and_subscribe" and start is not None:
            if worker.feeds.states.names.matching(
                topic, connection.message_type, regex_allowed=not options.non_regex_topic
            ):
                # Of a SOW topic any bookmark means now (sow.md D26).
                if not start.is_now:
                    worker.log.log("14-0008", client=connection.shown_name, topic=topic, bookmark=str(bookmark))
                start = bookmark = None
                options = replace(options, bookmark=True)
            elif not start.is_now:
                raise CommandFailure("invalid bookmark", "a topic without History can only start now")
        literal = options.non_regex_topic or not worker.config.regex_topic_support
        try:
            if bookmark is not None:
                topic, literal = names.bookmark_topic(topic, literal, queues)
                queues = ()
            predicate = topic_predicate(topic, not literal)
        except BadTopicExpression as error:
            raise CommandFailure("bad regex topic", str(error)) from error
        self._check_state_options(topic, options, literal)
        if not sub_id:
            self._generated_ids += 1
            sub_id = f"SAMPS-{connection.serial}-{self._generated_ids}"
        if "," in sub_id:
            raise CommandFailure("invalid sub id", "an id holds no comma")
        if existing is not None and not options.replace:
            raise CommandFailure("subscription already exists")
        paused = options.pause or (existing is not None and existing.paused and not options.resume)
        if paused and options.live:
            raise CommandFailure("invalid options", "live with a paused subscription: resume it first")
        # A text that may be meant as a name must be permitted.
        permitted = True
        as_name = predicate is None or may_be_a_name(topic)
        if as_name and not connection.may("read", topic):
            if not options.replace:
                raise CommandFailure("not entitled", f"to read {topic!r}")
            permitted = False
        queues = tuple(
            number for number in queues if permitted and connection.may("read", names.queues[number].name)
        )
        by_name = predicate is None and permitted
        if by_name and bookmark is not None and not worker.matcher.is_logged(topic, connection.message_type):
            raise CommandFailure("invalid topic", f"{topic!r} is not recorded in the transaction log")
        if by_name and topic.startswith(RESERVED_PREFIX) and topic != DISCARDED_TOPIC:
            raise not_supported_yet("event topics")
        if predicate is not None and means_reserved_topics(topic):
            raise not_supported_yet(
                "event topics", "an expression for topics of clients that contain /AMPS/ may begin with .+"
            )
        subscription = Subscription(
            connection,
            sub_id,
            topic,
            predicate,
            options,
            None if bookmark is None else str(bookmark),
            send_ids=header.get("send_matching_ids") is not False,
            permitted=permitted,
            messages_max=messages_max,
            paused=paused,
            wants_persisted=bookmark is not None
            and command == "subscribe"
            and "persisted" in wanted,
            queues=queues,
            number=worker.new_subscription_number() if existing is None else existing.number,
            options_text=lasting_options(text, bool(queues)),
        )
        if queues and predicate is None:
            subscription.place = Place.QUEUE
        return subscription, start

    def _check_state_options(self, topic: str, options: Options, literal: bool) -> None:
        """Check options whose meaning depends on the SOW topics that a topic stands for. Raises CommandFailure."""
        feeds, message_type = self._worker.feeds, self._connection.message_type
        check_select(self._worker, message_type, options)
        if options.conflating is None:
            return
        # Logical topics of an expression are not known yet: a foreign key there means messages without focus.
        topics = feeds.states.names.matching(topic, message_type, regex_allowed=not literal)
        paths = options.conflating.paths
        if paths is None and not topics:
            raise CommandFailure("invalid options", "conflation of a topic without a SOW needs a conflation_key")
        if paths is not None and options.oof:
            for found in topics:
                if found.pattern is None and {parse_field(key) for key in found.keys} != set(paths):
                    raise CommandFailure(
                        "invalid options", f"with oof, conflation_key must name the Key fields of {found.name!r}"
                    )

    async def _enter(
        self,
        command: Command,
        subscription: Subscription,
        start: BookmarkRange | None,
        search: StartSearch | None,
        completes: bool,
        snapshot: Snapshot | None,
    ) -> Replay | None:
        """Enter the subscription at this point of the order of the instance, and set a snapshot to it. Return a replay
        to be started, or None. Raises CommandFailure, LogDamaged.
        """

        def at(enter: Callable[..., int], *arguments: object) -> Callable[[Callable[..., None]], None]:
            def begin(over: Callable[..., None]) -> None:
                txid = enter(*arguments, over)
                if snapshot is not None:
                    snapshot.txid = txid

            return begin

        feeds = self._worker.feeds
        existing = self._connection.subscriptions.get(subscription.sub_id)
        if existing is not None and existing.place is Place.QUEUE:
            subscription.queue_number = existing.queue_number
        if existing is not None and not self._is_as_new(existing, subscription):
            found = None if search is None else search.result()
            replay: Replay | None = await command.wait(
                at(feeds.replace, existing, subscription, found, completes)
            )
            return replay
        if start is None and subscription.bookmark is not None:
            raise CommandFailure("invalid sub id", "the subscription that was to be replaced has ended")
        if subscription.place is Place.QUEUE:
            feeds.enter_nowhere(subscription)
        elif start is None:
            await command.until(at(feeds.enter_live, subscription))
        elif search is not None:
            return feeds.prepare(subscription, search)
        else:
            # It is an expression, and no topic is recorded: no message matches, now or later.
            feeds.enter_idle(subscription)
        return None

    def _is_as_new(self, existing: Subscription, replacement: Subscription) -> bool:
        """Whether a replacement is entered like a new subscription, because the existing one is not in the feeds."""
        return existing.place is Place.QUEUE

    def _answer(
        self,
        header: Header,
        subscription: Subscription,
        replay: Replay | None,
        wanted: set[str],
        backlog: int | None,
    ) -> None:
        """Send the acknowledgements of a subscription without a query, which is entered or replaced. `backlog`: the
        effective one, if the subscription is known to the core.
        """
        connection, worker = self._connection, self._worker
        command_id = header.get("cmd_id")
        sub_id = {"sub_id": subscription.sub_id}
        if "processed" in wanted:
            granted = {"opts": f"max_backlog={backlog}"} if subscription.queues else {}
            connection.acknowledge("processed", command_id, **sub_id, **granted)
        if "completed" in wanted:
            if replay is not None:
                due = AT_THE_END if replay.has_end else worker.core.written()
                replay.members[0].completions.append((due, command_id))
            elif subscription.bookmark is not None:
                connection.acknowledge("completed", command_id, **sub_id, bookmark=format_bookmark(0, 0))
        if text_of(header, "cmd") == "delta_subscribe":
            tell_counts(
                connection, worker, header, connection.acknowledge, **sub_id, **NOTHING_QUERIED
            )

    def _log(self, header: Header, subscription: Subscription) -> None:
        self._worker.log.log(
            "14-0001",
            client=self._connection.shown_name,
            sub_id=subscription.sub_id,
            topic=subscription.topic,
            options=text_of(header, "opts"),
        )

    def unsubscribe(self, header: Header) -> None:
        """End subscriptions by their ids. Raises CommandFailure."""
        connection, worker = self._connection, self._worker
        sub_ids, query_ids = text_of(header, "sub_id"), text_of(header, "query_id")
        if not sub_ids and not query_ids:
            raise CommandFailure("invalid sub id", "unsubscribe needs a sub_id or a query_id")
        if "received" in wanted_acks(header):
            connection.acknowledge("received", header.get("cmd_id"))
        if sub_ids.strip() == "all":
            names = list(connection.subscriptions)
        else:
            names = [name.strip() for name in sub_ids.split(",") if name.strip()]
        wanted_ids = {name.strip() for name in query_ids.split(",") if name.strip()}
        for query_id, query in list(connection.queries.items()):
            if query_id in wanted_ids or query.sub_id in names:
                query.cancel()
        for name in names:
            subscription = connection.subscriptions.get(name)
            if subscription is not None:
                worker.feeds.remove(subscription)
                worker.queues.end(subscription)
                worker.log.log("14-0002", client=connection.shown_name, sub_id=name, topic=subscription.topic)
        if "processed" in wanted_acks(header):
            connection.acknowledge("processed", header.get("cmd_id"), sub_id=header.get("sub_id"))
