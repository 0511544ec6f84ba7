"""The options of `spark.readStream.format("amps")`, and their checks. Every error is a ValueError of one sentence.

A stream follows a live server (option `uri`) or a journal directory (option `path`). Both take:

| option | | meaning |
| --- | --- | --- |
| `topic` | required for a server | only this topic; an expression if it has regex characters, as in a subscription |
| `start` | `epoch` | the start of a new query: `epoch` (the first message in the log), `now`, a bookmark, or a time |
| `max_messages_per_batch` | no limit | maximum number of rows in a micro-batch |
| `partitions` | see below | maximum number of tasks of a micro-batch |
| `schema` | | fields of the payloads as a column `data`: a DDL text |

`start` applies to a new query only: a query with a checkpoint continues where it was. With a bookmark, or a time
(`YYYYmmddTHHMMSS`, UTC, with or without a fraction; not in the future), the query begins with the messages after it
(transaction_log.md §5.2). The default is the epoch, so that a stream begins with the rows of a batch read.

Options of a stream from a server:

| option | | meaning |
| --- | --- | --- |
| `uri` | required | connection string, `tcp://user:password@host:port/amps/json`; `tcps` for TLS |
| `message_type` | | if the URI has none |
| `filter` | | the server sends only messages for which this expression holds |
| `client_name` | `spark` | first part of the names under which the query connects |
| `timeout_s` | 60 | seconds without any progress (of connecting, of reading) after which a read fails |
| `partitions` | 1 | |

The server sends with a message its bookmark (which contains the sequence), time, topic and payload. The message type is
the one of the connection and the kind always `publish`. The columns `position`, `publisher` and `expiration` are null.

For a journal directory the options `archive`, `instance`, `kind`, `on_damage`, `split_bytes` and `report` are those of
a batch read (`amps.spark.options`). All columns have the same values, and there is one more option:

| option | | meaning |
| --- | --- | --- |
| `max_bytes_per_batch` | no limit | approximate maximum of bytes of the log in a micro-batch, from its first row on |

Without `partitions` a task reads about `split_bytes`, by default 128 MiB.

Costs, server: a micro-batch of one partition without a limit needs two short requests of the driver. With a limit, or
more than one partition, the driver itself reads the messages of a micro-batch once to count them. It
keeps none of them, but they cross the network twice. An executor reads the messages one by one in Python.

Costs, directory: with a limit of messages the driver itself reads the log once, in compiled code. With a limit of
bytes, or none, it reads the first row and the last ones. Executors read as fast as in a batch read. For large amounts
of data, reading the directory beside the server is faster.

In both cases, a range without matching messages is read only once: once a minute an empty micro-batch moves the query
past it. A query that has caught up checks for new messages at least once a second.
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
    """The start of a new query. `text`, as in a bookmark subscription: EPOCH, NOW, a bookmark or a time."""

    text: str
    message: tuple[int, int] | None = None
    """(publisher id, sequence) if the start is a bookmark."""
    time_us: int | None = None
    """UNIX microseconds if the start is a time."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options of a stream from a live server."""

    uri: str
    """The connection string, with the message type if one was given."""
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
        """The message type of all messages; None: the one of the transport."""
        return parse_uri(self.uri).message_type

    def with_schema(self, schema: str | None) -> "ServerOptions":
        """Return the options with these fields of the column `data`."""
        return replace(self, schema=schema)

    @property
    def address(self) -> str:
        """The connection string without its password."""
        return parse_uri(self.uri).safe_text


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """The options of a stream from a journal directory."""

    read: ReadOptions
    start: Start
    messages_max: int | None
    bytes_max: int | None
    partitions: int | None

    @property
    def schema(self) -> str | None:
        """The schema of the column `data`."""
        return self.read.schema

    def with_schema(self, schema: str | None) -> "JournalOptions":
        """Return the options with these fields of the column `data`."""
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
