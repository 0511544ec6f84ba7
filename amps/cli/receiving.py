"""Receiving messages in `amps subscribe`, `sow` and `sow_and_subscribe`: printing, copying and acknowledging them.

A message counts when it has left this process: printed, flushed and, with -copy, persisted on the second server. Only
then is a message of a queue acknowledged, and only then does the command end with success. This is done whenever no
more messages are buffered, so for at most a backlog at a time. With -move, acknowledging a message and publishing it
to the other topic is one transaction.

The first Ctrl-C interrupts nothing: it is noted, and looked for between two messages. So each message is either
printed and acknowledged, or neither. The second one ends the wait for the second server, or for a blocked output.
"""

import signal
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import click

from amps.cli.connection import HEADER_TEXT, Connection
from amps.cli.failures import drop_output, write_whole
from amps.cli.layouts import Format, Layout, known_tags
from amps.cli.options import Decorator, option
from amps.cli.printers import OUTPUTS, Printer, make_printer
from amps.cli.publishing import PublishFailed, ReliablePublisher
from amps.client import (
    BadFilterException,
    Client,
    CommandException,
    DisconnectedException,
    Message,
    MessageStream,
    TimedOutException,
    TransactionRefusedException,
)

COPY_TIMEOUT_S = 30.0
COPY_LOGON_OPTIONS = "ack_conflation=10ms"
"""An acknowledgement waits until the copy is persisted, so the second server must confirm soon."""
ACKNOWLEDGED_AT_ONCE = 1000
MOVED_AT_ONCE_BYTES = 1 << 20
"""The limit for the bodies in one transaction, which one message may exceed."""
MOVED_REMEMBERED = 100_000
"""So many messages that were moved, or whose leases were lost, are remembered, the latest ones."""
MARKED_CHARACTERS_MAX = 100
"""Maximum length of a filter that is shown with a mark below it: longer filters do not fit into a line."""
ANSWER_S = 10.0
"""Time limit for the answer of the server to a connection and a command."""
SILENT_S = 3.0
"""Time without any message after which a hint on possible mistakes is shown."""
LOOK_S = 0.2
"""Time between two looks for Ctrl-C and for the second server, while no message arrives."""
HEARTBEAT_S = 15
"""Default of -heartbeat: a server that stops answering is noticed after twice this time."""
TOPIC_OPTION = option("topic", type=HEADER_TEXT, required=True, help="Topic, or regular expression for several.")
FILTER_OPTION = option("filter", "content_filter", type=HEADER_TEXT, help="Content filter.")
HEARTBEAT_OPTION = option(
    "heartbeat",
    "heartbeat_s",
    type=click.IntRange(0, 86400),
    default=HEARTBEAT_S,
    show_default=True,
    help="Seconds between heartbeats. A server that is silent for twice this time is lost. 0: no heartbeats; use it if "
    "this command will be stopped (Ctrl-Z) for longer.",
)


OOF_OPTION = option(
    "oof",
    "oof",
    is_flag=True,
    help="Also print the records that are deleted, expire, or match no more; {command} and {reason} of -format, and "
    "-output json, tell them from others.",
)
NO_EMPTIES_OPTION = option(
    "noempties", "no_empties", is_flag=True, help="With -delta: no messages in which no field has changed."
)
SELECT_OPTION = option(
    "select",
    type=HEADER_TEXT,
    metavar="±FIELD,…",
    help="Print only some of the fields: -/,+/id only id, -/note all but note.",
)


class ColumnNames(click.ParamType[tuple[str, ...]]):
    """Names with commas between them."""

    name = "names"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        names = tuple(name.strip() for name in value.split(","))
        if not all(names):
            self.fail(f"{value!r} has an empty name", param, ctx)
        return names


