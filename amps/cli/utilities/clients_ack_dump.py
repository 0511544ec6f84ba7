"""`amps_clients_ack_dump`: the last message of each publisher, from `clients.ack`."""

from collections.abc import Iterator
from pathlib import Path

import click

from amps._core.values.value import publisher_id
from amps.cli.failures import describe, tell
from amps.cli.utilities.common import SETTINGS, UtilityCommand, version_option, writer
from amps.journal.clients_ack import VERSION, ClientsAck, ClientsAckDamaged, read_clients_ack
from amps.journal.layout import SEPARATOR, block, iso8601, raw_timestamp

HEADER_LABELS = ("File Name", "File Size", "Version", "Log Position", "Journal", "Publishers")
LABELS = ("client name", "client name hash", "last client seq", "last txid", "iso8601 timestamp", "timestamp")
UNKNOWN = "unknown"


def publishers(ack: ClientsAck) -> Iterator[tuple[object, ...]]:
    """Yield the values of each publisher, in the order of the labels.

    The file has sequences. A message that the server numbered has its transaction id as sequence; the file does not
    have the transaction ids of other messages.
    """
    for row in ack.rows:
        id_, sequence, timestamp_ns = (
            int(row["publisher_id"]),
            int(row["last_sequence"]),
            int(row["last_timestamp_ns"]),
        )
        name = ack.names.get(id_)
        numbered_by_server = name is not None and id_ != publisher_id(name)
        yield (
            UNKNOWN
            if name is None
            else f"[{name.encode('utf-8', 'surrogatepass').decode('utf-8', 'replace')}]",
            id_,
            sequence,
            sequence if numbered_by_server else UNKNOWN,
            iso8601(timestamp_ns),
            raw_timestamp(timestamp_ns),
        )


@click.command(
    cls=UtilityCommand, context_settings=SETTINGS, example="amps_clients_ack_dump ./journal/AMPS.clients.ack"
)
@click.argument("filenames", metavar="FILENAME...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-n", "--limit", type=click.IntRange(0), metavar="LIMIT", help="Maximum of publishers shown per file."
)
@version_option
@click.pass_context
def main(context: click.Context, filenames: tuple[Path, ...], limit: int | None) -> None:
    """Show the last message of each publisher, up to the log position that the file covers.

    Exit status 1 if a file cannot be used.
    """
    write = writer()
    failed = False
    for path in filenames:
        try:
            ack = read_clients_ack(path)
        except OSError as error:
            tell(describe(error))
            failed = True
            continue
        except ClientsAckDamaged as damage:
            click.echo(f"error: {damage}", err=True)
            failed = True
            continue
        version = f"amps-server::clients.ack/v{VERSION}"
        header = (path, path.stat().st_size, version, ack.position, ack.journal_number, len(ack.rows))
        write(block(HEADER_LABELS, header))
        for number, values in enumerate(publishers(ack)):
            if limit is not None and number >= limit:
                break
            write(SEPARATOR + block(LABELS, values))
    if failed:
        context.exit(1)


if __name__ == "__main__":
    main()
