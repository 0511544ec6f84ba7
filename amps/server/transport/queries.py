"""The command `sow` (protocol.md §9).

Queues are the only topics with state until SOW topics are built: `topics_with_state` says so to queries and deletions
alike. Queues show what waits there (queue_queries.py). An expression that stands for no topic with state has an empty
result (D15).
"""


from amps._core.expressions.machine import Filter
from amps.server.topics import BadTopicExpression, may_be_a_name, topic_predicate
from amps.server.transport.answering import Header, check_batch_size, refuse, text_of, wanted_acks
from amps.server.transport.context import WorkerContext
from amps.server.transport.failures import CommandFailure, bad_filter, not_supported_yet
from amps.server.transport.options import option_text, page_options, parse_options
from amps.server.transport.queue_queries import make_query
from amps.server.transport.session import Phase, Session


def topics_with_state(
    connection: Session, worker: WorkerContext, topic: str, non_regex_topic: bool
) -> tuple[int, ...]:
    """The queues, by number, that a query or a deletion is about. None, for an expression that matches none.

    Raises CommandFailure `invalid topic` for the name of a topic without state (protocol.md §9.1, sow.md §1.1), and for
    what may well be meant as one: an empty result would say that there is nothing.
    """
    regex = worker.config.regex_topic_support and not non_regex_topic
    try:
        predicate = topic_predicate(topic, regex)
    except BadTopicExpression as error:
        raise CommandFailure("bad regex topic", str(error)) from error
    queues = worker.queues.names.matching(topic, connection.message_type, non_regex_topic)
    if not queues and (predicate is None or may_be_a_name(topic)):
        raise CommandFailure("invalid topic", f"{topic!r} has no SOW and is no queue")
    return queues


def query(connection: Session, worker: WorkerContext, header: Header) -> None:
    """The command `sow`. Raises CommandFailure."""
    topic = text_of(header, "topic")
    if not topic:
        raise CommandFailure("no topic")
    check_batch_size(header)
    options = parse_options(option_text(header), "sow", False, pages=True)
    queues = topics_with_state(connection, worker, topic, options.non_regex_topic)
    if not queues and page_options(option_text(header), "sow") != (0, None):
        raise not_supported_yet("pagination")
    query = make_query(connection, worker, header, queues, options)
    sent_id = {"query_id": header.get("query_id")}
    wanted = wanted_acks(header)
    if "received" in wanted:
        connection.acknowledge("received", header.get("cmd_id"), **sent_id)
    connection.hold()

    def compiled(filter_: Filter | None) -> None:
        worker.core.when_consumed(worker.core.ring.pushed, lambda: begin(filter_))

    def begin(filter_: Filter | None) -> None:
        if connection.phase is not Phase.CLOSED:
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
        if connection.phase is not Phase.CLOSED:
            unanswered = ",".join(wanted - {"received"})
            refuse(connection, {**header, "ack_type": unanswered}, failure)
            connection.release()

    text = text_of(header, "filter")
    if text:
        worker.filters.obtain(text, compiled, lambda error: failed(bad_filter(error)), worker.loop)
    else:
        compiled(None)
