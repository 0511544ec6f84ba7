"""The command `sow` (protocol.md §9): finds the topics with state that it concerns, and answers it.

SOW topics (sow_queries.py) and queues have state; the query of a queue returns its waiting messages (queue_queries.py).
An expression that matches no topic with state has an empty result (D15).
"""

from amps.config.model_sow import SowTopicConfig
from amps.server.topics import BadTopicExpression, may_be_a_name, topic_predicate
from amps.server.transport.answering import Header, check_batch_size, text_of, wanted_acks
from amps.server.transport.command import Command
from amps.server.transport.context import WorkerContext
from amps.server.transport.failures import CommandFailure
from amps.server.transport.options import option_text, parse_options
from amps.server.transport.queue_queries import QueueQuery, make_query
from amps.server.transport.session import Session
from amps.server.transport.sow_queries import SowQuery, answer_alone, terms_of


def topics_with_state(
    connection: Session, worker: WorkerContext, topic: str, non_regex_topic: bool
) -> tuple[tuple[SowTopicConfig, ...], tuple[int, ...]]:
    """The SOW topics, and the queues by number, that a query or a deletion concerns. Both are empty for an expression
    without match.

    Raises CommandFailure `invalid topic` for the name of a topic without state (protocol.md §9.1, sow.md §1.1), and for
    an expression that may be meant as a name: an empty result would falsely mean that the topic is empty.
    """
    regex = worker.config.regex_topic_support and not non_regex_topic
    try:
        predicate = topic_predicate(topic, regex)
    except BadTopicExpression as error:
        raise CommandFailure("bad regex topic", str(error)) from error
    queues = worker.queues.names.matching(topic, connection.message_type, non_regex_topic)
    topics = worker.feeds.states.names.matching(
        topic, connection.message_type, regex_allowed=not non_regex_topic
    )
    if not queues and not topics and (predicate is None or may_be_a_name(topic)):
        raise CommandFailure("invalid topic", f"{topic!r} has no SOW and is no queue")
    return topics, queues


def query(connection: Session, worker: WorkerContext, header: Header) -> None:
    """The command `sow`. Raises CommandFailure."""
    topic = text_of(header, "topic")
    if not topic:
        raise CommandFailure("no topic")
    check_batch_size(header)
    options = parse_options(option_text(header), "sow", False, pages=True)
    topics, queues = topics_with_state(connection, worker, topic, options.non_regex_topic)
    sent_id = {"query_id": header.get("query_id")}
    command = Command(connection, worker, header)
    if queues and not topics:
        of_queues = make_query(connection, worker, header, queues, options)
        shown = _show(command, worker, of_queues)
    else:
        terms = terms_of(connection, worker, header, topics, queues, options)
        shown = answer_alone(command, worker, connection, SowQuery(connection, worker, header, terms))
    if "received" in wanted_acks(header):
        connection.acknowledge("received", header.get("cmd_id"), **sent_id)
    command.run(shown)


async def _show(command: Command, worker: WorkerContext, query: QueueQuery) -> None:
    text = text_of(command.header, "filter")
    filter_ = await command.filter(text) if text else None
    await command.consumed()
    query.start(filter_, worker.core.written())
    await command.looked_up(lambda _: query)
    query.check()
    query.show()
    await command.looked_up(lambda _: query)
    query.end()
