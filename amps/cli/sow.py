"""`amps sow`, `amps sow_and_subscribe` and `amps sow_delete`: the current records of a topic, or of a queue."""

import sys
from pathlib import Path
from typing import Any

import click

from amps.cli.connection import FILE, HEADER_TEXT, Connection, connection_options, with_options
from amps.cli.options import POSITIVE_NUMBER, Decorator, HelpfulCommand, option
from amps.cli.receiving import (
    FILTER_OPTION,
    HEARTBEAT_OPTION,
    NO_EMPTIES_OPTION,
    OOF_OPTION,
    SELECT_OPTION,
    TOPIC_OPTION,
    Reception,
    changes_args,
    marked,
    output_options,
    receive,
)
from amps.cli.records import RecordError, RecordSource
from amps.client import BadFilterException, CommandException, Message

BATCH_SIZE_MAX = 10_000
NEWLINE = 10


def query_options(what: str) -> tuple[Decorator, ...]:
    """The options of a query. `what`: the command's end, for the help of -count."""
    return (
        TOPIC_OPTION,
        FILTER_OPTION,
        option("orderby", "order_by", type=HEADER_TEXT, metavar="FIELD [DESC],…", help="Order of the records."),
        option("topn", "top_n", type=click.IntRange(1), help="Return only the first records, this many."),
        option("skipn", "skip_n", type=click.IntRange(0), help="With -topn: leave out this many records before."),
        option("keys", "sow_keys", type=HEADER_TEXT, metavar="KEY,KEY…", help="Return only records with these keys."),
        SELECT_OPTION,
        option(
            "batchsize",
            "batch_size",
            type=click.IntRange(1, BATCH_SIZE_MAX),
            help="Number of records that the server sends at once.  [default: 10]",
        ),
        *output_options(f"End after this many {what}."),
    )


def query_args(
    order_by: str | None,
    top_n: int | None,
    skip_n: int | None,
    batch_size: int | None,
    sow_keys: str | None,
    bookmark: str | None,
) -> dict[str, Any]:
    """The arguments of a query; those without a value are left out. Raises UsageError."""
    if skip_n is not None and top_n is None:
        raise click.UsageError("-skipn is the beginning of a page: add its size, -topn")
    arguments: dict[str, Any] = {"control": True}
    if order_by is not None:
        arguments["order_by"] = order_by
    if top_n is not None:
        arguments["top_n"] = top_n
    if skip_n is not None:
        arguments["skip_n"] = skip_n
    if batch_size is not None:
        arguments["batch_size"] = batch_size
    if sow_keys is not None:
        arguments["sow_keys"] = sow_keys
    if bookmark is not None:
        arguments["bookmark"] = bookmark
    return arguments


def _hint(topic: str) -> str:
    return f"note: no record of {topic!r} has come yet; the server still searches or sorts, or there is none"


def _after_loss(last: Message | None) -> str:
    return "the result is incomplete: run the command again"


def _sow(
    connection: Connection,
    topic: str,
    content_filter: str | None,
    order_by: str | None,
    top_n: int | None,
    skip_n: int | None,
    batch_size: int | None,
    sow_keys: str | None,
    bookmark: str | None,
    **options: Any,
) -> None:
    """Print the current records of a topic, or the waiting messages of a queue, one per line.

    A query of a queue takes no message from it. The exit status is 1 if the result is incomplete.
    """
    reception = Reception(connection, topic, content_filter, is_query=True, **options)
    printer = reception.printer()
    arguments = query_args(order_by, top_n, skip_n, batch_size, sow_keys, bookmark)
    arguments["timestamp"] = printer.timestamp
    if reception.select is not None:
        arguments["select"] = [reception.select]
    receive(
        reception, printer, lambda client: client.sow(topic, content_filter, **arguments), _hint(topic), _after_loss
    )  # fmt: skip


sow = click.command(
    "sow",
    cls=HelpfulCommand,
    example="amps sow -server localhost:9007 -topic orders -filter \"/price > 10\" -orderby \"/price DESC\" -topn 5",
)(
    connection_options(
        with_options(
            _sow,
            (
                *query_options("records"),
                option(
                    "bookmark",
                    type=HEADER_TEXT,
                    help="The records as they were then: a time (2026-11-24T09:30, UTC unless it has a zone), -5m for "
                    "five minutes ago, or a bookmark.",
                ),
                option(
                    "timeout",
                    "timeout_s",
                    type=POSITIVE_NUMBER,
                    default=60.0,
                    show_default=True,
                    help="Seconds to wait for the next record, or for the end.",
                ),
            ),
        )
    )
)


