"""`amps_journal_search`: find the entries of a journal by bookmark, transaction id or text."""

import re
from pathlib import Path

import click

from amps._core.journal.search import TOPIC_WANTED, RecordSearch
from amps.cli.options import option
from amps.cli.utilities.common import SETTINGS, UtilityCommand, reading_progress, version_option, writer
from amps.journal.entries import JournalFile
from amps.journal.layout import SEPARATOR, entry_text

_BOOKMARK = re.compile(r"(\d{1,20})\|(\d{1,20})(?:\|.*)?")
_LARGEST = 0xFFFFFFFFFFFFFFFF


def bookmark_of(text: str) -> tuple[int, int] | None:
    """Return (publisher id, sequence) if a text is a message's bookmark, else None."""
    match = _BOOKMARK.fullmatch(text)
    if match is None or max(int(match[1]), int(match[2])) > _LARGEST:
        return None
    return int(match[1]), int(match[2])


@click.command(
    cls=UtilityCommand,
    context_settings=SETTINGS,
    example="amps_journal_search ./AMPS.0000000000.journal '12880945377014236607|42|'",
)
@click.argument("filename", type=click.Path(path_type=Path))
@click.argument("pattern", metavar="[BOOKMARK|TXID]", required=False)
@click.option(
    "-d",
    "-data",
    "--data",
    metavar="TEXT",
    help="The payload contains TEXT; if TEXT is a bookmark, the entry with it matches, too.",
)
@option("topic", None, metavar="NAME", help="The entry has this topic.")
@option(
    "client",
    "clients",
    multiple=True,
    type=click.IntRange(1, _LARGEST),
    metavar="HASH",
    help="The entry is from the client with this hash; if repeated, from one of these clients.",
)
@click.option("--no-data", is_flag=True, help="Leave the payloads out.")
@version_option
@click.pass_context
def main(
    context: click.Context,
    filename: Path,
    pattern: str | None,
    data: str | None,
    topic: str | None,
    clients: tuple[int, ...],
    no_data: bool,
) -> None:
    """Show the entries of a journal, compressed or not, that match all given conditions.

    Exit status 0 if there is a match, 1 if there is none or the journal is damaged. To search for several texts, in
    several journals or by a client's name use amps-grep.
    """
    bookmark, txid = None, None
    if pattern is not None:
        bookmark = bookmark_of(pattern)
        if bookmark is None:
            if not (pattern.isascii() and pattern.isdigit() and int(pattern) <= _LARGEST):
                raise click.UsageError(
                    f"{pattern!r} is neither a bookmark (HASH|SEQUENCE|) nor a transaction id; use -d for payloads"
                )
            txid = int(pattern)
    elif data is None and topic is None and not clients:
        raise click.UsageError("give a condition: a bookmark, a transaction id, -d, -topic or --client")
    wanted_topic = topic.encode("utf-8", "surrogateescape") if topic is not None else None
    search = RecordSearch(
        publishers=clients,
        bookmark=bookmark,
        txid=txid,
        texts=() if data is None else (data.encode("utf-8", "surrogateescape"),),
        text_bookmark=None if data is None else bookmark_of(data),
        topic_flags=lambda name, _: TOPIC_WANTED if wanted_topic in (None, name) else 0,
        include_noops=True,
    )
    write = writer()
    found = 0
    with reading_progress(filename) as progress, JournalFile(filename, progress=progress) as file:
        for entry in file.entries(search, with_payload=not no_data):
            write(SEPARATOR + entry_text(entry, with_data=not no_data))
            found += 1
    if not found:
        click.echo(f"{filename}: no entry matches", err=True)
        context.exit(1)


if __name__ == "__main__":
    main()
