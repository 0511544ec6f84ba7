"""`amps subscribe`: print messages as they come.

Messages of queues are acknowledged, if that is wanted, when they have left this process: printed, flushed, and safe on
the second server if they are copied. That is done whenever nothing more has come, so at most a backlog at a time.
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
from amps.client.options import BookmarkSubscribeArgs

COPY_TIMEOUT_S = 30.0
COPY_LOGON_OPTIONS = "ack_conflation=10ms"
"""What is acknowledged waits for its copy."""
ACKNOWLEDGED_AT_ONCE = 1000
MARKED_CHARACTERS_MAX = 100
"""Of a filter that is shown with a mark below it: longer ones do not fit into a line."""
BACKLOG_MAX = 1_000_000
ANSWER_S = 10.0
"""Within which the server answers a connection and a command."""
SILENT_S = 3.0
"""After this time without any message a user may have mistyped something."""

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
NAMES = ("data", *TAGS)
# A name in braces, or a brace behind a backslash; every other brace stands for itself.
TAG = re.compile(r"\\([{}])|\{([A-Za-z_]\w*)\}")


@dataclass(frozen=True)
class Layout:
    """What is printed of a message: bytes as they are, and fields. `names`: of all tags in it."""

    pieces: tuple[bytes | Callable[[Message], bytes], ...]
    names: frozenset[str]

    def __call__(self, message: Message) -> bytes:
        return b"".join(piece if isinstance(piece, bytes) else piece(message) for piece in self.pieces)

    def asked_for(self, replays: bool) -> BookmarkSubscribeArgs:
        """The options of a subscription without which messages lack these fields; replayed ones have a bookmark."""
        return {
            "timestamp": "timestamp" in self.names,
            "with_bookmarks": "bookmark" in self.names and not replays,
        }


class Format(click.ParamType[Layout]):
    """Text with tags: what is printed of a message."""

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
    """What a tag stands for; nothing where the message has no such field."""
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
    """Until `count` messages have come, none came for `timeout_s`, or the stream ends.

    Who has seen nothing yet for a moment is told so, with the hint, on standard error.
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
    help=f"Text with tags: {known_tags()}. Other braces stand for themselves, and so do those behind a "
    "backslash.  [default: {data}]",
)
@option("ack", "acknowledges", is_flag=True, help="Acknowledge messages of queues when they are printed.")
@option(
    "backlog",
    type=click.IntRange(0, BACKLOG_MAX),
    help="How many messages of queues may be unacknowledged, as far as the queues allow it.  [default: 1]",
)
@option(
    "copy",
    metavar="[SCHEME://][USER:PASSWORD@]HOST:PORT",
    help="Also publish what is received to this server; written as -server is.",
)
@option("count", type=click.IntRange(1), help="End after this many messages.")
@option(
    "timeout",
    "timeout_s",
    type=POSITIVE_NUMBER,
    help="End when nothing has come for this many seconds. Connecting and subscribing are given as long, at most 10 s.",
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

    Does not connect again: when the connection is lost it ends with exit status 1 and, for a subscription with
    -bookmark, says where to go on. Without -bookmark, what is published meanwhile is not seen, but a queue keeps it.

    A queue gives each message to one of its subscribers, and again to another one if it is not acknowledged: without
    -ack that happens to all that are printed.
    """
    if bookmark is not None and (acknowledges or backlog is not None):
        raise click.UsageError(
            "-ack and -backlog are for queues, which a subscription is to without -bookmark", context
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
                pass  # what was printed until then is acknowledged
            finally:
                out.flush()
            acknowledge(client, printed, copies)
    except KeyboardInterrupt:
        out.flush()
    except BrokenPipeError:
        # The reader of our output has gone; the interpreter must not flush into it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except DisconnectedException as error:
        raise DisconnectedException(f"{error}; {how_to_go_on(bookmark, last)}") from error
    except BadFilterException as error:
        raise BadFilterException(f"{error}{marked(content_filter or '', error.position)}") from error
    context.exit(0)


def marked(text: str, position: int | None) -> str:
    """The filter on a line of its own, and a mark below the character that is wrong; nothing if that is no help."""
    if position is None or len(text) > MARKED_CHARACTERS_MAX or not text.isprintable():
        return ""
    return f"\n  {text}\n  {' ' * position}^"


def how_to_go_on(bookmark: str | None, last: Message | None) -> str:
    """What the user can do after the connection was lost."""
    if bookmark is None:
        return "subscribe again; what is published until then is not seen (with -bookmark it is), but a queue keeps it"
    if last is None or last.bookmark is None:
        return "subscribe again with the same -bookmark: nothing had come"
    return f"to go on behind the last message, subscribe again with -bookmark '{last.bookmark}'"


def nothing_yet(connection: Connection, topic: str, content_filter: str | None, bookmark: str | None) -> str:
    """What to tell a user who sees nothing: what was subscribed to, and what could be wrong with it."""
    matching = f" that matches {content_filter!r}" if content_filter is not None else ""
    wrong = "-topic, -type and -filter" if content_filter is not None else "-topic and -type"
    told = f"note: no message{matching} has come yet: topic {topic!r}, message type {connection.wire_type!r}"
    if bookmark is None:
        return f"{told}. Check {wrong}; what was published before is shown with -bookmark epoch only"
    return f"{told}, from {bookmark!r} on. Check {wrong}, and whether -bookmark lies too late"


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
        """Wait until all of them are persisted. Raises PublishFailed, also if one was refused."""
        if self._publisher is None:
            return
        self._publisher.finish(COPY_TIMEOUT_S)
        if self._publisher.failures:
            raise PublishFailed(f"a copy was refused: {self._publisher.first_failure}")


def acknowledge(client: Client, printed: list[Message], copies: Copies) -> None:
    """Acknowledge what are messages of queues; nothing happens to others."""
    if printed:
        copies.settle()
    for message in printed:
        client.ack(message)
    client.flush_acks()
    printed.clear()


@contextmanager
def copier(connection: Connection, server: str | None) -> Iterator[Copies]:
    """What publishes to the second server, where all of it is persisted at the end."""
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
