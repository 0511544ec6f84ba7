"""Options of `spark.readStream.format("amps")`, checked. Every error is a ValueError of one sentence.

A stream follows a live server (option `uri`) or a journal directory (option `path`). Both take:

| option | | meaning |
| --- | --- | --- |
| `topic` | of a server: required | only this topic; an expression if it has regex characters, as in a subscription |
| `start` | `epoch` | where a new query begins: `epoch` (the first message there is), `now`, a bookmark, or a time |
| `max_messages_per_batch` | no limit | at most so many rows in a micro-batch |
| `partitions` | see below | into how many tasks a micro-batch is cut at most |
| `schema` | | fields of the payloads as a column `data`: a DDL text |

`start` counts for a new query only: one that has a checkpoint goes on where it was. After a bookmark, or a time
(`YYYYmmddTHHMMSS`, UTC, with a fraction or without; not in the future), is what is later than it
(transaction_log.md §5.2). The default is the epoch, so that a stream begins with what a batch read would give.

Of a server:

| option | | meaning |
| --- | --- | --- |
| `uri` | required | connection string, `tcp://user:password@host:port/amps/json`; `tcps` for TLS |
| `message_type` | | where the URI names none |
| `filter` | | the server sends only messages for which this expression holds |
| `client_name` | `spark` | first part of the names under which the query connects |
| `timeout_s` | 60 | seconds without any progress (of connecting, of reading) after which a read fails |
| `partitions` | 1 | |

The server tells of a message its bookmark (with it the sequence), time, topic and payload; the message type is that
of the connection and the kind always `publish`. The columns `position`, `publisher` and `expiration` are null.

Of a journal directory the options `archive`, `instance`, `kind`, `on_damage`, `split_bytes` and `report` are those of
a batch read (`amps.spark.options`), all columns have the same values, and there is one option more:

| option | | meaning |
| --- | --- | --- |
| `max_bytes_per_batch` | no limit | at most about so many bytes of the log, from the first row on, in a micro-batch |

Without `partitions` a task reads about `split_bytes`, 128 MiB if that is not given.

What it costs. Of a server: a micro-batch of one partition without a limit takes the driver two short requests. A
limit, or more than one partition, makes the driver read the messages of a micro-batch once itself, to count them; it
keeps none of them, but they cross the network twice. Of a directory, a limit of messages makes the driver read the
log once itself, in compiled code; a limit of bytes, or none, takes a look at the first row and the last ones. While
nothing matches, what has been looked through is not looked through again, and once a minute an empty micro-batch
moves the query past it. A query that has caught up looks once a second at least. An executor reads a server's messages
one by one in Python; a directory is read as fast as by a batch read, and beside the server is the better way for much.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from amps.client.uri import parse_uri
from amps.journal.bookmark_text import format_bookmark, read_message_bookmark, read_moment_us
from amps.spark.options import (
    OF_JOURNAL_STREAMS,
    OF_SERVER_STREAMS,
    ONLY_OF_STREAMS,
    ReadOptions,
    check_known,
    check_topic,
    read_options,
)
from amps.spark.writing_options import DEFAULT_CLIENT_NAME, complete_uri, name_part, positive_seconds

_BOTH = frozenset(("topic", "start", "max_messages_per_batch", "partitions", "schema"))
_OF_BATCHES = frozenset(("from", "to", "pushdown"))

EPOCH = "0"
NOW = "0|1|"
PARTITIONS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Start:
    """Where a new query begins. `text`: as in a bookmark subscription: EPOCH, NOW, a bookmark or a time."""

    text: str
    message: tuple[int, int] | None = None
    """(publisher id, sequence), of a bookmark."""
    time_us: int | None = None
    """UNIX microseconds, of a time."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Of a stream from a live server."""

    uri: str
    """With a message type, if one was given."""
    topic: str
    filter: str | None
    start: Start
    messages_max: int | None
    partitions: int
    client_name: str
    timeout_s: float
    schema: str | None

    @property
    def message_type(self) -> str | None:
        """Of all messages; None: whatever the transport has."""
        return parse_uri(self.uri).message_type

    def with_schema(self, schema: str | None) -> "ServerOptions":
        """With these fields of the column `data`."""
        return replace(self, schema=schema)

    @property
    def address(self) -> str:
        """The connection string without its password."""
        return parse_uri(self.uri).safe_text


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """Of a stream from a journal directory."""

    read: ReadOptions
    start: Start
    messages_max: int | None
    bytes_max: int | None
    partitions: int | None

    @property
    def schema(self) -> str | None:
        """Of the column `data`."""
        return self.read.schema

    def with_schema(self, schema: str | None) -> "JournalOptions":
        """With these fields of the column `data`."""
        return replace(self, read=replace(self.read, schema=schema))


