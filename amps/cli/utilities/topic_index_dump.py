"""`amps_tx_topic_index_dump`: the offsets of a topic's entries in a journal, from its topic index."""

from pathlib import Path

import click

from amps._core.journal.writer import IndexDamaged
from amps.cli.options import option
from amps.cli.utilities.common import SETTINGS, UtilityCommand, fail, version_option, writer
from amps.journal.layout import SEPARATOR, block
from amps.journal.topic_index import open_topic_index


@click.command(
    cls=UtilityCommand,
    context_settings=SETTINGS,
    example="amps_tx_topic_index_dump --topic orders --message-type json ./AMPS.0000000000.topic.index",
)
@click.argument("filename", type=click.Path(path_type=Path))
@option(
    "topic", None, metavar="NAME", help="Topics of this name; with --message-type only the one of that type."
)
@option(
    "topic-hash", None, type=click.IntRange(0, 2**64 - 1), metavar="HASH", help="The topic with this hash."
)
@option("message-type", None, metavar="TYPE", help="Topics of this message type.")
@version_option
@click.pass_context
def main(
    context: click.Context,
    filename: Path,
    topic: str | None,
    topic_hash: int | None,
    message_type: str | None,
) -> None:
    """Show the file offsets of a topic's entries in the journal of the topic index FILENAME.

    At least one of --topic, --topic-hash and --message-type is needed. Exit status 1 if there is no such topic or the
    file cannot be used.
    """
    if topic is None and topic_hash is None and message_type is None:
        raise click.UsageError("give the topic: --topic, --topic-hash or --message-type")
    try:
        reader = open_topic_index(filename)
    except IndexDamaged as damage:
        fail(context, f"{filename}: {damage}")
    write = writer()
    found = 0
    for topic_id, (name, kind, hash_) in enumerate(reader.topics()):
        if topic_hash is not None and hash_ != topic_hash:
            continue
        if topic is not None and name != topic.encode("utf-8", "surrogateescape"):
            continue
        if message_type is not None and kind != message_type.encode("utf-8", "surrogateescape"):
            continue
        offsets = reader.offsets(topic_id)
        head = ("topic", "message type", "topic hash", "entries")
        shown = [text.decode("utf-8", "surrogateescape") for text in (name, kind)]
        write(SEPARATOR + block(head, (f"[{shown[0]}]", shown[1], hash_, len(offsets))))
        for offset in offsets.tolist():
            write(b"%d\n" % offset)
        found += 1
    if not found:
        fail(context, f"{filename}: there is no such topic")


if __name__ == "__main__":
    main()
