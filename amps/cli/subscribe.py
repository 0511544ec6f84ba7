"""`amps subscribe`: print messages as they arrive.

With -ack, messages of queues are acknowledged when they have left this process: printed, flushed, and persisted on
the second server if they are copied. This is done whenever no more messages are buffered, so for at most a backlog at a
time.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import click

from amps.cli.connection import HEADER_TEXT, Connection, connection_options
from amps.cli.options import POSITIVE_NUMBER, HelpfulCommand, option
from amps.cli.publishing import PublishFailed, ReliablePublisher
from amps.client import (
    BadFilterException,
    Client,
    DisconnectedException,
    Message,
    MessageStream,
)
from amps.client.protocol.options import BookmarkSubscribeArgs

COPY_TIMEOUT_S = 30.0
COPY_LOGON_OPTIONS = "ack_conflation=10ms"
"""An acknowledgement waits until the copy is persisted, so the second server must confirm soon."""
ACKNOWLEDGED_AT_ONCE = 1000
MARKED_CHARACTERS_MAX = 100
"""Maximum length of a filter that is shown with a mark below it: longer filters do not fit into a line."""
BACKLOG_MAX = 1_000_000
ANSWER_S = 10.0
"""Time limit for the answer of the server to a connection and a command."""
SILENT_S = 3.0
"""Time without any message after which a hint on possible mistakes is shown."""

# The values of the tags of -format.
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
NAMES = ("data", *TAGS)
# A name in braces, or a brace after a backslash; every other brace is literal.
TAG = re.compile(r"\\([{}])|\{([A-Za-z_]\w*)\}")


@dataclass(frozen=True)
class Layout:
    """The output format of a message: literal bytes and fields. `names`: the names of all tags in it."""

    pieces: tuple[bytes | Callable[[Message], bytes], ...]
    names: frozenset[str]

    def __call__(self, message: Message) -> bytes:
        return b"".join(piece if isinstance(piece, bytes) else piece(message) for piece in self.pieces)

    def asked_for(self, replays: bool) -> BookmarkSubscribeArgs:
        """Return the subscription options that these fields need; replayed messages always have a bookmark."""
        return {
            "timestamp": "timestamp" in self.names,
            "with_bookmarks": "bookmark" in self.names and not replays,
        }


class Format(click.ParamType[Layout]):
    """Text with tags: the output format of a message."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Layout:
        names: set[str] = set()
        pieces: list[bytes | Callable[[Message], bytes]] = []
        end = 0
        for found in TAG.finditer(value):
            brace, name = found.groups()
            if name is not None and name not in NAMES:
                self.fail(
                    f"there is no tag {{{name}}}; there are {known_tags()}. For the text itself write "
                    f"\\{{{name}}}",
                    param,
                    ctx,
                )
            if name is not None:
                names.add(name)
            pieces.append(os.fsencode(value[end : found.start()]))
            pieces.append(brace.encode() if name is None else field_printer(name))
            end = found.end()
        pieces.append(os.fsencode(value[end:]))
        return Layout(tuple(pieces), frozenset(names))


def known_tags() -> str:
    return ", ".join(f"{{{name}}}" for name in NAMES)


def body(message: Message) -> bytes:
    return message.data


def field_printer(name: str) -> Callable[[Message], bytes]:
    """Return the function that prints a tag's value; it prints nothing if the message lacks the field."""
    if name == "data":
        return body
    field = TAGS[name]

    def printed(message: Message) -> bytes:
        value = field(message)
        return b"" if value is None else str(value).encode()

    return printed


