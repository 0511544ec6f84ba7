"""Queries (protocol.md §9): checked in full. Queues show what waits there (queue_queries.py); other topics have no SOW,
and are answered as befits that.
"""

from typing import TYPE_CHECKING

from amps._core.filter_set import Filter
from amps.server.topics import BadTopicExpression, topic_predicate
from amps.server.transport.answering import Header, check_batch_size, refuse, text_of, wanted_acks
from amps.server.transport.failures import CommandFailure, not_supported_yet
from amps.server.transport.options import page_options, parse_options
from amps.server.transport.queue_queries import QueueQuery, make_query

if TYPE_CHECKING:
    from amps.server.transport.connection import Connection


def query(connection: "Connection", header: Header) -> None:
    """The command `sow`. Raises CommandFailure."""
    topic = text_of(header, "topic")
    if not topic:
        raise CommandFailure("no topic")
    check_batch_size(header)
    options = parse_options(text_of(header, "opts"), "sow", False, pages=True)
    regex = connection.worker.config.regex_topic_support and not options.non_regex_topic
    try:
        predicate = topic_predicate(topic, regex)
    except BadTopicExpression as error:
        raise CommandFailure("bad regex topic", str(error)) from error
    queues = connection.worker.queues.names.matching(topic, connection.message_type, options.non_regex_topic)
    if queues:
        _query_queues(connection, header, make_query(connection, header, queues, options))
        return
    if page_options(text_of(header, "opts"), "sow") != (0, None):
        raise not_supported_yet("pagination")
    if predicate is None:
        raise CommandFailure("invalid topic", f"{topic!r} has no SOW")
    text = text_of(header, "filter")
    if not text:
        _answer(connection, header)
        return
    connection.hold()

    def compiled(filter_: Filter) -> None:
        if connection.phase.value != "closed":
            _answer(connection, header)
            connection.release()

    def failed(failure: CommandFailure) -> None:
        if connection.phase.value != "closed":
            refuse(connection, header, failure)
            connection.release()

    connection.worker.filters.obtain(text, compiled, failed, connection.worker.loop)


def _query_queues(connection: "Connection", header: Header, query: QueueQuery) -> None:
    """Show what waits in queues, when all that the client has published before is there."""
    worker = connection.worker
    sent_id = {"query_id": header.get("query_id")}
    wanted = wanted_acks(header)
    if "received" in wanted:
        connection.acknowledge("received", header.get("cmd_id"), **sent_id)
    connection.hold()

    def compiled(filter_: Filter | None) -> None:
        worker.core.when_consumed(worker.core.ring.pushed, lambda: begin(filter_))

    def begin(filter_: Filter | None) -> None:
        if connection.phase.value != "closed":
            query.start(filter_, worker.core.written())
            worker.feeds.look_up(lambda _: query, connection, found)

    def found() -> None:
        if query.failed:
            connection.release()
            return
        query.show()
        worker.feeds.look_up(lambda _: query, connection, shown)

    def shown() -> None:
        query.end()
        connection.release()

    def failed(failure: CommandFailure) -> None:
        if connection.phase.value != "closed":
            unanswered = ",".join(wanted - {"received"})
            refuse(connection, {**header, "ack_type": unanswered}, failure)
            connection.release()

    text = text_of(header, "filter")
    if text:
        worker.filters.obtain(text, compiled, failed, worker.loop)
    else:
        compiled(None)


def _answer(connection: "Connection", header: Header) -> None:
    """What a query of no topic gets."""
    wanted = wanted_acks(header)
    command_id = header.get("cmd_id")
    query_id = header.get("query_id") or command_id
    sent_id = {"query_id": header.get("query_id")}
    for kind in ("received", "processed"):
        if kind in wanted:
            connection.acknowledge(kind, command_id, **sent_id)
    connection.send({"cmd": "group_begin", "query_id": query_id})
    connection.send({"cmd": "group_end", "query_id": query_id})
    if "completed" in wanted:
        connection.acknowledge("completed", command_id, **sent_id)
    if "stats" in wanted:
        connection.acknowledge("stats", command_id, **sent_id, topic_matches=0, matches=0, records_returned=0)