def output_options(count_help: str) -> tuple[Decorator, ...]:
    """The options for output, copies and the end, which all commands that receive messages have."""
    return (
        option(
            "output",
            type=click.Choice(OUTPUTS),
            help="raw: bodies; json: a JSON object with header and body per line; pretty: for people; table: a column "
            "per field, as many as fit.  [default: raw]",
        ),
        option(
            "columns",
            type=ColumnNames(),
            metavar="NAME,NAME…",
            help="Columns of the table: fields, /a/b for a field inside another, {topic} for one of the header.",
        ),
        option(
            "format",
            "layout",
            type=Format(),
            help=f"Text with tags: {known_tags()}. Other braces are literal, and so are braces after a "
            "backslash.  [default: {data}]",
        ),
        option(
            "copy",
            metavar="[SCHEME://][USER:PASSWORD@]HOST:PORT",
            help="Publish received messages also to this server, under their own topics; same form as -server.",
        ),
        option("count", type=click.IntRange(1), help=count_help),
    )


@dataclass(frozen=True)
class Reception:
    """The options of one command that receives messages.

    `acknowledges`: messages of queues are acknowledged; with `move`, by transactions that publish them to this topic.
    `is_query`: the command has the result of a query, which must arrive completely unless `count` messages suffice.
    `delta`: messages have only the changed fields of records. `oof`: records that go out of focus are messages, too.
    `select`: the fields that messages have, as a list of directives.
    """

    connection: Connection
    topic: str
    content_filter: str | None = None
    output: str | None = None
    columns: tuple[str, ...] | None = None
    layout: Layout | None = None
    copy: str | None = None
    count: int | None = None
    timeout_s: float | None = None
    heartbeat_s: int = 0
    acknowledges: bool = False
    move: str | None = None
    is_query: bool = False
    delta: bool = False
    oof: bool = False
    select: str | None = None

    def printer(self) -> Printer:
        """The printer for the output options. Raises UsageError."""
        if self.copy is not None and (self.oof or self.select is not None):
            raise click.UsageError("-copy publishes whole records: leave -oof and -select out, or -copy")
        return make_printer(self.output, self.layout, self.columns, self.connection.wire_type, self.topic)


def changes_args(reception: Reception, printer: Printer, no_empties: bool) -> dict[str, Any]:
    """The arguments of a subscription to changes; those without a value are left out. Raises UsageError."""
    if no_empties and not reception.delta:
        raise click.UsageError("-noempties leaves out messages of -delta: add it")
    arguments: dict[str, Any] = {"timestamp": printer.timestamp, "with_bookmarks": printer.bookmark}
    if reception.oof:
        arguments["oof"] = True
    if no_empties:
        arguments["no_empties"] = True
    if reception.select is not None:
        arguments["select"] = [reception.select]
    return arguments


class Interrupts:
    """Ctrl-C, noted instead of raised once `armed`. A second one raises KeyboardInterrupt wherever the command is."""

    def __init__(self) -> None:
        self.armed = False
        self.count = 0

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if not self.armed or self.count > 1:
            raise KeyboardInterrupt

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Handle the signal inside this block. Other threads than the main one cannot handle signals."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        former = signal.signal(signal.SIGINT, self._note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, former)


