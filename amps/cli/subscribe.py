"""`amps subscribe`: print messages as they come."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import click

from amps.cli.connection import Connection, connection_options
from amps.cli.options import POSITIVE_NUMBER, HelpfulCommand, option
from amps.cli.publishing import ReliablePublisher
from amps.client import EPOCH, MOST_RECENT, NOW, Client, Message, MessageStream

COPY_TIMEOUT_S = 30.0
BOOKMARK_NAMES = {"epoch": EPOCH, "now": NOW, "recent": MOST_RECENT}

# What a tag of -format stands for.
TAGS: dict[str, Callable[[Message], object]] = {
    "bookmark": lambda message: message.bookmark,
    "command": lambda message: message.command,
    "correlation_id": lambda message: message.correlation_id,
    "expiration": lambda message: message.expiration,
    "lease_period": lambda message: message.lease_period,
    "length": lambda message: len(message.data),
    "sowkey": lambda message: message.sow_key,
    "user_id": lambda message: message.user_id,
    "timestamp": lambda message: message.timestamp,
    "topic": lambda message: message.topic,
}
TAG = re.compile(r"\{(data|" + "|".join(TAGS) + r")\}")


def formatter(text: str | None) -> Callable[[Message], bytes]:
    """What is printed of a message, for a -format; the body alone without one."""
    if text is None:
        return lambda message: message.data
    parts = TAG.split(text)  # literal, tag, literal, tag, …, literal

    def formatted(message: Message) -> bytes:
        pieces = []
        for at, part in enumerate(parts):
            if at % 2 == 0:
                pieces.append(part.encode())
            elif part == "data":
                pieces.append(message.data)
            else:
                value = TAGS[part](message)
                pieces.append(b"" if value is None else str(value).encode())
        return b"".join(pieces)

    return formatted


def messages(stream: MessageStream, count: int | None, timeout_s: float | None) -> Iterator[Message]:
    """Until `count` messages have come, none came for `timeout_s`, or the stream ends."""
    received = 0
    while count is None or received < count:
        try:
            message = stream.get(timeout_s)
        except EOFError:
            return
        if message is None:
            return
        received += 1
        yield message


@click.command(
    cls=HelpfulCommand, example="amps subscribe -server localhost:9007 -topic orders -bookmark epoch"
)
@connection_options
@option("topic", required=True, help="Topic, or regular expression for several.")
@option("filter", "content_filter", help="Content filter.")
@option("bookmark", help="Replay from here first: epoch, now, recent, a bookmark, a UTC time or a range.")
@option(
    "format",
    "text_format",
    help="Text with tags: " + ", ".join(f"{{{tag}}}" for tag in ("data", *TAGS)) + ".",
)
@option("copy", metavar="[USER:PASSWORD@]HOST:PORT", help="Also publish what is received to this server.")
@option("count", type=click.IntRange(1), help="End after this many messages.")
@option("timeout", "timeout_s", type=POSITIVE_NUMBER, help="End when nothing has come for this many seconds.")
@click.pass_context
def subscribe(
    context: click.Context,
    connection: Connection,
    topic: str,
    content_filter: str | None,
    bookmark: str | None,
    text_format: str | None,
    copy: str | None,
    count: int | None,
    timeout_s: float | None,
) -> None:
    """Print messages of a topic as they are published, one per line, until Ctrl-C."""
    show = formatter(text_format)
    out = sys.stdout.buffer
    try:
        with (
            connection.client() as client,
            copier(connection, copy) as publish_copy,
            subscription(client, topic, content_filter, bookmark) as stream,
        ):
            for message in messages(stream, count, timeout_s):
                out.write(show(message) + b"\n")
                publish_copy(message)
                if not stream.depth:
                    out.flush()
        out.flush()
    except KeyboardInterrupt:
        out.flush()
    except (
        BrokenPipeError
    ):  # the reader of our output has gone; the interpreter must not flush into it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    context.exit(0)


def subscription(
    client: Client, topic: str, content_filter: str | None, bookmark: str | None
) -> MessageStream:
    if bookmark is None:
        return client.subscribe(topic, content_filter)
    return client.bookmark_subscribe(topic, BOOKMARK_NAMES.get(bookmark.lower(), bookmark), content_filter)


@contextmanager
def copier(connection: Connection, server: str | None) -> Iterator[Callable[[Message], object]]:
    """Publishes messages under their own topics to another server, all of them persisted at the end."""
    if server is None:
        yield lambda message: None
        return
    target = replace(connection, server=server)
    publisher = ReliablePublisher(lambda store: target.client(publish_store=store))
    publisher.open()
    try:
        yield lambda message: publisher.publish(message.topic or "", message.data)
        publisher.finish(COPY_TIMEOUT_S)
    finally:
        publisher.close()