def stream_options(given: Mapping[str, str]) -> ServerOptions | JournalOptions:
    """Check the options of a stream. Raises ValueError."""
    options = {name.lower(): value for name, value in given.items()}
    for name in sorted(options.keys() & _OF_BATCHES):
        told = "'start'" if name == "from" else "a batch read"
        raise ValueError(f"the option {name!r} is not for streams: use {told}")
    if ("uri" in options) == bool(options.get("path")):
        raise ValueError("give either the option 'uri', of a live server, or 'path', the journal directory")
    return _server_options(options) if "uri" in options else _journal_options(options)


def _server_options(options: Mapping[str, str]) -> ServerOptions:
    check_known(options.keys() - {"path"}, {"a stream from a server": _BOTH | OF_SERVER_STREAMS})
    if not options.get("topic"):
        raise ValueError(
            "the option 'topic' is missing: a topic, or an expression ('.*' for all recorded topics)"
        )
    check_topic(options["topic"])
    return ServerOptions(
        uri=complete_uri(options, None),
        topic=options["topic"],
        filter=options.get("filter") or None,
        start=_start(options.get("start", "epoch")),
        messages_max=_count(options, "max_messages_per_batch"),
        partitions=_count(options, "partitions", PARTITIONS_MAX) or 1,
        client_name=name_part("client_name", options.get("client_name", DEFAULT_CLIENT_NAME)),
        timeout_s=positive_seconds(options.get("timeout_s")),
        schema=options.get("schema") or None,
    )


def _journal_options(options: Mapping[str, str]) -> JournalOptions:
    of_server = sorted(options.keys() & OF_SERVER_STREAMS)
    if of_server:
        raise ValueError(
            f"the option {of_server[0]!r} belongs to a live server: give 'uri' instead of 'path'"
        )
    check_known(options, {"a stream from a journal directory": OF_JOURNAL_STREAMS})
    return JournalOptions(
        read=replace(
            read_options({name: value for name, value in options.items() if name not in ONLY_OF_STREAMS}),
            pushdown=False,
        ),
        start=_start(options.get("start", "epoch")),
        messages_max=_count(options, "max_messages_per_batch"),
        bytes_max=_count(options, "max_bytes_per_batch"),
        partitions=_count(options, "partitions", PARTITIONS_MAX),
    )


def _count(options: Mapping[str, str], name: str, most: int = 2**62) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= most:
        raise ValueError(f"the option {name!r} is {text!r}: it must be a whole number from 1 to {most}")
    return int(text)


def _start(text: str) -> Start:
    point = text.strip()
    match point.lower():
        case "epoch" | "0":
            return Start(EPOCH)
        case "now" | "0|1" | "0|1|":
            return Start(NOW)
    message = read_message_bookmark(point)
    if message is not None and message[0]:
        return Start(format_bookmark(*message), message=message)
    try:
        time_us = read_moment_us(point)
    except ValueError:
        raise ValueError(
            f"the option 'start' is {point[:100]!r}: it must be 'epoch', 'now', the bookmark of a message, or a time of"
            " the form YYYYmmddTHHMMSS"
        ) from None
    if time_us > datetime.now(UTC).timestamp() * 1_000_000:
        raise ValueError(f"the option 'start' is {point!r}, which lies in the future: use 'now'")
    return Start(point, time_us=time_us)