def receive(
    reception: Reception,
    printer: Printer,
    begin: Callable[[Client], MessageStream],
    hint: str,
    how_to_go_on: Callable[[Message | None], str],
) -> None:
    """Print the messages of the stream that `begin` opens. Ctrl-C ends a subscription as if it were complete.

    `hint` is shown if no message arrives for some time; `how_to_go_on(last message)` if the connection is lost.
    """
    last: Message | None = None
    printed: list[Message] = []
    timeout_s = ANSWER_S if reception.timeout_s is None else min(ANSWER_S, reception.timeout_s)
    copies = Copies(None)
    moves = None if reception.move is None else Moves(reception.move)
    interrupts = Interrupts()
    try:
        with (
            interrupts.noted(),
            reception.connection.client(
                ack_batch_size=ACKNOWLEDGED_AT_ONCE,
                ack_timeout=0,
                timeout=timeout_s,
                heartbeat=reception.heartbeat_s or None,
            ) as client,
            copier(reception) as copies,
            begin(client) as stream,
        ):
            interrupts.armed = True
            try:
                for message in messages(stream, reception, hint, copies, interrupts):
                    write_whole(printer.add(message))
                    last = message
                    copies.publish(message)
                    if reception.acknowledges:
                        printed.append(message)
                    if not stream.depth or len(printed) >= ACKNOWLEDGED_AT_ONCE:
                        write_whole(printer.flush())
                        sys.stdout.buffer.flush()
                        acknowledge(client, printed, copies, moves)
            finally:
                if interrupts.count < 2:  # else the output may be blocked
                    write_whole(printer.flush())
                    sys.stdout.buffer.flush()
            if interrupts.count and copies.waiting:
                click.echo(f"note: waiting up to {COPY_TIMEOUT_S:g} s for the copies; Ctrl-C ends the wait", err=True)
            acknowledge(client, printed, copies, moves)
            copies.settle()
            if moves is not None:
                moves.check()
            if reception.acknowledges:
                client.flush()  # the server has the acknowledgements
        if interrupts.count and reception.is_query:
            raise click.Abort
    except KeyboardInterrupt:
        if copies.waiting:
            raise copies.failure(f"the wait was interrupted; {copies.waiting} are not acknowledged") from None
        if printed:
            raise CommandException(
                f"{len(printed)} printed messages are not acknowledged: the queue will deliver them again"
            ) from None
        if reception.is_query or reception.acknowledges:
            raise click.Abort from None
    except BrokenPipeError:
        # The reader of the output has ended; the interpreter must not flush into the pipe at exit.
        drop_output()
    except DisconnectedException as error:
        raise DisconnectedException(f"{error}; {how_to_go_on(last)}") from error
    except BadFilterException as error:
        raise BadFilterException(f"{error}{marked(reception.content_filter or '', error.position)}") from error


def messages(
    stream: MessageStream, reception: Reception, hint: str, copies: "Copies", interrupts: Interrupts
) -> Iterator[Message]:
    """Yield messages until `count` have arrived, none arrives for `timeout_s`, the stream ends, or Ctrl-C was pressed.

    If the first message does not arrive soon, print the hint on standard error. Raises TimedOutException if the result
    of a query is incomplete, PublishFailed if the second server confirms no copies.
    """
    timeout_s, count = reception.timeout_s, reception.count
    complete = not reception.is_query
    received = 0
    hinted = False
    hint_s = min(SILENT_S, timeout_s or SILENT_S)
    since = look_at = time.monotonic()
    while (count is None or received < count) and not interrupts.count:
        now = time.monotonic()
        if now >= look_at:
            copies.watch()
            look_at = now + LOOK_S
        left_s = LOOK_S if timeout_s is None else since + timeout_s - now
        try:
            message = stream.get(min(LOOK_S, max(0.0, left_s)))
        except EOFError:
            return
        if message is None:
            silent_s = time.monotonic() - since
            if not hinted and silent_s >= hint_s:
                hinted = True
                click.echo(hint, err=True)
            if timeout_s is None or silent_s < timeout_s:
                continue
            if complete:
                return
            raise TimedOutException(
                f"the result of the query is incomplete: nothing arrived for {timeout_s:g} s after {received} messages"
            )
        hinted = True
        if message.command == "group_end":
            complete = True
        elif message.is_content:
            received += 1
            yield message
        since = time.monotonic()


def marked(text: str, position: int | None) -> str:
    """Return the filter on a separate line with a mark below the wrong character; empty if it cannot be shown so."""
    if position is None or len(text) > MARKED_CHARACTERS_MAX or not text.isprintable():
        return ""
    return f"\n  {text}\n  {' ' * position}^"


class Copies:
    """Publishes messages under their own topics to another server; without one, does nothing."""

    def __init__(self, publisher: ReliablePublisher | None, delta: bool = False) -> None:
        self._publisher = publisher
        self._delta = delta

    @property
    def waiting(self) -> int:
        """The number of copies that the second server has not acknowledged."""
        return 0 if self._publisher is None else self._publisher.published - self._publisher.acknowledged

    def failure(self, why: object) -> PublishFailed:
        """Return the error for copies that are not known to be persisted."""
        return PublishFailed(f"a copy is not persisted: {why}")

    def publish(self, message: Message) -> None:
        """Copy a message, not waiting for its acknowledgement. A changed part of a record is copied as such."""
        if self._publisher is not None:
            is_part = self._delta and message.command == "publish"
            try:
                self._publisher.publish(message.topic or "", message.data, delta=is_part)
            except PublishFailed as error:
                raise self.failure(error) from error

    def watch(self) -> None:
        """Connect to a lost server again. Raises PublishFailed if it acknowledges nothing for too long."""
        if self._publisher is not None:
            try:
                self._publisher.watch()
            except PublishFailed as error:
                raise self.failure(error) from error

    def settle(self) -> None:
        """Wait until all copies are persisted. Raises PublishFailed, also if one was refused."""
        if self._publisher is None:
            return
        try:
            self._publisher.finish(COPY_TIMEOUT_S)
        except PublishFailed as error:
            raise self.failure(error) from error
        if self._publisher.failures:
            raise PublishFailed(f"a copy was refused: {self._publisher.first_failure}")


