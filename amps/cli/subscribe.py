"""`amps subscribe`: print messages as they arrive."""

from typing import Any

import click

from amps.cli.connection import HEADER_TEXT, Connection, connection_options, with_options
from amps.cli.options import POSITIVE_NUMBER, HelpfulCommand, option
from amps.cli.receiving import (
    FILTER_OPTION,
    HEARTBEAT_OPTION,
    NO_EMPTIES_OPTION,
    OOF_OPTION,
    SELECT_OPTION,
    TOPIC_OPTION,
    Reception,
    changes_args,
    output_options,
    receive,
)
from amps.client import Client, Message, MessageStream

BACKLOG_MAX = 1_000_000


def _subscribe(
    connection: Connection,
    topic: str,
    content_filter: str | None,
    bookmark: str | None,
    delta: bool,
    no_empties: bool,
    acknowledges: bool,
    move: str | None,
    backlog: int | None,
    **options: Any,
) -> None:
    """Print messages of a topic as they are published, one per line, until Ctrl-C.

    Does not reconnect: when the connection is lost, it ends with exit status 1. For a subscription with -bookmark, it
    prints the bookmark to continue from. Without -bookmark, messages published meanwhile are lost for this
    subscription, but queues keep them.

    A queue delivers each message to one of its subscribers, and to another one if it is not acknowledged: without
    -ack or -move, all printed messages are delivered again.
    """
    if bookmark is not None and (acknowledges or move is not None or backlog is not None):
        raise click.UsageError("-ack, -move and -backlog are for queues; subscribe to a queue without -bookmark")
    if bookmark is not None and delta:
        raise click.UsageError("-delta subscriptions begin now: leave -bookmark or -delta out")
    if bookmark is not None and options["oof"]:
        raise click.UsageError("a replay has no records that go out of focus: leave -bookmark or -oof out")
    reception = Reception(
        connection,
        topic,
        content_filter,
        acknowledges=acknowledges or move is not None,
        move=move,
        delta=delta,
        **options,
    )
    printer = reception.printer()
    arguments = changes_args(reception, printer, no_empties)
    if backlog is not None:
        arguments["max_backlog"] = backlog
    receive(
        reception,
        printer,
        lambda client: subscription(client, reception, bookmark, arguments),
        nothing_yet(connection, topic, content_filter, bookmark),
        lambda last: how_to_go_on(bookmark, last),
    )


subscribe = click.command(
    "subscribe",
    cls=HelpfulCommand,
    example="amps subscribe -server localhost:9007 -topic orders -bookmark epoch -output pretty",
)(
    connection_options(
        with_options(
            _subscribe,
            (
                TOPIC_OPTION,
                FILTER_OPTION,
                option(
                    "bookmark",
                    type=HEADER_TEXT,
                    help="Replay from here first: epoch, now, recent, a bookmark, a time (2026-11-24T09:30, UTC unless "
                    "it has a zone), -5m for five minutes ago (ms, s, m, h, d, w), a list of them, or a range: "
                    "[-1h:now].",
                ),
                option("delta", is_flag=True, help="Subscribe to the changed fields of records."),
                NO_EMPTIES_OPTION,
                OOF_OPTION,
                SELECT_OPTION,
                *output_options("End after this many messages."),
                option(
                    "ack", "acknowledges", is_flag=True, help="Acknowledge messages of queues when they are printed."
                ),
                option(
                    "move",
                    type=HEADER_TEXT,
                    metavar="TOPIC",
                    help="Publish each message of the queue to this recorded topic, and acknowledge it: both or "
                    "neither.",
                ),
                option(
                    "backlog",
                    type=click.IntRange(0, BACKLOG_MAX),
                    help="Maximum number of unacknowledged messages of queues; the queues may lower it.  [default: 1]",
                ),
                HEARTBEAT_OPTION,
                option(
                    "timeout",
                    "timeout_s",
                    type=POSITIVE_NUMBER,
                    help="End after this many seconds without a message. Connecting and subscribing have the same "
                    "limit, at most 10 s.",
                ),
            ),
        )
    )
)


def how_to_go_on(bookmark: str | None, last: Message | None) -> str:
    """Return the advice to the user after a loss of the connection."""
    if bookmark is None:
        return "subscribe again; without -bookmark, only queues keep the messages published until then"
    if last is None or last.bookmark is None:
        return "subscribe again with the same -bookmark: no message was received"
    return f"to continue after the last message, subscribe again with -bookmark '{last.bookmark}'"


def nothing_yet(connection: Connection, topic: str, content_filter: str | None, bookmark: str | None) -> str:
    """Return the hint for a subscription without messages: its parameters and their possible mistakes."""
    matching = f" that matches {content_filter!r}" if content_filter is not None else ""
    wrong = "-topic, -type and -filter" if content_filter is not None else "-topic and -type"
    told = f"note: no message{matching} has come yet: topic {topic!r}, message type {connection.wire_type!r}"
    if bookmark is None:
        return f"{told}. Check {wrong}; earlier messages are shown with -bookmark epoch only"
    return f"{told}, from {bookmark!r} on. Check {wrong}, and whether -bookmark is too late"


def subscription(
    client: Client, reception: Reception, bookmark: str | None, arguments: dict[str, Any]
) -> MessageStream:
    """Subscribe. Fields of the header are requested if the output shows them; replays have bookmarks anyway."""
    topic, content_filter = reception.topic, reception.content_filter
    stream: MessageStream
    if bookmark is not None:
        arguments = {**arguments, "with_bookmarks": False}
        stream = client.bookmark_subscribe(topic, bookmark, content_filter, **arguments)
    else:
        call = client.delta_subscribe if reception.delta else client.subscribe
        stream = call(topic, content_filter, **arguments)
    return stream