def _sow_and_subscribe(
    connection: Connection,
    topic: str,
    content_filter: str | None,
    order_by: str | None,
    top_n: int | None,
    skip_n: int | None,
    batch_size: int | None,
    sow_keys: str | None,
    bookmark: str | None,
    delta: bool,
    no_empties: bool,
    **options: Any,
) -> None:
    """Print the current records of a topic, and then each change, without a gap, until Ctrl-C.

    Does not reconnect: when the connection is lost, it ends with exit status 1. A topic without a state of the world
    has no records; its new messages are printed.
    """
    if bookmark is not None and delta:
        raise click.UsageError("-delta subscriptions begin now: leave -bookmark or -delta out")
    reception = Reception(connection, topic, content_filter, is_query=True, delta=delta, **options)
    printer = reception.printer()
    changes = changes_args(reception, printer, no_empties)
    arguments = {**changes, **query_args(order_by, top_n, skip_n, batch_size, sow_keys, bookmark)}
    receive(
        reception,
        printer,
        lambda client: (client.sow_and_delta_subscribe if delta else client.sow_and_subscribe)(
            topic, content_filter, **arguments
        ),
        _hint(topic),
        lambda last: "run the command again: it prints the records that there are then, and continues",
    )


sow_and_subscribe = click.command(
    "sow_and_subscribe",
    cls=HelpfulCommand,
    example="amps sow_and_subscribe -server localhost:9007 -topic orders -output table -columns id,price",
)(
    connection_options(
        with_options(
            _sow_and_subscribe,
            (
                *query_options("records and messages"),
                option(
                    "bookmark",
                    type=HEADER_TEXT,
                    help="Begin with the records as they were then, and continue with every change since: a time, -5m "
                    "for five minutes ago, or a bookmark. For topics with a history.",
                ),
                option("delta", is_flag=True, help="After the records, only the changed fields of records."),
                NO_EMPTIES_OPTION,
                OOF_OPTION,
                HEARTBEAT_OPTION,
                option(
                    "timeout",
                    "timeout_s",
                    type=POSITIVE_NUMBER,
                    help="End after this many seconds without a message; with exit status 1 if the records have not "
                    "all arrived.",
                ),
            ),
        )
    )
)


def _sow_delete(
    connection: Connection,
    topic: str,
    content_filter: str | None,
    sow_keys: str | None,
    files: tuple[Path, ...],
    timeout_s: float,
) -> None:
    """Delete records of a topic, or acknowledge messages of a queue.

    With -filter, all that match, and with -keys those with these keys. Otherwise each line of the files or of standard
    input is a record with the key fields of the record to delete.
    """
    if sum(given is not None and given != () for given in (content_filter, sow_keys, files)) > 1:
        raise click.UsageError("-filter, -keys and -file exclude each other: give one of them")
    deleted = 0
    complete = False
    try:
        with connection.client(timeout=timeout_s) as client:
            if content_filter is not None:
                deleted = client.sow_delete(topic, filter=content_filter).records_deleted or 0
            elif sow_keys is not None:
                deleted = client.sow_delete(topic, keys=sow_keys.split(",")).records_deleted or 0
            else:
                for source in [RecordSource(path, NEWLINE) for path in files] or [
                    RecordSource(None, NEWLINE, sys.stdin.buffer)
                ]:
                    for record in source:
                        deleted += client.sow_delete(topic, data=record).records_deleted or 0
        complete = True
    except BadFilterException as error:
        raise BadFilterException(f"{error}{marked(content_filter or '', error.position)}") from error
    except RecordError as error:
        raise CommandException(str(error)) from error
    finally:
        if complete or deleted:
            click.echo(f"total records deleted: {deleted}")


sow_delete = click.command(
    "sow_delete",
    cls=HelpfulCommand,
    example="amps sow_delete -server localhost:9007 -topic orders -filter \"/state = 'done'\"",
)(
    connection_options(
        with_options(
            _sow_delete,
            (
                option("topic", type=HEADER_TEXT, required=True, help="Topic or queue."),
                FILTER_OPTION,
                option("keys", "sow_keys", type=HEADER_TEXT, metavar="KEY,KEY…", help="Delete these records."),
                option(
                    "file",
                    "files",
                    type=FILE,
                    multiple=True,
                    help="File of records, one per line, also .gz or .zip. May be given several times; default: "
                    "standard input.",
                ),
                option(
                    "timeout",
                    "timeout_s",
                    type=POSITIVE_NUMBER,
                    default=30.0,
                    show_default=True,
                    help="Seconds to wait for the server, for each deletion.",
                ),
            ),
        )
    )
)