def acknowledge(client: Client, printed: list[Message], copies: Copies, moves: "Moves | None") -> None:
    """Acknowledge messages of queues, or move them; other messages are ignored."""
    if printed:
        copies.settle()
    if moves is not None:
        moves.settle(client, printed)
        return
    for message in printed:
        client.ack(message)
    client.flush_acks()
    printed.clear()


Key = tuple[str | None, str | None]
"""Topic and bookmark: they are the same each time that a queue delivers a message."""


class Moves:
    """Publishes messages of queues to a topic and acknowledges them: each of them both or neither, and once.

    A message may be printed more than once, because its lease has ended while the output was blocked and the queue has
    delivered it again. Its last copy is the one that may be leased.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._moved: OrderedDict[Key, None] = OrderedDict()
        self._lost: OrderedDict[Key, str] = OrderedDict()

    def settle(self, client: Client, printed: list[Message]) -> None:
        """Move printed messages, and forget them. Raises CommandException; the messages left are not moved then."""
        latest = {_key(message): message for message in printed}
        waiting = [message for key, message in latest.items() if key not in self._moved]
        while waiting:
            size_bytes, count = 0, 0
            for message in waiting:
                size_bytes += len(message.data)
                if count and (size_bytes > MOVED_AT_ONCE_BYTES or message.topic != waiting[0].topic):
                    break
                count += 1
            self._move(client, waiting[:count])
            del waiting[:count]
            left = {_key(message) for message in waiting}
            printed[:] = [message for message in printed if _key(message) in left]
        printed.clear()

    def _move(self, client: Client, batch: list[Message]) -> None:
        try:
            with client.transaction(*batch) as transaction:
                for message in batch:
                    transaction.publish(self._topic, message.data, correlation_id=message.correlation_id)
        except ValueError as error:
            raise CommandException(f"{batch[0].topic!r} cannot be moved: {error}") from error
        except TransactionRefusedException as error:
            if len(batch) == 1:
                self._lost[_key(batch[0])] = str(error)  # the exception itself would keep the message
                if len(self._lost) > MOVED_REMEMBERED:
                    self._lost.popitem(last=False)
                return
            for message in batch:
                self._move(client, [message])  # perhaps only one of them is not leased any more
        else:
            for key in map(_key, batch):
                self._lost.pop(key, None)
                self._moved[key] = None
                if len(self._moved) > MOVED_REMEMBERED:
                    self._moved.popitem(last=False)

    def check(self) -> None:
        """Raise CommandException if a printed message was not leased any more, and has not come again."""
        if self._lost:
            why = next(iter(self._lost.values()))
            raise CommandException(
                f"{len(self._lost)} printed messages are not moved: {why}; a queue with at-least-once semantics "
                "delivers them again"
            )


def _key(message: Message) -> Key:
    return message.topic, message.bookmark


@contextmanager
def copier(reception: Reception) -> Iterator[Copies]:
    """Yield the publisher to the second server."""
    if reception.copy is None:
        yield Copies(None)
        return
    target = reception.connection.second(reception.copy)
    publisher = ReliablePublisher(
        # Without heartbeats: COPY_TIMEOUT_S limits the silence of this server, and no further attempt follows then.
        lambda store: target.client(publish_store=store, logon_options=COPY_LOGON_OPTIONS),
        reconnect_s=COPY_TIMEOUT_S,
    )
    publisher.open()
    try:
        yield Copies(publisher, reception.delta)
    finally:
        publisher.close()
