"""`amps_queues_ack_dump`: the start of each queue in the log, from `queues.ack`."""

from collections.abc import Iterator
from pathlib import Path

import click

from amps.cli.failures import describe, tell
from amps.cli.utilities.common import SETTINGS, UtilityCommand, version_option, writer
from amps.journal.layout import SEPARATOR, block, iso8601
from amps.journal.queues_ack import VERSION, QueuesAckDamaged, QueueStart, read_queues_ack

HEADER_LABELS = ("File Name", "File Size", "Version", "Log Position", "Journal", "Queues")
LABELS = ("queue", "message type", "recovery point", "log position", "deferred acks")


def recovery_point(start: QueueStart) -> str:
    """Return the recovery point in the form of the configuration."""
    kind, *values = start.recovery_point
    if kind == "bookmark":
        return ",".join(f"{publisher}|{sequence}|" for publisher, sequence in values[0])
    return iso8601(values[0]) if kind == "time" else str(kind)


def queues(starts: list[QueueStart]) -> Iterator[tuple[object, ...]]:
    """Yield the values of each queue, in the order of the labels."""
    for start in starts:
        name = start.name.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        yield f"[{name}]", start.message_type, recovery_point(start), start.position, len(start.deferred)


@click.command(
    cls=UtilityCommand, context_settings=SETTINGS, example="amps_queues_ack_dump ./journal/AMPS.queues.ack"
)
@click.argument("filenames", metavar="FILENAME...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-n", "--limit", type=click.IntRange(0), metavar="LIMIT", help="Maximum of queues shown per file."
)
@version_option
@click.pass_context
def main(context: click.Context, filenames: tuple[Path, ...], limit: int | None) -> None:
    """Show the log position from which on each queue needs the log: all messages before it have left the queue.

    Exit status 1 if a file cannot be used.
    """
    write = writer()
    failed = False
    for path in filenames:
        try:
            mark, starts = read_queues_ack(path)
            found = list(queues(starts))
        except OSError as error:
            tell(describe(error))
            failed = True
            continue
        except (QueuesAckDamaged, ValueError, TypeError) as damage:
            click.echo(f"error: {damage}", err=True)
            failed = True
            continue
        version = f"amps-server::queues.ack/v{VERSION}"
        header = (path, path.stat().st_size, version, mark.position, mark.journal_number, len(starts))
        write(block(HEADER_LABELS, header))
        for values in found[:limit]:
            write(SEPARATOR + block(LABELS, values))
    if failed:
        context.exit(1)


if __name__ == "__main__":
    main()