def messages(
    stream: MessageStream, count: int | None, timeout_s: float | None, hint: str
) -> Iterator[Message]:
    """Yield messages until `count` have arrived, none arrives for `timeout_s`, or the stream ends.

    If the first message does not arrive soon, print the hint on standard error.
    """
    received = 0
    try:
        first = stream.get(SILENT_S if timeout_s is None else min(SILENT_S, timeout_s))
        if first is None:
            click.echo(hint, err=True)
            left_s = None if timeout_s is None else max(0.0, timeout_s - SILENT_S)
            first = stream.get(left_s)
    except EOFError:
        return
    if first is None:
        return
    received = 1
    yield first
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
@option("topic", type=HEADER_TEXT, required=True, help="Topic, or regular expression for several.")
@option("filter", "content_filter", type=HEADER_TEXT, help="Content filter.")
@option(
    "bookmark",
    type=HEADER_TEXT,
    help="Replay from here first: epoch, now, recent, a bookmark, a time (2026-11-24T09:30, UTC unless it has a "
    "zone), -5m for five minutes ago (ms, s, m, h, d, w), a list of them, or a range: [-1h:now].",
)
@option(
    "format",
    "show",
    type=Format(),
    help=f"Text with tags: {known_tags()}. Other braces are literal, and so are braces after a "
    "backslash.  [default: {data}]",
)
@option("ack", "acknowledges", is_flag=True, help="Acknowledge messages of queues when they are printed.")
@option(
    "backlog",
    type=click.IntRange(0, BACKLOG_MAX),
    help="Maximum number of unacknowledged messages of queues; the queues may lower it.  [default: 1]",
)
@option(
    "copy",
    metavar="[SCHEME://][USER:PASSWORD@]HOST:PORT",
    help="Publish received messages also to this server; same form as -server.",
)
@option("count", type=click.IntRange(1), help="End after this many messages.")
@option(
    "timeout",
    "timeout_s",
    type=POSITIVE_NUMBER,
    help="End after this many seconds without a message. Connecting and subscribing have the same limit, at most 10 s.",
)
@click.pass_context
def subscribe(
    context: click.Context,
    connection: Connection,
    topic: str,
    content_filter: str | None,
    bookmark: str | None,
    show: Layout | None,
    acknowledges: bool,
    backlog: int | None,
    copy: str | None,
    count: int | None,
    timeout_s: float | None,
) -> None:
    """Print messages of a topic as they are published, one per line, until Ctrl-C.

    Does not reconnect: when the connection is lost, it ends with exit status 1. For a subscription with -bookmark, it
    prints the bookmark to continue from. Without -bookmark, messages published meanwhile are lost for this
    subscription, but queues keep them.

    A queue delivers each message to one of its subscribers, and to another one if it is not acknowledged: without
    -ack, all printed messages are delivered again.
    """
    if bookmark is not None and (acknowledges or backlog is not None):
        raise click.UsageError(
            "-ack and -backlog are for queues; subscribe to a queue without -bookmark", context
        )
    show = show or Layout((body,), frozenset(("data",)))
    out = sys.stdout.buffer
    last: Message | None = None
    try:
        with (
            connection.client(
                ack_batch_size=ACKNOWLEDGED_AT_ONCE,
                ack_timeout=0,
                timeout=ANSWER_S if timeout_s is None else min(ANSWER_S, timeout_s),
            ) as client,
            copier(connection, copy) as copies,
            subscription(client, topic, content_filter, bookmark, backlog, show) as stream,
        ):
            hint = nothing_yet(connection, topic, content_filter, bookmark)
            printed: list[Message] = []
            try:
                for message in messages(stream, count, timeout_s, hint):
                    out.write(show(message) + b"\n")
                    last = message
                    copies.publish(message)
                    if acknowledges:
                        printed.append(message)
                    if not stream.depth or len(printed) >= ACKNOWLEDGED_AT_ONCE:
                        out.flush()
                        acknowledge(client, printed, copies)
            except KeyboardInterrupt:
                pass  # the messages printed so far are acknowledged
            finally:
                out.flush()
            acknowledge(client, printed, copies)
    except KeyboardInterrupt:
        out.flush()
    except BrokenPipeError:
        # The reader of the output has ended; the interpreter must not flush into the pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except DisconnectedException as error:
        raise DisconnectedException(f"{error}; {how_to_go_on(bookmark, last)}") from error
    except BadFilterException as error:
        raise BadFilterException(f"{error}{marked(content_filter or '', error.position)}") from error
    context.exit(0)


def marked(text: str, position: int | None) -> str:
    """Return the filter on a separate line with a mark below the wrong character; empty if it cannot be shown so."""
    if position is None or len(text) > MARKED_CHARACTERS_MAX or not text.isprintable():
        return ""
    return f"\n  {text}\n  {' ' * position}^"


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
    client: Client,
    topic: str,
    content_filter: str | None,
    bookmark: str | None,
    backlog: int | None,
    show: Layout,
) -> MessageStream:
    options = show.asked_for(replays=bookmark is not None)
    if bookmark is not None:
        return client.bookmark_subscribe(topic, bookmark, content_filter, **options)
    if backlog is not None:
        options["max_backlog"] = backlog
    return client.subscribe(topic, content_filter, **options)


class Copies:
    """Publishes messages under their own topics to another server; without one, does nothing."""

    def __init__(self, publisher: ReliablePublisher | None) -> None:
        self._publisher = publisher

    def publish(self, message: Message) -> None:
        if self._publisher is not None:
            self._publisher.publish(message.topic or "", message.data)

    def settle(self) -> None:
        """Wait until all copies are persisted. Raises PublishFailed, also if one was refused."""
        if self._publisher is None:
            return
        self._publisher.finish(COPY_TIMEOUT_S)
        if self._publisher.failures:
            raise PublishFailed(f"a copy was refused: {self._publisher.first_failure}")


def acknowledge(client: Client, printed: list[Message], copies: Copies) -> None:
    """Acknowledge messages of queues; other messages are ignored."""
    if printed:
        copies.settle()
    for message in printed:
        client.ack(message)
    client.flush_acks()
    printed.clear()


@contextmanager
def copier(connection: Connection, server: str | None) -> Iterator[Copies]:
    """Yield the publisher to the second server; at the end all copies are persisted."""
    if server is None:
        yield Copies(None)
        return
    target = replace(connection, server=server, type_was_given=False)
    target.check()
    publisher = ReliablePublisher(
        lambda store: target.client(publish_store=store, logon_options=COPY_LOGON_OPTIONS)
    )
    publisher.open()
    try:
        yield Copies(publisher)
        publisher.finish(COPY_TIMEOUT_S)
    finally:
        publisher.close()
